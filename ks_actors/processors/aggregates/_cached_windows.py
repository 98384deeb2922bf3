"""Aggregations per window with cached updates: many records of a window at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import groupby, repeat
from math import gcd
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ks_actors._errors import SerializationError
from ks_actors.processors.aggregates._cached import admission, exhaust, latest_times
from ks_actors.processors.stateless import failed
from ks_actors.records import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
    from ks_actors.processors.aggregates._windows_for import WindowsFor
    from ks_actors.processors.api import (
        Cache,
        Clock,
        NodeContext,
        ProcessBatch,
        WindowsForOperators,
    )
    from ks_actors.records import Batch, Headers

    Folded = dict[Any, tuple[Any, int]]
    HoldCounts = Callable[[Batch, Sequence[int], list[Window], list[Any], list[int]], None]

_NO_ENTRY: tuple[Any, int] = (None, -1)
_NEVER = 2**63 - 1
_count = itemgetter(0)


def cached_batches(
    context: NodeContext,
    aggregation: WindowAggregation,
    cache: Cache,
    clock: Clock,
    windows_for: WindowsFor,
) -> ProcessBatch:
    """Return the batch form that puts and caches a row once for all records of a batch.

    Keys are plain and aggregates immutable.
    """
    store: WindowsForOperators = context.store(aggregation.store)
    one_by_one = _one_by_one(context, aggregation, cache, clock, windows_for)
    if aggregation.aggregator is not None or not store.bound:
        return one_by_one
    count_panes = _pane_counts(aggregation, store, cache, clock, windows_for)

    def process_batch(batch: Batch) -> None:
        if not count_panes(batch):
            one_by_one(batch)

    return process_batch


def _one_by_one(
    context: NodeContext,
    aggregation: WindowAggregation,
    cache: Cache,
    clock: Clock,
    windows_for: WindowsFor,
) -> ProcessBatch:
    """Return the batch form that adds each record to each of its windows.

    This form does not use `window_loop`, because it reads and changes its own rows, not the rows of
    the store.
    """
    store: WindowsForOperators = context.store(aggregation.store)
    get = store.get_entry
    fold = aggregation.fold(context, send_old=False)
    size = aggregation.size_ms
    grace = aggregation.grace_ms
    admit = admission(store)
    absent = _absence(store)
    # A record that fails in its only window has changed no window.
    none_of_them = _NEVER if size == aggregation.advance_ms else None

    def process_batch(batch: Batch) -> None:
        folded: dict[int, Folded] = {}
        firsts: dict[int, dict[Any, Any]] = {}
        late: dict[int, int | None] = {}
        dropped = updates = 0
        for index, (key, value, timestamp) in enumerate(
            zip(batch.keys, batch.values, batch.timestamps, strict=True)
        ):
            if key is None:
                dropped += 1
                continue
            if timestamp > clock.time:  # noqa: PLR1730 - `max` takes five times as long
                clock.time = timestamp
            closed = clock.time - grace
            try:
                for start, end, window in windows_for(timestamp):
                    if end <= closed:
                        late[index] = closed
                        dropped += 1
                        continue
                    rows = folded.get(start)
                    if rows is None:
                        rows, firsts[start] = folded.setdefault(start, {}), {}
                    entry = rows.get(key)
                    if entry is None:
                        entry = get(key, start) or absent(key)
                        firsts[start][key] = entry[0]
                    _, new = fold(key, value, None if entry[0] is None else entry, window)
                    new = admit(key, new)
                    updates += 1
                    rows[key] = (
                        new,
                        timestamp
                        if entry[0] is None or entry[1] < timestamp or new is None
                        else entry[1],
                    )
            except BaseException as error:  # noqa: BLE001 - the handler decides
                failed(context, batch, index, error)
                late[index] = none_of_them
        if dropped:
            context.dropped(dropped)
        cache.came(batch, (), late)
        for start, rows in folded.items():
            _hold(store, cache, Window(start, start + size), rows, firsts[start])
        _note_headers(cache, batch, windows_for, late)
        cache.send_excess(updates)

    return process_batch


def _pane_counts(
    aggregation: WindowAggregation,
    store: WindowsForOperators,
    cache: Cache,
    clock: Clock,
    windows_for: WindowsFor,
) -> Callable[[Batch], bool]:
    """Return a function that counts a batch pane by pane, and returns whether it has done so.

    A pane is a span of time with the same windows. A key's records in a pane are counted once, and
    the number is added to each window: the windows cost something for each key, not for each
    record. Nothing is done where a record has no key, may be late, or is of an earlier pane than
    the one before it, nor where a key or a count cannot be written.
    """
    step, grace = gcd(aggregation.size_ms, aggregation.advance_ms), aggregation.grace_ms
    get, absent, bound = store.get_entry, _absence(store), store.bound

    def count_panes(batch: Batch) -> bool:
        keys, timestamps = batch.keys, batch.timestamps
        panes = [timestamp // step for timestamp in timestamps]
        # A window that has a record is open for all of the record's pane: only earlier time closes.
        closed = windows_for(timestamps[0])[0][1] <= clock.time - grace
        if closed or panes != sorted(panes) or None in keys:
            return False
        folded: dict[Window, Folded] = {}
        firsts: dict[Window, dict[Any, Any]] = {}
        updates = first = 0
        try:
            while first < len(keys):
                stop = bisect_right(panes, panes[first], first)
                numbers = Counter(keys[first:stop])
                times = latest_times(keys[first:stop], timestamps[first:stop])
                counted = list(zip(numbers.items(), times, strict=True))
                for start, _, window in windows_for(timestamps[first]):
                    updates += stop - first
                    rows = folded.setdefault(window, {})
                    olds = firsts.setdefault(window, {})
                    for (key, number), time in counted:
                        entry = rows.get(key)
                        if entry is None:
                            entry = get(key, start) or absent(key)
                            olds[key] = entry[0]
                        count, seen = entry
                        count = number if count is None else count + number
                        if count >= bound:
                            return False
                        rows[key] = count, (max(seen, time))
                first = stop
        except (SerializationError, TypeError):  # a bad key: find it record by record
            return False
        clock.time = max(clock.time, *timestamps)
        cache.came(batch)
        for window, rows in folded.items():
            _hold(store, cache, window, rows, firsts[window])
        _note_headers(cache, batch, windows_for, {})
        cache.send_excess(updates)
        return True

    return count_panes


def _absence(store: WindowsForOperators) -> Callable[[Any], tuple[Any, int]]:
    """Return a function that makes the entry of a window without a row.

    The function raises SerializationError when the key cannot be written.
    """

    def absent(key: Any) -> tuple[Any, int]:
        store.check_key(key)
        return _NO_ENTRY

    return absent


def held_window_counts(cache: Cache) -> HoldCounts:
    """Return a function that caches counts per window that are in their store already.

    It takes changes of plain keys; the old value is None where there was no row before.
    """

    def hold(
        batch: Batch,
        left_out: Sequence[int],
        windows: list[Window],
        changes: list[tuple[int, int | None]],
        times: list[int],
    ) -> None:
        if left_out:
            gone = set(left_out)
            batch = batch.select([index not in gone for index in range(len(batch))])
        cache.came(batch)
        at = 0
        for window, run in groupby(windows):
            stop = at + len(list(run))
            keys, changed = batch.keys[at:stop], changes[at:stop]
            rows = cache.rows(window)
            exhaust(map(rows.olds.setdefault, keys, [before for _, before in changed]))
            rows.news.update(
                zip(keys, zip(map(_count, changed), times[at:stop], strict=True), strict=True)
            )
            if batch.headers is not None or rows.headers:
                rows.note_headers(
                    keys, repeat(()) if batch.headers is None else batch.headers[at:stop]
                )
            at = stop
        cache.send_excess(len(batch))

    return hold


def _hold(
    store: WindowsForOperators,
    cache: Cache,
    window: Window,
    entries: Folded,
    firsts: dict[Any, Any],
) -> None:
    """Put new entries of a window into the store, and cache them; `firsts` are the old values."""
    put, start = store.put_entry, window.start
    rows = cache.rows(window)
    olds = rows.olds
    for key, entry in entries.items():
        put(key, start, None if entry[0] is None else entry)
        if key not in olds:
            olds[key] = firsts[key]
    rows.news.update(entries)


def _note_headers(
    cache: Cache, batch: Batch, windows_for: WindowsFor, late: Mapping[int, int | None]
) -> None:
    """Remember the headers of the records of cached rows.

    A record that changes no row leaves the row's headers as they are. `late` has the time (ms) up
    to which windows were closed for a record, None if unknown.
    """
    if batch.headers is None and not cache.with_headers:
        return
    headers: Iterable[Headers] = repeat(()) if batch.headers is None else batch.headers
    for index, (key, timestamp, header) in enumerate(
        zip(batch.keys, batch.timestamps, headers, strict=False)
    ):
        if key is None:
            continue
        closed = late.get(index)
        for _, end, window in windows_for(timestamp):
            if closed is None or end > closed:
                cache.rows(window).note_headers((key,), (header,))
