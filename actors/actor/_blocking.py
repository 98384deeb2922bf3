"""Blocking jobs of one actor."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from actors.events import Abandoned
from actors.loop import ThreadLane

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.system import SystemCore

T = TypeVar("T")
_log = logging.getLogger("actors")


class BlockingLane:
    """Runner of one actor's blocking jobs, including jobs that outlive their await."""

    __slots__ = ("_core", "_executor", "_own", "_path")

    def __init__(
        self, core: SystemCore, path: str, choice: Executor | Literal["shared", "own"]
    ) -> None:
        self._core = core
        self._path = path
        self._own: ThreadLane | None = ThreadLane(path, 1) if choice == "own" else None
        self._executor: Executor = self._own or (
            choice if isinstance(choice, Executor) else core.executor()
        )

    async def run(self, call: Callable[[], T]) -> T:
        """Run `call` in a thread, with this task's context variables, and return its result."""
        job = _Job(self._path, call)
        core = self._core
        core.jobs += 1
        try:
            return await core.loop.run_in_executor(
                self._executor, contextvars.copy_context().run, job
            )
        except asyncio.CancelledError:
            if job.running:
                # A thread cannot be cancelled. The job goes on, but its result is dropped.
                job.abandoned = True
                core.publish(Abandoned(self._path, job.name))
            raise
        finally:
            core.jobs -= 1

    def close(self) -> None:
        """End the actor's own thread; wait for it unless a job is still running."""
        if self._own is not None:
            self._own.retire()


class _Job:
    """A call that records whether it is running, and logs its failure if it was abandoned."""

    def __init__(self, path: str, call: Callable[[], Any]) -> None:
        self._path = path
        self._call = call
        self.name: str = getattr(
            call.func if isinstance(call, partial) else call, "__qualname__", repr(call)
        )
        self.running: bool = False
        self.abandoned: bool = False

    def __call__(self) -> Any:
        self.running = True
        try:
            return self._call()
        except StopIteration as stop:
            # A future cannot carry StopIteration, which would end the awaiting coroutine.
            raise RuntimeError(
                f"blocking job {self.name} of {self._path} raised StopIteration"
            ) from stop
        except BaseException as error:
            if self.abandoned:
                _log.error(
                    "blocking job %s, abandoned by actor %s, failed later: %r",
                    self.name,
                    self._path,
                    error,
                )
            raise
        finally:
            self.running = False
