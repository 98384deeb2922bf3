"""Streams grouped by key and windows of time, for aggregation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ks_actors._errors import TopologyError
from ks_actors._hints import Hinted
from ks_actors.dsl import _aggregations
from ks_actors.dsl._materialize import window_store
from ks_actors.dsl.graph import Closes
from ks_actors.dsl.windows import (
    AT_EVERY_CHANGE,
    CheckedWindows,
    Emit,
    EmitStrategy,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    checked_emit,
)
from ks_actors.processors.aggregates import (
    FinalWindowedAggregate,
    SlidingAggregate,
    UnlimitedAggregate,
    WindowAggregation,
    WindowedAggregate,
)
from ks_actors.processors.tables import WindowView
from ks_actors.serdes import CustomWindowedSerde, WindowedSerde

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from ks_actors.dsl._aggregations import Aggregation, Functions
    from ks_actors.dsl._grouped import GroupedStream
    from ks_actors.dsl._options import Materialized
    from ks_actors.dsl._table import Table
    from ks_actors.dsl.windows import KnownWindows
    from ks_actors.processors.api import Operator
    from ks_actors.records import Windowed
    from ks_actors.serdes import Serde

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


class TimeWindowedStream(Generic[K, V], metaclass=Hinted):
    """A stream with its records grouped by key and window. Made by `GroupedStream.windowed_by`.

    A record is late when stream time has passed the window's end by the grace period. Late records
    and records without key are dropped; records without value are dropped only by sliding windows.
    `Materialized(retention_ms=…)` keeps results longer than window and grace demand.
    """

    def __init__(
        self,
        grouped: GroupedStream[K, V],
        windows: KnownWindows,
        emit: Emit = AT_EVERY_CHANGE,
    ) -> None:
        self._grouped: GroupedStream[K, V] = grouped
        self._windows: KnownWindows = windows
        self._by = by_window(windows, emit)

    def emit_strategy(
        self, emit: EmitStrategy, *, idle_after_ms: int | timedelta | None = None
    ) -> TimeWindowedStream[K, V]:
        """Send results at every change, which is the default, or once when their window closes.

        Results sent on close are never lost to a short retention; for that, Kafka Streams needs a
        higher `retention_ms`.

        With `idle_after_ms` windows also close while no record comes. When the operation, in the
        task of one partition, has received no record for that time (ms) of the wall clock, stream
        time advances by the wall clock until the next record. The task must have read everything in
        its topics by then. Records for windows that were closed this way are late: they are dropped
        and counted. Records whose timestamps are behind the wall clock by at most the grace period
        are never late for this reason.
        """
        of = self._grouped.called("emit_strategy", None)
        chosen = checked_emit(emit, idle_after_ms, of)
        if emit is EmitStrategy.ON_WINDOW_CLOSE and isinstance(self._windows, UnlimitedWindows):
            raise TopologyError(
                "an unlimited window never closes: use EmitStrategy.ON_WINDOW_UPDATE, or "
                "TimeWindows"
            )
        return TimeWindowedStream(self._grouped, self._windows, chosen)

    def count(
        self, materialized: Materialized[K, int] | str | None = None, *, name: str | None = None
    ) -> Table[Windowed[K], int]:
        """Return the table of the number of records per key and window."""
        return _aggregations.count(self._grouped, self._by, materialized, name)

    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[Windowed[K], V]:
        """Return the table of `reducer(aggregate, value)` over the values of each key and window.

        The first value is the first aggregate. A result of None deletes the row.
        """
        return _aggregations.reduce(self._grouped, self._by, materialized, name, reducer)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A | None],
        materialized: Materialized[K, A] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[Windowed[K], A]:
        """Return the table of `aggregator(key, value, aggregate)`, per key and window.

        An aggregate begins with the result of `initializer()`. A result of None deletes the row.
        """
        return _aggregations.aggregate(
            self._grouped,
            self._by,
            materialized,
            name,
            initializer=initializer,
            aggregator=aggregator,
        )


def by_window(windows: KnownWindows, emit: Emit = AT_EVERY_CHANGE) -> Aggregation:
    """Return an aggregation by key and window of time."""

    def key(key: Serde[Any] | None) -> Serde[Any]:
        if isinstance(windows, CheckedWindows):
            return CustomWindowedSerde(key, windows.windows)
        return WindowedSerde(key, windows.size_ms)

    def operator(store: str, functions: Functions, send_old: bool, stream: int | None) -> Operator:
        aggregation = WindowAggregation(
            store=store,
            size_ms=windows.size_ms,
            advance_ms=windows.advance_ms if isinstance(windows, TimeWindows) else windows.size_ms,
            grace_ms=windows.grace_ms,
            aggregator=functions.aggregator,
            initializer=functions.initializer,
            send_old=send_old,
            stream=stream,
        )
        if isinstance(windows, UnlimitedWindows):
            return UnlimitedAggregate(aggregation, windows.start_ms)
        if isinstance(windows, SlidingWindows):
            return SlidingAggregate(
                aggregation, on_close=emit.on_close, idle_after_ms=emit.idle_after_ms
            )
        custom = windows if isinstance(windows, CheckedWindows) else None
        given = None if custom is None else custom.windows
        if not emit.on_close:
            return WindowedAggregate(aggregation, given)
        return FinalWindowedAggregate(
            aggregation,
            given,
            tumbling=custom is not None and custom.tumbling,
            idle_after_ms=emit.idle_after_ms,
        )

    stored = partial(window_store, windows=windows)
    closes = Closes(windows.grace_ms, end_included=isinstance(windows, SlidingWindows))
    return _aggregations.Aggregation(stored, WindowView, operator, key, closes)
