"""The loop of aggregations per window: add a record to each window of its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from ks_actors.records import Windowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.aggregates._batch_form import Emit
    from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
    from ks_actors.processors.aggregates._windows_for import WindowsFor
    from ks_actors.processors.api import Cache, Clock, NodeContext, WindowsForOperators

_new = tuple.__new__  # A named tuple's own constructor calls this.


@final
class UncommittedClock:
    """Stream time (ms) of one task, lost when the task ends; -1 before the first record."""

    __slots__ = ("time",)

    def __init__(self, time: int = -1) -> None:
        self.time: int = time


def window_loop(
    context: NodeContext,
    aggregation: WindowAggregation,
    clock: Clock | UncommittedClock,
    windows_for: WindowsFor,
    emit: Emit | None,
    drop: Callable[[], None],
    *,
    send_old: bool,
    cache: Cache | None = None,
) -> Emit:
    """Return a function that adds a record to its windows, by start.

    The function takes key, value, timestamp (ms), and a fourth argument that it passes on: the
    headers, or the record's index in a batch. `emit`, if given, gets a result per window:
    `Windowed(key, window)`, `(new, old | None)`, the timestamp and the fourth argument. `drop` is
    called for a record without key, and for each window that is closed. Errors of the store and of
    user functions are raised, after the results of earlier windows of the record.

    With a `cache`, the old value is for the cache, and a delete has the timestamp of its record.
    """
    store: WindowsForOperators = context.store(aggregation.store)
    get, put = store.get_entry, store.put_entry
    fold = aggregation.fold(context, send_old=send_old, cache=cache)
    grace = aggregation.grace_ms
    cached = cache is not None

    def add(key: Any, value: Any, timestamp: int, rest: Any) -> None:
        if key is None:
            drop()
            return
        # Per record, not per batch: stream time at this record decides whether the record is late.
        if timestamp > clock.time:  # noqa: PLR1730 - `max` takes five times as long
            clock.time = timestamp
        closed = clock.time - grace
        for start, end, window in windows_for(timestamp):
            if end <= closed:
                drop()
                continue
            entry = get(key, start)
            old, new = fold(key, value, entry, window)
            latest = timestamp if entry is None or entry[1] < timestamp else entry[1]
            if new is not None:
                put(key, start, (new, latest))
            else:
                put(key, start, None)
                if cached:
                    latest = timestamp
            if emit is not None:
                emit(_new(Windowed, (key, window)), (new, old if send_old else None), latest, rest)

    return add
