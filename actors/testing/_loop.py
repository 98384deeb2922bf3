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
    """Run asyncio code, `asyncio.sleep` and timeouts of any library included, without ever waiting for time.

    When nothing is ready to run and no job is under way in a thread, the loop is idle. Then whoever waits in `idle()` goes on; and if nobody does,
    the test itself waits for something that only time can bring, so the clock jumps to the next timer. With real sockets open
    it does not jump, since they may bring something. A test that waits for nothing at all fails after `patience` real
    seconds, one that waits for a job in a thread only after ten times as many.
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

    # What these two return is no asyncio.TimerHandle, but has all that asyncio asks of one.

    def call_at(self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None) -> Any:
        """Call `callback` at the virtual time `when`."""
        return self.clock.call_at(when, callback, *args, context=context)

    def call_later(self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None) -> Any:
        """Call `callback` in `delay` virtual seconds."""
        return self.clock.call_later(delay, callback, *args, context=context)

    async def idle(self) -> None:
        """Wait until nothing can happen any more without time going by or somebody outside acting."""
        waiter = self.create_future()
        self._waiters.append(waiter)
        await waiter

    def run_in_executor(self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        """Run `func` in a thread; the loop is not idle meanwhile."""
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
        """Make something ready to run, if that is up to the loop; else return False, to wait for the world."""
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
        # One file is the loop's own, by which other threads wake it.
        return len(self._idle_selector.get_map()) > 1

    def _patience(self) -> float | None:
        if self._has_sockets():
            return None
        return self.patience * 10 if self._jobs else self.patience

    def _give_up(self) -> None:
        tasks = "".join(f"\n  {task!r}" for task in asyncio.all_tasks(self))
        what = "only jobs in threads are under way" if self._jobs else "nothing is ready, due or under way"
        raise RuntimeError(f"deadlock: {what}, and no other thread has called for {self._patience():g} s; tasks:{tasks}")


class _IdleSelector(selectors.DefaultSelector):
    def __init__(self, on_idle: Callable[[], bool], patience: Callable[[], float | None], give_up: Callable[[], None]) -> None:
        super().__init__()
        self._on_idle = on_idle
        self._patience = patience
        self._give_up = give_up

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        # The loop has no timers of its own (they are the clock's), so it waits either not at all or without end, which is when it is idle.
        if events or timeout is not None or self._on_idle():
            return events
        patience = self._patience()
        events = super().select(patience)
        if not events and patience is not None:
            self._give_up()
        return events
