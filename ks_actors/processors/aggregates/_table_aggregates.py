"""Tables grouped by another key.

A change removes the old value from one group and adds the new value to another group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.aggregates._history import Superseded, with_history
from ks_actors.processors.aggregates._previous_aggregates import row_keeper, watched
from ks_actors.processors.api import Bound, for_old, pair, taken_in, withdrawn
from ks_actors.processors.stateless import Inline

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import KeyValueForOperators, NodeContext
    from ks_actors.records import Headers

    _Combine = Callable[[Any, tuple[Any, Any], Any], tuple[Any, bool]]


@final
@dataclass(frozen=True, kw_only=True)
class TableSelect(Inline):
    """Send changes to the groups that `selector(key, value)` chooses as a pair `(group, value)`.

    A result of None, or a None in the pair, means no group. If the old and the new value are in one
    group, one change `(new, old)` is sent; otherwise the old value is sent first. Out-of-order
    changes of a `versioned` table are left out.
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
    """Subtract the old value of a change from its group's aggregate, and add the new value.

    It calls `subtractor(key, value, aggregate)` and `adder(key, value, aggregate)`. A group without
    an aggregate gets `initializer()` before the adder is called. The subtractor is not called for
    such a group, nor for an old value that the adder fails to add: no aggregate has it. A result of
    None deletes. The result is in `store`; its timestamp is the later of the change's and the
    aggregate's. When the adder fails, the old value is subtracted nevertheless.
    """

    store: str
    initializer: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]
    send_old: bool = False

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        context = with_history(context, self.store) or context
        initializer = self.initializer
        adder = watched(context, self.store, self.adder, initializer)
        subtractor = self.subtractor
        taken = taken_in(context, lambda key, value: self.adder(key, value, initializer()))

        def combine(key: Any, change: tuple[Any, Any], aggregate: Any) -> tuple[Any, bool]:
            added, removed = change
            is_old = aggregate is not None
            if is_old and removed is not None and taken(key, removed):
                aggregate = subtractor(key, removed, aggregate)
            if added is not None:
                aggregate = adder(key, added, initializer() if aggregate is None else aggregate)
            return aggregate, is_old and (removed is not None or added is not None)

        return _bound(context, self.store, combine, taken, send_old=self.send_old)


@final
@dataclass(frozen=True, kw_only=True)
class TableReduce(Inline):
    """Subtract the old value of a change from its group's aggregate, and add the new value.

    It calls `subtractor(aggregate, value)` and `adder(aggregate, value)`. The first value of a
    group is its aggregate. No aggregate has an old value for which both functions fail. When the
    adder fails, the old value is subtracted nevertheless. A result of None deletes. The result is
    in `store`. If values were combined, it has the later of both timestamps.
    """

    store: str
    adder: Callable[[Any, Any], Any]
    subtractor: Callable[[Any, Any], Any]
    send_old: bool = False

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        context = with_history(context, self.store) or context
        adder = self.adder
        subtractor = self.subtractor
        get = context.store(self.store).get_entry
        taken = taken_in(context, lambda key, value: adder(get(key)[0], value))

        def combine(_: Any, change: tuple[Any, Any], aggregate: Any) -> tuple[Any, bool]:
            added, removed = change
            later = False
            if aggregate is not None and removed is not None:
                aggregate = subtractor(aggregate, removed)
                later = True
            if added is not None:
                later = later or aggregate is not None
                aggregate = added if aggregate is None else adder(aggregate, added)
            return aggregate, later

        return _bound(context, self.store, combine, taken, send_old=self.send_old)


def _bound(
    context: NodeContext,
    name: str,
    combine: _Combine,
    taken: Callable[[Any, Any], bool],
    *,
    send_old: bool,
) -> Bound:
    """Return the function of a node that combines changes with the aggregates of their groups.

    `combine` takes a key, a change and the group's aggregate. It returns the next aggregate, and
    whether this has the later of both timestamps. `taken` says whether an old value is in the
    aggregate.
    """
    store: KeyValueForOperators = context.store(name)
    get = store.get_entry
    put = store.put_entry
    cache = context.cache(name, send_old=send_old)
    forward = context.forward
    kept = row_keeper(store, send_old=send_old) if cache is None else cache.before
    send_old = send_old or cache is not None

    def process(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
        _demand_key(context, key)
        entry = get(key)
        time, before, aggregate = timestamp, None, None
        if entry is not None:
            aggregate = entry[0]
            before = kept(key, aggregate)
        try:
            aggregate, later = combine(key, change, aggregate)
        except Exception:
            if not by_halves(key, change, timestamp, headers):
                raise
            return
        if later and entry is not None:
            time = max(timestamp, entry[1])
        put(key, None if aggregate is None else (aggregate, time))
        if cache is None:
            forward(key, (aggregate, before if send_old else None), time, headers)
        else:
            # A delete has the timestamp of its change.
            held = timestamp if aggregate is None else time
            cache.hold(key, (aggregate, before if send_old else None), held, headers)

    def by_halves(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> bool:
        """Apply the half of a failed change that works; return whether only the new value works."""
        added, removed = change
        if not context.leaves_out or withdrawn(context, change) is None:
            return False
        done = []
        for half in ((None, removed), (added, None)):
            done.append(_works(combine, key, half, get(key)))
            if done[-1] and half != (None, None):
                process(key, half, timestamp, headers)
        return done == [False, True] and not taken(key, removed)

    return Bound(process)


def _works(
    combine: _Combine, key: Any, change: tuple[Any, Any], entry: tuple[Any, int] | None
) -> bool:
    """Return whether a change can be combined with an entry, which is a copy."""
    try:
        combine(key, change, None if entry is None else entry[0])
    except Exception:  # noqa: BLE001 - the caller handles the failure of the whole change
        return False
    return True


def _demand_key(context: NodeContext, key: Any) -> None:
    if key is None:
        # Any producer may have written the record to a repartition topic: the handler decides, as
        # in Kafka Streams.
        raise ValueError(
            f"a change of a grouped table has no key: the selector before {context.node} must give "
            "each row a key"
        )
