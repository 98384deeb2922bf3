"""Apps on a real Kafka that are closed before they have started."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ks_actors.log.kafka._client import KafkaClient
from ks_actors.runtime import InstanceState
from tests.kafka.counting import PATIENCE_S, counting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from ks_actors import App
    from tests.kafka.broker import Broker

GUARANTEES = ("at_least_once", "exactly_once_v2")
# As many milliseconds would a member that is left behind keep the others from their tasks: longer than anybody waits here.
SESSION_MS = 300_000


class Watch:
    """Tells when so many requests have been made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left: int = 0
        self._reached: asyncio.Event = asyncio.Event()
        loop, real = asyncio.get_running_loop(), KafkaClient.send

        async def send(client: KafkaClient, node: int, request: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                loop.call_soon_threadsafe(self._reached.set)
            return await real(client, node, request, **options)

        monkeypatch.setattr(KafkaClient, "send", send)

    async def requests(self, number: int) -> None:
        """Wait until so many more have been made."""
        self._left = number
        self._reached.clear()
        await self._reached.wait()


async def close(app: App, running: asyncio.Future[None]) -> None:
    await app.close()
    await running


async def cancel(_: App, running: asyncio.Future[None]) -> None:
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("end", [close, cancel])
@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_an_app_may_be_closed_at_any_request_of_its_start(
    end: Callable[[App, asyncio.Future[None]], Awaitable[None]], guarantee: str, kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed, or cancelled as by a signal, it ends without an error; no member of its group and no transaction is left to be waited for."""
    async with counting(kafka_broker, guarantee, tmp_path) as made:
        watch = Watch(monkeypatch)
        for number in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 25, 30, 40):
            await made.feed()
            states: list[InstanceState] = []
            app = made.app(f"closed-{number}", states, session_timeout_ms=SESSION_MS)
            reaching = asyncio.ensure_future(watch.requests(number))
            running = asyncio.ensure_future(app.run())
            async with asyncio.timeout(PATIENCE_S):
                await reaching
                await end(app, running)
            assert app.error is None
            assert states[-1] is InstanceState.NOT_RUNNING
        async with asyncio.timeout(PATIENCE_S), made.app("last", session_timeout_ms=SESSION_MS):
            await made.counted()
