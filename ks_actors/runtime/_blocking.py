"""Functions that may hold a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__ks_actors_blocking__"


def blocking(function: F, /) -> F:
    """Declare that a function, or a processor class, blocks or computes for long: tasks that have it are processed in a worker's own thread.

    The event loop stays free meanwhile. Such a function must not touch the loop.
    """
    setattr(function, _MARK, True)
    return function


def is_blocking(operator: object) -> bool:
    """Return whether one of the functions of an operator is declared so."""
    return any(getattr(part, _MARK, False) for part in vars(operator).values()) if hasattr(operator, "__dict__") else False
