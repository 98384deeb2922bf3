"""The order of wake-ups: the event loop's in production, a seeded one under test."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable


TURN = 0.001
"""Length of a turn in seconds: of an actor, and of asks handled in one step of the loop."""


class Dispatch(Protocol):
    """The scheduler of all wake-ups in the framework, so that a test kit can choose their order."""

    asking: bool
    """Whether an ask that `enter` allowed is not awaited yet; the asker sets it to False."""

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

    def enter(self) -> float:
        """Return the clock (s) if an idle actor may handle an ask in the asker's step, else 0.0.

        It is 0.0 until the asker has awaited the reply.
        """
        ...


class LoopDispatch:
    """Dispatch in the order of the event loop."""

    __slots__ = ("_end", "asking")
    longest_turn = 1 << 30
    permutes = False

    def __init__(self) -> None:
        # The end of the time for asks in this step of the loop; None until the first such ask.
        self._end: float | None = None
        self.asking: bool = False

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

    def enter(self) -> float:
        """Allow asks for one turn in each step of the loop, so that an asker cannot hold it up.

        Only one ask at a time: an ask within its handling is queued, so the stack stays flat, and
        so are asks that overlap, for which one turn of the mailbox is cheaper.
        """
        if self.asking:
            return 0.0
        now = perf_counter()
        if self._end is None:
            self._end = now + TURN
            asyncio.get_running_loop().call_soon(self._step_ended)
        elif now > self._end:
            return 0.0
        self.asking = True
        return now

    def _step_ended(self) -> None:
        self._end = None
        self.asking = False
