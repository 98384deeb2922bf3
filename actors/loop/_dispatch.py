"""The order of wake-ups: the event loop's in production, a seeded one under test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Dispatch(Protocol):
    """The scheduler of all wake-ups in the framework, so that a test kit can choose their order."""

    @property
    def longest_turn(self) -> int:
        """The maximum number of messages that an actor handles before it yields."""
        ...

    @property
    def permutes(self) -> bool:
        """Whether even a new actor's first step waits for its turn."""
        ...

    def resume(self, waiter: asyncio.Future[None], /) -> None:
        """Wake the task that awaits `waiter`; does nothing if `waiter` was cancelled."""
        ...

    def pause(self) -> Awaitable[None]:
        """Yield to others, then go on."""
        ...


class LoopDispatch:
    """Dispatch in the order of the event loop."""

    __slots__ = ()
    longest_turn = 1 << 30
    permutes = False

    def resume(self, waiter: asyncio.Future[None], /) -> None:
        """Wake the waiter in the loop's next turn."""
        try:
            waiter.set_result(None)
        except asyncio.InvalidStateError:
            # The waiter was cancelled. A check beforehand would slow down every wake-up for this
            # rare case.
            return

    def pause(self) -> Awaitable[None]:
        """Yield to the loop once."""
        return asyncio.sleep(0)
