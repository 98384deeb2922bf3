"""Blocking jobs of one actor."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from concurrent.futures import Executor, Future
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

from actors._events import Abandoned
from actors._threads import ThreadLane

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors._kernel import Kernel

T = TypeVar("T")
_log = logging.getLogger("actors")


class BlockingLane:
    """Where one actor's jobs run, and what becomes of a job whose actor did not wait for it."""

    __slots__ = ("_executor", "_kernel", "_own", "_path")

    def __init__(self, kernel: Kernel, path: str, choice: Executor | Literal["shared", "own"]) -> None:
        self._kernel = kernel
        self._path = path
        self._own: ThreadLane | None = ThreadLane(path, 1) if choice == "own" else None
        self._executor: Executor = self._own or (choice if isinstance(choice, Executor) else kernel.executor())

    async def run(self, job: Callable[[], T]) -> T:
        """Run `job` in a thread, with this task's context variables, and return what it returns."""
        name = getattr(job.func if isinstance(job, partial) else job, "__qualname__", repr(job))
        running = self._executor.submit(contextvars.copy_context().run, job)
        self._kernel.jobs += 1
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if running.running():
                # A thread cannot be cancelled. It goes on, and nobody waits for it any more.
                self._kernel.publish(Abandoned(self._path, name))
                running.add_done_callback(partial(_report_late_failure, self._path, name))
            raise
        finally:
            self._kernel.jobs -= 1

    def close(self) -> None:
        """End the actor's own thread, once the job that it may still have is over."""
        if self._own is not None:
            self._own.shutdown(wait=False, cancel_futures=True)


def _report_late_failure(path: str, job: str, running: Future[T]) -> None:
    error = running.exception()
    if error is not None:
        _log.error("blocking job %s, abandoned by actor %s, failed later: %r", job, path, error)
