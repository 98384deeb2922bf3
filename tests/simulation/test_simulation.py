"""The real client on simulated brokers: random use and faults, in virtual time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.liveness.__main__ import attempt
from tests.simulation.layer import PARTS, run_kafka_seed
from tests.simulation.old_faults import CLIENT_FAULTS

pytestmark = pytest.mark.unmeasured

ROOT = Path(__file__).parents[2]
SEEDS = 140
AT_ONCE = len(PARTS)
FOUND_AT = {
    "chunk": 7, "session": 7, "epoch": 112, "rival": 36, "end": 12, "spread": 13, "age": 9, "dead": 35,
    "chunk_of_apps": 43, "orphans": 8, "ends": 42,
}  # fmt: skip


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_the_client_is_right_whatever_brokers_and_ways_do(first: int) -> None:
    """Records are read and written once, in order, and in time; transactions are all or nothing; a partition has one owner; topics are there."""
    for seed in range(first, first + AT_ONCE):
        outcome = attempt("kafka", seed, told=True)
        assert outcome.error is None, outcome.error


@pytest.mark.parametrize("seed", [11236, 14101, 17328])
def test_seeds_that_have_found_something_pass(seed: int) -> None:
    """A topic is missing when brokers say so again and again, not when they fall silent after they have said it once.

    A member that does not join in time has no lease beyond the rebalance timeout, though its heartbeats are answered.
    """
    outcome = attempt("kafka", seed, told=True)
    assert outcome.error is None, outcome.error


@pytest.mark.parametrize("part", range(AT_ONCE))
def test_a_seed_replays(part: int) -> None:
    """Two runs of a seed have the same events at the same times."""
    first, second = run_kafka_seed(AT_ONCE + part), run_kafka_seed(AT_ONCE + part)
    assert first.trace.digest == second.trace.digest
    assert first.trace.requests == second.trace.requests


def test_each_fault_is_put_back_in() -> None:
    """There is a seed for each."""
    assert FOUND_AT.keys() == CLIENT_FAULTS.keys()


@pytest.mark.extended
@pytest.mark.parametrize("name", FOUND_AT)
def test_a_fault_that_is_put_back_in_is_found(name: str) -> None:
    """The first seed that finds it is below 200: `python -m tests.simulation.faults_found` looks for that seed, and this keeps it."""
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "tests.simulation.faults_found", f"{name}={FOUND_AT[name]}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"^(\w+) \(.+\): found at seed (\d+): ", done.stdout, re.MULTILINE)
    assert [(each, int(seed)) for each, seed in found] == [(name, FOUND_AT[name])]
