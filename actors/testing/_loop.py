"""An event loop in virtual time."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, final

from actors.testing._clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from contextvars import Context

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@final
class VirtualLoop(asyncio.SelectorEventLoop):
    """Run asyncio code, with `asyncio.sleep` and any library's timeouts, without real waits.

    The loop is idle when nothing is ready to run and no job is running in a thread. Then callers of
    `idle()` resume. If there are none, only time can help the test, so the clock jumps to the next
    timer. With real sockets open it does not jump, since they may deliver data. If nothing can
    happen any more, a test fails after `patience` real seconds; a test that waits for a job in a
    thread fails after ten times as many.
    """

    patience: float = 30.0

    def __init__(self) -> None:
        self.clock: ManualClock = ManualClock(self.idle)
        self._waiters: list[asyncio.Future[None]] = []
        self._jobs = 0
        self._idle_selector = _IdleSelector(self._on_idle, self._patience, self._give_up)
        super().__init__(self._idle_selector)
        # In debug mode asyncio would take a jump of the clock for a slow callback.
        self.slow_callback_duration: float = float("inf")

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.clock.time()

    # Both return a ManualTimer, which is no asyncio.TimerHandle but has all that asyncio uses.

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> Any:
        """Call `callback` at the virtual time `when`."""
        return self.clock.call_at(when, callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> Any:
        """Call `callback` in `delay` virtual seconds."""
        return self.clock.call_later(delay, callback, *args, context=context)

    async def idle(self) -> None:
        """Wait until nothing can happen before time advances or another thread acts."""
        waiter = self.create_future()
        self._waiters.append(waiter)
        await waiter

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run `func` in a thread; the loop is not idle until it returns."""
        future = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        future.add_done_callback(self._job_done)
        return future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        """Join the default executor's threads in real time."""
        self._jobs += 1
        try:
            await super().shutdown_default_executor(*args, **kwargs)
        finally:
            self._jobs -= 1

    def _job_done(self, _: asyncio.Future[Any]) -> None:
        self._jobs -= 1

    def _on_idle(self) -> bool:
        """Make a waiter or a timer ready to run; return False to wait for outside events."""
        if self._jobs:
            return False
        due = self.clock.next_due()
        if due is not None and due <= self.clock.time():
            return self.clock.jump()
        waiting = [waiter for waiter in self._waiters if not waiter.done()]
        self._waiters.clear()
        for waiter in waiting:
            waiter.set_result(None)
        return bool(waiting) or (not self._has_sockets() and self.clock.jump())

    def _has_sockets(self) -> bool:
        # One file is the loop's own, for wake-ups from other threads.
        return len(self._idle_selector.get_map()) > 1

    def _patience(self) -> float | None:
        if self._has_sockets():
            return None
        return self.patience * 10 if self._jobs else self.patience

    def _give_up(self) -> None:
        tasks = "".join(f"\n  {task!r}" for task in asyncio.all_tasks(self))
        what = (
            "only jobs in threads are running"
            if self._jobs
            else "nothing is ready, scheduled or running"
        )
        raise RuntimeError(
            f"deadlock: {what}, and no other thread has called for {self._patience():g} s; "
            f"tasks:{tasks}"
        )


class _IdleSelector(selectors.DefaultSelector):
    def __init__(
        self,
        on_idle: Callable[[], bool],
        patience: Callable[[], float | None],
        give_up: Callable[[], None],
    ) -> None:
        super().__init__()
        self._on_idle = on_idle
        self._patience = patience
        self._give_up = give_up

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        # The clock has all timers, so the loop waits either not at all or without end (idle).
        if events or timeout is not None or self._on_idle():
            return events
        patience = self._patience()
        events = super().select(patience)
        if not events and patience is not None:
            self._give_up()
        return events
