"""Checks that a plain function returns a result, not an awaitable: nothing would await it.

A coroutine is true, and does nothing by itself: a filter would keep all records, and an action
would not happen.
"""

from __future__ import annotations

import inspect
import re
from functools import partial
from typing import TYPE_CHECKING, Any, get_origin

if TYPE_CHECKING:
    from collections.abc import Callable

_GIVE_ITSELF = "give the 'async def' itself, not a function that calls it"
_GIVE_PLAIN = "give a plain function, and await in a map or processor before it"
_AWAITABLE = re.compile(r"([A-Za-z_]\w*\.)*(Awaitable|Coroutine)\b")


def refuse_awaitable(
    function: Callable[..., object], result: object, *, awaited: bool = True
) -> None:
    """Raise TypeError if the result of a function is awaitable.

    `awaited` says that an `async def` may be given in place of the function.
    """
    if not is_awaitable(result):
        return
    text = f"{function!r} returned {result!r}, which nothing awaits: "
    if inspect.iscoroutine(result):
        result.close()  # Python would warn of it, at some other place.
    raise TypeError(text + (_GIVE_ITSELF if awaited else _GIVE_PLAIN))


def truth_of(function: Callable[..., object], result: object, *, awaited: bool = True) -> bool:
    """Return whether a predicate holds by its result. Raises TypeError for an awaitable."""
    refuse_awaitable(function, result, awaited=awaited)
    return bool(result)


def plain(function: Callable[..., object], result: object, *, awaited: bool = True) -> object:
    """Return the result of a function. Raises TypeError for an awaitable."""
    refuse_awaitable(function, result, awaited=awaited)
    return result


def is_awaitable(result: object) -> bool:
    """Return whether a result has to be awaited."""
    return hasattr(type(result), "__await__")


def promises_awaitable(function: Any) -> bool:
    """Return whether a function says by its annotation that a call returns an awaitable."""
    function = unwrapped(function)
    for part in (function, getattr(type(function), "__call__", None)):  # noqa: B004 - its annotation
        annotations = getattr(part, "__annotations__", None)
        promised = annotations.get("return") if isinstance(annotations, dict) else None
        if isinstance(promised, str):
            if _AWAITABLE.match(promised):
                return True
        elif hasattr(get_origin(promised) or promised, "__await__"):
            return True
    return False


def unwrapped(function: Any) -> Any:
    """Return the function behind partials."""
    while isinstance(function, partial):
        function = function.func
    return function
