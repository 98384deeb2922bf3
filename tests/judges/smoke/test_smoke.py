"""Kafka's SmokeTestDriver, in short: `make judge-smoke` does long runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.judges.smoke.faults import draw
from tests.judges.smoke.jars import missing_tests
from tests.judges.smoke.options import Options
from tests.judges.smoke.run import judge, midnight_is_near
from tests.kafka.broker import require_kafka

if TYPE_CHECKING:
    from pathlib import Path

# All tests before this one.
_MAY_TAKE_S = 1800


@pytest.mark.unmeasured
@pytest.mark.skipif(midnight_is_near(_MAY_TAKE_S), reason="KAFKA'S DRIVER DID NOT JUDGE: midnight UTC is near, and its windows are days")
@pytest.mark.timeout(150)
async def test_kafkas_own_driver_finds_no_fault_after_kills(tmp_path: Path) -> None:
    """Exactly once, while two members are killed and start again, Kafka's own verifier finds each result right, and each once."""
    require_kafka()
    if (missing := missing_tests()) is not None:
        # On CI a judge that cannot be had is a failure.
        (pytest.fail if os.environ.get("CI") in ("1", "true") else pytest.skip)(f"KAFKA'S DRIVER DID NOT JUDGE: {missing}")
    options = Options(members=2, workers=2, standbys=1, kills=2, session_timeout=3, keys=10, records=200, seconds=16, max_verify=60)
    verdict = await judge(options, tmp_path)
    assert verdict.ok, f"seed {options.seed}, exit codes {verdict.exits}, {verdict.unexpected} ended by themselves:\n{verdict.said[-4000:]}"
    assert "SUCCESS" in verdict.said
    assert verdict.doubled == 0


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE])
def test_a_seed_draws_the_same_faults_again(guarantee: str) -> None:
    """Faults are drawn by the seed alone; they come in order, and the last one while records are still written."""
    options = Options(guarantee=guarantee, kills=3, freezes=2, broker_restarts=1, seed=5)
    faults = draw(options)
    assert faults == draw(options) != draw(Options(guarantee=guarantee, kills=3, freezes=2, broker_restarts=1, seed=6))
    assert sorted(fault.kind for fault in faults) == ["broker", "freeze", "freeze", "kill", "kill", "kill"]
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    assert faults[-1].at < options.seconds
