"""Aggregations of grouped streams per key and session.

A session ends at the first gap between records that is longer than the inactivity gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

from ks_actors.processors.aggregates._cached import one_at_a_time
from ks_actors.processors.aggregates._previous_aggregates import keeper, watched
from ks_actors.processors.api import Bound, Clock
from ks_actors.processors.stateless import Inline, failed
from ks_actors.records import Batch, Window, Windowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import (
        Cache,
        NodeContext,
        Process,
        ProcessBatch,
        SessionsForOperators,
    )
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

    These are the sessions of its key that are no more than `gap_ms` away from it, on either side.
    They become one, together with the record: `initializer()` is merged with each of them by
    `merger(key, aggregate, other)`, then `aggregator(key, value, aggregate)` adds the value. With
    `initializer` None the fold is `aggregator(aggregate, value)`, of values and of sessions; with
    `aggregator` None it counts. A result of None deletes.

    A late record is dropped: its session would end more than gap and `grace_ms` before stream time
    (the latest timestamp seen). Records without key are dropped, those without value are not.
    Aggregates may be changed in place: see StreamAggregate.
    """

    store: str
    gap_ms: int
    grace_ms: int
    aggregator: Callable[..., Any] | None = None
    initializer: Callable[[], Any] | None = None
    merger: Callable[[Any, Any, Any], Any] | None = None
    send_old: bool = False
    stream: int | None = None
    """The number of the stream in a cogroup, in which each has a stream time of its own."""

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
        clock = Clock(context, self.aggregation.store, self.aggregation.stream)
        aggregation = self.aggregation
        cache = context.cache(aggregation.store, send_old=aggregation.send_old)
        if cache is not None:
            process = _cached_form(context, aggregation, cache, clock)
            return Bound(process, one_at_a_time(context, cache, process))
        return Bound(
            _record_form(context, aggregation, clock), _batch_form(context, aggregation, clock)
        )


def whole(timestamp: int, found: list[Session]) -> tuple[int, int]:
    """Return start and end of the session that merges a record with the sessions that it joins."""
    start = end = timestamp
    for first, last, _ in found:
        start, end = min(start, first), max(end, last)
    return start, end


def _record_form(context: NodeContext, aggregation: SessionAggregation, clock: Clock) -> Process:
    store: SessionsForOperators = context.store(aggregation.store)
    find, put, remove = store.find_entries, store.put_entry, store.remove_entry
    forward = context.forward
    begin, merge, add = aggregation.fold(context)
    gap = aggregation.gap_ms
    wait = gap + aggregation.grace_ms
    send_old = aggregation.send_old
    kept = keeper(store, send_old=send_old)
    # Kafka Streams without a cache sends no old value of a session that stays as long as it was.
    updates = send_old and not context.kafka_streams_faults

    def process(key: Any, value: Any, timestamp: int, _: Headers) -> None:
        if key is None:
            context.dropped()
            return
        # Before the check: as in Kafka Streams a record moves stream time, and then may be too late
        # itself.
        clock.time = max(clock.time, timestamp)
        found = find(key, timestamp - gap, timestamp + gap)
        start, end = whole(timestamp, found) if found else (timestamp, timestamp)
        if end < clock.time - wait:
            context.dropped()
            return
        olds = [kept(other) for _, _, (other, _) in found]
        aggregate = begin()
        for _first, _last, (other, _at) in found:
            aggregate = merge(key, aggregate, other)
        aggregate = add(key, value, aggregate)
        # An error in `prepared` leaves the existing sessions unchanged.
        entry = None if aggregate is None else store.prepared(key, (aggregate, timestamp))
        # A session of just this record has replaced nothing but itself: no delete is forwarded for
        # it.
        if start != end or start != timestamp:
            for (first, last, _entry), old in zip(found, olds, strict=True):
                remove(key, first, last)
                forward(
                    Windowed(key, Window(first, last)), (None, old if send_old else None), last, ()
                )
            olds.clear()
        put(key, start, end, entry)
        old = olds[0] if olds and updates else None
        forward(Windowed(key, Window(start, end)), (aggregate, old), end, ())

    return process


def _batch_form(
    context: NodeContext, aggregation: SessionAggregation, clock: Clock
) -> ProcessBatch:
    store: SessionsForOperators = context.store(aggregation.store)
    find, put, remove = store.find_entries, store.put_entry, store.remove_entry
    forward_batch = context.forward_batch
    begin, merge, add = aggregation.fold(context)
    gap = aggregation.gap_ms
    wait = gap + aggregation.grace_ms
    send_old = aggregation.send_old
    kept = keeper(store, send_old=send_old)
    # Kafka Streams without a cache sends no old value of a session that stays as long as it was.
    updates = send_old and not context.kafka_streams_faults

    def process_batch(batch: Batch) -> None:
        out = _Columns(batch)
        send = out.add
        dropped = 0
        now = clock.time
        for index, (key, value, timestamp) in enumerate(
            zip(batch.keys, batch.values, batch.timestamps, strict=True)
        ):
            if key is None:
                dropped += 1
                continue
            if timestamp > now:
                now = clock.time = timestamp
            try:
                found = find(key, timestamp - gap, timestamp + gap)
                start, end = whole(timestamp, found) if found else (timestamp, timestamp)
                if end < now - wait:
                    dropped += 1
                    continue
                olds = [kept(other) for _, _, (other, _) in found]
                aggregate = begin()
                for _, _, (other, _at) in found:
                    aggregate = merge(key, aggregate, other)
                aggregate = add(key, value, aggregate)
                # Before the deletes: an error here leaves the existing sessions unchanged.
                entry = None if aggregate is None else store.prepared(key, (aggregate, timestamp))
                if start != end or start != timestamp:
                    for (first, last, _), old in zip(found, olds, strict=True):
                        remove(key, first, last)
                        send(index, key, first, last, (None, old if send_old else None))
                    olds.clear()
                put(key, start, end, entry)
                send(index, key, start, end, (aggregate, olds[0] if olds and updates else None))
            except BaseException as error:  # noqa: BLE001 - the handler decides
                failed(context, batch, index, error)
        if dropped:
            context.dropped(dropped)
        if out.keys:
            forward_batch(out.batch())

    return process_batch


class _Columns:
    """Output records of a batch, in columns."""

    __slots__ = ("_offsets", "_source", "changes", "keys", "timestamps")

    def __init__(self, source: Batch) -> None:
        self._source: Batch = source
        self._offsets: list[int] = []
        self.keys: list[Any] = []
        self.changes: list[Any] = []
        self.timestamps: list[int] = []

    def add(self, index: int, key: Any, start: int, end: int, change: tuple[Any, Any]) -> None:
        """Add a record at the end of a session."""
        self._offsets.append(index)
        self.keys.append(_new(Windowed, (key, _new(Window, (start, end)))))
        self.changes.append(change)
        self.timestamps.append(end)

    def batch(self) -> Batch:
        """Return the added records as a batch."""
        offsets = self._source.offsets
        return Batch(
            self.keys,
            self.changes,
            self.timestamps,
            None,
            [offsets[index] for index in self._offsets] if offsets else (),
        )


def _cached_form(
    context: NodeContext, aggregation: SessionAggregation, cache: Cache, clock: Clock
) -> Process:
    store: SessionsForOperators = context.store(aggregation.store)
    find, put, remove, hold, kept = (
        store.find_entries,
        store.put_entry,
        store.remove_entry,
        cache.hold,
        cache.before,
    )
    begin, merge, add = aggregation.fold(context)
    gap = aggregation.gap_ms
    wait = gap + aggregation.grace_ms

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None:
            context.dropped()
            return
        clock.time = max(clock.time, timestamp)
        found = find(key, timestamp - gap, timestamp + gap)
        start, end = whole(timestamp, found)
        if end < clock.time - wait:
            context.dropped()
            return
        # Taken before the merge: a merger may change an aggregate in place.
        olds = {
            (first, last): kept(Windowed(key, Window(first, last)), entry[0])
            for first, last, entry in found
        }
        aggregate = begin()
        for _, _, entry in found:
            aggregate = merge(key, aggregate, entry[0])
        aggregate = add(key, value, aggregate)
        new = None if aggregate is None else store.prepared(key, (aggregate, timestamp))
        if start != end or start != timestamp:
            for first, last, _ in found:
                remove(key, first, last)
                hold(
                    Windowed(key, Window(first, last)),
                    (None, olds.pop((first, last))),
                    last,
                    headers,
                )
        put(key, start, end, new)
        hold(Windowed(key, Window(start, end)), (aggregate, olds.get((start, end))), end, headers)

    return process
