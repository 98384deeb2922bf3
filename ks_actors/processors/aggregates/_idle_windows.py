"""Final results of windows that also close by the wall clock."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, final

from ks_actors._errors import SerializationError
from ks_actors.processors.api import ALL_CLOSED, LATEST_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import Clock


@final
class IdleWindows:
    """The open windows of one task, by their starts.

    A window closes at stream time `start + wait`. Those for which that is after the last instant
    (2**63 - 1 ms) close with it, all together. `first` returns the least start that has not been
    forwarded. `emit` forwards all windows that close by stream time, which `clock` has. The windows
    that the store has already are looked up at the first silence.
    """

    __slots__ = ("_clock", "_emit", "_first", "_heap", "_known", "_store", "_wait", "touched")

    def __init__(
        self,
        store: Any,
        clock: Clock,
        wait: int,
        *,
        first: Callable[[], int],
        emit: Callable[[], None],
    ) -> None:
        self.touched: bool = False
        self._store = store
        self._clock = clock
        self._wait = wait
        self._first = first
        self._emit = emit
        self._known: set[int] | None = None
        self._heap: list[int] = []

    @property
    def stream_time(self) -> int:
        """The node's stream time."""
        return self._clock.time

    def note(self, time: int) -> None:
        """Note a record, and stream time by then."""
        self.touched = True
        self._clock.time = time

    def add(self, start: int) -> None:
        """Add a window."""
        if self._known is not None and start not in self._known:
            self._known.add(start)
            heapq.heappush(self._heap, start)

    def forget_closed(self) -> None:
        """Forget the windows that have been forwarded."""
        heap, known, first = self._heap, self._known, self._first()
        while known is not None and heap and heap[0] < first:
            known.discard(heapq.heappop(heap))

    def next_close(self) -> int | None:
        """Return the stream time at which the next window closes; None when all are closed."""
        if self._known is None:
            self._known = self._starts()
            self._heap = sorted(self._known)
        self.forget_closed()
        return min(self._heap[0] + self._wait, LATEST_MS) if self._heap else None

    def close_until(self, time: int) -> None:
        """Forward the windows that close by `time`; stream time goes on to the last close."""
        last = None
        while self._heap and min(self._heap[0] + self._wait, LATEST_MS) <= time:
            last = heapq.heappop(self._heap)
            assert self._known is not None
            self._known.discard(last)
        if last is not None:
            self._clock.time = max(self._clock.time, closing_time(last + self._wait))
            self._emit()

    def _starts(self) -> set[int]:
        first = self._first()
        if first > LATEST_MS:
            return set()
        try:
            entries = self._store.fetch_all_entries(first, LATEST_MS)
        except SerializationError:
            entries = self._store.closed_entries(first, LATEST_MS)
        return {start for _, start, _ in entries}


def closing_time(time: int) -> int:
    """Return the stream time after a close by the wall clock at `time`."""
    return time if time < LATEST_MS else ALL_CLOSED
