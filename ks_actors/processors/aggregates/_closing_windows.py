"""The open windows of one task. Each is forwarded once, when it has closed."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, final

from ks_actors._errors import SerializationError
from ks_actors.processors.api import ALL_CLOSED, LATEST_MS, forward_closed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
    from ks_actors.processors.aggregates._window_loop import UncommittedClock
    from ks_actors.processors.api import Clock, NodeContext, WindowsForOperators
    from ks_actors.records import CustomWindows, Headers, Window

    Starts = tuple[int, int]
    Closing = Callable[[int, int, list[int] | None], tuple[Starts | None, int | None]]

_NEVER = 1 << 66


@final
class ClosingWindows:
    """The open windows of one task, and its stream time: a forwarded window stays closed.

    `window_at` returns the window of a start. `past_end` is 1 if windows include their end, else 0.

    `closing(emitted, closed, starts)` returns the first and last start of the windows that end
    after `emitted` and by `closed` (ms), or None if there are none. It also returns the end of the
    window that closes next, or None for the end of the first open window with a row. `starts` are
    the starts of closing windows with a row; None means that the store has not been searched for
    such windows yet. With `by_row` it is searched at the first record, else at the first silence.
    """

    __slots__ = (
        "_by_row",
        "_closing",
        "_context",
        "_ends",
        "_grace",
        "_known",
        "_name",
        "_next",
        "_origins",
        "_past_end",
        "_progress",
        "_size",
        "_store",
        "_window_at",
        "clock",
        "touched",
    )

    def __init__(
        self,
        context: NodeContext,
        aggregation: WindowAggregation,
        clock: Clock | UncommittedClock,
        window_at: Callable[[int], Window],
        closing: Closing,
        *,
        by_row: bool = False,
        past_end: int = 0,
    ) -> None:
        self.touched: bool = False
        self.clock: Clock | UncommittedClock = clock
        self._context = context
        self._name = aggregation.store
        self._store: WindowsForOperators = context.store(aggregation.store)
        self._origins = context.origins()
        self._progress = context.progress
        self._grace = aggregation.grace_ms
        self._size = aggregation.size_ms + past_end
        self._past_end = past_end
        self._window_at = window_at
        self._closing = closing
        self._by_row = by_row
        # The open windows: their ends with their starts, as a heap, and their starts.
        self._ends: list[tuple[int, int]] = []
        self._known: set[int] | None = None
        # No window ends before this time.
        self._next = -1

    @property
    def stream_time(self) -> int:
        """The node's stream time."""
        return self.clock.time

    def advance(self, timestamp: int, headers: Headers) -> None:
        """Advance stream time to a record's, and forward the windows that it closes.

        Call it before the record is added to its own windows, because windows that the record's
        time closes do not include the record.
        """
        self.touched = True
        clock = self.clock
        if timestamp > clock.time:  # noqa: PLR1730 - `max` takes five times as long
            clock.time = timestamp
        closed = clock.time - self._grace
        if closed >= self._next:
            self.emit(closed, headers)

    def add(self, start: int, end: int) -> None:
        """Add a window that has got a row."""
        known = self._known
        if known is not None and start not in known:
            known.add(start)
            heapq.heappush(self._ends, (end + self._past_end, start))
            self._next = min(self._next, end + self._past_end)

    def next_close(self) -> int | None:
        """Return the stream time at which the next window closes; None when all are closed."""
        ends = self._open_windows()
        return min(ends[0][0] + self._grace, LATEST_MS) if ends else None

    def close_until(self, time: int) -> None:
        """Forward all windows that close by `time`; advance stream time to the last close."""
        # Stream time advances to the last close only: later records may still be in time.
        closed = max(
            (end for end, _ in self._open_windows() if min(end + self._grace, LATEST_MS) <= time),
            default=None,
        )
        if closed is not None:
            self.clock.time = max(self.clock.time, closing_time(closed + self._grace))
            self.emit(self.clock.time - self._grace, ())

    def emit(self, closed: int, headers: Headers) -> None:
        """Forward the windows that end by `closed` and have not been forwarded."""
        emitted = self._progress.get(self._name, -1)
        if closed <= emitted:
            return
        if self._by_row:
            self._open_windows()
        starts, next_end = self._closing(emitted, closed, self._closed_starts(closed))
        if starts is not None:

            def if_closed(start: int) -> Window | None:
                window = self._window_at(start)
                return window if emitted < window.end + self._past_end <= closed else None

            forward_closed(self._context, self._origins, self._store, starts, if_closed, headers)
            # Committed with the positions, so that a forwarded window stays closed after a restart.
            self._progress[self._name] = closed
        if next_end is None:
            next_end = self._ends[0][0] if self._ends else _NEVER
        self._next = next_end

    def _closed_starts(self, closed: int) -> list[int] | None:
        """Forget the windows that end by a time; return their starts, None if unknown."""
        ends, known = self._ends, self._known
        if known is None:
            return None
        starts: list[int] = []
        while ends and ends[0][0] <= closed:
            starts.append(heapq.heappop(ends)[1])
        known.difference_update(starts)
        return starts

    def _open_windows(self) -> list[tuple[int, int]]:
        """Return the ends and starts of the open windows, as a heap."""
        if self._known is None:
            emitted = self._progress.get(self._name, -1)
            # No open window begins before `first`: it would be longer than `size`.
            first = max(0, emitted - self._size)
            try:
                entries: Any = (
                    self._store.fetch_all_entries(first, LATEST_MS) if first <= LATEST_MS else ()
                )
            except SerializationError:
                entries = self._store.closed_entries(first, LATEST_MS)
            ends = [
                (self._window_at(start).end + self._past_end, start)
                for start in {row[1] for row in entries}
            ]
            self._ends = sorted(end for end in ends if end[0] > emitted)
            self._known = {start for _, start in self._ends}
        return self._ends


def closing_regular(size: int, advance: int) -> Closing:
    """Return the `closing` of windows that last `size` ms and start every `advance` ms."""

    def closing(emitted: int, closed: int, _: list[int] | None) -> tuple[Starts | None, int]:
        first = 0 if emitted < 0 else max(0, emitted - size) + 1
        last = min(closed - size, LATEST_MS)
        ends = last >= 0 and last // advance * advance >= first
        next_end = max(0, (closed - size) // advance + 1) * advance + size
        return (first, last) if ends else None, next_end

    return closing


def closing_custom(windows: CustomWindows, *, tumbling: bool) -> Closing:
    """Return the `closing` of windows that users compute; `tumbling` windows are adjacent."""

    def closing(
        emitted: int, closed: int, starts: list[int] | None
    ) -> tuple[Starts | None, int | None]:
        if starts is not None or not tumbling:
            return ((min(starts), max(starts)) if starts else None), None
        # Tumbling windows follow each other: compute the closed ones, and remember nothing.
        ((start, next_end),) = windows.windows_for(closed)
        ((first, _),) = windows.windows_for(max(0, emitted))
        return ((first, start - 1) if first < start else None), next_end

    return closing


def closing_time(time: int) -> int:
    """Return the stream time after a close by the wall clock at `time`."""
    return time if time < LATEST_MS else ALL_CLOSED
