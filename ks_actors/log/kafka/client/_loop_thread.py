"""An event loop in a thread of its own, safe from blocking user code."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar, final

from ks_actors._errors import LogClosed
from ks_actors.lifecycle import in_thread

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


@final
class LoopThread:
    """A thread with its own event loop, started on first use.

    Its loop sends heartbeats even while users block their own loop.
    """

    def __init__(self, name: str) -> None:
        self._name: str = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._closed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop. Raises LogClosed."""
        if self._closed:
            raise LogClosed(f"{self._name} has stopped")
        if self._loop is None:
            self._loop, self._thread = self._begin()
        return self._loop

    @property
    def running(self) -> bool:
        """Whether the thread has started and `close` has not been called."""
        return self._loop is not None

    def _begin(self) -> tuple[asyncio.AbstractEventLoop, Thread]:
        loop = asyncio.new_event_loop()
        # A daemon thread: a process may end without closing its log. Then the session timeout ends
        # its membership.
        thread = Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The thread could not start. Close the loop, or callers would wait for a loop that
            # never runs.
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
        """Run `work` in the thread, and wait for it; cancelling the wait cancels the work.

        Raises LogClosed when the thread ends before the work.
        """
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
                raise LogClosed(f"{self._name} has stopped") from None
            raise

    async def close(self) -> None:
        """Cancel the thread's tasks, and end the loop and the thread.

        Does nothing after the first call, or if the thread was never started.
        """
        self._closed = True
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            await in_thread(thread.join, name="end of a loop thread")


async def _end_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    # The loop closes the sockets only in its next iterations.
    for _ in range(3):
        await asyncio.sleep(0)
