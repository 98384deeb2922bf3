"""A backfill gives what a stream gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.differential.cases import SEED_1, Case, config_of, read_cases
from tests.differential.generate import SPECS
from tests.differential.topologies import REBUILT, reason_out_of_reach

from .histories import Input, filled_back, streamed, topics_of

if TYPE_CHECKING:
    from pathlib import Path

    from ks_actors.topology import Topology

WITH_CLOCK = {name for name, spec in SPECS.items() if spec.wall}
SOME = slice(None, None, 5)
PART = {name: slice(number % 5, None, 5) for number, name in enumerate(REBUILT)}


def cases(name: str) -> list[Case]:
    return [case for case in read_cases(SEED_1, name)[PART[name]] if reason_out_of_reach(name, case["params"]) is None]


def records_of(case: Case) -> list[Input]:
    def encoded(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    return [(step["topic"], encoded(step["key"]), encoded(step["value"]), step["timestamp"]) for step in case["steps"] if "topic" in step]


def settings_of(case: Case) -> dict[str, Any]:
    return {**config_of(case), "commit_interval_ms": 1_000_000}


@pytest.mark.parametrize("name", [name for name in REBUILT if name not in WITH_CLOCK])
def test_one_partition_is_as_in_a_stream_record_for_record_and_key_for_key(name: str, tmp_path: Path) -> None:
    """Of topics with one partition: what is written is the same, in the same order, and so is what stores hold."""
    for number, case in enumerate(cases(name)):
        topology: Topology = REBUILT[name].build(case["params"])
        records = records_of(case)
        topics = topics_of(topology, REBUILT[name].outputs, 1, records)
        written, stores = streamed(topology, settings_of(case), topics, records)
        got, snapshot = filled_back(topology, settings_of(case), topics, records, tmp_path / str(number))
        assert got == written, case["id"]
        assert without_expired(snapshot, stores) == stores, case["id"]


def without_expired(snapshot, stores):
    return snapshot
