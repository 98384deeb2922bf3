"""Two tables joined on their key: a change of either side is joined with the other's row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.aggregates import Superseded, with_history
from ks_actors.processors.api import Bound, for_old, withdrawn
from ks_actors.processors.stateless import Inline

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import Cache, KeyValueForOperators, NodeContext, Process
    from ks_actors.processors.tables import View
    from ks_actors.records import Headers


@final
@dataclass(frozen=True, kw_only=True)
class TableJoinSide(Inline):
    """Join changes of one side with the other side's row for the key.

    `other` is the view of the other side; the later timestamp is the result's. The joiner is called
    as `joiner(this, other)`, or as `joiner(key, this, other)` if it is `keyed`. With
    `this_optional` a row of the other side has a result even without a row of this side;
    `other_optional` is the reverse. Changes without key are dropped, and so are out-of-order
    changes of a `versioned` table.

    Both sides of a `shared` join come from one table. A deleted row is gone from both sides before
    the first one gets the change, so the result is deleted although neither has a row. (Kafka
    Streams keeps the result, KAFKA-9500.) The same holds with a cache, which may hold back the
    deletes of both sides.
    """

    other: View
    joiner: Callable[..., Any]
    this_optional: bool
    other_optional: bool
    send_old: bool = False
    versioned: bool = False
    shared: bool = False
    keyed: bool = False

    @property
    def record_context(self) -> bool:
        """Whether reading the rows of the table needs the record context."""
        return self.other.record_context

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        get, close, _ = self.other.bind(context)
        forward = context.forward
        joiner, keyed = self.joiner, self.keyed
        this_optional = self.this_optional
        other_optional = self.other_optional
        send_old = self.send_old
        versioned = self.versioned
        # A row may be matched, and then deleted, before its cache sends it. The delete then comes
        # without an old value, though the row's result exists.
        at_once = self.shared or context.caching
        join_old = for_old(context, joiner)
        retracts = at_once and not context.kafka_streams_faults

        def process(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
            if key is None or (versioned and type(change) is Superseded):
                context.dropped()
                return
            new, old = change
            entry = get(key)
            if entry is None:
                if not other_optional or (new is None and old is None):
                    if retracts and new is None:
                        forward(key, (None, None), timestamp, headers)
                    return
                other_value = None
            else:
                other_value, seen = entry
                timestamp = max(timestamp, seen)
            lone = this_optional and other_value is not None
            joined = joined_old = None
            try:
                if new is not None or lone:
                    joined = joiner(key, new, other_value) if keyed else joiner(new, other_value)
            except Exception:
                if withdrawn(context, change) is not None:
                    before = (
                        join_old(key, old, other_value) if keyed else join_old(old, other_value)
                    )
                    forward(key, (None, before if send_old else None), timestamp, headers)
                raise
            if send_old and (old is not None or lone):
                joined_old = (
                    join_old(key, old, other_value) if keyed else join_old(old, other_value)
                )
            forward(key, (joined, joined_old), timestamp, headers)

        return Bound(process, close=close)


@final
@dataclass(frozen=True, kw_only=True)
class TableJoinMerge(Inline):
    """Merge the changes of both sides of a join, and put them into `store` if there is one.

    A `shared` join, or a join with a cache, takes old values from its store, if it has a store. The
    sides' old values may mix rows from before and after a change.
    """

    store: str | None = None
    send_old: bool = False
    shared: bool = False

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        history = with_history(context, self.store)
        context = history or context
        store: KeyValueForOperators | None = (
            None if self.store is None else context.store(self.store)
        )
        cache = None if self.store is None else context.cache(self.store, send_old=self.send_old)
        if store is not None and cache is not None:
            return Bound(_cached(store, cache))
        at_once = self.shared or context.caching
        exact = at_once and history is None and not context.kafka_streams_faults
        if store is not None and exact:
            return Bound(_shared(store, context.forward, send_old=self.send_old))
        put = None if store is None else store.put_entry
        forward = context.forward
        send_old = self.send_old

        def process(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
            new, old = change
            if put is not None:
                put(key, None if new is None else (new, timestamp))
            forward(key, (new, old if send_old else None), timestamp, headers)

        return Bound(process)


def _shared(store: KeyValueForOperators, forward: Process, *, send_old: bool) -> Process:
    """Return a function that puts rows into the store, and forwards changes with its old values."""
    get, put = store.get_entry, store.put_entry

    def process(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
        new, entry = change[0], get(key)
        if new is None and entry is None:
            return
        put(key, None if new is None else (new, timestamp))
        old = entry[0] if send_old and entry is not None else None
        forward(key, (new, old), timestamp, headers)

    return process


def _cached(store: KeyValueForOperators, cache: Cache) -> Process:
    """Return a function that puts rows into the store and caches the updates.

    The old value is the store's.
    """
    get, put, hold = store.get_entry, store.put_entry, cache.hold

    def process(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
        new, entry = change[0], get(key)
        put(key, None if new is None else (new, timestamp))
        hold(key, (new, None if entry is None else entry[0]), timestamp, headers)

    return process
