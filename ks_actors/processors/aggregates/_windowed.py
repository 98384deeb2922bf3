"""Aggregations of grouped streams per key and window of time, forwarded at every update."""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, final

from ks_actors.kernel import HAS_KERNEL, kernel
from ks_actors.processors.aggregates._cached_windows import cached_windows, held_window_counts
from ks_actors.processors.aggregates._output_rows import OutputRows
from ks_actors.processors.api import Bound, Clock
from ks_actors.processors.stateless import Inline, failed, forward_rest
from ks_actors.records import Batch, Window, Windowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.processors.aggregates._cached_windows import HoldCounts
    from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
    from ks_actors.processors.api import (
        Cache,
        NodeContext,
        Process,
        ProcessBatch,
        WindowsForOperators,
    )
    from ks_actors.records import Headers

# The most windows to share before they are cleared.
_FEW = 1_000
_NEAR = 32
"""The number of records to count one by one after the kernel meets a record that is not plain.

More such records are probably near.
"""
_new = tuple.__new__  # A named tuple's own constructor calls this.


@final
class WindowedAggregate(Inline):
    """Aggregate into a window store; forward `Windowed(key, window)` and `(new, old | None)`.

    Each window that a record changes is forwarded.
    """

    def __init__(self, aggregation: WindowAggregation) -> None:
        self.aggregation: WindowAggregation = aggregation

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        clock = Clock(context, self.aggregation.store, self.aggregation.stream)
        aggregation = self.aggregation
        cache = context.cache(aggregation.store, send_old=aggregation.send_old)
        if cache is not None:
            return self._cached(context, cache, clock)
        record_form = _record_form(context, aggregation, clock)
        if aggregation.advance_ms < aggregation.size_ms:
            return Bound(record_form, _hopping_batch_form(context, aggregation, clock))
        if aggregation.aggregator is None:
            return Bound(record_form, _tumbling_count_batch_form(context, aggregation, clock, None))
        return Bound(record_form, _tumbling_batch_form(context, aggregation, clock))

    def _cached(self, context: NodeContext, cache: Cache, clock: Clock) -> Bound:
        aggregation = self.aggregation
        cached = cached_windows(context, aggregation, cache, clock)
        if (
            not cache.plain
            or aggregation.aggregator is not None
            or aggregation.advance_ms < aggregation.size_ms
        ):
            return cached
        counted = replace(aggregation, send_old=True)
        return Bound(
            cached.process,
            _tumbling_count_batch_form(context, counted, clock, held_window_counts(cache)),
        )


def _record_form(context: NodeContext, aggregation: WindowAggregation, clock: Clock) -> Process:
    store: WindowsForOperators = context.store(aggregation.store)
    get = store.get_entry
    put = store.put_entry
    forward = context.forward
    fold = aggregation.fold(context, send_old=aggregation.send_old)
    size = aggregation.size_ms
    advance = aggregation.advance_ms
    grace = aggregation.grace_ms
    send_old = aggregation.send_old

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None:
            context.dropped()
            return
        clock.time = max(clock.time, timestamp)
        closed = clock.time - grace
        # The first start is that of the earliest window that contains the timestamp.
        for start in range(
            max(0, timestamp - size + advance) // advance * advance, timestamp + 1, advance
        ):
            if start + size <= closed:
                context.dropped()
                continue
            entry = get(key, start)
            old, new = fold(key, value, entry)
            latest = timestamp if entry is None else max(timestamp, entry[1])
            put(key, start, None if new is None else (new, latest))
            forward(
                Windowed(key, Window(start, start + size)),
                (new, old if send_old else None),
                latest,
                headers,
            )

    return process


def _tumbling_count_batch_form(
    context: NodeContext, aggregation: WindowAggregation, clock: Clock, hold: HoldCounts | None
) -> ProcessBatch:
    store: WindowsForOperators = context.store(aggregation.store)
    # The kernel sends None before a new window. So does a cache, which then holds the counts.
    initial = 0 if context.kafka_streams_faults and hold is None else None
    by_kernel = store.counts and (initial is None or not aggregation.send_old)
    count_up = store.count_up if by_kernel else None
    forward_batch = context.forward_batch
    size = aggregation.size_ms
    windows: dict[int, Window] = {}
    one_by_one = _tumbling_counts(context, aggregation, clock, windows, initial)

    def process_batch(batch: Batch) -> None:
        keys, timestamps = batch.keys, batch.timestamps
        left_out: list[int] = []
        found: list[Window] = []
        changes: list[Any] = []
        latest: list[int] = []
        out = (found, changes, latest, aggregation.send_old)
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


def _tumbling_counts(  # noqa: PLR0915 - one flat loop: calls would cost more than what they do
    context: NodeContext,
    aggregation: WindowAggregation,
    clock: Clock,
    windows: dict[int, Window],
    initial: int | None,
) -> Callable[..., None]:
    """Return a function that counts some records of a batch and appends the result of each.

    `initial` is sent as the count before a new window.
    """
    store: WindowsForOperators = context.store(aggregation.store)
    get = store.get_entry
    put = store.put_entry
    size = aggregation.size_ms
    grace = aggregation.grace_ms
    send_old = aggregation.send_old

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
        for key, timestamp in zip(
            batch.keys[places.start : places.stop],
            batch.timestamps[places.start : places.stop],
            strict=True,
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
                if entry is None:
                    before, count, latest = initial, 1, timestamp
                else:
                    before, latest = entry
                    count = before + 1
                    if latest < timestamp:  # noqa: PLR1730 - `max` takes five times as long
                        latest = timestamp
                put(key, start, (count, latest))
            except BaseException as error:  # noqa: BLE001 - the handler decides
                clock.time = now
                index = len(found) + len(left_out)
                failed(context, batch, index, error)
                left_out.append(index)
                continue
            add_window(window)
            add_change((count, before) if send_old else (count, None))
            add_timestamp(latest)
        clock.time = now
        if dropped:
            context.dropped(dropped)

    return one_by_one


def _tumbling_batch_form(
    context: NodeContext, aggregation: WindowAggregation, clock: Clock
) -> ProcessBatch:
    store: WindowsForOperators = context.store(aggregation.store)
    get = store.get_entry
    put = store.put_entry
    forward_batch = context.forward_batch
    fold = aggregation.fold(context, send_old=aggregation.send_old)
    size = aggregation.size_ms
    grace = aggregation.grace_ms
    send_old = aggregation.send_old
    windows: dict[int, Window] = {}

    def process_batch(batch: Batch) -> None:
        left_out: list[int] = []
        keys: list[Any] = []
        changes: list[Any] = []
        timestamps: list[int] = []
        dropped = 0
        start = end = -1
        window = Window(start, end)
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            # A record without key does not advance stream time.
            if timestamp > clock.time and key is not None:
                clock.time = timestamp
            if not start <= timestamp < end:
                start = timestamp - timestamp % size
                end = start + size
                window = windows.get(start) or _window(windows, start, size)
            if key is None or end <= clock.time - grace:
                dropped += 1
                left_out.append(len(keys) + len(left_out))
                continue
            try:
                entry = get(key, start)
                old, new = fold(key, value, entry)
                latest = timestamp if entry is None or entry[1] < timestamp else entry[1]
                put(key, start, None if new is None else (new, latest))
            except BaseException as error:  # noqa: BLE001 - the handler decides
                index = len(keys) + len(left_out)
                failed(context, batch, index, error)
                left_out.append(index)
                continue
            keys.append(_new(Windowed, (key, window)))
            changes.append((new, old if send_old else None))
            timestamps.append(latest)
        if dropped:
            context.dropped(dropped)
        forward_rest(forward_batch, batch, left_out, changes, timestamps, keys)

    return process_batch


def _hopping_batch_form(
    context: NodeContext, aggregation: WindowAggregation, clock: Clock
) -> ProcessBatch:
    """Make one output record for each window of a record."""
    store: WindowsForOperators = context.store(aggregation.store)
    get = store.get_entry
    put = store.put_entry
    fold = aggregation.fold(context, send_old=aggregation.send_old)
    size = aggregation.size_ms
    advance = aggregation.advance_ms
    grace = aggregation.grace_ms
    send_old = aggregation.send_old
    windows: dict[int, Window] = {}

    def process_batch(batch: Batch) -> None:
        out = OutputRows(context.forward_batch, batch)
        add_index, add_key, add_change, add_timestamp = out.adders
        dropped = 0
        for index, (key, value, timestamp) in enumerate(
            zip(batch.keys, batch.values, batch.timestamps, strict=True)
        ):
            if key is None:
                dropped += 1
                continue
            clock.time = max(clock.time, timestamp)
            closed = clock.time - grace
            try:
                for start in range(
                    max(0, timestamp - size + advance) // advance * advance, timestamp + 1, advance
                ):
                    if start + size <= closed:
                        dropped += 1
                        continue
                    entry = get(key, start)
                    old, new = fold(key, value, entry)
                    latest = timestamp if entry is None or entry[1] < timestamp else entry[1]
                    put(key, start, None if new is None else (new, latest))
                    add_index(index)
                    add_key(
                        _new(Windowed, (key, windows.get(start) or _window(windows, start, size)))
                    )
                    add_change((new, old if send_old else None))
                    add_timestamp(latest)
            except BaseException as error:  # noqa: BLE001 - the handler decides
                failed(context, batch, index, error)
        if dropped:
            context.dropped(dropped)
        out.flush()

    return process_batch


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
    if len(windows) >= _FEW:
        windows.clear()
    window = windows[start] = Window(start, start + size)
    return window
