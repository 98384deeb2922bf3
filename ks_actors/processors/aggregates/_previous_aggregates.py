"""Aggregates as they were before a user function changed them in place."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ks_actors.processors.stateless import ATOMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import StoreForOperators


def keeper(store: StoreForOperators, *, send_old: bool) -> Callable[[Any], Any]:
    """Return a function from an aggregate to the value that is sent as the old one.

    Call it before the user function gets the aggregate. It makes a copy where values of the store
    can be changed in place and old values are sent.
    """
    return as_before if send_old and store.mutable else as_it_is


def row_keeper(store: StoreForOperators, *, send_old: bool) -> Callable[[Any, Any], Any]:
    """Return the same function, for a key and its aggregate."""
    kept = keeper(store, send_old=send_old)

    def of_row(_: Any, aggregate: Any) -> Any:
        return kept(aggregate)

    return of_row


def as_it_is(value: Any) -> Any:
    """Return the value."""
    return value


def as_before(value: Any) -> Any:
    """Return a copy of a mutable value."""
    return value if value is None or type(value) in ATOMS else deepcopy(value)
