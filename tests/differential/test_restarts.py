"""The same cases with tasks that end and begin again, and with state that has gone to disk: neither must change the output."""

from __future__ import annotations

import pytest

from ks_actors.testing import TopologyTestDriver
from tests.differential.cases import SEED_1, Between, by_step, compare, read_cases, run
from tests.differential.restarts import restart, write_to_disk
from tests.differential.topologies import REBUILT, reason_out_of_reach

# A restart forgets the stream time that these have seen, and schedules punctuators anew, as with Kafka Streams.
FORGETFUL = {"process_values", "punctuate_stream", "punctuate_wall"}
STATELESS = {"branch_merge", "stateless_chain", "table_source"}
SOME = slice(None, None, 4)


def restarting_at(middle: int) -> Between:
    def between(driver: TopologyTestDriver, step: int) -> None:
        if step == middle:
            restart(driver)

    return between


def writing_often(driver: TopologyTestDriver, step: int) -> None:
    if step % 3 == 0:
        write_to_disk(driver)


@pytest.mark.parametrize("name", [name for name in REBUILT if name not in FORGETFUL])
def test_a_restart_changes_nothing(name: str) -> None:
    """Of kept state everything is there again, from disk or from the changelog, with the timestamps that it had."""
    cases = [case for case in read_cases(SEED_1, name) if reason_out_of_reach(name, case["params"]) is None]
    for case in cases[SOME]:
        mismatch = compare(case, between=restarting_at(len(case["steps"]) // 2))
        assert mismatch is None, str(mismatch)


@pytest.mark.parametrize("name", sorted(FORGETFUL))
def test_operators_without_a_restored_stream_time_are_right_until_then_and_go_on(name: str) -> None:
    """Windows that are late or closed by the time before the restart are not so at once behind it; state is there again all the same."""
    cases = [case for case in read_cases(SEED_1, name) if reason_out_of_reach(name, case["params"]) is None]
    for case in cases[SOME]:
        middle = len(case["steps"]) // 2
        got, expected = by_step(run(case, restarting_at(middle)).rows), by_step(case["expected"])
        assert [got.get(step) for step in range(middle)] == [expected.get(step) for step in range(middle)], case["id"]


@pytest.mark.parametrize("name", [name for name in REBUILT if name not in STATELESS])
def test_state_on_disk_is_as_good_as_state_in_memory(name: str) -> None:
    """A row that was written and has left memory is found by every way of reading."""
    cases = [case for case in read_cases(SEED_1, name) if case["params"]["store"] == "rocksdb" and reason_out_of_reach(name, case["params"]) is None]
    assert cases
    for case in cases[SOME]:
        mismatch = compare(case, between=writing_often)
        assert mismatch is None, str(mismatch)
