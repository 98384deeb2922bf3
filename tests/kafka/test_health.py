"""The health of an app on a real Kafka whose broker stands still."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import pytest

from ks_actors import HealthReason
from tests.chaos.checks import AT_LEAST_ONCE, GUARANTEES
from tests.kafka.counting import counting

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.broker import Broker

WITHIN_S = 5.0


async def seconds_until(true: Callable[[], bool]) -> float:
    """Return how long it takes until something is true, on a loop that turns."""
    since = time.monotonic()
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0)
    return time.monotonic() - since


@pytest.mark.timeout(180)
@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_frozen_broker_shows_within_five_seconds(
    own_broker: Broker, tmp_path: Path, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Health, the metric and one log line tell of it; the app stays live, and is ready again within five seconds of the first commit."""
    async with counting(own_broker, guarantee, tmp_path) as here, here.app("app", own_log=True, bootstrap_servers=own_broker.bootstrap) as app:
        await here.feed()
        await here.counted()
        await seconds_until(lambda: app.health().ready)
        own_broker.pause()
        try:
            assert await seconds_until(lambda: not app.health().ready) < WITHIN_S
            found = app.health()
            assert {problem.reason for problem in found.problems} == {HealthReason.LOG}
            assert own_broker.bootstrap in str(found)
            assert found.live
            assert app.metrics()["log-unreachable-ms"] > 0
            # The stall detector has another logger: a busy machine may stand still by itself.
            warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
            told = [record.getMessage() for record in warnings if record.name.startswith("ks_actors")]
            assert len(told) == 1
            assert own_broker.bootstrap in told[0]
        finally:
            own_broker.resume()
        assert await seconds_until(lambda: app.health().ready) < WITHIN_S
        await here.feed()
        await here.counted()
        assert await seconds_until(lambda: app.health().ready) < WITHIN_S


@pytest.mark.extended
@pytest.mark.timeout(180)
async def test_a_stopped_broker_shows_within_five_seconds(own_broker: Broker, tmp_path: Path) -> None:
    """Its refused connections count from `outage_ms` on, so that a broker that restarts at once is no reason."""
    async with counting(own_broker, AT_LEAST_ONCE, tmp_path) as here, here.app("app", own_log=True, bootstrap_servers=own_broker.bootstrap) as app:
        await here.feed()
        await here.counted()
        await seconds_until(lambda: app.health().ready)
        own_broker.kill()
        took = await seconds_until(lambda: not app.health().ready)
        assert took < WITHIN_S
        assert {problem.reason for problem in app.health().problems} == {HealthReason.LOG}
        await asyncio.to_thread(own_broker.start)
        await here.feed()
        await here.counted()
        assert await seconds_until(lambda: app.health().ready) < WITHIN_S
