"""Aggregates as they were before a user's function changed them in place."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ks_actors.processors.stateless import ATOMS

if TYPE_CHECKING:
    from collections.abc import Callable


def keeper(store: Any, *, send_old: bool) -> Callable[[Any], Any]:
    """Return what makes of an aggregate the value that is sent as the old one.

    Call it before the user's function gets the aggregate. Where values of the store can be changed
    in place, and old ones are sent, that is a copy.
    """
    return as_before if send_old and store.mutable else as_it_is


def row_keeper(store: Any, *, send_old: bool) -> Callable[[Any, Any], Any]:
    """Return the same for a key and its aggregate."""
    kept = keeper(store, send_old=send_old)

    def of_row(_: Any, aggregate: Any) -> Any:
        return kept(aggregate)

    return of_row


def as_it_is(value: Any) -> Any:
    """Return the value."""
    return value


def as_before(value: Any) -> Any:
    """Return a copy of what can be changed in place."""
    return value if value is None or type(value) in ATOMS else deepcopy(value)
