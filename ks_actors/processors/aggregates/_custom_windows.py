"""Aggregations per window of windows that users compute, forwarded at every update."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.aggregates._cached import one_at_a_time
from ks_actors.processors.aggregates._output_rows import OutputRows
from ks_actors.processors.api import Bound, Clock, refuse_awaitable
from ks_actors.processors.stateless import Inline, failed
from ks_actors.records import Window, Windowed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
    from ks_actors.processors.api import (
        Cache,
        NodeContext,
        Process,
        ProcessBatch,
        WindowsForOperators,
    )
    from ks_actors.records import Batch, CustomWindows, Headers

    WindowsFor = Callable[[int], Sequence[Window]]


@final
class CustomWindowedAggregate(Inline):
    """Aggregate into a window store; forward `Windowed(key, window)` and `(new, old | None)`.

    It does what WindowedAggregate does. The windows of a timestamp are those that `windows` gives,
    and may last up to the aggregation's `size_ms`.
    """

    def __init__(self, aggregation: WindowAggregation, windows: CustomWindows) -> None:
        self.aggregation: WindowAggregation = aggregation
        self.windows: CustomWindows = windows

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        aggregation = self.aggregation
        clock = Clock(context, aggregation.store, aggregation.stream)
        windows_for = windows_function(self.windows, aggregation.size_ms)
        cache = context.cache(aggregation.store, send_old=aggregation.send_old)
        if cache is not None:
            process = _cached_form(context, aggregation, clock, windows_for, cache)
            return Bound(process, one_at_a_time(context, cache, process))
        return Bound(
            _record_form(context, aggregation, clock, windows_for),
            _batch_form(context, aggregation, clock, windows_for),
        )


def windows_function(windows: CustomWindows, size_ms: int) -> WindowsFor:
    """Return a function that returns the windows of a timestamp (ms), sorted by start.

    It raises TypeError or ValueError when they are not as CustomWindows demands.
    """
    find = windows.windows_for

    def wrong(timestamp: int, found: Any, why: str) -> str:
        return f"windows_for({timestamp}) of {windows!r} returned {found!r}, but {why}"

    def windows_for(timestamp: int) -> Sequence[Window]:
        given = find(timestamp)
        # A user's function may give any iterable, even a generator, which can be read once.
        try:
            found = given if type(given) is tuple else tuple(given)
        except Exception:
            refuse_awaitable(find, given, awaited=False)
            raise
        for window in found:
            if type(window) is not Window:
                raise TypeError(wrong(timestamp, found, "each is to be a Window(start, end)"))
            start, end = window
            # Stores have no negative starts, and a window without its record's time might be closed
            # before that comes.
            if not 0 <= start <= timestamp < end:
                raise ValueError(
                    wrong(timestamp, found, "each begins at 0 or later, and has the timestamp")
                )
            # Stores keep rows for `size_ms` and grace: a longer window would lose them while it is
            # open.
            if end - start > size_ms:
                raise ValueError(
                    wrong(timestamp, found, f"none may last longer than size_ms, {size_ms}")
                )
        if len(found) > 1:
            # Results come out in this order, as those of hopping windows do.
            found = tuple(sorted(found))
            # A row's key has the start only: two windows that share it would share the aggregate.
            if any(one.start == next_.start for one, next_ in pairwise(found)):
                raise ValueError(
                    wrong(timestamp, found, "no two of them may begin at the same time")
                )
        return found

    return windows_for


def _record_form(
    context: NodeContext, aggregation: WindowAggregation, clock: Clock, windows_for: WindowsFor
) -> Process:
    store: WindowsForOperators = context.store(aggregation.store)
    get, put, forward = store.get_entry, store.put_entry, context.forward
    fold = aggregation.fold(context, send_old=aggregation.send_old)
    grace, send_old = aggregation.grace_ms, aggregation.send_old

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None:
            context.dropped()
            return
        clock.time = max(clock.time, timestamp)
        closed = clock.time - grace
        for window in windows_for(timestamp):
            start, end = window
            if end <= closed:
                context.dropped()
                continue
            entry = get(key, start)
            old, new = fold(key, value, entry)
            latest = timestamp if entry is None else max(timestamp, entry[1])
            put(key, start, None if new is None else (new, latest))
            forward(Windowed(key, window), (new, old if send_old else None), latest, headers)

    return process


def _batch_form(
    context: NodeContext, aggregation: WindowAggregation, clock: Clock, windows_for: WindowsFor
) -> ProcessBatch:
    store: WindowsForOperators = context.store(aggregation.store)
    get, put = store.get_entry, store.put_entry
    fold = aggregation.fold(context, send_old=aggregation.send_old)
    grace, send_old = aggregation.grace_ms, aggregation.send_old

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
            # For each record, not for the batch: a record is late by the time at its own turn.
            clock.time = max(clock.time, timestamp)
            closed = clock.time - grace
            try:
                for window in windows_for(timestamp):
                    start, end = window
                    if end <= closed:
                        dropped += 1
                        continue
                    entry = get(key, start)
                    old, new = fold(key, value, entry)
                    latest = timestamp if entry is None or entry[1] < timestamp else entry[1]
                    put(key, start, None if new is None else (new, latest))
                    add_index(index)
                    add_key(Windowed(key, window))
                    add_change((new, old if send_old else None))
                    add_timestamp(latest)
            except BaseException as error:  # noqa: BLE001 - the handler decides
                failed(context, batch, index, error)
        if dropped:
            context.dropped(dropped)
        out.flush()

    return process_batch


def _cached_form(
    context: NodeContext,
    aggregation: WindowAggregation,
    clock: Clock,
    windows_for: WindowsFor,
    cache: Cache,
) -> Process:
    store: WindowsForOperators = context.store(aggregation.store)
    get, put, hold, kept = store.get_entry, store.put_entry, cache.hold, cache.before
    fold = aggregation.fold(context, send_old=False)
    grace = aggregation.grace_ms

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None:
            context.dropped()
            return
        clock.time = max(clock.time, timestamp)
        closed = clock.time - grace
        for window in windows_for(timestamp):
            start, end = window
            if end <= closed:
                context.dropped()
                continue
            entry = get(key, start)
            old = None if entry is None else kept(key, entry[0], window)
            _, new = fold(key, value, entry)
            latest = timestamp if entry is None else max(timestamp, entry[1])
            put(key, start, None if new is None else (new, latest))
            hold(Windowed(key, window), (new, old), timestamp if new is None else latest, headers)

    return process
