"""The same cases in large batches: speed must not change the output."""

from __future__ import annotations

from typing import Any

import pytest

from tests.differential.cases import SEED_1, Case, read_cases, run_whole
from tests.differential.generate import SPECS
from tests.differential.topologies import REBUILT, reason_out_of_reach

WITH_CLOCK = {name for name, spec in SPECS.items() if spec.wall}
# Several subtopologies that meet in a join: which gets ahead of the other is nobody's promise.
FOREIGN_KEYS = {"fk_inner", "fk_left", "fk_left_groupby"}
APART = {"ss_inner_repartition", "ss_left_repartition", "st_left_repartition"} | FOREIGN_KEYS
ONE_INPUT = {name for name, spec in SPECS.items() if len(spec.topics) == 1} - WITH_CLOCK


def reachable(name: str) -> list[Case]:
    return [case for case in read_cases(SEED_1, name) if reason_out_of_reach(name, case["params"]) is None]


def bytes_or_none(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


@pytest.mark.parametrize("name", [name for name in REBUILT if name in ONE_INPUT])
def test_a_batch_gives_the_results_of_kafka_streams_for_its_records(name: str) -> None:
    """With one input topic the order of the records is fixed, with any batch size."""
    for case in reachable(name):
        outputs: dict[str, list[tuple[Any, ...]]] = {topic: [] for topic in REBUILT[name].outputs}
        for row in case["expected"]:
            topic = row.get("topic", REBUILT[name].outputs[0])
            outputs[topic].append((bytes_or_none(row["key"]), bytes_or_none(row["value"]), row["timestamp"]))
        assert run_whole(case, one_by_one=False) == outputs, case["id"]


@pytest.mark.parametrize("name", [name for name in REBUILT if name not in ONE_INPUT | WITH_CLOCK | APART])
def test_a_batch_gives_the_results_of_its_records_one_by_one(name: str) -> None:
    """With several input topics, buffered records are taken in the order of their timestamps, and batches do not change it."""
    for case in reachable(name):
        assert run_whole(case, one_by_one=False) == run_whole(case, one_by_one=True), case["id"]


@pytest.mark.parametrize("name", ["ss_inner", "ss_chain", "ss_join_window", "ss_self"])
def test_a_batch_gives_the_results_of_its_records_one_by_one_without_faults(name: str) -> None:
    """Late records are dropped at their turn, whatever the batch is."""
    for case in reachable(name):
        assert run_whole(case, one_by_one=False, faults=False) == run_whole(case, one_by_one=True, faults=False), case["id"]


GONE = (None, b"0")  # a count of nothing is there or not, as the groups were on the way


def rows_at_the_end(outputs: dict[str, list[tuple[Any, ...]]]) -> dict[str, dict[bytes, bytes]]:
    tables = {topic: {key: value for key, value, _ in records} for topic, records in outputs.items()}
    return {topic: {key: value for key, value in table.items() if value not in GONE} for topic, table in tables.items()}


@pytest.mark.parametrize("name", sorted(FOREIGN_KEYS))
def test_a_foreign_key_join_has_the_same_rows_in_the_end(name: str) -> None:
    """Both sides drop outdated responses, in batches others than one by one, and end at the same table."""
    for case in reachable(name):
        told = [(bytes_or_none(row["key"]), bytes_or_none(row["value"]), row["timestamp"]) for row in case["expected"]]
        for one_by_one in (False, True):
            outputs = run_whole(case, one_by_one=one_by_one)
            assert rows_at_the_end(outputs) == rows_at_the_end({"out": told}), case["id"]
