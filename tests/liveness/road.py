"""An app's way to the log, in virtual time: how long it takes, and when there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, ParamSpec, TypeVar

from ks_actors import LogTimeout
from ks_actors.log import Log
from ks_actors.testing._connection import Connection

P = ParamSpec("P")
T = TypeVar("T")
_WITHOUT_END: Final = frozenset({"event", "fetch"})
_API_TIMEOUT_S: Final = 60.0


class Road:
    """The state that the connections of all instances share: the `latency` (s) of calls, the extra time of commits, whether the log is away.

    While it is away nothing is done, and nobody has an answer: a call is made when the log is back, or raises LogTimeout after a minute.
    """

    def __init__(self, latency: float) -> None:
        self.commits_take: float = 0.0
        self._latency: float = latency
        self._away: int = 0
        self._back: asyncio.Event = asyncio.Event()
        self._back.set()

    @property
    def is_away(self) -> bool:
        """Whether the log is away."""
        return self._away > 0

    async def outage(self, seconds: float) -> None:
        """Have the log be away for so long."""
        self._away += 1
        self._back.clear()
        await asyncio.sleep(seconds)
        self._away -= 1
        if not self._away:
            self._back.set()

    async def carry(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call."""
        name = getattr(call, "__name__", "")
        if self._latency and name != "event":
            await asyncio.sleep(self._latency)
        if self.commits_take and name == "commit":
            await asyncio.sleep(self.commits_take)
        await self._wait(name)
        result = await call(*args, **kwargs)
        if name in _WITHOUT_END:
            await self._wait(name)
        return result

    async def _wait(self, name: str) -> None:
        if self._back.is_set():
            return
        try:
            async with asyncio.timeout(None if name in _WITHOUT_END else _API_TIMEOUT_S):
                await self._back.wait()
        except TimeoutError as late:
            raise LogTimeout(f"{name} had no answer within {_API_TIMEOUT_S:g} s: the log is away") from late


class RoadConnection(Connection):
    """An instance's connection to a log along a road."""

    def __init__(self, road: Road, log: Log) -> None:
        super().__init__(log)
        self._road = road

    async def through(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call, as the road lets it through."""

        async def carried() -> T:
            return await self._road.carry(call, *args, **kwargs)

        return await super().through(carried)
