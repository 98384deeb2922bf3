"""Punctuators of one task, on stream time and on wall-clock time."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

BACK_MS: Final = 1_000
"""A clock that is behind by more than this was set back; less is waited for."""


class Schedule:
    """One periodic call; cancelling it from within its own call works."""

    __slots__ = ("callback", "cancelled", "interval")

    def __init__(self, interval: int, callback: Callable[[int], None]) -> None:
        self.interval: int = interval
        self.callback: Callable[[int], None] = callback
        self.cancelled: bool = False

    def cancel(self) -> None:
        """Call no more."""
        self.cancelled = True


class PunctuationQueue:
    """The schedules of one kind of time, by their next due time.

    After a call at `now` the next one is an interval later, or, when several intervals have gone by, at the next multiple behind `now`: missed
    calls are not made up for (Kafka Streams' PunctuationSchedule). A clock that is set back by more than a second takes the due times back with it,
    by whole intervals: nobody waits until it is as late again as it was.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Schedule]] = []
        self._order = count()
        self._seen: int = 0

    def schedule(self, interval_ms: int, callback: Callable[[int], None], first_ms: int, *, anchored_at: int | None) -> Schedule:
        """Call back at `first_ms` and every interval from there; with `anchored_at` (now) the first call is not before it."""
        schedule = Schedule(interval_ms, callback)
        if anchored_at is not None and first_ms < anchored_at:
            first_ms = _next(first_ms, interval_ms, anchored_at)
        heapq.heappush(self._heap, (first_ms, next(self._order), schedule))
        return schedule

    @property
    def next_due(self) -> int | None:
        """When the next call is due; None when nothing is scheduled."""
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due_by(self, now_ms: int) -> int | None:
        """Return when the next call is due on a clock that is at `now_ms`, and that may have been set back; None when nothing is scheduled."""
        back = self._seen - now_ms
        if back > BACK_MS:
            self._heap = [(due - back // schedule.interval * schedule.interval, order, schedule) for due, order, schedule in self._heap]
            heapq.heapify(self._heap)
        if back > BACK_MS or back < 0:
            self._seen = now_ms
        return self.next_due

    def punctuate(self, now_ms: int) -> bool:
        """Call everything that is due at `now_ms`; return whether anything was."""
        called = False
        while (due := self.next_due) is not None and due <= now_ms:
            _, _, schedule = heapq.heappop(self._heap)
            schedule.callback(now_ms)
            called = True
            if not schedule.cancelled:
                heapq.heappush(self._heap, (_next(due, schedule.interval, now_ms), next(self._order), schedule))
        return called

    def clear(self) -> None:
        """Drop all schedules."""
        self._heap.clear()


def _next(due: int, interval: int, now: int) -> int:
    """Return the due time behind `due`, on its grid: beyond `now` when intervals were missed."""
    following = due + interval
    if following <= now:
        following = due + ((now - due) // interval + 1) * interval
    return following
