"""The times that a store is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from ks_actors._times import instant_ms

if TYPE_CHECKING:
    from datetime import datetime


@overload
def instant(store: str, time: int | datetime) -> int: ...
@overload
def instant(store: str, time: int | datetime | None) -> int | None: ...
def instant(store: str, time: Any) -> Any:
    """Return a time in ms since 1970; None is no bound.

    Raises TypeError for a time that is neither an int nor a datetime, and ValueError for one
    without a time zone.
    """
    if type(time) is int or time is None:
        return time
    try:
        found = instant_ms(time)
    except ValueError as error:
        raise ValueError(f"store {store} is asked for the time {time!r}, which {error}") from None
    if not hasattr(found, "__index__"):
        raise TypeError(
            f"store {store} is asked for the time {time!r}, of type {type(time).__name__}: give an "
            "int, which counts ms since 1970, or a datetime with a time zone"
        )
    return found
