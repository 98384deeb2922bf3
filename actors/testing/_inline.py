"""Blocking jobs without threads."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, ParamSpec, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


@final
class InlineExecutor(Executor):
    """Run each job at once, in the caller's thread: deterministic, with a traceback to the test."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run the job and return its outcome as a finished future."""
        future: Future[T] = Future()
        try:
            result = fn(*args, **kwargs)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        return future
