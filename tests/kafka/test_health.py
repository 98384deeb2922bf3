"""The health of an app on a real Kafka whose broker stands still."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from ks_actors import HealthReason
from tests.chaos.checks import AT_LEAST_ONCE, GUARANTEES
from tests.kafka.broker import Broker
from tests.kafka.counting import counting
from tests.waiting import until

# The rests of a wait count: on a busy machine the clock has gone on further.
WITHIN_S = 5.0


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_frozen_broker_shows_within_five_seconds(
    own_broker: Broker, tmp_path: Path, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Health, the metric and the log tell of it; the app stays live, and is ready again within five seconds of the first commit."""
    async with counting(own_broker, guarantee, tmp_path) as here, here.app("app", own_log=True, bootstrap_servers=own_broker.bootstrap) as app:
        await here.through()
        await until(lambda: app.health().ready)
        own_broker.pause()
        try:
            assert await until(lambda: not app.health().ready) < WITHIN_S
            found = app.health()
            assert {problem.reason for problem in found.problems} == {HealthReason.LOG}
            assert own_broker.bootstrap in str(found)
            assert found.live
            assert app.metrics()["log-unreachable-ms"] > 0
            # The stall detector has another logger: a busy machine may stand still by itself.
            warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
            told = [record.getMessage() for record in warnings if record.name.startswith("ks_actors")]
            assert told
            assert all(own_broker.bootstrap in line for line in told)
        finally:
            own_broker.resume()
        await until(lambda: app.health().ready)
        await here.through()
        assert await until(lambda: app.health().ready) < WITHIN_S


async def test_a_stopped_broker_shows_within_five_seconds(own_broker: Broker, tmp_path: Path) -> None:
    """Its refused connections count from `outage_ms` on, so that a broker that restarts at once is no reason."""
    async with counting(own_broker, AT_LEAST_ONCE, tmp_path) as here, here.app("app", own_log=True, bootstrap_servers=own_broker.bootstrap) as app:
        await here.through()
        await until(lambda: app.health().ready)
        own_broker.kill()
        took = await until(lambda: not app.health().ready)
        assert took < WITHIN_S
        assert {problem.reason for problem in app.health().problems} == {HealthReason.LOG}
        await asyncio.to_thread(own_broker.start)
        await here.through()
        assert await until(lambda: app.health().ready) < WITHIN_S
