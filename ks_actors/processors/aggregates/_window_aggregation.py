"""The windowed aggregation that the operators share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ks_actors.processors.aggregates._previous_aggregates import as_it_is, keeper, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import NodeContext


@dataclass(frozen=True, kw_only=True)
class WindowAggregation:
    """An aggregation of the windows that a record falls into.

    Windows start at multiples of `advance_ms` and last `size_ms`. A window takes records until
    stream time (the latest timestamp seen) has passed its end by `grace_ms`; later ones are
    dropped, window by window.

    With `initializer` and `aggregator` None it counts. Otherwise the fold is `aggregator(key,
    value, aggregate)`, where a window without an aggregate begins with `initializer()`. With
    `initializer` None the fold is `aggregator(aggregate, value)`, from the first value on. A result
    of None deletes. A new window has the old value None, also where Kafka Streams sends an initial
    one: see StreamAggregate. Records without key are dropped, those without value are not.
    Aggregates may be changed in place: see StreamAggregate.
    """

    store: str
    size_ms: int
    advance_ms: int
    grace_ms: int
    aggregator: Callable[..., Any] | None = None
    initializer: Callable[[], Any] | None = None
    send_old: bool = False
    stream: int | None = None
    """The number of the stream in a cogroup, in which each has a stream time of its own."""

    def fold(
        self, context: NodeContext, *, send_old: bool
    ) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
        """Return a function that folds a value into an entry.

        It takes key, value and entry or None, and returns `(old value to send, new value)`.
        """
        kept = keeper(context.store(self.store), send_old=send_old)
        aggregator = self.aggregator
        initializer = self.initializer
        initial_is_sent = context.kafka_streams_faults
        no_count = 0 if initial_is_sent else None

        def count(_: Any, __: Any, entry: Any) -> tuple[Any, Any]:
            return (no_count, 1) if entry is None else (entry[0], entry[0] + 1)

        if aggregator is None:
            return count

        def reduce(_: Any, value: Any, entry: Any) -> tuple[Any, Any]:
            return (None, value) if entry is None else (kept(entry[0]), aggregator(entry[0], value))

        if initializer is None:
            return reduce
        fold = watched(context, self.store, aggregator, initializer)

        def begin(key: Any, value: Any) -> tuple[Any, Any]:
            initial = initializer()
            return kept(initial) if initial_is_sent else None, fold(key, value, initial)

        if kept is as_it_is:  # Save a call.
            return lambda key, value, entry: (
                begin(key, value) if entry is None else (entry[0], fold(key, value, entry[0]))
            )

        def aggregate(key: Any, value: Any, entry: Any) -> tuple[Any, Any]:
            if entry is None:
                return begin(key, value)
            return kept(entry[0]), fold(key, value, entry[0])

        return aggregate
