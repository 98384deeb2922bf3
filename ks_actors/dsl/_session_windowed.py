"""Streams grouped by key and session, for aggregation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from ks_actors._hints import Hinted
from ks_actors.dsl import _aggregations
from ks_actors.dsl._materialize import session_store
from ks_actors.dsl.graph import Closes
from ks_actors.dsl.windows import AT_EVERY_CHANGE, checked_emit
from ks_actors.processors.aggregates import (
    FinalSessionAggregate,
    SessionAggregate,
    SessionAggregation,
)
from ks_actors.processors.tables import SessionView
from ks_actors.serdes import SessionWindowedSerde

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from ks_actors.dsl._aggregations import Aggregation, Functions
    from ks_actors.dsl._cogroup import CogroupedStream
    from ks_actors.dsl._grouped import GroupedStream
    from ks_actors.dsl._options import Materialized
    from ks_actors.dsl._table import Table
    from ks_actors.dsl.windows import Emit, EmitStrategy, SessionWindows
    from ks_actors.processors.api import Operator
    from ks_actors.records import Windowed

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


class SessionWindowedStream(Generic[K, V], metaclass=Hinted):
    """A stream with its records grouped by key and session. Made by `GroupedStream.windowed_by`.

    When a session grows, or two merge, the old sessions are deleted: their result is None. A result
    has its session's end as timestamp. A record is late when stream time has passed the end of its
    session by more than gap and grace period. Late records and records without key are dropped;
    records without value are not. `Materialized(retention_ms=…)` keeps results longer than gap and
    grace demand.
    """

    def __init__(
        self,
        grouped: GroupedStream[K, V],
        windows: SessionWindows,
        emit: Emit = AT_EVERY_CHANGE,
    ) -> None:
        self._grouped: GroupedStream[K, V] = grouped
        self._windows: SessionWindows = windows
        self._by = by_session(windows, emit)

    def emit_strategy(
        self, emit: EmitStrategy, *, idle_after_ms: int | timedelta | None = None
    ) -> SessionWindowedStream[K, V]:
        """Send results at every change, which is the default, or once when their session closes.

        Results sent on close are never lost to a short retention; for that, Kafka Streams needs a
        higher `retention_ms`.

        With `idle_after_ms` sessions also close while no record comes: see
        `TimeWindowedStream.emit_strategy`. No record then joins a session whose result was sent; a
        record that is not late begins another session.
        """
        chosen = checked_emit(emit, idle_after_ms, self._grouped.called("emit_strategy", None))
        return SessionWindowedStream(self._grouped, self._windows, chosen)

    def count(
        self, materialized: Materialized[K, int] | str | None = None, *, name: str | None = None
    ) -> Table[Windowed[K], int]:
        """Return the table of the number of records per session."""
        return _aggregations.count(self._grouped, self._by, materialized, name)

    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[Windowed[K], V]:
        """Return the table of `reducer(aggregate, value)` over the values of each session.

        The first value is the first aggregate. Sessions are merged by `reducer(aggregate, other
        aggregate)`, the earliest first. A result of None deletes the row.
        """
        return _aggregations.reduce(self._grouped, self._by, materialized, name, reducer)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A | None],
        merger: Callable[[K, A, A], A],
        materialized: Materialized[K, A] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[Windowed[K], A]:
        """Return the table of `aggregator(key, value, aggregate)` over the values of each session.

        For each record, `initializer()` is merged with all sessions that the record joins, the
        earliest first, by `merger(key, aggregate, other aggregate)`; then the aggregator adds the
        record's value. A result of None deletes the row.
        """
        return _aggregations.aggregate(
            self._grouped,
            self._by,
            materialized,
            name,
            initializer=initializer,
            aggregator=aggregator,
            merger=merger,
        )


class SessionWindowedCogroupedStream(Generic[K, A], metaclass=Hinted):
    """Cogrouped streams, aggregated per session. Made by `CogroupedStream.windowed_by`."""

    def __init__(self, cogrouped: CogroupedStream[K, A], windows: SessionWindows) -> None:
        self._cogrouped: CogroupedStream[K, A] = cogrouped
        self._windows: SessionWindows = windows

    def aggregate(
        self,
        initializer: Callable[[], A],
        merger: Callable[[K, A, A], A],
        materialized: Materialized[K, A] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[Windowed[K], A]:
        """Return the table of aggregates of each key and session.

        An aggregate begins with the result of `initializer()`. Sessions are merged by `merger(key,
        aggregate, other aggregate)`, see `SessionWindowedStream.aggregate`.
        """
        by = by_session(self._windows)
        return _aggregations.cogroup(
            self._cogrouped, by, materialized, name, initializer=initializer, merger=merger
        )


def by_session(windows: SessionWindows, emit: Emit = AT_EVERY_CHANGE) -> Aggregation:
    """Return an aggregation by key and session."""

    def operator(store: str, functions: Functions, send_old: bool, stream: int | None) -> Operator:
        aggregation = SessionAggregation(
            store=store,
            gap_ms=windows.inactivity_gap_ms,
            grace_ms=windows.grace_ms,
            aggregator=functions.aggregator,
            initializer=functions.initializer,
            merger=functions.merger,
            send_old=send_old,
            stream=stream,
        )
        return (
            FinalSessionAggregate(aggregation, idle_after_ms=emit.idle_after_ms)
            if emit.on_close
            else SessionAggregate(aggregation)
        )

    stored = partial(session_store, windows=windows, on_close=emit.on_close)
    closes = Closes(windows.keep_ms, end_included=True)
    return _aggregations.Aggregation(stored, SessionView, operator, SessionWindowedSerde, closes)
