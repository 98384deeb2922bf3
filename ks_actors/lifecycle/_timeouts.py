"""Checks of the times that callers give."""

from __future__ import annotations

from math import inf
from typing import Any


def check_timeout(timeout_ms: Any, name: str = "timeout_ms", *, least: int = 0) -> None:
    """Raise unless the value is a time in ms, finite, and `least` or more.

    Raises TypeError for a value that is not a number, ValueError for a number out of range.
    """
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float):
        raise TypeError(
            f"{name} is {timeout_ms!r}, of type {type(timeout_ms).__name__}: give a number of ms"
        )
    # Written so that NaN is refused, too.
    if not least <= timeout_ms < inf:
        raise ValueError(f"{name} is {timeout_ms}: give {least} or more, and a finite number")
