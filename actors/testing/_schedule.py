"""A dispatch that picks the next ready actor by a seed."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Awaitable


@final
class SeededDispatch:
    """Let one actor at a time handle one message, chosen at random among all ready actors.

    Every resulting order is possible in production: a mailbox stays FIFO, an actor handles one
    message at a time. The same seed gives the same order if the code under test is deterministic.
    """

    longest_turn = 1
    permutes = True

    def __init__(self, seed: int) -> None:
        self.asking: bool = False
        self._random = Random(seed)  # noqa: S311 - to be repeatable is the point
        self._ready: list[asyncio.Future[None]] = []
        self._scheduled = False
        self.steps = 0

    @property
    def quiet(self) -> bool:
        """Whether no actor is ready."""
        return not self._ready

    def resume(self, waiter: asyncio.Future[None], /) -> None:
        """Add `waiter` to the ready waiters."""
        self._ready.append(waiter)
        self._schedule()

    def pause(self) -> Awaitable[None]:
        """Join the ready waiters and wait to be chosen."""
        waiter = asyncio.get_running_loop().create_future()
        self.resume(waiter)
        return waiter

    def enter(self) -> float:
        """Queue each ask, so that the seed chooses the time of its handling, too."""
        return 0.0

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
            # Queued behind the wake-up from set_result, so the chosen actor runs until it waits
            # before the next choice.
            self._schedule()
