"""Checks of the times that callers give."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ks_actors._times import instant_ms, whole_ms

if TYPE_CHECKING:
    from collections.abc import Callable


def check_timeout(timeout_ms: Any, name: str = "timeout_ms", *, least: int = 0) -> int:
    """Return the time in ms, `least` or more, of a number of ms or a timedelta.

    Raises TypeError for another value, ValueError for a time out of range or a part of a ms.
    """
    try:
        number: int = whole_ms(timeout_ms)
    except ValueError as error:
        raise ValueError(f"{name} is {timeout_ms!r}, which {error}") from None
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise TypeError(
            f"{name} is {number!r}, of type {type(number).__name__}: give a number of ms, or a "
            "timedelta"
        )
    # Written so that NaN is refused, too.
    if not least <= number < inf:
        raise ValueError(f"{name} is {number}: give {least} or more, and a finite number")
    return number


def check_span(time: Any, name: str) -> int:
    """Return the time in ms of an int or a timedelta.

    Raises TypeError for another value, ValueError for a part of a ms.
    """
    return _whole(time, whole_ms, name, "ms, or a timedelta")


def check_instant(time: Any, name: str) -> int:
    """Return the time in ms since 1970 of an int, a datetime or a timedelta since 1970.

    Raises TypeError for another value, ValueError for a datetime without a time zone.
    """
    return _whole(
        time,
        lambda given: whole_ms(instant_ms(given)),
        name,
        "ms since 1970, or a datetime with a time zone",
    )


def _whole(time: Any, convert: Callable[[Any], Any], name: str, wanted: str) -> int:
    try:
        number: int = convert(time)
    except ValueError as error:
        raise ValueError(f"{name} is {time!r}, which {error}") from None
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(
            f"{name} is {number!r}, of type {type(number).__name__}: give a whole number of "
            f"{wanted}"
        )
    return number
