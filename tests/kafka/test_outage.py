"""A broker that is away: apps wait for it, and go on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, InstanceState, LogTimeout
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.runtime import UncaughtResponse
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE, GUARANTEES
from tests.kafka.broker import Broker
from tests.kafka.counting import Counting, counting, ended
from tests.ks_actors.log.helpers import assigned, join, revoked
from tests.ks_actors.runtime.helpers import Asked
from tests.waiting import PATIENCE_S, SESSION_MS, soon, until

# An outage of minutes in seconds: each call ends several times in an outage, and not by a pause of a broker that is well.
BRIEF = KafkaOptions(request_timeout_ms=1_000, connect_timeout_ms=300, api_timeout_ms=3_000, delivery_timeout_ms=5_000)
SETTINGS: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "transaction_timeout_ms": 1_000}


async def heard(caplog: pytest.LogCaptureFixture, pattern: str, times: int = 1) -> None:
    """Wait until the log has so many such lines."""
    seen = found = 0

    def look() -> bool:
        nonlocal seen, found
        fresh = caplog.records[seen:]
        seen += len(fresh)
        found += sum(re.search(pattern, record.getMessage()) is not None for record in fresh)
        return found >= times

    await until(look)


async def uncommitted(app: App, here: Counting) -> None:
    """Feed the app until it has processed something that no commit has taken."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            before = app.metrics()
            await here.feed(100)
            await until(lambda before=before: app.metrics()["process-total"] != before["process-total"])  # type: ignore[misc]
            if app.metrics()["commit-total"] == before["commit-total"]:
                return


@pytest.mark.everyday
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_an_app_goes_on_when_the_broker_is_back(
    own_broker: Broker, tmp_path: Path, guarantee: str, caplog: pytest.LogCaptureFixture, *, frozen: bool
) -> None:
    """Calls end by their timeouts, commits fail and are done again, and no handler is asked: nothing is lost, exactly once nothing is doubled."""
    asked = Asked(UncaughtResponse.SHUTDOWN_CLIENT)

    async with counting(own_broker, guarantee, tmp_path) as here, KafkaLog(own_broker.bootstrap, options=BRIEF) as log:
        async with here.app("app", log=log, uncaught=asked, **SETTINGS) as app:
            await here.through()
            await here.feed(1_000)
            await uncommitted(app, here)
            caplog.clear()
            if frozen:
                own_broker.pause()
            else:
                own_broker.kill()
            # Output that is not written fails the commit; offsets alone are sent again.
            await heard(caplog, "commit failed|the log has not answered for .* asked to ")
            await heard(caplog, "heartbeats to group", 2)
            if frozen:
                own_broker.resume()
            else:
                await asyncio.to_thread(own_broker.start)
            await here.through(100)
            assert app.state is InstanceState.RUNNING
        assert asked == []


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_an_app_that_has_waited_for_task_timeout_ms_ends(own_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """By default its handler ends it then; the error names the request that had no answer."""
    async with counting(own_broker, guarantee, tmp_path) as here, KafkaLog(own_broker.bootstrap, options=BRIEF) as log:
        app = here.app("app", log=log, task_timeout_ms=8_000, **SETTINGS)
        await app.start()
        await here.through()
        # With all of it committed it would have nothing to wait for.
        await uncommitted(app, here)
        own_broker.kill()
        error = await ended(app)
        assert isinstance(error, LogTimeout)
        told = r"failed to \w.* within \d+ ms|were not written within \d+ ms|the log did not answer within .* when it was asked \w"
        assert re.search(told, str(error))


@pytest.mark.parametrize("session_ms", [SESSION_MS, 60_000])
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
async def test_an_app_that_closes_while_the_broker_is_away(
    own_broker: Broker, tmp_path: Path, guarantee: str, session_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for it, and ends without an error, whether it is still a member or not; the next owner does the rest."""
    async with counting(own_broker, guarantee, tmp_path) as here:
        app = here.app("app", session_timeout_ms=session_ms)
        await app.start()
        await here.through()
        await here.feed(1_000)
        own_broker.kill()
        closing = asyncio.create_task(app.close())
        await asyncio.to_thread(own_broker.start)
        await soon(closing)
        assert app.state is InstanceState.NOT_RUNNING
        assert "dead letter" not in caplog.text
        async with here.app("app"):
            await here.counted()


async def test_a_start_that_is_cancelled_while_the_broker_is_away(own_broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It ends when the group cannot be told, and asks those that have ended already for next to nothing meanwhile."""
    async with counting(own_broker, EXACTLY_ONCE, tmp_path) as here:
        # Somebody who never lets go: nobody else gets anything.
        holder = await join(here.log, here.name, here.source)
        await assigned(holder)
        app = here.app("app")
        starting = asyncio.create_task(app.start())
        await revoked(holder)
        await until(lambda: app.metrics()["alive-workers"] != 0)
        own_broker.kill()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(starting)
        assert caplog.text.count("dead letter") <= 2


async def test_a_start_waits_for_a_broker_that_comes_later(own_broker: Broker, tmp_path: Path) -> None:
    """Looking for Kafka is one of the calls that are repeated until `task_timeout_ms` have passed; health can be asked for meanwhile."""
    async with counting(own_broker, GUARANTEES[0], tmp_path) as here:
        await here.feed()
        settings: dict[str, Any] = {"bootstrap_servers": own_broker.bootstrap, "default_api_timeout_ms": 300, "task_timeout_ms": 60_000}
        app = here.app("late", own_log=True, **settings)
        served = asyncio.Event()

        @asynccontextmanager
        async def probes() -> AsyncIterator[None]:
            served.set()
            yield

        app._early_services = (probes(),)
        own_broker.kill()
        starting = asyncio.create_task(app.start())
        await served.wait()
        assert app.health().live
        assert not app.health().ready
        await asyncio.to_thread(own_broker.start)
        await starting
        await here.counted()
        await app.close()
