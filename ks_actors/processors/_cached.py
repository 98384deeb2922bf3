"""Aggregations of grouped streams whose updates are held back: many records of a key at a time."""

from __future__ import annotations

from collections import _count_elements  # type: ignore[attr-defined]  # what a Counter counts with
from itertools import repeat
from operator import is_not
from typing import TYPE_CHECKING, Any

from ks_actors.processors._columns import failed
from ks_actors.processors._operator import Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ks_actors._batch import Batch, Headers
    from ks_actors.processors._cache import Cache
    from ks_actors.processors._operator import NodeContext, Process, ProcessBatch


def cached_count(context: NodeContext, name: str, cache: Cache) -> Bound:
    """Count records per key into a store, see StreamCount, and let the cache have what comes of it."""
    store = context.store(name)
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
    if cache.index is not None:
        return Bound(process, singly)
    news, olds = cache.news, cache.olds

    def process_batch(batch: Batch) -> None:
        keys = batch.keys
        counts: dict[Any, int] = {}
        try:
            _count_elements(counts, keys)
        except TypeError:  # a key that cannot be one
            counts = {None: 0}
        if None in counts or not all(map(is_not, batch.values, repeat(None))):
            singly(batch)
            return
        for (key, number), timestamp in zip(counts.items(), latest_times(keys, batch.timestamps), strict=True):
            try:
                entry = get(key)
                if entry is None:
                    before, new = None, (number, timestamp)
                else:
                    before, seen = entry
                    new = (before + number, timestamp if seen < timestamp else seen)  # noqa: FURB136 - `max` takes five times as long
                put(key, new)
            except Exception as error:  # noqa: BLE001 - the handler decides
                for index in places(keys, key):
                    failed(context, batch, index, error)
                continue
            if key not in news:
                olds[key] = before
            news[key] = new
        cache.note_headers(batch, nulls=False)
        cache.settle()

    return Bound(process, process_batch)


def cached_aggregate(context: NodeContext, name: str, cache: Cache, aggregator: Callable[..., Any], initializer: Callable[[], Any] | None) -> Bound:
    """Fold the values of each key into a store, see StreamAggregate, and let the cache have what comes of it."""
    store = context.store(name)
    get, put, hold, kept = store.get_entry, store.put_entry, cache.hold, cache.before

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
        hold(key, (new, before), latest, headers)

    singly = one_at_a_time(context, cache, process)
    if cache.index is not None:
        return Bound(process, singly)
    return Bound(process, _aggregate_batch_form(context, store, cache, aggregator, initializer))


def _aggregate_batch_form(
    context: NodeContext, store: Any, cache: Cache, aggregator: Callable[..., Any], initializer: Callable[[], Any] | None
) -> ProcessBatch:
    get = store.get_entry
    kept = cache.before if cache.copies else None

    def process_batch(batch: Batch) -> None:
        folded: dict[Any, tuple[Any, int]] = {}
        firsts: dict[Any, Any] = {}
        dropped = 0
        for index, (key, value, timestamp) in enumerate(zip(batch.keys, batch.values, batch.timestamps, strict=True)):
            if key is None or value is None:
                dropped += 1
                continue
            try:
                entry = folded.get(key)
                if entry is None:
                    old, seen = get(key) or _NO_ENTRY
                    firsts[key] = old if kept is None else kept(key, old)
                else:
                    old, seen = entry
                if old is None:
                    new = value if initializer is None else aggregator(key, value, initializer())
                    folded[key] = (new, timestamp)
                    continue
                new = aggregator(old, value) if initializer is None else aggregator(key, value, old)
                folded[key] = (new, timestamp if seen < timestamp else seen)  # noqa: FURB136 - `max` takes five times as long
            except Exception as error:  # noqa: BLE001 - the handler decides
                failed(context, batch, index, error)
        if dropped:
            context.dropped(dropped)
        write(context, store.put_entry, cache, batch, folded, firsts, nulls=False)

    return process_batch


_NEVER = -(1 << 63) - 1
_NO_ENTRY: tuple[Any, int] = (None, _NEVER)


def write(
    context: NodeContext,
    put: Callable[[Any, Any], None],
    cache: Cache,
    batch: Batch,
    folded: dict[Any, tuple[Any, int]],
    firsts: dict[Any, Any],
    *,
    nulls: bool,
) -> None:
    """Put the new entries of rows into their store, and have them held; `firsts` are their values before."""
    news, olds = cache.news, cache.olds
    for key, new in folded.items():
        try:
            put(key, None if new[0] is None else new)
        except Exception as error:  # noqa: BLE001 - the handler decides
            for index in places(batch.keys, key):
                failed(context, batch, index, error)
            continue
        if key not in news:
            olds[key] = firsts[key]
        news[key] = new
    cache.note_headers(batch, nulls=nulls)
    cache.settle()


def cached_rows(context: NodeContext, store: Any, cache: Cache) -> Bound:
    """Keep the latest record of each key in a store, see TableSource, and let the cache have what comes of it."""
    get, put, hold = store.get_entry, store.put_entry, cache.hold

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None:
            context.dropped()
            return
        entry = get(key)
        put(key, None if value is None else (value, timestamp))
        hold(key, (value, None if entry is None else entry[0]), timestamp, headers)

    singly = one_at_a_time(context, cache, process)
    if cache.index is not None:
        return Bound(process, singly)
    news = cache.news

    def process_batch(batch: Batch) -> None:
        try:
            rows = dict(zip(batch.keys, zip(batch.values, batch.timestamps, strict=True), strict=True))
        except TypeError:  # a key that cannot be one
            rows = {None: _NO_ENTRY}
        if None in rows:
            singly(batch)
            return
        firsts = {}
        for key in rows:
            if key not in news:
                try:
                    entry = get(key)
                except Exception:  # noqa: BLE001 - the put will fail likewise, and is what the handler is asked about
                    entry = None
                firsts[key] = None if entry is None else entry[0]
        write(context, put, cache, batch, rows, firsts, nulls=True)

    return Bound(process, process_batch)


def one_at_a_time(context: NodeContext, cache: Cache, process: Process) -> ProcessBatch:
    """Return the batch form that takes record after record."""

    def process_batch(batch: Batch) -> None:
        headers: Iterable[Headers] = repeat(()) if batch.headers is None else batch.headers
        for index, (key, value, timestamp, header) in enumerate(zip(batch.keys, batch.values, batch.timestamps, headers, strict=False)):
            try:
                process(key, value, timestamp, header)
            except Exception as error:  # noqa: BLE001 - the handler decides
                failed(context, batch, index, error)
        cache.settle()

    return process_batch


def latest_times(keys: Sequence[Any], timestamps: list[int]) -> Iterable[int]:
    """Return the latest timestamp of each key, in the order in which the keys come first."""
    if timestamps == sorted(timestamps):
        return dict(zip(keys, timestamps, strict=True)).values()
    found: dict[Any, int] = {}
    for key, timestamp in zip(keys, timestamps, strict=True):
        if timestamp > found.get(key, _NEVER):
            found[key] = timestamp
    return found.values()


def places(keys: Sequence[Any], wanted: Any) -> list[int]:
    """Return where a key is."""
    return [index for index, key in enumerate(keys) if key == wanted]
