"""Apps on a real Kafka that are closed before they have started."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ks_actors import App, NotRunning, StreamsConfig
from ks_actors.runtime import InstanceState
from tests.chaos.app import count_topology
from tests.chaos.checks import GUARANTEES
from tests.kafka.broker import Broker
from tests.kafka.counting import counting
from tests.kafka.tampering import Tampering
from tests.waiting import PATIENCE_S, until

# As many milliseconds would a member that is left behind keep the others from their tasks: longer than anybody waits here.
SESSION_MS = 300_000


async def close(app: App, running: asyncio.Future[None]) -> None:
    await app.close()
    await running


async def cancel(_: App, running: asyncio.Future[None]) -> None:
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("end", [close, cancel])
@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.heavy("16 apps")
async def test_an_app_may_be_closed_at_any_request_of_its_start(
    end: Callable[[App, asyncio.Future[None]], Awaitable[None]], guarantee: str, kafka_broker: Broker, tmp_path: Path, tampering: Tampering
) -> None:
    """Closed, or cancelled as by a signal, it ends without an error; no member of its group and no transaction is left to be waited for."""
    async with counting(kafka_broker, guarantee, tmp_path) as made:
        for number in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 25, 30, 40):
            await made.feed()
            states: list[InstanceState] = []
            app = made.app(f"closed-{number}", states, session_timeout_ms=SESSION_MS)
            asked = tampering.after(number)
            running = asyncio.ensure_future(app.run())
            async with asyncio.timeout(PATIENCE_S):
                await asked.wait()
                await end(app, running)
            assert app.error is None
            assert states[-1] is InstanceState.NOT_RUNNING
        async with asyncio.timeout(PATIENCE_S), made.app("last", session_timeout_ms=SESSION_MS):
            await made.counted()


async def test_an_app_is_closed_in_time_while_it_looks_for_its_broker(tmp_path: Path) -> None:
    """There is none at that address; the start is given up when closing has taken as long as it may, and is NotRunning."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        servers = f"127.0.0.1:{taken.getsockname()[1]}"
        app = App(count_topology("in", "out"), StreamsConfig(application_id="app", state_dir=tmp_path, bootstrap_servers=servers))
        starting = asyncio.ensure_future(app.start())
        async with asyncio.timeout(PATIENCE_S):
            await until(app.waiting)
            await app.close(timeout_ms=500)
            with pytest.raises(NotRunning, match="was closed before it was started"):
                await starting
    assert app.state is InstanceState.NOT_RUNNING
