"""Streams grouped by key and windows of time, for aggregation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ks_actors._errors import TopologyError
from ks_actors.dsl import _grouped, _table
from ks_actors.dsl._logic import AggregateLogic
from ks_actors.dsl._materialize import check_materialized, window_store
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
from ks_actors.processors.api import check_function
from ks_actors.processors.tables import WindowView
from ks_actors.serdes import LONG, CustomWindowedSerde, WindowedSerde

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl._grouped import GroupedStream
    from ks_actors.dsl._materialize import Stored
    from ks_actors.dsl._options import Materialized
    from ks_actors.dsl._table import Table
    from ks_actors.dsl.windows import KnownWindows
    from ks_actors.processors.api import Operator
    from ks_actors.records import Windowed
    from ks_actors.serdes import Serde

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


class TimeWindowedStream(Generic[K, V]):
    """A stream with its records grouped by key and window. Made by `GroupedStream.windowed_by`.

    A record is late when stream time has passed the window's end by the grace period. Late records,
    and those without key, are dropped; those without value are not, except by sliding windows.
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
        self._emit: Emit = emit

    def emit_strategy(
        self, emit: EmitStrategy, *, idle_after_ms: int | None = None
    ) -> TimeWindowedStream[K, V]:
        """Send results at every change, which is the default, or once when their window closes.

        In the second case no result is lost to a short retention. Kafka Streams needs a higher
        `retention_ms` for that.

        With `idle_after_ms` windows also close while no record comes. When none has reached this
        operation for that time (ms) of the wall clock, in the task of one partition, stream time
        goes on by the wall clock until the next record. The task must have read all that is in
        its topics by then. Records for windows that were closed like that are late: they are
        dropped and counted. Those with timestamps no further than the grace period behind the
        wall clock are never late by it.
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
        self, materialized: Materialized[K, int] | None = None, *, name: str | None = None
    ) -> Table[Windowed[K], int]:
        """Return the table of the number of records per key and window."""
        check_materialized(materialized, self._grouped.called("count", name))
        if materialized is not None and materialized.name is None:
            # Kafka Streams wastes a number here.
            self._grouped.graph.new_store_name(_grouped.AGGREGATE)
        return self._aggregate(_grouped.AGGREGATE, materialized, name, LONG, None, None)

    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        materialized: Materialized[K, V] | None = None,
        *,
        name: str | None = None,
    ) -> Table[Windowed[K], V]:
        """Return the table of `reducer(aggregate, value)` over the values of each key and window.

        The first value is the first aggregate. A result of None deletes the row.
        """
        of = self._grouped.called("reduce", name)
        check_function(reducer, 2, role="reducer", of=of)
        check_materialized(materialized, of)
        return self._aggregate(
            _grouped.REDUCE, materialized, name, self._grouped.value, None, reducer
        )

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A | None],
        materialized: Materialized[K, A] | None = None,
        *,
        name: str | None = None,
    ) -> Table[Windowed[K], A]:
        """Return the table of `aggregator(key, value, aggregate)`, per key and window.

        An aggregate begins with the result of `initializer()`. A result of None deletes the row.
        """
        of = self._grouped.called("aggregate", name)
        check_function(initializer, 0, role="initializer", of=of)
        check_function(aggregator, 3, role="aggregator", of=of)
        check_materialized(materialized, of)
        return self._aggregate(
            _grouped.AGGREGATE, materialized, name, None, initializer, aggregator
        )

    def _aggregate(
        self,
        prefix: str,
        materialized: Materialized[Any, Any] | None,
        name: str | None,
        value: Serde[Any] | None,
        initializer: Callable[[], Any] | None,
        aggregator: Callable[..., Any] | None,
    ) -> Table[Windowed[K], Any]:
        grouped, windows = self._grouped, self._windows
        stored = window_store(
            grouped.graph, materialized, prefix, key=grouped.key, value=value, windows=windows
        )
        named = grouped.graph.name_or(name, prefix)
        logic = windowed_aggregate(windows, self._emit, stored, initializer, aggregator)
        node, sources = grouped.build(named, stored, logic)
        node.closes = Closes(windows.grace_ms, end_included=isinstance(windows, SlidingWindows))
        spec = stored.spec
        return _table.Table(
            grouped.graph,
            node,
            sources,
            windowed_key(spec.key, windows),
            spec.value,
            logic,
            store_name=spec.name if stored.named else None,
        )


def windowed_key(key: Serde[Any] | None, windows: KnownWindows) -> Serde[Any]:
    """Return the serde of keys in windows; without a key serde it takes the app's default."""
    if isinstance(windows, CheckedWindows):
        return CustomWindowedSerde(key, windows.windows)
    return WindowedSerde(key, windows.size_ms)


def windowed_aggregate(
    windows: KnownWindows,
    emit: Emit,
    stored: Stored,
    initializer: Callable[[], Any] | None,
    aggregator: Callable[..., Any] | None,
    stream: int | None = None,
) -> AggregateLogic:
    """Return the logic of an aggregation per window; without an aggregator it counts.

    `stream` is the number of the stream in a cogroup.
    """
    spec = stored.spec

    def make(send_old: bool) -> Operator:
        aggregation = WindowAggregation(
            store=spec.name,
            size_ms=windows.size_ms,
            advance_ms=windows.advance_ms if isinstance(windows, TimeWindows) else windows.size_ms,
            grace_ms=windows.grace_ms,
            aggregator=aggregator,
            initializer=initializer,
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

    return AggregateLogic(spec, make, WindowView(spec.name))
