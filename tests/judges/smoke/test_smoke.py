"""Kafka's SmokeTestDriver, in short: `make judge-smoke` does long runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.judges.drivers.needed import require_drivers
from tests.judges.smoke.judge import SmokeOptions, hours_back, judge


def test_no_run_crosses_midnight() -> None:
    """Members take records for so much older that a run of six hours is in one day, of which the driver expects one window for each key."""
    for minute in range(24 * 60):
        now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
        taken = now - timedelta(hours=hours_back(now))
        assert taken.date() == (taken + timedelta(hours=6, minutes=-1)).date(), now


@pytest.mark.extended
@pytest.mark.heavy("brokers, members and a judge in Java")
@pytest.mark.unmeasured
@pytest.mark.timeout(330)
async def test_kafkas_own_driver_finds_no_fault_after_kills_a_freeze_and_a_restart_of_the_broker(tmp_path: Path) -> None:
    """Exactly once, whatever befalls members and the broker, Kafka's own verifier finds each result right, and one for each record."""
    require_drivers()
    # Where the driver has written records twice, it looks for its own count 30 times, 5 s apart, before it gives its verdict.
    options = SmokeOptions(
        members=2, workers=2, standbys=1, kills=2, freezes=1, broker_restarts=1, session_timeout=3, keys=10, records=200, seconds=14, max_verify=240
    )
    verdict = await judge(options, tmp_path)
    told = (
        f"seed {options.seed}, exit codes {verdict.outcome.exits}, {verdict.outcome.unexpected} ended by themselves:\n{verdict.outcome.said[-4000:]}"
    )
    assert verdict.ok, told
    assert verdict.outcome.done == {"kill": 2, "freeze": 1, "broker": 1}
    assert "SUCCESS" in verdict.outcome.said or verdict.doubled > 0
