"""An event loop that nobody's code can block."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar, cast, final

from ks_actors._errors import LogClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


@final
class LoopThread:
    """A thread with a loop of its own, which begins with the first use. Heartbeats are sent from here, whatever users do on theirs."""

    def __init__(self, name: str) -> None:
        self._name: str = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._closed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, which runs. Raises LogClosed."""
        if self._closed:
            raise LogClosed(f"{self._name} has been ended")
        if self._loop is None:
            self._loop, self._thread = self._begin()
        return self._loop

    @property
    def running(self) -> bool:
        """Whether there is a thread: it has begun, and is not being ended."""
        return self._loop is not None

    def _begin(self) -> tuple[asyncio.AbstractEventLoop, Thread]:
        loop = asyncio.new_event_loop()
        # A process may end without having closed its log: others find out by the session timeout.
        thread = Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # There are too many threads. Nobody may wait for what a loop does that does not run.
            loop.close()
            raise
        return loop, thread

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            loop.run_until_complete(_end_all())
        finally:
            loop.close()

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` there, and wait for it here; cancelling the wait cancels the work. Raises LogClosed when the thread ends meanwhile."""
        try:
            loop = self.loop
        except BaseException:
            work.close()
            raise
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and task is not None and not task.cancelling():
                raise LogClosed(f"{self._name} has been ended") from None
            raise

    async def close(self) -> None:
        """End what runs there, the loop and the thread. Does nothing when that was done before, or nothing ever ran."""
        self._closed = True
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            await asyncio.get_running_loop().run_in_executor(None, thread.join)


def begin_in_thread(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Begin a call in a thread of its own; return what will be its outcome, on this loop. Nobody has to wait for it, not even the process's end."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def end(result: T | None, error: BaseException | None) -> None:
        if not outcome.done():
            if error is None:
                outcome.set_result(cast("T", result))
            else:
                outcome.set_exception(error)

    def run() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = call()
        except BaseException as raised:  # noqa: BLE001 - it is raised where the outcome is waited for
            error = raised
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(end, result, error)

    Thread(target=run, name=name, daemon=True).start()
    return outcome


async def _end_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    # Sockets that are closed are so only in the next turns of their loop.
    for _ in range(3):
        await asyncio.sleep(0)
