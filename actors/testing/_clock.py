"""A clock that advances only on request."""

from __future__ import annotations

import asyncio
import heapq
from contextvars import copy_context
from functools import partial
from math import inf, nextafter
from typing import TYPE_CHECKING, TypeVarTuple, Unpack, final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextvars import Context

Ts = TypeVarTuple("Ts")


@final
class ManualTimer:
    """A call that is due at `when`, with asyncio's interface of a timer handle."""

    __slots__ = ("_call", "_cancelled", "_context", "_when")

    def __init__(self, when: float, call: Callable[[], object], context: Context | None) -> None:
        self._when = when
        self._call: Callable[[], object] | None = call
        # As on a loop of asyncio, the call runs in the context that set the timer.
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def __repr__(self) -> str:
        return f"<ManualTimer at {self._when:g} s: {self._call!r}>"

    def when(self) -> float:
        """Return the time at which the call is due."""
        return self._when

    def cancel(self) -> None:
        """Cancel the call, even if it is already due."""
        self._cancelled = True
        self._call = None

    def cancelled(self) -> bool:
        """Return whether `cancel` was called."""
        return self._cancelled

    def _run(self) -> None:
        if self._call is not None:
            self._call()

    def _fire(self) -> None:
        asyncio.get_running_loop().call_soon(self._run, context=self._context)


@final
class ManualClock:
    """Seconds since the test began, and all pending timers.

    Timers fire in due order; simultaneous timers fire in the order in which they were set. When
    more than `timers_at_once` timers are set without a delay while no time goes by, the test fails:
    a timer that sets itself again and again would keep the loop busy for ever.
    """

    timers_at_once: int = 1_000_000

    def __init__(self, quiesce: Callable[[], Awaitable[None]]) -> None:
        self._now = 0.0
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._set = 0
        self._without_delay = 0
        self._quiesce = quiesce

    def time(self) -> float:
        """Return the seconds since the test began."""
        return self._now

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> ManualTimer:
        """Call `callback` when the time has advanced by `delay` seconds.

        A positive delay always ends later than now, even a delay that is lost in rounding.
        Otherwise code that waits for the rest of a deadline could set its timer again and again,
        for ever.
        """
        when = self._now + delay
        if delay > 0:
            when = max(when, nextafter(self._now, inf))
        return self.call_at(when, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> ManualTimer:
        """Call `callback` at the time `when`."""
        timer = ManualTimer(when, partial(callback, *args), context)
        self._set += 1
        self._without_delay += when <= self._now
        heapq.heappush(self._timers, (when, self._set, timer))
        return timer

    def next_due(self) -> float | None:
        """Return the time of the next timer, or None when none is set."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        # A timer at infinity never fires, as on a loop of asyncio.
        return timers[0][0] if timers and timers[0][0] < inf else None

    def jump(self) -> bool:
        """Jump to the next timer and fire it in the loop's next turn.

        Return False if none is set. Raise RuntimeError after `timers_at_once` timers without delay.
        """
        due = self.next_due()
        if due is None:
            return False
        timer = heapq.heappop(self._timers)[2]
        if self._without_delay > self.timers_at_once:
            raise RuntimeError(
                f"livelock: {self._without_delay:,} timers without a delay were set while the time "
                f"was {self._now:g} s, so it cannot go on; the next one is {timer!r}"
            )
        if due > self._now:
            self._now, self._without_delay = due, 0
        timer._fire()  # noqa: SLF001 - the clock's own
        return True

    async def advance(self, seconds: float, /) -> None:
        """Advance by `seconds`: fire due timers one by one, and wait for quiet after each."""
        if not seconds >= 0:
            raise ValueError(
                f"time does not run backward: seconds must not be negative, is {seconds}"
            )
        target = self._now + seconds
        await self._quiesce()
        while (due := self.next_due()) is not None and due <= target:
            self.jump()
            await self._quiesce()
        if target > self._now:
            self._now, self._without_delay = target, 0
