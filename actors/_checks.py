"""Checks of arguments that type checkers would refuse, for callers that use none."""

from __future__ import annotations

import inspect
from typing import Any


def negative(name: str, seconds: Any) -> bool:
    """Return whether a duration is negative or NaN; raise TypeError if it is no number."""
    try:
        return not seconds >= 0
    except TypeError:
        raise TypeError(f"{name} must be a number of seconds, is {seconds!r}") from None


def plain_function(function: Any) -> bool:
    """Return whether it can be called and is not `async def`."""
    return callable(function) and not inspect.iscoroutinefunction(function)


def valid_name(name: Any) -> bool:
    """Return whether it can name an actor or a system: a string that is not empty or slashed."""
    return isinstance(name, str) and name != "" and "/" not in name
