"""The real client on simulated brokers: random use and faults, in virtual time."""

from __future__ import annotations

import pytest

from tests.liveness.__main__ import attempt
from tests.simulation.faults_found import find, main
from tests.simulation.layer import PARTS, run_kafka_seed
from tests.simulation.old_faults import CLIENT_FAULTS

pytestmark = pytest.mark.unmeasured

SEEDS = 140
AT_ONCE = len(PARTS)
FOUND_AT = {"chunk": 7, "session": 7, "epoch": 112, "rival": 36, "end": 12, "spread": 6, "age": 9}


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_the_client_is_right_whatever_brokers_and_ways_do(first: int) -> None:
    """Records are read and written once, in order, and in time; transactions are all or nothing; a partition has one owner; topics are there."""
    for seed in range(first, first + AT_ONCE):
        outcome = attempt("kafka", seed, told=True)
        assert outcome.error is None, outcome.error


@pytest.mark.parametrize("part", range(AT_ONCE))
def test_a_seed_replays(part: int) -> None:
    """Two runs of a seed have the same events at the same times."""
    first, second = run_kafka_seed(AT_ONCE + part), run_kafka_seed(AT_ONCE + part)
    assert first.trace.digest == second.trace.digest
    assert first.trace.requests == second.trace.requests


@pytest.mark.parametrize("name", CLIENT_FAULTS)
def test_a_fault_that_is_put_back_in_is_found(name: str) -> None:
    """The first seed that finds it is below 200: `python -m tests.simulation.faults_found` looks for that seed, and this keeps it."""
    assert find(name, range(FOUND_AT[name], FOUND_AT[name] + 1)) is not None


@pytest.mark.extended
def test_the_command_line_reports_the_seed_of_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """It names the seed, and the error."""
    assert main(["chunk"]) == 0
    assert "chunk (a chunk that arrives during a pause is never decompressed): found at seed 7" in capsys.readouterr().out
