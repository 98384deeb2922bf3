"""A log's thread of heartbeats as tasks of the one loop in virtual time."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from ks_actors import LogClosed
from ks_actors.log.kafka.client import LoopThread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import pytest

T = TypeVar("T")

_WHERE: ContextVar[SimulatedThread | None] = ContextVar("thread", default=None)


class SimulatedThread:
    """A `LoopThread` without a thread: the tasks that begin in it end with it. As a loop it only takes calls."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()
        self._begun = False
        self._closed = False

    @property
    def loop(self) -> SimulatedThread:
        """The stand-in for the loop of the thread."""
        if self._closed:
            raise LogClosed(f"{self._name} has stopped")
        self._begun = True
        return self

    @property
    def running(self) -> bool:
        return self._begun and not self._closed

    def call_soon_threadsafe(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call something in the thread."""
        self._in_thread(lambda: asyncio.get_running_loop().call_soon(callback, *arguments))

    def _in_thread(self, call: Callable[[], T]) -> T:
        context = copy_context()
        context.run(_WHERE.set, self)
        return context.run(call)

    def note(self, task: asyncio.Task[Any]) -> None:
        """Have a task end with the thread."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` there, and wait for it here; cancelling the wait cancels the work."""
        loop = asyncio.get_running_loop()
        try:
            _ = self.loop
        except BaseException:
            work.close()
            raise
        outcome: asyncio.Future[T] = loop.create_future()
        task = self._in_thread(lambda: loop.create_task(work))
        task.add_done_callback(lambda done: _copy(done, outcome))
        try:
            return await outcome
        except asyncio.CancelledError:
            task.cancel()
            waiting = asyncio.current_task()
            if self._closed and waiting is not None and not waiting.cancelling():
                raise LogClosed(f"{self._name} has stopped") from None
            raise

    async def close(self) -> None:
        """Cancel all tasks of the thread."""
        self._closed = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        for task in tasks:
            await asyncio.wait([task])


def _copy(done: asyncio.Task[T], outcome: asyncio.Future[T]) -> None:
    if outcome.done():
        return
    if done.cancelled():
        outcome.cancel()
    elif (error := done.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(done.result())


def use_no_threads(loop: Any, patch: pytest.MonkeyPatch) -> None:
    """Have logs that are made from now on use this loop alone."""
    call_soon = loop.call_soon_threadsafe

    def create(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        thread = _WHERE.get()
        if thread is not None:
            thread.note(task)
        return task

    def leave_thread(callback: Callable[..., object], *arguments: Any, context: Any = None) -> Any:
        # Calls of this kind are for the owner's loop.
        context = context or copy_context()
        context.run(_WHERE.set, None)
        return call_soon(callback, *arguments, context=context)

    loop.set_task_factory(create)
    loop.call_soon_threadsafe = leave_thread
    assert {"loop", "running", "call", "close"} <= {name for name in vars(LoopThread) if not name.startswith("_")}
    patch.setattr("ks_actors.log.kafka._log.LoopThread", SimulatedThread)
