"""Errors of users' code that are not of class Exception.

Examples are panics of Rust extensions, such as polars, and failed tests of pytest. They are handled
like other errors. Only errors that end the program, or cancel the running task, pass through.
"""

from __future__ import annotations

import asyncio
from typing import Any


def passes(error: BaseException) -> bool:
    """Return whether an error ends the program, or is the running task's own cancellation."""
    if not isinstance(error, asyncio.CancelledError):
        return isinstance(error, KeyboardInterrupt | SystemExit)
    task = _current_task()
    return task is not None and task.cancelling() > 0


def closes(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return whether an error closes the coroutine of a task that no longer runs.

    A GeneratorExit that a user's code raises comes from the running task instead. `task` is None
    while the task is in its first step.
    """
    return isinstance(error, GeneratorExit) and task not in {None, _current_task()}


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread without a loop: nobody can cancel it
        return None


def as_exception(error: BaseException) -> Exception:
    """Return an error of a user's code as an Exception; re-raise one that passes through."""
    if isinstance(error, Exception):
        return error
    if isinstance(error, GeneratorExit) or passes(error):
        raise error
    text = (
        "a future that was cancelled"
        if isinstance(error, asyncio.CancelledError) and not str(error)
        else str(error)
    )
    found = RuntimeError(f"{type(error).__name__}: {text}")
    found.__cause__ = error
    return found
