"""Final results of windows that users compute."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, final

from ks_actors._errors import SerializationError
from ks_actors.processors.aggregates._custom_windows import windows_function
from ks_actors.processors.aggregates._idle_windows import closing_time
from ks_actors.processors.api import ALL_CLOSED, LATEST_MS, Bound, Clock, forward_closed
from ks_actors.processors.stateless import Inline
from ks_actors.records import window_at

if TYPE_CHECKING:
    from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
    from ks_actors.processors.api import NodeContext, WindowsForOperators
    from ks_actors.records import CustomWindows, Headers, Window


@final
class FinalCustomWindowedAggregate(Inline):
    """Aggregate into a window store and forward each window's result once, when it has closed.

    It does what FinalWindowedAggregate does, with the windows that `windows` gives. Those that a
    record closes are forwarded by start and then key. With `tumbling` they are known to be side by
    side, and no task has to look through its store when it starts.
    """

    def __init__(
        self,
        aggregation: WindowAggregation,
        windows: CustomWindows,
        *,
        tumbling: bool = False,
        idle_after_ms: int | None = None,
    ) -> None:
        self.aggregation: WindowAggregation = aggregation
        self.windows: CustomWindows = windows
        self.tumbling: bool = tumbling
        self.idle_after_ms: int | None = idle_after_ms

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        aggregation = self.aggregation
        store: WindowsForOperators = context.store(aggregation.store)
        get, put = store.get_entry, store.put_entry
        fold = aggregation.fold(context, send_old=False)
        grace = aggregation.grace_ms
        windows_for = windows_function(self.windows, aggregation.size_ms)
        closes = _Closes(context, aggregation, self.windows, tumbling=self.tumbling)
        if self.idle_after_ms is not None:
            context.when_idle(self.idle_after_ms, closes)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                context.dropped()
                return
            closed = closes.note(timestamp) - grace
            # Before the record's own windows: one that its time closes has its result without it.
            closes.emit(closed, headers)
            for window in windows_for(timestamp):
                start, end = window
                if end <= closed:
                    context.dropped()
                    continue
                entry = get(key, start)
                _, new = fold(key, value, entry)
                latest = timestamp if entry is None else max(timestamp, entry[1])
                put(key, start, None if new is None else (new, latest))
                closes.add(window)

        return Bound(process)


@final
class _Closes:
    """The open windows of one task, and its stream time: a forwarded window stays closed.

    The windows that the store has already are looked up when they are needed first.
    """

    __slots__ = (
        "_aggregation",
        "_clock",
        "_context",
        "_ends",
        "_known",
        "_next",
        "_origins",
        "_store",
        "_tumbling",
        "_windows",
        "touched",
    )

    def __init__(
        self,
        context: NodeContext,
        aggregation: WindowAggregation,
        windows: CustomWindows,
        *,
        tumbling: bool,
    ) -> None:
        self.touched: bool = False
        self._context = context
        self._aggregation = aggregation
        self._windows = windows
        self._tumbling = tumbling
        self._store: WindowsForOperators = context.store(aggregation.store)
        self._origins = context.origins()
        self._clock = Clock(context, aggregation.store, aggregation.stream)
        # A clock is committed as the last instant then, from which windows may still be open.
        if self._emitted > LATEST_MS:
            self._clock.time = ALL_CLOSED
        # The open windows: their ends with their starts, as a heap, and their starts.
        self._ends: list[tuple[int, int]] = []
        self._known: set[int] | None = None
        # The end of the tumbling window that is open.
        self._next = -1

    @property
    def stream_time(self) -> int:
        """The node's stream time."""
        return self._clock.time

    def note(self, timestamp: int) -> int:
        """Note a record; return stream time."""
        self.touched = True
        clock = self._clock
        if timestamp > clock.time:  # noqa: PLR1730 - `max` takes five times as long
            clock.time = timestamp
        return clock.time

    def add(self, window: Window) -> None:
        """Add a window that has a row now."""
        known = self._known
        if known is not None and window.start not in known:
            known.add(window.start)
            heapq.heappush(self._ends, (window.end, window.start))

    def next_close(self) -> int | None:
        """Return the stream time at which the next window closes; None when all are closed."""
        ends = self._open_windows()
        return min(ends[0][0] + self._aggregation.grace_ms, LATEST_MS) if ends else None

    def close_until(self, time: int) -> None:
        """Forward all windows that close by `time`; stream time goes on to the last close."""
        grace = self._aggregation.grace_ms
        # Stream time goes on to the last close only: records that come later may still be in time.
        closed = max(
            (end for end, _ in self._open_windows() if min(end + grace, LATEST_MS) <= time),
            default=None,
        )
        if closed is not None:
            self._clock.time = max(self._clock.time, closing_time(closed + grace))
            self.emit(self._clock.time - grace, ())

    def emit(self, closed: int, headers: Headers) -> None:
        """Forward the windows that end by `closed` and have not been forwarded."""
        emitted = self._emitted
        if closed <= emitted:
            return
        starts = self._closing(emitted, closed)
        if starts is None:
            return

        def if_closed(start: int) -> Window | None:
            window = window_at(self._windows, start)
            return window if emitted < window.end <= closed else None

        forward_closed(self._context, self._origins, self._store, starts, if_closed, headers)
        # Committed with the positions, so that a forwarded window stays closed after a restart.
        self._context.progress[self._aggregation.store] = closed

    @property
    def _emitted(self) -> int:
        """The time up to which windows have been forwarded, -1 at first."""
        return self._context.progress.get(self._aggregation.store, -1)

    def _closing(self, emitted: int, closed: int) -> tuple[int, int] | None:
        """Return the first and the last start of the windows that may close."""
        # Tumbling windows follow each other: the closed ones are computed, and nothing is
        # remembered.
        if self._tumbling and self._known is None:
            if closed < self._next:
                return None
            start, self._next = self._windows_at(closed)
            first, last = self._windows_at(max(0, emitted))[0], start - 1
            return (first, last) if first <= last else None
        ends, known, starts = self._open_windows(), self._known, []
        while ends and ends[0][0] <= closed:
            starts.append(heapq.heappop(ends)[1])
        if known is not None:
            known.difference_update(starts)
        return (min(starts), max(starts)) if starts else None

    def _windows_at(self, time: int) -> Window:
        (window,) = self._windows.windows_for(time)
        return window

    def _open_windows(self) -> list[tuple[int, int]]:
        """Return the ends and starts of the open windows, as a heap."""
        if self._known is None:
            emitted = self._emitted
            # No window that is open begins before: it would last longer than they do.
            first = max(0, emitted - self._aggregation.size_ms)
            try:
                entries: Any = (
                    self._store.fetch_all_entries(first, LATEST_MS) if first <= LATEST_MS else ()
                )
            except SerializationError:
                entries = self._store.closed_entries(first, LATEST_MS)
            ends = {
                start: window_at(self._windows, start).end for start in {row[1] for row in entries}
            }
            self._ends = sorted((end, start) for start, end in ends.items() if end > emitted)
            self._known = {start for _, start in self._ends}
        return self._ends
