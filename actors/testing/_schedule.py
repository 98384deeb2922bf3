"""Which ready actor goes next: a seed decides."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Awaitable


@final
class SeededDispatch:
    """Let one actor at a time handle one message, chosen at random among all that could.

    Every order that comes out is one that production might see: a mailbox stays FIFO, an actor handles one message at a time. The same seed
    gives the same order, as long as the code under test is deterministic itself.
    """

    longest_turn = 1
    permutes = True

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - to be repeatable is the point
        self._ready: list[asyncio.Future[None]] = []
        self._scheduled = False
        self.steps = 0

    @property
    def quiet(self) -> bool:
        """Whether nobody is ready."""
        return not self._ready

    def resume(self, waiter: asyncio.Future[None], /) -> None:
        """Count `waiter` among those that are ready."""
        self._ready.append(waiter)
        self._schedule()

    def pause(self) -> Awaitable[None]:
        """Take one's place among those that are ready."""
        waiter = asyncio.get_running_loop().create_future()
        self.resume(waiter)
        return waiter

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        self._scheduled = False
        self.steps += 1
        ready = self._ready
        while ready:
            chosen = self._random.randrange(len(ready))
            ready[chosen], ready[-1] = ready[-1], ready[chosen]
            waiter = ready.pop()
            if not waiter.done():
                waiter.set_result(None)
                break
        if ready:
            # Behind the wake-up that set_result has just scheduled, so the chosen one runs until it waits before the next is chosen.
            self._schedule()
