"""Checks of arguments that type checkers would refuse, for callers without a type checker."""

from __future__ import annotations

import inspect
from concurrent.futures import Executor
from typing import Any


def negative(name: str, seconds: Any) -> bool:
    """Return whether a duration is negative or NaN; raise TypeError if it is no number."""
    if isinstance(seconds, bool):
        raise TypeError(f"{name} must be a number of seconds, is {seconds!r}")
    try:
        return not seconds >= 0
    except TypeError:
        raise TypeError(f"{name} must be a number of seconds, is {seconds!r}") from None


def check_number(name: str, number: Any) -> None:
    """Raise TypeError unless the value is a number; a bool does not count."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise TypeError(f"{name} must be a number, is {number!r}")


def plain_function(function: Any) -> bool:
    """Return whether the object can be called and is not `async def`."""
    return callable(function) and not inspect.iscoroutinefunction(function)


def valid_name(name: Any) -> bool:
    """Return whether a value can name an actor or system: a non-empty string without a slash."""
    return isinstance(name, str) and name != "" and "/" not in name


def check_executor(executor: Any, choices: tuple[Any, ...]) -> None:
    """Raise for an executor that is neither one of `choices` nor runs jobs in threads.

    Raises ValueError, or TypeError for a pool of processes: a job runs with the context variables
    of its actor, which cannot be passed to a process.
    """
    if executor in choices:
        return
    if not isinstance(executor, Executor):
        names = ", ".join(map(repr, choices))
        raise ValueError(  # noqa: TRY004 - one of several words
            f"executor must be {names} or an Executor, is {executor!r}"
        )
    if any(base.__module__ == "concurrent.futures.process" for base in type(executor).__mro__):
        raise TypeError(
            f"executor must run jobs in threads, is {executor!r}; await "
            "`loop.run_in_executor(pool, function)` for work in other processes"
        )
