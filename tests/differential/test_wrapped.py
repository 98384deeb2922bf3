"""The same cases with a wrapper around each processor (KIP-1112): it sees every record, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from ks_actors import ProcessorWrapper, WrappedNode
from ks_actors.processors import Process
from tests.differential import cases
from tests.differential.cases import SEED_1, compare, config_of, read_cases
from tests.differential.topologies import REBUILT, reason_out_of_reach

SHARE = 3


class Counting(ProcessorWrapper):
    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def wrap(self, node: WrappedNode, process: Process) -> Process:
        self.seen[node.name] = 0

        def counted(key: Any, value: Any, timestamp: int, headers: Any) -> None:
            self.seen[node.name] += 1
            process(key, value, timestamp, headers)

        return counted


@pytest.mark.parametrize("name", REBUILT)
def test_a_wrapper_that_calls_its_function_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results stay those of Kafka Streams, in each of the topologies."""
    wrapper = Counting()
    monkeypatch.setattr(cases, "config_of", lambda case: {**config_of(case), "processor_wrapper_class": wrapper})
    for case in read_cases(SEED_1, name)[:SHARE]:
        if reason_out_of_reach(name, case["params"]) is None:
            mismatch = compare(case)
            assert mismatch is None, str(mismatch)
    assert sum(wrapper.seen.values()) > 0
