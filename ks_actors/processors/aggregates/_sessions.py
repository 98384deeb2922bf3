"""Aggregations of grouped streams per key and session.

A session ends at the first gap between records that is longer than the inactivity gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, final

from ks_actors.processors.aggregates._batch_form import batch_form
from ks_actors.processors.aggregates._cached import one_at_a_time
from ks_actors.processors.aggregates._previous_aggregates import row_keeper, watched
from ks_actors.processors.api import Bound, Clock
from ks_actors.processors.stateless import Inline
from ks_actors.records import Window, Windowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.aggregates._batch_form import Emit
    from ks_actors.processors.api import Cache, NodeContext, Process, SessionsForOperators
    from ks_actors.records import Headers

Session = tuple[int, int, "tuple[Any, int]"]
"""A session's start and end (ms, both included), and its entry."""
_new = tuple.__new__  # A named tuple's own constructor calls this.


class Fold(NamedTuple):
    """The functions that make an aggregate: begin one, merge two, add a value."""

    begin: Callable[[], Any]
    merge: Callable[[Any, Any, Any], Any]
    add: Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class SessionAggregation:
    """An aggregation of the sessions that a record joins.

    A record joins the sessions of its key that are at most `gap_ms` away from it, on either side.
    These sessions and the record become one session: `initializer()` is merged with each session by
    `merger(key, aggregate, other)`, then `aggregator(key, value, aggregate)` adds the value. With
    `initializer` None, `aggregator(aggregate, value)` adds values and merges sessions; with
    `aggregator` None, records are counted. A result of None deletes.

    A record is late, and dropped, if its session would end more than gap and `grace_ms` before
    stream time (the latest timestamp seen). Records without key are dropped, but not records
    without value. Aggregates may be changed in place: see StreamAggregate.
    """

    store: str
    gap_ms: int
    grace_ms: int
    aggregator: Callable[..., Any] | None = None
    initializer: Callable[[], Any] | None = None
    merger: Callable[[Any, Any, Any], Any] | None = None
    send_old: bool = False
    stream: int | None = None
    """The number of the stream in a cogroup, in which each stream has its own stream time."""

    def fold(self, context: NodeContext) -> Fold:
        """Return the functions that make aggregates."""
        aggregator, initializer, merger = self.aggregator, self.initializer, self.merger
        if aggregator is None:
            return Fold(int, lambda _, one, other: one + other, lambda _, __, count: count + 1)
        if initializer is None or merger is None:

            def reduce_two(_: Any, one: Any, other: Any) -> Any:
                return other if one is None else aggregator(one, other)

            return Fold(
                lambda: None,
                reduce_two,
                lambda _, value, one: value if one is None else aggregator(one, value),
            )
        return Fold(initializer, merger, watched(context, self.store, aggregator, initializer))


@final
class SessionAggregate(Inline):
    """Aggregate into a session store; forward `Windowed(key, window)` and `(new, old | None)`.

    Results have the timestamp of the session's end. Sessions that merge, or grow, are deleted
    first, each with a `(None, old)`; the merged session is then forwarded without an old value. A
    session of one instant that gets another record of that instant is updated: `(new, old)`. (Kafka
    Streams without a cache sends no old value there: `NodeContext.kafka_streams_faults`.) Results
    have no headers, as in Kafka Streams.
    """

    def __init__(self, aggregation: SessionAggregation) -> None:
        self.aggregation: SessionAggregation = aggregation

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        aggregation = self.aggregation
        clock = Clock(context, aggregation.store, aggregation.stream)
        cache = context.cache(aggregation.store, send_old=aggregation.send_old)
        if cache is not None:
            process = _cached_form(context, aggregation, cache, clock)
            return Bound(process, one_at_a_time(context, cache, process))
        loop = partial(_session_loop, context, aggregation, clock)
        forward = context.forward

        def emit(key: Any, change: tuple[Any, Any], timestamp: int, _: Headers) -> None:
            forward(key, change, timestamp, ())

        return Bound(loop(emit, context.dropped), batch_form(context, loop, with_headers=False))


def whole(timestamp: int, found: list[Session]) -> tuple[int, int]:
    """Return start and end of the session that merges a record with the sessions that it joins."""
    start = end = timestamp
    for first, last, _ in found:
        start, end = min(start, first), max(end, last)
    return start, end


def _cached_form(
    context: NodeContext, aggregation: SessionAggregation, cache: Cache, clock: Clock
) -> Process:
    """Return the loop that gives each result to the cache."""
    return _session_loop(context, aggregation, clock, cache.hold, context.dropped, cache)


def _session_loop(
    context: NodeContext,
    aggregation: SessionAggregation,
    clock: Clock,
    emit: Emit,
    drop: Callable[[], None],
    cache: Cache | None = None,
) -> Emit:
    """Return a function that adds a record to the sessions that it joins.

    See `window_loop` for its arguments, and for those of `emit`. A result has the timestamp of the
    session's end.
    """
    store: SessionsForOperators = context.store(aggregation.store)
    find, put, remove = store.find_entries, store.put_entry, store.remove_entry
    begin, merge, add = aggregation.fold(context)
    gap = aggregation.gap_ms
    wait = gap + aggregation.grace_ms
    send_old = aggregation.send_old or cache is not None
    # None where old values are safe from in-place changes: that saves a call.
    kept: Callable[[Any, Any], Any] | None = None
    if send_old and store.mutable:
        kept = row_keeper(store, send_old=True) if cache is None else cache.before
    # Kafka Streams without a cache sends no old value of a session that stays as long as it was.
    updates = send_old and not (cache is None and context.kafka_streams_faults)

    def process(key: Any, value: Any, timestamp: int, rest: Any) -> None:
        if key is None:
            drop()
            return
        # Before the check: as in Kafka Streams a record moves stream time, and then may be too late
        # itself.
        if timestamp > clock.time:  # noqa: PLR1730 - `max` takes five times as long
            clock.time = timestamp
        found = find(key, timestamp - gap, timestamp + gap)
        start, end = whole(timestamp, found) if found else (timestamp, timestamp)
        if end < clock.time - wait:
            drop()
            return
        # Taken before the merge: a merger may change an aggregate in place.
        olds = [
            entry[0] if kept is None else kept(Windowed(key, Window(first, last)), entry[0])
            for first, last, entry in found
        ]
        aggregate = begin()
        for _, _, (other, _at) in found:
            aggregate = merge(key, aggregate, other)
        aggregate = add(key, value, aggregate)
        # An error in `prepared` leaves the existing sessions unchanged.
        entry = None if aggregate is None else store.prepared(key, (aggregate, timestamp))
        # A session of this record alone has replaced only itself: send no delete for it.
        if start != end or start != timestamp:
            for (first, last, _), old in zip(found, olds, strict=True):
                remove(key, first, last)
                gone = _new(Windowed, (key, _new(Window, (first, last))))
                emit(gone, (None, old if send_old else None), last, rest)
            olds.clear()
        put(key, start, end, entry)
        old = olds[0] if olds and updates else None
        emit(_new(Windowed, (key, _new(Window, (start, end)))), (aggregate, old), end, rest)

    return process
