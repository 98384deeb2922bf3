"""Aggregations per window whose updates are held back: many records of a window at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections import _count_elements  # type: ignore[attr-defined]  # what a Counter counts with
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ks_actors._windowed import Window, Windowed
from ks_actors.processors._cached import one_at_a_time
from ks_actors.processors._columns import failed
from ks_actors.processors._operator import Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors._batch import Batch, Headers
    from ks_actors.processors._cache import Cache
    from ks_actors.processors._operator import NodeContext, Process, ProcessBatch
    from ks_actors.processors._windowed import Clock, WindowAggregation

_DENSE = 8  # so many records of a window in a row make it worth while to take them together
_NO_ENTRY: tuple[Any, int] = (None, -1)
_new = tuple.__new__  # what a named tuple's own constructor calls


def cached_windows(context: NodeContext, aggregation: WindowAggregation, cache: Cache, clock: Clock) -> Bound:
    """Aggregate into a window store, see WindowedAggregate, and let the cache have what comes of it."""
    starts = _starts(aggregation)
    process = _record_form(context, aggregation, cache, clock, starts)
    if not cache.by_start:
        return Bound(process, one_at_a_time(context, cache, process))
    folding = _batch_form(context, aggregation, cache, clock, starts)
    if aggregation.aggregator is None and aggregation.advance_ms == aggregation.size_ms:
        return Bound(process, _tumbling_count_batch_form(context, aggregation, cache, clock, folding))
    return Bound(process, folding)


def _starts(aggregation: WindowAggregation) -> Callable[[int], Iterable[int]]:
    """Return what tells the starts of a timestamp's windows."""
    size, advance = aggregation.size_ms, aggregation.advance_ms
    if size == advance:
        return lambda timestamp: (timestamp - timestamp % size,)
    return lambda timestamp: range(max(0, timestamp - size + advance) // advance * advance, timestamp + 1, advance)


def _record_form(context: NodeContext, aggregation: WindowAggregation, cache: Cache, clock: Clock, starts: Callable[[int], Iterable[int]]) -> Process:
    store = context.store(aggregation.store)
    get, put, hold, kept = store.get_entry, store.put_entry, cache.hold, cache.before
    fold = aggregation.fold()
    size = aggregation.size_ms
    grace = aggregation.grace_ms

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None:
            context.dropped()
            return
        clock.time = max(clock.time, timestamp)
        closed = clock.time - grace
        for start in starts(timestamp):
            if start + size <= closed:
                context.dropped()
                continue
            windowed = Windowed(key, Window(start, start + size))
            entry = get(key, start)
            old = None if entry is None else kept(windowed, entry[0])
            _, new = fold(key, value, entry)
            latest = timestamp if entry is None else max(timestamp, entry[1])
            put(key, start, None if new is None else (new, latest))
            hold(windowed, (new, old), latest, headers)

    return process


def _batch_form(
    context: NodeContext, aggregation: WindowAggregation, cache: Cache, clock: Clock, starts: Callable[[int], Iterable[int]]
) -> ProcessBatch:
    store = context.store(aggregation.store)
    get = store.get_entry
    fold = aggregation.fold()
    size = aggregation.size_ms
    grace = aggregation.grace_ms
    kept = cache.before if cache.copies else None

    def process_batch(batch: Batch) -> None:
        folded: dict[Any, tuple[Any, int]] = {}
        firsts: dict[Any, Any] = {}
        dropped = 0
        for index, (key, value, timestamp) in enumerate(zip(batch.keys, batch.values, batch.timestamps, strict=True)):
            if key is None:
                dropped += 1
                continue
            if timestamp > clock.time:  # noqa: PLR1730 - likewise
                clock.time = timestamp
            closed = clock.time - grace
            try:
                for start in starts(timestamp):
                    if start + size <= closed:
                        dropped += 1
                        continue
                    row = (key, start)
                    entry = folded.get(row)
                    if entry is None:
                        entry = get(key, start) or _NO_ENTRY
                        firsts[row] = entry[0] if kept is None else kept(Windowed(key, Window(start, start + size)), entry[0])
                    _, new = fold(key, value, None if entry[0] is None else entry)
                    folded[row] = (new, timestamp if entry[0] is None or entry[1] < timestamp else entry[1])
            except Exception as error:  # noqa: BLE001 - the handler decides
                failed(context, batch, index, error)
        if dropped:
            context.dropped(dropped)
        _write(context, store, cache, batch, folded, firsts, starts, size)

    return process_batch


def _tumbling_count_batch_form(
    context: NodeContext, aggregation: WindowAggregation, cache: Cache, clock: Clock, folding: ProcessBatch
) -> ProcessBatch:
    """Count the records of each window that are in a row; where they are in no order, or in too many windows, take them as they come."""
    store = context.store(aggregation.store)
    size = aggregation.size_ms
    grace = aggregation.grace_ms
    starts = _starts(aggregation)

    def process_batch(batch: Batch) -> None:
        timestamps = batch.timestamps
        first, last = timestamps[0], timestamps[-1]
        if (last - first) // size * _DENSE > len(timestamps) or timestamps != sorted(timestamps) or None in batch.keys:
            folding(batch)
            return
        # As long as timestamps ascend, only records from before the latest one so far can be late.
        closed = clock.time - grace
        clock.time = max(clock.time, last)
        counted: list[tuple[int, dict[Any, int], Iterable[int]]] = []
        at, end = 0, len(timestamps)
        while at < end:
            start = timestamps[at] - timestamps[at] % size
            stop = bisect_left(timestamps, start + size, at)
            if start + size <= closed:
                context.dropped(stop - at)
            else:
                keys = batch.keys[at:stop]
                counts: dict[Any, int] = {}
                try:
                    _count_elements(counts, keys)
                except TypeError:  # a key that cannot be one
                    folding(batch.slice(at, stop))
                else:
                    counted.append((start, counts, dict(zip(keys, timestamps[at:stop], strict=True)).values()))
            at = stop
        for start, counts, times in counted:
            _add(context, store, cache, batch, start, counts, times, size)
        _note_headers(cache, batch, starts)
        cache.settle()

    return process_batch


def _add(context: NodeContext, store: Any, cache: Cache, batch: Batch, start: int, counts: dict[Any, int], times: Iterable[int], size: int) -> None:
    """Add to what one window has counted."""
    get, put = store.get_entry, store.put_entry
    news, olds, keys = cache.news, cache.olds, cache.keys
    window = Window(start, start + size)
    for (key, number), timestamp in zip(counts.items(), times, strict=True):
        try:
            entry = get(key, start)
            if entry is None:
                before, new = None, (number, timestamp)
            else:
                before, seen = entry
                new = (before + number, timestamp if seen < timestamp else seen)  # noqa: FURB136 - `max` takes five times as long
            put(key, start, new)
        except Exception as error:  # noqa: BLE001 - the handler decides
            _fail(context, batch, key, window, error)
            continue
        row = (key, start)
        if row not in news:
            olds[row] = before
            keys[row] = _new(Windowed, (key, window))
        news[row] = new


def _write(
    context: NodeContext,
    store: Any,
    cache: Cache,
    batch: Batch,
    folded: dict[Any, tuple[Any, int]],
    firsts: dict[Any, Any],
    starts: Callable[[int], Iterable[int]],
    size: int,
) -> None:
    """Put the new entries of rows into their store, and have them held; `firsts` are their values before."""
    put = store.put_entry
    news, olds, keys = cache.news, cache.olds, cache.keys
    windows: dict[int, Window] = {}
    for row, new in folded.items():
        key, start = row
        window = windows.get(start) or windows.setdefault(start, Window(start, start + size))
        try:
            put(key, start, None if new[0] is None else new)
        except Exception as error:  # noqa: BLE001 - the handler decides
            _fail(context, batch, key, window, error)
            continue
        if row not in news:
            olds[row] = firsts[row]
            keys[row] = _new(Windowed, (key, window))
        news[row] = new
    _note_headers(cache, batch, starts)
    cache.settle()


def _fail(context: NodeContext, batch: Batch, key: Any, window: Window, error: Exception) -> None:
    """Ask the handler about all records of a row."""
    for index, (each, timestamp) in enumerate(zip(batch.keys, batch.timestamps, strict=True)):
        if each == key and window.start <= timestamp < window.end:
            failed(context, batch, index, error)


def _note_headers(cache: Cache, batch: Batch, starts: Callable[[int], Iterable[int]]) -> None:
    """Remember the headers of the records whose rows are held."""
    known, news = cache.headers, cache.news
    if batch.headers is None and not known:
        return
    headers: Iterable[Headers] = repeat(()) if batch.headers is None else batch.headers
    for key, timestamp, header in zip(batch.keys, batch.timestamps, headers, strict=False):
        for start in starts(timestamp):
            row = (key, start)
            if header and row in news:
                known[row] = header
            else:
                known.pop(row, None)
