"""Checks of an operation's arguments.

Each error names the operation and the argument, and says how to correct it.
"""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from ks_actors._errors import TopologyError
from ks_actors._times import instant_ms, whole_ms
from ks_actors.processors.api._plain_results import (
    always_none,
    promises_awaitable,
    unwrapped,
)
from ks_actors.serdes import Serde

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ROLES_WITH_RESULT = ("predicate", "reducer", "aggregator", "adder", "merger")
_RESETS = ("earliest", "latest", "none")
_NUMBERS = {
    0: "no argument",
    1: "one argument",
    2: "two arguments",
    3: "three arguments",
    4: "four arguments",
    5: "five arguments",
}


def check_function(
    function: Any, *allowed: int, role: str, of: str, awaited: bool = False, iterated: bool = False
) -> int:
    """Return the number of positional arguments for calls of a function, one of `allowed`.

    The `allowed` numbers ascend. If the number of required parameters is allowed, only these get
    arguments. A function with `*args`, or a builtin without a signature, gets the fewest arguments
    that it can take.

    Raises TopologyError if the function cannot be called, or not with an allowed number. Only an
    `awaited` function may be an `async def`, and no function may be an asynchronous generator. A
    generator function is allowed only if its result is `iterated`, because its call returns only a
    generator. A predicate, or a function that makes aggregates, without a `return` is refused: it
    would keep nothing, or delete each row.
    """
    if not callable(function):
        raise TopologyError(
            f"{role} of {of} is {function!r}, which cannot be called: give a function of "
            f"{_count(allowed)}"
        )
    if _is(function, inspect.isasyncgenfunction):
        raise TopologyError(
            f"{role} of {of} is the asynchronous generator {function!r}: give a function that "
            "returns its results"
        )
    if not iterated and _is(function, inspect.isgeneratorfunction):
        raise TopologyError(
            f"{role} of {of} is the generator {function!r}, whose results nothing reads: give a "
            "function that returns one result"
        )
    if not awaited and _is(function, inspect.iscoroutinefunction):
        raise TopologyError(
            f"{role} of {of} is the 'async def' {function!r}, which nothing awaits there: give a "
            "plain function, and await in a map or processor before it"
        )
    if not awaited and promises_awaitable(function):
        raise TopologyError(
            f"{role} of {of} is {function!r}, which returns an awaitable, by its annotation, and "
            "nothing awaits it there: give a plain function, and await in a map or processor "
            "before it"
        )
    if role in _ROLES_WITH_RESULT and always_none(function):
        raise TopologyError(
            f"{role} of {of} is {function!r}, which returns None in all cases: add the 'return' of "
            "its result"
        )
    return _arity(function, allowed, role, of)


def takes_headers(partitioner: Any, of: str, role: str = "partitioner") -> bool:
    """Return whether a partitioner takes the headers, too (KIP-1321); False for None.

    Raises TopologyError as `check_function` does.
    """
    with_headers = 5
    return partitioner is not None and with_headers == check_function(
        partitioner, 4, with_headers, role=role, of=of, iterated=role == "partitioner"
    )


def takes_key(mapper: Any, of: str, *, awaited: bool = False, iterated: bool = False) -> bool:
    """Return whether a mapper of values takes the key, too.

    Raises TopologyError as `check_function` does.
    """
    key_and_value = 2
    count = check_function(
        mapper, 1, key_and_value, role="mapper", of=of, awaited=awaited, iterated=iterated
    )
    return count == key_and_value


def check_kind(value: T, kinds: type | tuple[type, ...], *, role: str, of: str, remedy: str) -> T:
    """Return `value` if it is an instance of `kinds`.

    Otherwise raises TopologyError, whose text ends with the `remedy`.
    """
    if not isinstance(value, kinds):
        raise TopologyError(f"{role} of {of} is {_shown(value)}: {remedy}")
    return value


def check_options(value: T | None, kind: type[T], *, of: str) -> T:
    """Return the options of an operation, the defaults for None.

    Raises TopologyError when they are of another kind.
    """
    if value is None:
        return kind()
    shown = value.__name__ if isinstance(value, type) else repr(value)
    wrapped = f"{kind.__name__}(value={shown}) or {kind.__name__}(key={shown})"
    given = type(value).__name__
    hint = f"an object of {kind.__name__}, or None"
    if isinstance(value, Serde | type) and value is not kind:
        hint = wrapped
    elif isinstance(value, str):
        hint += f", such as {kind.__name__}(name={value!r})"
    elif given in _OPTIONS:
        hint += f"; a {given} is the argument {given.lower()!r}, where there is one"
    return check_kind(
        value, kind, role=f"argument {kind.__name__.lower()!r}", of=of, remedy=f"give {hint}"
    )


def check_whole(value: Any, *, role: str, of: str, least: int | None = None) -> None:
    """Raise TopologyError unless the value is an int, of `least` or more."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TopologyError(f"{role} of {of} is {_shown(value)}: give an int")
    if least is not None and value < least:
        raise TopologyError(f"{role} of {of} is {value}: give {least} or more")


def checked_ms(
    value: Any, *, role: str, of: str, least: int | None = None, instant: bool = False
) -> int:
    """Return the time in ms, `least` or more, of an int or a timedelta.

    An `instant` may also be a datetime.

    Raises TopologyError for another type, for a lesser value, and for a fraction of a ms.
    """
    try:
        number = whole_ms(instant_ms(value) if instant else value)
    except ValueError as error:
        raise TopologyError(f"{role} of {of} is {value!r}, which {error}") from None
    if not isinstance(number, int) or isinstance(number, bool):
        raise TopologyError(
            f"{role} of {of} is {_shown(number)}: give an int, which counts ms, or a timedelta"
        )
    check_whole(number, role=role, of=of, least=least)
    return number


def check_names(names: tuple[Any, ...], *, role: str, of: str) -> None:
    """Raise TopologyError unless each argument is a name."""
    for name in names:
        if not isinstance(name, str) or not name:
            raise TopologyError(
                f"{role} of {of} is {_shown(name)}: give names, each as a str argument of its own"
            )


def check_flag(value: Any, *, role: str, of: str) -> None:
    """Raise TopologyError unless the value is True or False."""
    if not isinstance(value, bool):
        raise TopologyError(f"{role} of {of} is {_shown(value)}: give True or False")


def check_one_of(value: Any, choices: tuple[Any, ...], *, role: str, of: str) -> None:
    """Raise TopologyError unless the value is one of the choices."""
    if not any(
        value is choice or (isinstance(value, str) and value == choice) for choice in choices
    ):
        raise TopologyError(
            f"{role} of {of} is {_shown(value)}: give {', '.join(map(repr, choices[:-1]))} "
            f"or {choices[-1]!r}"
        )


def check_offset_reset(value: Any, *, of: str) -> None:
    """Raise TopologyError unless the value is a policy for starts without a committed offset."""
    if isinstance(value, timedelta):
        if value < timedelta():
            raise TopologyError(f"offset_reset of {of} is {value!r}, which lies after now")
        return
    if value is not None and not (isinstance(value, str) and value in _RESETS):
        raise TopologyError(
            f"offset_reset of {of} is {_shown(value)}: give 'earliest', 'latest', 'none', a "
            "timedelta before now, or None"
        )


def check_configs(value: Mapping[str, str], *, role: str, of: str) -> None:
    """Raise TopologyError unless the value maps names to values, both str, as topic configs do."""
    # The broker would reject types other than str when the topic is made.
    try:
        items = dict(value).items()
    except (TypeError, ValueError):
        items = None
    if items is None or any(not isinstance(part, str) for item in items for part in item):
        raise TopologyError(
            f"{role} of {of} is {_shown(value)}: give a dict of str to str, such as "
            "{'retention.ms': '60000'}"
        )


def check_supplier(supplier: Any, *, role: str, of: str) -> Any:
    """Call a supplier without arguments and return its result.

    Raises TopologyError if the supplier cannot be called like this, or fails.
    """
    check_function(supplier, 0, role=role, of=of)
    try:
        return supplier()
    except Exception as error:
        raise TopologyError(
            f"{role} of {of} is {supplier!r}, which raises {type(error).__name__} when it is "
            f"called: {error}; correct it"
        ) from error


def _arity(function: Callable[..., Any], allowed: tuple[int, ...], role: str, of: str) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return allowed[0]
    required = sum(p.kind in _POSITIONAL and p.default is p.empty for p in parameters)
    most = sum(p.kind in _POSITIONAL for p in parameters)
    endless = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if not by_name:
        for count in allowed:
            if required <= count and (endless or count <= most):
                return count
    raise TopologyError(
        f"{role} of {of} cannot be called with {' or '.join(map(str, allowed))} positional "
        f"arguments: {function!r} requires "
        f"{required}{f' and {by_name} by keyword' if by_name else ''}; give a function of "
        f"{_count(allowed)}"
    )


def _is(function: Any, kind: Callable[[Any], bool]) -> bool:
    function = unwrapped(function)
    # The kind of the value matters, not whether it can be called.
    return kind(function) or kind(getattr(type(function), "__call__", None))  # noqa: B004 - asks for its kind


def _count(allowed: tuple[int, ...]) -> str:
    return " or ".join(_NUMBERS[number] for number in allowed)


def _shown(value: Any) -> str:
    return (
        f"the class {value.__name__}"
        if isinstance(value, type)
        else f"{value!r}, of type {type(value).__name__}"
    )


_OPTIONS = ("Consumed", "Grouped", "Joined", "Materialized", "Produced", "Repartitioned")
