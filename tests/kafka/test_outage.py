"""Apps that are closed while the broker is away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ks_actors import InstanceState
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.kafka.counting import counting
from tests.log.helpers import assigned, join, revoked

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.broker import Broker


@pytest.mark.timeout(120)
@pytest.mark.parametrize("session_ms", [1_000, 60_000])
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
async def test_an_app_that_closes_while_the_broker_is_away(
    own_broker: Broker, tmp_path: Path, guarantee: str, session_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for it, and ends without an error, whether it is a member still or not; who comes then does what is left."""
    async with counting(own_broker, guarantee, tmp_path) as here:
        app = here.app("app", session_timeout_ms=session_ms)
        await app.start()
        await here.feed()
        await here.counted()
        await here.feed(5_000)
        own_broker.kill()
        closing = asyncio.create_task(app.close())
        await asyncio.to_thread(own_broker.start)
        await asyncio.wait_for(closing, 40)
        assert app.state is InstanceState.NOT_RUNNING
        assert "dead letter" not in caplog.text
        async with here.app("app"):
            await here.counted()


@pytest.mark.timeout(120)
async def test_a_start_that_is_cancelled_while_the_broker_is_away(own_broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It ends when the group cannot be told, and asks those that have ended already for next to nothing meanwhile."""
    async with counting(own_broker, EXACTLY_ONCE, tmp_path) as here:
        # Somebody who never lets go: nobody else gets anything.
        holder = await join(here.log, here.name, here.source)
        await assigned(holder)
        app = here.app("app")
        starting = asyncio.create_task(app.start())
        await revoked(holder)
        while app.metrics()["alive-workers"] == 0:
            await asyncio.sleep(0)
        own_broker.kill()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(starting, 40)
        assert caplog.text.count("dead letter") <= 2
