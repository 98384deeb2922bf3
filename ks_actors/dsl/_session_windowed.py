"""Streams grouped by key and session, for aggregation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ks_actors.dsl import _cogroup, _grouped, _table
from ks_actors.dsl._logic import AggregateLogic
from ks_actors.dsl._materialize import check_materialized, session_store
from ks_actors.dsl.graph import Closes
from ks_actors.dsl.windows import AT_EVERY_CHANGE, checked_emit
from ks_actors.processors.aggregates import (
    FinalSessionAggregate,
    SessionAggregate,
    SessionAggregation,
)
from ks_actors.processors.api import check_function
from ks_actors.processors.tables import SessionView
from ks_actors.serdes import LONG, SessionWindowedSerde

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl._cogroup import CogroupedStream
    from ks_actors.dsl._grouped import GroupedStream
    from ks_actors.dsl._logic import Logic
    from ks_actors.dsl._materialize import Stored
    from ks_actors.dsl._options import Materialized
    from ks_actors.dsl._table import Table
    from ks_actors.dsl.windows import Emit, EmitStrategy, SessionWindows
    from ks_actors.processors.api import Operator
    from ks_actors.records import Windowed
    from ks_actors.serdes import Serde

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


class SessionWindowedStream(Generic[K, V]):
    """A stream with its records grouped by key and session. Made by `GroupedStream.windowed_by`.

    Whenever a session grows, or two merge, the old ones are deleted: their result is None. The new
    one is sent at its end. A record is late when stream time has passed the end of its session by
    more than gap and grace period. Late records, and those without key, are dropped; those without
    value are not. `Materialized(retention_ms=…)` keeps results longer than gap and grace demand.
    """

    def __init__(
        self,
        grouped: GroupedStream[K, V],
        windows: SessionWindows,
        emit: Emit = AT_EVERY_CHANGE,
    ) -> None:
        self._grouped: GroupedStream[K, V] = grouped
        self._windows: SessionWindows = windows
        self._emit: Emit = emit

    def emit_strategy(
        self, emit: EmitStrategy, *, idle_after_ms: int | None = None
    ) -> SessionWindowedStream[K, V]:
        """Send results at every change, which is the default, or once when their session closes.

        In the second case no result is lost to a short retention. Kafka Streams needs a higher
        `retention_ms` for that.

        With `idle_after_ms` sessions also close while no record comes: see
        `TimeWindowedStream.emit_strategy`. Then no record joins a session that has been sent; one
        that is in time begins another.
        """
        chosen = checked_emit(emit, idle_after_ms, self._grouped.called("emit_strategy", None))
        return SessionWindowedStream(self._grouped, self._windows, chosen)

    def count(
        self, materialized: Materialized[K, int] | None = None, *, name: str | None = None
    ) -> Table[Windowed[K], int]:
        """Return the table of the number of records per session."""
        check_materialized(materialized, self._grouped.called("count", name))
        if materialized is not None and materialized.name is None:
            # Kafka Streams wastes a number here.
            self._grouped.graph.new_store_name(_grouped.AGGREGATE)
        return self._aggregate(_grouped.AGGREGATE, materialized, name, LONG, None, None, None)

    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        materialized: Materialized[K, V] | None = None,
        *,
        name: str | None = None,
    ) -> Table[Windowed[K], V]:
        """Return the table of `reducer(aggregate, value)` over the values of each session.

        The first value is the first aggregate. Sessions are merged by `reducer(aggregate, other
        aggregate)`, the earliest first. A result of None deletes the row.
        """
        of = self._grouped.called("reduce", name)
        check_function(reducer, 2, role="reducer", of=of)
        check_materialized(materialized, of)
        return self._aggregate(
            _grouped.REDUCE, materialized, name, self._grouped.value, None, reducer, None
        )

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A | None],
        merger: Callable[[K, A, A], A],
        materialized: Materialized[K, A] | None = None,
        *,
        name: str | None = None,
    ) -> Table[Windowed[K], A]:
        """Return the table of `aggregator(key, value, aggregate)` over the values of each session.

        For each record `initializer()` is merged with all sessions that it joins, by `merger(key,
        aggregate, other aggregate)`, the earliest first; then the aggregator adds its value. A
        result of None deletes the row.
        """
        of = self._grouped.called("aggregate", name)
        check_function(initializer, 0, role="initializer", of=of)
        check_function(aggregator, 3, role="aggregator", of=of)
        check_function(merger, 3, role="merger", of=of)
        check_materialized(materialized, of)
        return self._aggregate(
            _grouped.AGGREGATE, materialized, name, None, initializer, aggregator, merger
        )

    def _aggregate(
        self,
        prefix: str,
        materialized: Materialized[Any, Any] | None,
        name: str | None,
        value: Serde[Any] | None,
        initializer: Callable[[], Any] | None,
        aggregator: Callable[..., Any] | None,
        merger: Callable[[Any, Any, Any], Any] | None,
    ) -> Table[Windowed[K], Any]:
        grouped, windows = self._grouped, self._windows
        on_close = self._emit.on_close
        stored = session_store(
            grouped.graph,
            materialized,
            prefix,
            key=grouped.key,
            value=value,
            windows=windows,
            on_close=on_close,
        )
        named = grouped.graph.name_or(name, prefix)
        logic = session_aggregate(windows, self._emit, stored, initializer, aggregator, merger)
        node, sources = grouped.build(named, stored, logic)
        node.closes = Closes(windows.keep_ms, end_included=True)
        spec = stored.spec
        return _table.Table(
            grouped.graph,
            node,
            sources,
            session_key(spec.key),
            spec.value,
            logic,
            store_name=spec.name if stored.named else None,
        )


class SessionWindowedCogroupedStream(Generic[K, A]):
    """Cogrouped streams, aggregated per session. Made by `CogroupedStream.windowed_by`."""

    def __init__(self, cogrouped: CogroupedStream[K, A], windows: SessionWindows) -> None:
        self._cogrouped: CogroupedStream[K, A] = cogrouped
        self._windows: SessionWindows = windows

    def aggregate(
        self,
        initializer: Callable[[], A],
        merger: Callable[[K, A, A], A],
        materialized: Materialized[K, A] | None = None,
        *,
        name: str | None = None,
    ) -> Table[Windowed[K], A]:
        """Return the table of aggregates of each key and session.

        An aggregate begins with the result of `initializer()`. Sessions are merged by `merger(key,
        aggregate, other aggregate)`, see `SessionWindowedStream.aggregate`.
        """
        of = self._cogrouped.called("aggregate", name)
        check_function(initializer, 0, role="initializer", of=of)
        check_function(merger, 3, role="merger", of=of)
        check_materialized(materialized, of)
        cogrouped, windows = self._cogrouped, self._windows
        stored = session_store(
            cogrouped.graph,
            materialized,
            _cogroup.AGGREGATE,
            key=cogrouped.key,
            value=None,
            windows=windows,
            on_close=False,
        )

        def logic(aggregator: Callable[[Any, Any, Any], Any], number: int) -> Logic:
            return session_aggregate(
                windows, AT_EVERY_CHANGE, stored, initializer, aggregator, merger, number
            )

        node, sources, merged = cogrouped.build(stored, name, logic)
        node.closes = Closes(windows.keep_ms, end_included=True)
        spec = stored.spec
        return _table.Table(
            cogrouped.graph,
            node,
            sources,
            session_key(spec.key),
            spec.value,
            merged,
            store_name=spec.name if stored.named else None,
        )


def session_key(key: Serde[Any] | None) -> Serde[Any]:
    """Return the serde of keys with sessions; without a key serde it takes the app's default."""
    return SessionWindowedSerde(key)


def session_aggregate(
    windows: SessionWindows,
    emit: Emit,
    stored: Stored,
    initializer: Callable[[], Any] | None,
    aggregator: Callable[..., Any] | None,
    merger: Callable[[Any, Any, Any], Any] | None,
    stream: int | None = None,
) -> AggregateLogic:
    """Return the logic of an aggregation per session; without an aggregator it counts.

    `stream` is the number of the stream in a cogroup.
    """
    spec = stored.spec

    def make(send_old: bool) -> Operator:
        aggregation = SessionAggregation(
            store=spec.name,
            gap_ms=windows.inactivity_gap_ms,
            grace_ms=windows.grace_ms,
            aggregator=aggregator,
            initializer=initializer,
            merger=merger,
            send_old=send_old,
            stream=stream,
        )
        return (
            FinalSessionAggregate(aggregation, idle_after_ms=emit.idle_after_ms)
            if emit.on_close
            else SessionAggregate(aggregation)
        )

    return AggregateLogic(spec, make, SessionView(spec.name))
