"""Aggregations of grouped streams per key and window of time, forwarded at every update."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, final

from ks_actors.processors.aggregates._batch_form import batch_form
from ks_actors.processors.aggregates._cached import one_at_a_time
from ks_actors.processors.aggregates._cached_windows import cached_batches, held_window_counts
from ks_actors.processors.aggregates._tumbling_batches import tumbling_batches
from ks_actors.processors.aggregates._window_loop import UncommittedClock, window_loop
from ks_actors.processors.aggregates._windows_for import checked_windows, regular_windows
from ks_actors.processors.api import ALL_CLOSED, LATEST_MS, Bound, Clock
from ks_actors.processors.stateless import Inline
from ks_actors.records import Window

if TYPE_CHECKING:
    from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
    from ks_actors.processors.aggregates._windows_for import Span
    from ks_actors.processors.api import NodeContext
    from ks_actors.records import CustomWindows


@final
class WindowedAggregate(Inline):
    """Aggregate into a window store; forward `Windowed(key, window)` and `(new, old | None)`.

    Each window that a record changes is forwarded. The windows of a timestamp are the aggregation's
    own, or those that `windows` returns, which last up to its `size_ms`.
    """

    def __init__(
        self, aggregation: WindowAggregation, windows: CustomWindows | None = None
    ) -> None:
        self.aggregation: WindowAggregation = aggregation
        self.windows: CustomWindows | None = windows

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        aggregation = self.aggregation
        clock = Clock(context, aggregation.store, aggregation.stream)
        cache = context.cache(aggregation.store, send_old=aggregation.send_old)
        windows_for = (
            regular_windows(aggregation.size_ms, aggregation.advance_ms)
            if self.windows is None
            else checked_windows(self.windows, aggregation.size_ms)
        )
        loop = partial(window_loop, context, aggregation, clock, windows_for)
        tumbling = self.windows is None and aggregation.advance_ms >= aggregation.size_ms
        if cache is None:
            loop = partial(loop, send_old=aggregation.send_old)
            return Bound(
                loop(context.forward, context.dropped),
                tumbling_batches(context, aggregation, clock)
                if tumbling
                else batch_form(context, loop),
            )
        process = loop(cache.hold, context.dropped, send_old=True, cache=cache)
        if tumbling and cache.plain and aggregation.aggregator is None:
            hold = held_window_counts(cache)
            batch = tumbling_batches(context, aggregation, clock, cache=cache, hold=hold)
            return Bound(process, batch)
        if self.windows is None and cache.plain and not context.store(aggregation.store).mutable:
            return Bound(process, cached_batches(context, aggregation, cache, clock, windows_for))
        return Bound(process, one_at_a_time(context, cache, process))


@final
class UnlimitedAggregate(Inline):
    """Aggregate all records from `start_ms` on into one window of a window store.

    It forwards `Windowed(key, window)` and `(new, old | None)`. Records before the start are left
    out, and records without key are dropped.
    """

    def __init__(self, aggregation: WindowAggregation, start_ms: int) -> None:
        self.aggregation: WindowAggregation = aggregation
        self.start_ms: int = start_ms

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        # The window never closes, so its node needs no stream time after a restart.
        aggregation = replace(self.aggregation, grace_ms=ALL_CLOSED)
        start = self.start_ms
        windows = [(start, LATEST_MS, Window(start, LATEST_MS))]
        cache = context.cache(aggregation.store, send_old=aggregation.send_old)

        def windows_for(timestamp: int) -> list[Span]:
            return windows if timestamp >= start else []

        loop = partial(window_loop, context, aggregation, UncommittedClock(), windows_for)
        return Bound(
            loop(context.forward, context.dropped, send_old=aggregation.send_old)
            if cache is None
            else loop(cache.hold, context.dropped, send_old=True, cache=cache)
        )
