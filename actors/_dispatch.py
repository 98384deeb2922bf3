"""Who goes on next. In production the event loop's own order; under test a seeded one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Dispatch(Protocol):
    """Every wake-up that the framework makes goes through here, so that a test kit can choose the order."""

    @property
    def longest_turn(self) -> int:
        """The most messages that an actor may handle before it yields."""
        ...

    @property
    def permutes(self) -> bool:
        """Whether even a new actor's first step is to wait for its turn."""
        ...

    def resume(self, waiter: asyncio.Future[None], /) -> None:
        """Let whoever awaits `waiter` go on; does nothing when it was cancelled meanwhile."""
        ...

    def pause(self) -> Awaitable[None]:
        """Let others run, then go on."""
        ...


class LoopDispatch:
    """First come, first served: the order of the event loop."""

    __slots__ = ()
    longest_turn = 1 << 30
    permutes = False

    def resume(self, waiter: asyncio.Future[None], /) -> None:
        """Wake the waiter at the loop's next turn."""
        try:
            waiter.set_result(None)
        except asyncio.InvalidStateError:
            # Cancelled meanwhile. To ask first would cost each wake-up what only this rare one needs.
            return

    def pause(self) -> Awaitable[None]:
        """Yield to the loop once."""
        return asyncio.sleep(0)
