"""Aggregations of grouped streams with cached updates: many records of a key at a time."""

from __future__ import annotations

from collections import Counter, deque
from itertools import repeat
from operator import is_not
from typing import TYPE_CHECKING, Any

from ks_actors._errors import SerializationError
from ks_actors.processors.aggregates._previous_aggregates import watched
from ks_actors.processors.api import Bound, Gone
from ks_actors.processors.stateless import failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ks_actors.processors.api import (
        Cache,
        CachedRows,
        KeyValueForOperators,
        NodeContext,
        Process,
        ProcessBatch,
        WindowsForOperators,
    )
    from ks_actors.records import Batch, Headers

    Folded = dict[Any, tuple[Any, int]]

_NEVER = -(1 << 63)
_NO_ENTRY: tuple[Any, int] = (None, _NEVER)


def cached_count(context: NodeContext, name: str, cache: Cache) -> Bound:
    """Count records per key into a store and give the updates to the cache; see StreamCount."""
    store: KeyValueForOperators = context.store(name)
    get, put, hold = store.get_entry, store.put_entry, cache.hold

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None or value is None:
            context.dropped()
            return
        entry = get(key)
        before, latest = (None, timestamp) if entry is None else entry
        latest = max(latest, timestamp)
        count = (before or 0) + 1
        put(key, (count, latest))
        hold(key, (count, before), latest, headers)

    singly = one_at_a_time(context, cache, process)
    if not cache.plain:
        return Bound(process, singly)
    put_entries = store.put_entries

    def process_batch(batch: Batch) -> None:
        counts: Counter[Any] = Counter()
        try:
            counts.update(batch.keys)
            found = list(map(get, counts))
        except Exception:  # noqa: BLE001 - a bad key: find it record by record
            found = []
        # A record without key or value is dropped: count record by record.
        if not found or None in counts or not all(map(is_not, batch.values, repeat(None))):
            singly(batch)
            return
        cache.came(batch)
        rows = cache.rows()
        try:
            hold_counted(
                rows, counts, found, latest_times(batch.keys, batch.timestamps), put_entries
            )
        except SerializationError:  # a bad key: find it record by record
            singly(batch)
            return
        if batch.headers is not None or rows.headers:
            rows.note_headers(batch.keys, batch.headers or repeat(()))
        cache.send_excess(len(batch))

    return Bound(process, process_batch)


def held_counts(cache: Cache) -> ProcessBatch:
    """Return a function that caches counts that are in their store already.

    It takes changes of plain keys; the old value is None where there was no row before.
    """

    def hold(batch: Batch) -> None:
        cache.came(batch)
        if cache.leave_to_store(batch):
            return
        rows = cache.rows()
        olds = [before for _, before in batch.values]
        exhaust(map(rows.olds.setdefault, batch.keys, olds))
        if batch.headers is not None or rows.headers:
            rows.note_headers(batch.keys, batch.headers or repeat(()))
        cache.send_excess(len(batch))

    return hold


exhaust: Callable[[Iterable[Any]], Any] = deque(maxlen=0).extend
"""Exhaust an iterator, in C."""


def hold_counted(
    rows: CachedRows,
    counts: dict[Any, int],
    found: Sequence[tuple[int, int] | None],
    times: Iterable[int],
    put_entries: Callable[[Folded, dict[Any, Any]], None],
) -> Folded:
    """Add the number of records and the latest time of each key to its entry.

    Return the new entries.
    """
    olds = rows.olds
    # `max` takes five times as long.
    entries: Folded = {
        key: (number, time)
        if entry is None
        else (entry[0] + number, time if entry[1] < time else entry[1])  # noqa: FURB136 - `max` takes five times as long
        for (key, number), entry, time in zip(counts.items(), found, times, strict=True)
    }
    fresh = {
        key: None if entry is None else entry[0]
        for key, entry in zip(counts, found, strict=True)
        if key not in olds
    }
    put_entries(entries, fresh)
    olds.update(fresh)
    return entries


def cached_aggregate(
    context: NodeContext,
    name: str,
    cache: Cache,
    aggregator: Callable[..., Any],
    initializer: Callable[[], Any] | None,
) -> Bound:
    """Fold the values of each key into a store and give the updates to the cache.

    See StreamAggregate.
    """
    store: KeyValueForOperators = context.store(name)
    get, put, hold, kept = store.get_entry, store.put_entry, cache.hold, cache.before
    aggregator = watched(context, name, aggregator, initializer)

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None or value is None:
            context.dropped()
            return
        entry = get(key)
        old, latest = (None, timestamp) if entry is None else entry
        latest = max(latest, timestamp)
        before = kept(key, old)
        if initializer is not None:
            new = aggregator(key, value, initializer() if entry is None else old)
        else:
            new = value if entry is None else aggregator(old, value)
        put(key, None if new is None else (new, latest))
        hold(key, (new, before), timestamp if new is None else latest, headers)

    if not cache.plain or store.mutable:
        return Bound(process, one_at_a_time(context, cache, process))
    return Bound(process, _aggregate_batch_form(context, store, cache, aggregator, initializer))


def _aggregate_batch_form(
    context: NodeContext,
    store: KeyValueForOperators,
    cache: Cache,
    aggregator: Callable[..., Any],
    initializer: Callable[[], Any] | None,
) -> ProcessBatch:
    get, admit = store.get_entry, admission(store)

    def process_batch(batch: Batch) -> None:
        folded: Folded = {}
        firsts: dict[Any, Any] = {}
        skipped: set[int] = set()
        dropped = 0
        for index, (key, value, timestamp) in enumerate(
            zip(batch.keys, batch.values, batch.timestamps, strict=True)
        ):
            if key is None or value is None:
                skipped.add(index)
                dropped += 1
                continue
            try:
                entry = folded.get(key)
                if entry is None:
                    store.check_key(key)
                    old, seen = get(key) or _NO_ENTRY
                    firsts[key] = old
                else:
                    old, seen = entry
                # No row yet, or its delete came earlier in this batch: begin with a new row.
                if old is None:
                    new, seen = (
                        value if initializer is None else aggregator(key, value, initializer()),
                        timestamp,
                    )
                else:
                    new = (
                        aggregator(old, value)
                        if initializer is None
                        else aggregator(key, value, old)
                    )
                # An aggregate that stays as it was has been admitted before.
                if new is not old:
                    new = admit(key, new)
                folded[key] = (new, timestamp if seen < timestamp or new is None else seen)
            except BaseException as error:  # noqa: BLE001 - the handler decides
                failed(context, batch, index, error)
                skipped.add(index)
        if dropped:
            context.dropped(dropped)
        cache.came(batch, skipped)
        _hold_folded(
            store,
            cache,
            folded,
            firsts,
            # A record that changes no row leaves the row's headers as they are.
            batch.select([index not in skipped for index in range(len(batch))])
            if skipped
            else batch,
        )

    return process_batch


def admission(store: KeyValueForOperators | WindowsForOperators) -> Callable[[Any, Any], Any]:
    """Return a function from a key and a new value (None deletes) to the value as it will be read.

    The function raises SerializationError.
    """
    bound, admit = store.bound, store.admit

    def admitted(key: Any, new: Any) -> Any:
        return (
            new if new is None or (type(new) is int and -bound <= new < bound) else admit(key, new)
        )

    return admitted


def _hold_folded(
    store: KeyValueForOperators, cache: Cache, folded: Folded, firsts: dict[Any, Any], batch: Batch
) -> None:
    """Put the new entries of rows into their store, and cache them; `firsts` are the old values."""
    rows = cache.rows()
    olds, news = rows.olds, rows.news
    fresh = {key: firsts[key] for key in folded if key not in olds}
    deleted = {key for key, (new, _) in folded.items() if new is None}
    # The store has no entry for a deleted row, so its time of deletion is kept in `news`.
    if deleted or news:
        put = store.put_entry
        for key, entry in folded.items():
            if key in deleted:
                put(key, None)
                news[key] = Gone(None, entry[1]) if key in olds else entry
            else:
                put(key, entry)
                news.pop(key, None)
    else:
        store.put_entries(folded, fresh)
    olds.update(fresh)
    if batch.headers is not None or rows.headers:
        rows.note_headers(batch.keys, batch.headers or repeat(()))
    cache.send_excess(len(batch))


def cached_rows(context: NodeContext, store: KeyValueForOperators, cache: Cache) -> Bound:
    """Keep the latest record of each key in a store and give the updates to the cache.

    See TableSource.
    """
    get, put, hold = store.get_entry, store.put_entry, cache.hold

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None:
            context.dropped()
            return
        entry = get(key)
        put(key, None if value is None else (value, timestamp))
        hold(key, (value, None if entry is None else entry[0]), timestamp, headers)

    singly = one_at_a_time(context, cache, process)
    if not cache.plain or store.mutable:
        return Bound(process, singly)

    def process_batch(batch: Batch) -> None:
        olds = cache.rows().olds
        try:
            latest = {
                key: (None if value is None else store.admit(key, value), timestamp)
                for key, value, timestamp in zip(
                    batch.keys, batch.values, batch.timestamps, strict=True
                )
            }
            deque(map(store.check_key, latest), maxlen=0)
            firsts = {key: (get(key) or _NO_ENTRY)[0] for key in latest if key not in olds}
        except Exception:  # noqa: BLE001 - a bad key: find it record by record
            singly(batch)
            return
        if None in latest:
            singly(batch)
        else:
            cache.came(batch)
            _hold_folded(store, cache, latest, firsts, batch)

    return Bound(process, process_batch)


def one_at_a_time(context: NodeContext, cache: Cache, process: Process) -> ProcessBatch:
    """Return the batch form that processes one record after another."""
    current = cache.current

    def process_batch(batch: Batch) -> None:
        headers: Iterable[Headers] = repeat(()) if batch.headers is None else batch.headers
        columns = zip(
            batch.keys,
            batch.values,
            batch.timestamps,
            headers,
            batch.offsets or repeat(-1),
            strict=False,
        )
        for index, (key, value, timestamp, header, offset) in enumerate(columns):
            current.offset = offset
            try:
                process(key, value, timestamp, header)
            except BaseException as error:  # noqa: BLE001 - the handler decides
                failed(context, batch, index, error)
        cache.send_excess()

    return process_batch


def latest_times(keys: Sequence[Any], timestamps: list[int]) -> Iterable[int]:
    """Return the latest timestamp of each key, in the order of the keys' first records."""
    if timestamps == sorted(timestamps):
        return dict(zip(keys, timestamps, strict=True)).values()
    found: dict[Any, int] = {}
    for key, timestamp in zip(keys, timestamps, strict=True):
        if timestamp > found.get(key, _NEVER):
            found[key] = timestamp
    return found.values()
