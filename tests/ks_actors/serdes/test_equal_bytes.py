"""Typed serdes write equal objects as equal bytes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_WRITE_SETS = """
import msgspec
from ks_actors import serdes

class Row(msgspec.Struct):
    tags: set[str]
    more: dict[str, frozenset[str]]

tags = {f"tag {index}" for index in range(20)}
row = Row(tags, {"all": frozenset(tags)})
for make in (serdes.json, serdes.msgpack):
    print(make(Row).serializer("t")(row).hex(), make(set[str]).serializer("t")(tags).hex())
"""


@pytest.mark.unmeasured
def test_sets_have_the_same_bytes_in_each_process() -> None:
    """The order of a set of texts depends on the seed of the process, that of its bytes does not."""
    outputs = {
        subprocess.run(  # noqa: S603 - this interpreter
            [sys.executable, "-c", _WRITE_SETS], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert outputs.pop().count(b"\n") == 2
