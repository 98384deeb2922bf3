"""The punctuators of one task, on stream time and on wall-clock time."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

BACK_MS: Final = 1_000
"""A clock that is behind by more than this (ms) was set back; if it lags less, wait for it."""


class Schedule:
    """One periodic call; it may be cancelled from within its own call."""

    __slots__ = ("_queue", "callback", "cancelled", "due", "interval")

    def __init__(
        self, queue: PunctuationQueue, due: int, interval: int, callback: Callable[[int], None]
    ) -> None:
        self.due: int = due
        self.interval: int = interval
        self.callback: Callable[[int], None] = callback
        self.cancelled: bool = False
        self._queue: PunctuationQueue = queue

    def cancel(self) -> None:
        """Stop the calls."""
        if not self.cancelled:
            self.cancelled = True
            self._queue.forget()


class PunctuationQueue:
    """The schedules of one kind of time, by their next due time.

    After a call at `now`, the next call is an interval later. If several intervals have passed, the
    next call is at the next multiple after `now`: missed calls are not made up for (Kafka Streams'
    PunctuationSchedule). When the clock is set back by more than a second, the due times go back by
    whole intervals, too, so that no call waits for the clock to catch up. A second clock, which
    cannot be set, distinguishes a step back from elapsed time.

    Calls that are due at the same time come in Kafka Streams' order, the order of Java's
    PriorityQueue. That queue is a binary heap, in which a cancelled schedule keeps its place until
    it is due. Python's heapq sifts differently, and would give another order.

    `wanted` is the number of schedules that are not cancelled.
    """

    def __init__(self) -> None:
        self.wanted: int = 0
        self._heap: list[Schedule] = []
        # The clock's lead over the second clock at the last check without a set-back, and its time
        # then.
        self._ahead: float = -inf
        self._seen: int = 0

    def schedule(
        self,
        interval_ms: int,
        callback: Callable[[int], None],
        first_ms: int,
        *,
        anchored_at: int | None,
    ) -> Schedule:
        """Call back at `first_ms` and every interval from there.

        With `anchored_at` (now), the first call is not earlier.
        """
        if anchored_at is not None and first_ms < anchored_at:
            first_ms = _next(first_ms, interval_ms, anchored_at)
        if not self.wanted:
            # Nobody has asked for the next call, so a set-back of the clock was not noticed.
            self._ahead, self._seen = -inf, 0
        schedule = Schedule(self, first_ms, interval_ms, callback)
        self.wanted += 1
        self._push(schedule)
        return schedule

    def forget(self) -> None:
        """Note that a schedule is cancelled."""
        self.wanted -= 1

    @property
    def next_due(self) -> int | None:
        """The time of the next check, at the latest when a call is due; None without schedules."""
        return self._heap[0].due if self.wanted > 0 else None

    def is_due(self, now_ms: int) -> bool:
        """Return whether `punctuate` has work at `now_ms`."""
        return bool(self._heap) and self._heap[0].due <= now_ms

    def due_by(self, now_ms: int, steady_ms: float) -> int | None:
        """Return the time of the next check, by a clock at `now_ms` that may have been set back.

        `steady_ms` is the time of a clock that cannot be set. None when nothing is scheduled.
        """
        ahead = now_ms - steady_ms
        back = self._ahead - ahead
        if back > BACK_MS:
            schedules, self._heap = self._heap, []
            for schedule in schedules:
                # A first call may have been scheduled for a later time, which stays.
                if schedule.due <= now_ms + back + schedule.interval:
                    schedule.due -= int(back // schedule.interval) * schedule.interval
                    if schedule.due > now_ms + schedule.interval:
                        schedule.due -= schedule.interval
                self._push(schedule)
        # Small steps back do not add up once the clock has caught up.
        if back > BACK_MS or now_ms >= self._seen:
            self._ahead, self._seen = ahead, now_ms
        return self.next_due

    def punctuate(self, now_ms: int) -> bool:
        """Make all calls that are due at `now_ms`; return whether any call was due."""
        called = False
        while self._heap and self._heap[0].due <= now_ms:
            schedule = self._pop()
            if schedule.cancelled:
                continue
            schedule.callback(now_ms)
            called = True
            # The callback may have cancelled it.
            if not schedule.cancelled:
                schedule.due = _next(schedule.due, schedule.interval, now_ms)
                self._push(schedule)
        return called

    def clear(self) -> None:
        """Drop all schedules."""
        for schedule in self._heap:
            # Mark it as cancelled, so that a later `cancel` does not count it again.
            schedule.cancelled = True
        self._heap.clear()
        self.wanted = 0

    def _push(self, schedule: Schedule) -> None:
        heap, at = self._heap, len(self._heap)
        heap.append(schedule)
        while at > 0:
            above = (at - 1) // 2
            if schedule.due >= heap[above].due:
                break
            heap[at] = heap[above]
            at = above
        heap[at] = schedule

    def _pop(self) -> Schedule:
        heap = self._heap
        first, last = heap[0], heap.pop()
        if heap:
            at, end = 0, len(heap)
            while (below := 2 * at + 1) < end:
                if below + 1 < end and heap[below].due > heap[below + 1].due:
                    below += 1
                if last.due <= heap[below].due:
                    break
                heap[at] = heap[below]
                at = below
            heap[at] = last
        return first


def _next(due: int, interval: int, now: int) -> int:
    """Return the due time after `due`, on its grid: after `now` when intervals were missed."""
    following = due + interval
    if following <= now:
        following = due + ((now - due) // interval + 1) * interval
    return following
