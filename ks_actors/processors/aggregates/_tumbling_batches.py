"""Aggregations per tumbling window in batches: counts by the kernel, where there is one."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any

from ks_actors.kernel import HAS_KERNEL, kernel
from ks_actors.processors.aggregates._windows_for import MOST_SHARED
from ks_actors.processors.stateless import failed, forward_rest
from ks_actors.records import Window, Windowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.processors.aggregates._cached_windows import HoldCounts
    from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
    from ks_actors.processors.api import (
        Cache,
        Clock,
        NodeContext,
        ProcessBatch,
        WindowsForOperators,
    )
    from ks_actors.records import Batch

_NEAR = 32
"""The number of records to count one by one after the kernel meets a record that is not plain.

More such records are probably near.
"""
_new = tuple.__new__  # A named tuple's own constructor calls this.


def tumbling_batches(
    context: NodeContext,
    aggregation: WindowAggregation,
    clock: Clock,
    *,
    cache: Cache | None = None,
    hold: HoldCounts | None = None,
) -> ProcessBatch:
    """Return the batch form of an aggregation per tumbling window.

    This form does not use `window_loop`: each record has one window, and makes one result at most.
    So the kernel counts most records at once, and columns that do not change are shared.

    The results are forwarded; with a `cache`, counts of plain keys go to `hold`.
    """
    store: WindowsForOperators = context.store(aggregation.store)
    counts = aggregation.aggregator is None and store.counts
    # The kernel sends None before a new window.
    faults = context.kafka_streams_faults and cache is None and aggregation.send_old
    count_up = store.count_up if counts and not faults else None
    send_old = aggregation.send_old or cache is not None
    forward_batch = context.forward_batch
    size = aggregation.size_ms
    windows: dict[int, Window] = {}
    one_by_one = _one_by_one(context, aggregation, clock, windows, cache)

    def process_batch(batch: Batch) -> None:
        keys, timestamps = batch.keys, batch.timestamps
        left_out: list[int] = []
        found: list[Window] = []
        changes: list[Any] = []
        latest: list[int] = []
        out = (found, changes, latest, send_old)
        done, count = 0, len(keys)
        while done < count:
            stop = count
            if count_up is not None:
                done, clock.time = count_up(
                    windows, keys, timestamps, done, out, (clock.time, aggregation.grace_ms, size)
                )
                stop = min(done + _NEAR, count)
            one_by_one(batch, range(done, stop), left_out, found, changes, latest)
            done = stop
        if hold is None:
            forward_rest(
                forward_batch, batch, left_out, changes, latest, _keys(batch, left_out, found)
            )
        else:
            hold(batch, left_out, found, changes, latest)

    return process_batch


def _one_by_one(
    context: NodeContext,
    aggregation: WindowAggregation,
    clock: Clock,
    windows: dict[int, Window],
    cache: Cache | None,
) -> Callable[..., None]:
    """Return a function that adds some records of a batch and appends the result of each."""
    store: WindowsForOperators = context.store(aggregation.store)
    get = store.get_entry
    put = store.put_entry
    size = aggregation.size_ms
    grace = aggregation.grace_ms
    send_old = aggregation.send_old or cache is not None
    fold = aggregation.fold(context, send_old=send_old, cache=cache)

    def one_by_one(
        batch: Batch,
        places: range,
        left_out: list[int],
        found: list[Window],
        changes: list[Any],
        timestamps: list[int],
    ) -> None:
        add_window = found.append
        add_change = changes.append
        add_timestamp = timestamps.append
        dropped = 0
        now = clock.time
        closed = now - grace
        start = end = -1
        window = Window(start, end)
        part = slice(places.start, places.stop)
        for key, value, timestamp in zip(
            batch.keys[part], batch.values[part], batch.timestamps[part], strict=True
        ):
            if key is None:
                dropped += 1
                left_out.append(len(found) + len(left_out))
                continue
            if timestamp > now:
                now = timestamp
                closed = now - grace
            if not start <= timestamp < end:
                start = timestamp - timestamp % size
                end = start + size
                window = windows.get(start) or _window(windows, start, size)
            if end <= closed:
                dropped += 1
                left_out.append(len(found) + len(left_out))
                continue
            try:
                entry = get(key, start)
                old, new = fold(key, value, entry, window)
                latest = timestamp if entry is None or entry[1] < timestamp else entry[1]
                put(key, start, None if new is None else (new, latest))
            except BaseException as error:  # noqa: BLE001 - the handler decides
                clock.time = now
                index = len(found) + len(left_out)
                failed(context, batch, index, error)
                left_out.append(index)
                continue
            add_window(window)
            add_change((new, old) if send_old else (new, None))
            add_timestamp(latest)
        clock.time = now
        if dropped:
            context.dropped(dropped)

    return one_by_one


def _keys(batch: Batch, left_out: list[int], windows: list[Window]) -> list[Any]:
    """Return the windowed keys of the remaining records, all in C."""
    keys: Iterable[Any] = batch.keys
    if left_out:
        left = set(left_out)
        keys = (key for index, key in enumerate(keys) if index not in left)
    if HAS_KERNEL:
        return kernel.windowed(Windowed, keys if type(keys) is list else list(keys), windows)
    return list(map(_new, repeat(Windowed), zip(keys, windows, strict=True)))


def _window(windows: dict[int, Window], start: int, size: int) -> Window:
    """Return a window; records share the object for a while."""
    if len(windows) >= MOST_SHARED:
        windows.clear()
    window = windows[start] = Window(start, start + size)
    return window
