"""Checks that a function returns what its operation can use.

A coroutine is true, and does nothing by itself: a filter would keep all records, and an action
would not happen. A text of two letters would pass for a pair, and any text for a series of results.
"""

from __future__ import annotations

import dis
import inspect
import re
from functools import partial
from types import GeneratorType, NoneType
from typing import TYPE_CHECKING, Any, Final, Never, get_origin

if TYPE_CHECKING:
    from collections.abc import Callable

ONE_RESULT: Final = (str, bytes, bytearray, dict, NoneType)
"""The types of results that a function of many results returns by mistake."""
MANY_RESULTS: Final = frozenset({list, tuple, GeneratorType})
"""The usual types of results of such a function, which need no further check."""

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
        result.close()  # Otherwise Python would warn about the coroutine elsewhere.
    raise TypeError(text + (_GIVE_ITSELF if awaited else _GIVE_PLAIN))


def truth_of(function: Callable[..., object], result: object, *, awaited: bool = True) -> bool:
    """Return whether a predicate holds by its result. Raises TypeError for an awaitable."""
    refuse_awaitable(function, result, awaited=awaited)
    return bool(result)


def plain(function: Callable[..., object], result: object, *, awaited: bool = True) -> object:
    """Return the result of a function. Raises TypeError for an awaitable."""
    refuse_awaitable(function, result, awaited=awaited)
    return result


def pair(function: Callable[..., object], result: object, *, among: bool = False) -> Any:
    """Return the key and the value that a function returned, as a tuple or a list.

    `among` says that the pair is one of many. Raises TypeError for any other result, also for a
    text of two letters and a dict of two rows, which Python unpacks.
    """
    if isinstance(result, tuple | list) and len(result) == 2:  # noqa: PLR2004 - a pair
        return result
    refuse_awaitable(function, result)
    raise TypeError(
        f"{function!r} returned {_kind(result)} {'among its results' if among else 'as a pair'}: "
        + (
            "return a list of pairs (key, value), or use flat_map_values for values alone"
            if among
            else "return (key, value), or use map_values for the value alone"
        )
    )


def refuse_one(function: Callable[..., object], result: object) -> Never:
    """Raise TypeError for a single result of a function that has to return many."""
    remedy = "an empty list for none" if result is None else "[result] for a single one"
    raise TypeError(
        f"{function!r} returned {_kind(result)} in place of its results: return a list, {remedy}"
    )


def _kind(result: object) -> str:
    # Not the result itself, which is the user's data.
    size = f" of {len(result)}" if isinstance(result, tuple | list) else ""
    return "None" if result is None else f"a {type(result).__name__}{size}"


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


def always_none(function: Any) -> bool:
    """Return whether every path of a Python function returns None, as without a `return`."""
    function = unwrapped(function)
    code = getattr(function, "__code__", None) or getattr(
        getattr(type(function), "__call__", None),  # noqa: B004 - its code
        "__code__",
        None,
    )
    if code is None:
        return False
    returns = 0
    before: dis.Instruction | None = None
    for step in dis.get_instructions(code):
        if step.opname == "RETURN_VALUE":  # A jump to this step brings another value.
            none = before is not None and before.opname == "LOAD_CONST" and before.argval is None
            if step.is_jump_target or not none:
                return False
            returns += 1
        elif step.opname == "RETURN_CONST":
            if step.argval is not None:
                return False
            returns += 1
        before = step
    return returns > 0  # A function that only raises has no return.


def unwrapped(function: Any) -> Any:
    """Return the function behind partials."""
    while isinstance(function, partial):
        function = function.func
    return function
