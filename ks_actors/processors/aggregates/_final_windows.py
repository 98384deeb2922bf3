"""Aggregations per window that are forwarded once, when the window has closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.aggregates._closing_windows import (
    ClosingWindows,
    closing_custom,
    closing_regular,
)
from ks_actors.processors.aggregates._window_loop import UncommittedClock, window_loop
from ks_actors.processors.aggregates._windows_for import checked_windows, regular_windows
from ks_actors.processors.api import ALL_CLOSED, LATEST_MS, Bound, Clock
from ks_actors.processors.stateless import Inline
from ks_actors.records import Window, window_at

if TYPE_CHECKING:
    from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
    from ks_actors.processors.aggregates._windows_for import WindowsFor
    from ks_actors.processors.api import NodeContext
    from ks_actors.records import CustomWindows, Headers, Windowed


@final
class FinalWindowedAggregate(Inline):
    """Aggregate into a window store and forward each window's result once, when it has closed.

    A window closes when stream time has passed its end by the grace period. If a record advances
    stream time, all windows that this closes are forwarded first, by start and then key. They have
    the timestamps of their results and the record's headers. Then the record is put into its own
    windows. Until then even a store that keeps only window and grace has all closed windows. (Kafka
    Streams reads its store afterwards, and loses results there unless the retention is longer.)

    The time up to which results have been forwarded is committed along with the offsets. So a task
    that takes over forwards no result again, and drops records that come too late. Results come
    from no single source record, so a downstream error names no record.

    The windows of a timestamp are the aggregation's own, or those that `windows` returns. With
    `tumbling`, the returned windows are known to be adjacent, and no task has to search its store
    when it starts.

    With `idle_after_ms` windows also close by the wall clock, when no record has come for that
    time: stream time advances to the last close.
    """

    def __init__(
        self,
        aggregation: WindowAggregation,
        windows: CustomWindows | None = None,
        *,
        tumbling: bool = False,
        idle_after_ms: int | None = None,
    ) -> None:
        self.aggregation: WindowAggregation = aggregation
        self.windows: CustomWindows | None = windows
        self.tumbling: bool = tumbling
        self.idle_after_ms: int | None = idle_after_ms

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        windows_for, closes = (
            self._regular(context) if self.windows is None else self._custom(context, self.windows)
        )
        # Windows that are regular or adjacent are noted only to close by the wall clock.
        regular = self.windows is None or self.tumbling
        if self.idle_after_ms is not None:
            context.when_idle(self.idle_after_ms, closes)
        advance, open_window = closes.advance, closes.add

        def note(windowed: Windowed[Any], _: Any, __: int, ___: Headers) -> None:
            open_window(*windowed[1])

        add = window_loop(
            context,
            self.aggregation,
            closes.clock,
            windows_for,
            None if regular and self.idle_after_ms is None else note,
            context.dropped,
            send_old=False,
        )

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is not None:
                advance(timestamp, headers)
            add(key, value, timestamp, headers)

        return Bound(process)

    def _regular(self, context: NodeContext) -> tuple[WindowsFor, ClosingWindows]:
        aggregation = self.aggregation
        size, advance, grace = aggregation.size_ms, aggregation.advance_ms, aggregation.grace_ms
        clock = (
            UncommittedClock()
            if self.idle_after_ms is None
            else Clock(context, aggregation.store, aggregation.stream)
        )
        # The committed number is the time of closes, a grace period before stream time.
        closed = context.progress.get(aggregation.store, -1 - grace)
        clock.time = max(clock.time, closed + grace)
        closing = closing_regular(size, advance)
        return regular_windows(size, advance), ClosingWindows(
            context, aggregation, clock, lambda start: Window(start, start + size), closing
        )

    def _custom(
        self, context: NodeContext, windows: CustomWindows
    ) -> tuple[WindowsFor, ClosingWindows]:
        aggregation = self.aggregation
        clock = Clock(context, aggregation.store, aggregation.stream)
        # If all windows have closed, the committed clock is only the last possible time, at which
        # windows may still be open.
        if context.progress.get(aggregation.store, -1) > LATEST_MS:
            clock.time = ALL_CLOSED
        return checked_windows(windows, aggregation.size_ms), ClosingWindows(
            context,
            aggregation,
            clock,
            lambda start: window_at(windows, start),
            closing_custom(windows, tumbling=self.tumbling),
            by_row=not self.tumbling,
        )
