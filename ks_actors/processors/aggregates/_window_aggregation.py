"""The windowed aggregation that the operators share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ks_actors.processors.aggregates._previous_aggregates import row_keeper, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import Cache, NodeContext
    from ks_actors.records import Window


@dataclass(frozen=True, kw_only=True)
class WindowAggregation:
    """An aggregation of the windows that a record falls into.

    Windows start at multiples of `advance_ms` and last `size_ms`. A window takes records until
    stream time (the latest timestamp seen) has passed its end by `grace_ms`; later records are
    dropped, window by window.

    With `initializer` and `aggregator` None, records are counted. Otherwise the fold is
    `aggregator(key, value, aggregate)`, where a window without an aggregate begins with
    `initializer()`. With `initializer` None the fold is `aggregator(aggregate, value)`, from the
    first value on. A result of None deletes. A new window has the old value None, also where Kafka
    Streams sends an initial value: see StreamAggregate. Records without key are dropped, but not
    records without value. Aggregates may be changed in place: see StreamAggregate.
    """

    store: str
    size_ms: int
    advance_ms: int
    grace_ms: int
    aggregator: Callable[..., Any] | None = None
    initializer: Callable[[], Any] | None = None
    send_old: bool = False
    stream: int | None = None
    """The number of the stream in a cogroup, in which each stream has its own stream time."""

    def fold(
        self, context: NodeContext, *, send_old: bool, cache: Cache | None = None
    ) -> Callable[[Any, Any, Any, Window], tuple[Any, Any]]:
        """Return a function that folds a value into an entry.

        The function takes key, value, entry or None, and the window. It returns `(old value to
        send, new value)`; with a `cache`, the old value is for the cache.
        """
        store = context.store(self.store)
        aggregator = self.aggregator
        initializer = self.initializer
        # A cache sends None before a new window, as Kafka Streams does with a cache.
        initial_is_sent = cache is None and context.kafka_streams_faults
        no_count = 0 if initial_is_sent else None
        # None where the old value is safe from in-place changes: that saves a call.
        kept: Callable[..., Any] | None = None
        if send_old and store.mutable:
            kept = row_keeper(store, send_old=send_old) if cache is None else cache.before

        def count(_: Any, __: Any, entry: Any, ___: Window) -> tuple[Any, Any]:
            return (no_count, 1) if entry is None else (entry[0], entry[0] + 1)

        if aggregator is None:
            return count

        def reduce(key: Any, value: Any, entry: Any, window: Window) -> tuple[Any, Any]:
            if entry is None:
                return None, value
            old = entry[0]
            return old if kept is None else kept(key, old, window), aggregator(old, value)

        if initializer is None:
            return reduce
        fold = watched(context, self.store, aggregator, initializer)

        def aggregate(key: Any, value: Any, entry: Any, window: Window) -> tuple[Any, Any]:
            if entry is not None:
                old = entry[0]
                return old if kept is None else kept(key, old, window), fold(key, value, old)
            initial = initializer()
            before = None
            if initial_is_sent:
                before = initial if kept is None else kept(key, initial, window)
            return before, fold(key, value, initial)

        return aggregate
