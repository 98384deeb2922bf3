"""Aggregates that a user function changes in place."""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ks_actors.lifecycle import component_log
from ks_actors.processors.stateless import ATOMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import NodeContext, StoreForOperators
    from ks_actors.records import Window

_log = component_log(__name__)


def keeper(store: StoreForOperators, *, send_old: bool) -> Callable[[Any], Any]:
    """Return a function from an aggregate to the old value to send.

    Call the function before the user function gets the aggregate. It makes a copy if the store's
    values can be changed in place and old values are sent.
    """
    return as_before if send_old and store.mutable else as_it_is


def row_keeper(store: StoreForOperators, *, send_old: bool) -> Callable[..., Any]:
    """Return such a function that takes a key, its aggregate and perhaps a window."""
    kept = keeper(store, send_old=send_old)

    def of_row(_: Any, aggregate: Any, __: Window | None = None) -> Any:
        return kept(aggregate)

    return of_row


def as_it_is(value: Any) -> Any:
    """Return the value."""
    return value


def as_before(value: Any) -> Any:
    """Return a copy of a mutable value."""
    return value if value is None or type(value) in ATOMS else deepcopy(value)


def watched(
    context: NodeContext,
    store: str,
    aggregator: Callable[..., Any],
    initializer: Callable[[], Any] | None,
) -> Callable[..., Any]:
    """Return the aggregator of (key, value, aggregate), watched until it returns an aggregate.

    An aggregator that changes its aggregate in place and returns None, as `aggregate.append(value)`
    does, deletes each row. A warning reports this once per task. Aggregators of immutable values,
    and reducers, are returned unchanged.
    """
    if initializer is None or not context.store(store).mutable:
        return aggregator
    settled = False

    def watch(key: Any, value: Any, aggregate: Any) -> Any:
        nonlocal settled
        made = aggregator(key, value, aggregate)
        if not settled:
            settled = made is not None or _differs(aggregate, initializer)
            if made is None and settled:
                _log.warning(
                    "node %s of task %s: the aggregator %r has changed its aggregate and returned "
                    "None, which deletes the row: return the aggregate",
                    context.node,
                    context.task_id,
                    aggregator,
                )
        return made

    return watch


def _differs(aggregate: Any, initializer: Callable[[], Any]) -> bool:
    """Return whether an aggregate differs from the initializer's; False if unknown."""
    try:
        first, second, now = (
            pickle.dumps(value) for value in (initializer(), initializer(), aggregate)
        )
    except Exception:  # noqa: BLE001 - whatever users' types raise; the record itself has no fault
        return False
    # If the initializer returns a different aggregate each time, the answer is unknown.
    return first == second != now
