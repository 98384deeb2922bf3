"""Aggregations of grouped streams, one result per key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.aggregates._cached import cached_aggregate, cached_count, held_counts
from ks_actors.processors.aggregates._history import with_history
from ks_actors.processors.aggregates._previous_aggregates import as_before, keeper, watched
from ks_actors.processors.api import Bound
from ks_actors.processors.stateless import Inline, failed, forward_rest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import KeyValueForOperators, NodeContext, Process, ProcessBatch
    from ks_actors.records import Batch, Headers


_FEW = 32
"""The number of records to count one by one after the kernel meets a record that is not plain.

More such records are probably near.
"""


@final
@dataclass(frozen=True, kw_only=True)
class StreamCount(Inline):
    """Count records per key into `store`; forward `(count, count before | None)`.

    For a new row, the count before is None. (Kafka Streams without a cache sends 0, as if a row had
    been there: `NodeContext.kafka_streams_faults`.) Records without key or value are dropped.
    """

    store: str
    send_old: bool = False

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        history = with_history(context, self.store)
        if history is not None:
            return Bound(self._record_form(history))
        cache = context.cache(self.store, send_old=self.send_old)
        if cache is None:
            return Bound(
                self._record_form(context),
                self._batch_form(
                    context,
                    context.forward_batch,
                    send_old=self.send_old,
                    initial=_initial(context),
                ),
            )
        cached = cached_count(context, self.store, cache)
        if cache.plain and context.store(self.store).count_up is not None:
            return Bound(
                cached.process,
                self._batch_form(context, held_counts(cache), send_old=True, initial=None),
            )
        return cached

    def _record_form(self, context: NodeContext) -> Process:
        store: KeyValueForOperators = context.store(self.store)
        get = store.get_entry
        put = store.put_entry
        forward = context.forward
        send_old = self.send_old
        initial = _initial(context)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                context.dropped()
                return
            entry = get(key)
            if entry is None:
                before, count = initial, 1
            else:
                before, seen = entry
                count = before + 1
                timestamp = max(timestamp, seen)
            put(key, (count, timestamp))
            forward(key, (count, before if send_old else None), timestamp, headers)

        return process

    def _batch_form(
        self,
        context: NodeContext,
        forward_batch: ProcessBatch,
        *,
        send_old: bool,
        initial: int | None,
    ) -> ProcessBatch:
        store: KeyValueForOperators = context.store(self.store)
        get = store.get_entry
        put = store.put_entry
        # The kernel sends None before a new row.
        count_up = store.count_up if initial is None or not send_old else None

        def process_batch(batch: Batch) -> None:
            keys, values, times = batch.keys, batch.values, batch.timestamps
            left_out: list[int] = []
            changes: list[Any] = []
            timestamps: list[int] = []
            done = dropped = 0
            while done < len(keys):
                if count_up is None:
                    stop = len(keys)
                else:
                    # The kernel stops at the first record that is not plain; the loop below counts
                    # that record.
                    done = count_up(
                        keys, values, times, done, changes, timestamps, with_old=send_old
                    )
                    stop = done + _FEW
                dropped += one_by_one(
                    batch,
                    keys[done:stop],
                    values[done:stop],
                    times[done:stop],
                    left_out,
                    changes,
                    timestamps,
                )
                done = stop
            if dropped:
                context.dropped(dropped)
            forward_rest(forward_batch, batch, left_out, changes, timestamps)

        def one_by_one(
            batch: Batch,
            keys: list[Any],
            values: list[Any],
            times: list[int],
            left_out: list[int],
            changes: list[Any],
            timestamps: list[int],
        ) -> int:
            """Count the given records of the batch; return the number of dropped ones."""
            dropped = 0
            add, add_timestamp = changes.append, timestamps.append
            for key, value, timestamp in zip(keys, values, times, strict=True):
                if key is None or value is None:
                    dropped += 1
                    left_out.append(len(changes) + len(left_out))
                    continue
                try:
                    entry = get(key)
                    if entry is None:
                        before, count, latest = initial, 1, timestamp
                    else:
                        before, latest = entry
                        count = before + 1
                        if latest < timestamp:  # noqa: PLR1730 - `max` takes five times as long
                            latest = timestamp
                    put(key, (count, latest))
                except BaseException as error:  # noqa: BLE001 - the handler decides
                    index = len(changes) + len(left_out)
                    failed(context, batch, index, error)
                    left_out.append(index)
                    continue
                add((count, before) if send_old else (count, None))
                add_timestamp(latest)
            return dropped

        return process_batch


@final
@dataclass(frozen=True, kw_only=True)
class StreamAggregate(Inline):
    """Fold the values of each key into `store`; forward `(new, old | None)`.

    The result has the later of the timestamps of record and aggregate. If a key has no aggregate,
    `initializer()` makes it; the old value is then None. (Kafka Streams without a cache sends the
    initial aggregate: `NodeContext.kafka_streams_faults`.) With `initializer` None the first value
    is the aggregate (reduce). The fold is `aggregator(key, value, aggregate)`, or for a reduce
    `aggregator(aggregate, value)`. A result of None deletes. Records without key or value are
    dropped.

    The aggregator may change an aggregate in place and return it. The store changes only when the
    result is put, so it stays the same when the aggregator raises.
    """

    store: str
    aggregator: Callable[..., Any]
    initializer: Callable[[], Any] | None = None
    send_old: bool = False

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        history = with_history(context, self.store)
        if history is not None:
            return Bound(self._record_form(history))
        cache = context.cache(self.store, send_old=self.send_old)
        if cache is not None:
            return cached_aggregate(context, self.store, cache, self.aggregator, self.initializer)
        return Bound(self._record_form(context), self._batch_form(context))

    def _record_form(self, context: NodeContext) -> Process:
        store: KeyValueForOperators = context.store(self.store)
        get = store.get_entry
        put = store.put_entry
        forward = context.forward
        initializer = self.initializer
        aggregator = watched(context, self.store, self.aggregator, initializer)
        send_old = self.send_old
        kept = keeper(store, send_old=send_old)
        initial_is_sent = context.kafka_streams_faults

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                context.dropped()
                return
            entry = get(key)
            old = before = None
            if entry is not None:
                old, seen = entry
                timestamp = max(timestamp, seen)
                before = kept(old)
            elif initializer is not None:
                old = initializer()
                if initial_is_sent:
                    before = kept(old)
            new = (
                aggregator(key, value, old)
                if initializer is not None
                else value
                if entry is None
                else aggregator(old, value)
            )
            put(key, None if new is None else (new, timestamp))
            forward(key, (new, before if send_old else None), timestamp, headers)

        return process

    def _batch_form(self, context: NodeContext) -> ProcessBatch:
        store: KeyValueForOperators = context.store(self.store)
        get = store.get_entry
        put = store.put_entry
        forward_batch = context.forward_batch
        initializer = self.initializer
        aggregator = watched(context, self.store, self.aggregator, initializer)
        send_old = self.send_old
        kept = as_before if send_old and store.mutable else None
        initial_is_sent = context.kafka_streams_faults

        def process_batch(batch: Batch) -> None:
            left_out: list[int] = []
            changes: list[Any] = []
            timestamps: list[int] = []
            dropped = 0
            for key, value, timestamp in zip(
                batch.keys, batch.values, batch.timestamps, strict=True
            ):
                if key is None or value is None:
                    dropped += 1
                    left_out.append(len(changes) + len(left_out))
                    continue
                try:
                    entry = get(key)
                    if entry is None:
                        old = None if initializer is None else initializer()
                        latest = timestamp
                    else:
                        old, latest = entry
                        if latest < timestamp:  # noqa: PLR1730 - `max` takes five times as long
                            latest = timestamp
                    if entry is None and not initial_is_sent:
                        before = None
                    else:
                        before = old if kept is None else kept(old)
                    if initializer is not None:
                        new = aggregator(key, value, old)
                    elif entry is None:
                        new = value
                    else:
                        new = aggregator(old, value)
                    put(key, None if new is None else (new, latest))
                except BaseException as error:  # noqa: BLE001 - the handler decides
                    index = len(changes) + len(left_out)
                    failed(context, batch, index, error)
                    left_out.append(index)
                    continue
                changes.append((new, before if send_old else None))
                timestamps.append(latest)
            if dropped:
                context.dropped(dropped)
            forward_rest(forward_batch, batch, left_out, changes, timestamps)

        return process_batch


def _initial(context: NodeContext) -> int | None:
    """Return the count to send as the old value of a new row."""
    return 0 if context.kafka_streams_faults else None
