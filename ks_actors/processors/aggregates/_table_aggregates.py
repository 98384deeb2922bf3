"""Tables grouped by another key.

A change removes the old value from one group and adds the new one to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.aggregates._history import Superseded, with_history
from ks_actors.processors.aggregates._previous_aggregates import row_keeper, watched
from ks_actors.processors.api import Bound, for_old, pair, withdrawn
from ks_actors.processors.stateless import Inline

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import Cache, KeyValueForOperators, NodeContext, Process
    from ks_actors.records import Headers


@final
@dataclass(frozen=True, kw_only=True)
class TableSelect(Inline):
    """Send changes to the groups that `selector(key, value)` chooses as a pair `(group, value)`.

    None, or a None in the pair, is no group. An old and a new value of one group travel as one
    change `(new, old)`, otherwise the old one goes first. Out-of-order changes of a `versioned`
    table are left out.
    """

    selector: Callable[[Any, Any], tuple[Any, Any] | None]
    versioned: bool = False

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        forward = context.forward
        selector = self.selector
        versioned = self.versioned

        def select(key: Any, value: Any) -> tuple[Any, Any] | None:
            made = None if value is None else selector(key, value)
            if made is None:
                return None
            group, grouped = pair(selector, made)
            return None if group is None or grouped is None else (group, grouped)

        select_old = for_old(context, select)

        def process(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
            _demand_key(context, key)
            if versioned and type(change) is Superseded:
                return
            try:
                new = select(key, change[0])
            except Exception:
                back = withdrawn(context, change)
                if back is not None and (old := select_old(key, back[1])) is not None:
                    forward(old[0], (None, old[1]), timestamp, headers)
                raise
            old = select_old(key, change[1])
            # Both values are in one group: let one change carry both.
            if new is not None and old is not None and old[0] == new[0]:
                forward(old[0], (new[1], old[1]), timestamp, headers)
                return
            if old is not None:
                forward(old[0], (None, old[1]), timestamp, headers)
            if new is not None:
                forward(new[0], (new[1], None), timestamp, headers)

        return Bound(process)


@final
@dataclass(frozen=True, kw_only=True)
class TableAggregate(Inline):
    """Subtract the old value of a change from its group's aggregate, and add the new one.

    It calls `subtractor(key, value, aggregate)` and `adder(key, value, aggregate)`. A group without
    an aggregate gets that of `initializer()` before the adder is called; the subtractor is not
    called for it. A result of None deletes. The result is in `store`; its timestamp is the later of
    the change's and the aggregate's.
    """

    store: str
    initializer: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]
    send_old: bool = False

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        context = with_history(context, self.store) or context
        store: KeyValueForOperators = context.store(self.store)
        get = store.get_entry
        put = store.put_entry
        cache = context.cache(self.store, send_old=self.send_old)
        forward = context.forward
        kept = row_keeper(store, send_old=self.send_old) if cache is None else cache.before
        initializer = self.initializer
        adder = watched(context, self.store, self.adder, initializer)
        subtractor = self.subtractor
        send_old = self.send_old or cache is not None

        def process(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
            _demand_key(context, key)
            added, removed = change
            entry = get(key)
            before = aggregate = None
            if entry is not None:
                aggregate, seen = entry
                before = kept(key, aggregate)
                if removed is not None:
                    aggregate = subtractor(key, removed, aggregate)
                if removed is not None or added is not None:
                    timestamp = max(timestamp, seen)
            if added is not None:
                aggregate = adder(key, added, initializer() if aggregate is None else aggregate)
            put(key, None if aggregate is None else (aggregate, timestamp))
            forward(key, (aggregate, before if send_old else None), timestamp, headers)

        if cache is None:
            return Bound(process)
        process_cached, forward = _cached(process, cache)
        return Bound(process_cached)


@final
@dataclass(frozen=True, kw_only=True)
class TableReduce(Inline):
    """Subtract the old value of a change from its group's aggregate, and add the new one.

    It calls `subtractor(aggregate, value)` and `adder(aggregate, value)`. The first value of a
    group is its aggregate. A result of None deletes. The result is in `store`, at the later of both
    timestamps when something was combined.
    """

    store: str
    adder: Callable[[Any, Any], Any]
    subtractor: Callable[[Any, Any], Any]
    send_old: bool = False

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        context = with_history(context, self.store) or context
        store: KeyValueForOperators = context.store(self.store)
        get = store.get_entry
        put = store.put_entry
        cache = context.cache(self.store, send_old=self.send_old)
        forward = context.forward
        kept = row_keeper(store, send_old=self.send_old) if cache is None else cache.before
        adder = self.adder
        subtractor = self.subtractor
        send_old = self.send_old or cache is not None

        def process(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
            _demand_key(context, key)
            added, removed = change
            entry = get(key)
            before = aggregate = None
            if entry is not None:
                aggregate, seen = entry
                before = kept(key, aggregate)
                if removed is not None:
                    aggregate = subtractor(aggregate, removed)
                    timestamp = max(timestamp, seen)
                if added is not None and aggregate is not None:
                    aggregate = adder(aggregate, added)
                    timestamp = max(timestamp, seen)
                elif added is not None:
                    aggregate = added
            elif added is not None:
                aggregate = added
            put(key, None if aggregate is None else (aggregate, timestamp))
            forward(key, (aggregate, before if send_old else None), timestamp, headers)

        if cache is None:
            return Bound(process)
        process_cached, forward = _cached(process, cache)
        return Bound(process_cached)


def _demand_key(context: NodeContext, key: Any) -> None:
    if key is None:
        # Any producer may have written it to a repartition topic: the handler decides, as in Kafka
        # Streams.
        raise ValueError(
            f"a change of a grouped table has no key: the selector before {context.node} must give "
            "each row a key"
        )


def _cached(process: Process, cache: Cache) -> tuple[Process, Process]:
    """Return `process` and its forward function for cached updates.

    A delete then has the timestamp of its change.
    """
    time = -1

    def process_cached(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
        nonlocal time
        time = timestamp
        process(key, change, timestamp, headers)

    def hold(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
        cache.hold(key, change, time if change[0] is None else timestamp, headers)

    return process_cached, hold
