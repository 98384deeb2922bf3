"""The event loop of a local backfill, in the thread that runs its tasks."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, final

from ks_actors.topology import enter_services

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from ks_actors.topology import Topology

T = TypeVar("T")
_CLOSE_S: Final = 2.0


@final
class WorkLoop:
    """The one event loop of all tasks of a backfill, used by one thread.

    A client, connection or lock of asyncio belongs to the loop in which it was opened. So
    `services`, and each function of each task, run in this loop. The end of the `with` block closes
    the services, in reverse order.
    """

    def __init__(self) -> None:
        self.services: AsyncExitStack = AsyncExitStack()
        self.given_up: threading.Event = threading.Event()
        # The factory keeps the runner from setting the thread's current loop.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._current: asyncio.Task[Any] | None = None

    def __enter__(self) -> Self:
        self._runner.__enter__()
        self._loop = self._runner.get_loop()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            # This is never cancelled, so that all open services are closed even after a
            # cancellation.
            self._runner.run(self.services.__aexit__(kind, error, traceback))
        finally:
            self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result. Raises CancelledError after `give_up`."""
        return self._runner.run(self._noted(work))

    def settle(self) -> None:
        """Wait until the cancelled calls of a failed task have ended, for a bounded time."""
        self._runner.run(_ended())

    def give_up(self) -> None:
        """Cancel the running coroutine and all later coroutines. Any thread may call this."""
        self.given_up.set()
        if self._loop is not None:
            # The loop may have been closed meanwhile.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cancel)

    def enter(
        self, topology: Topology, services: Iterable[AbstractAsyncContextManager[Any]]
    ) -> None:
        """Enter the services of the topology, then the given services."""
        self.run(enter_services(self.services, topology, services))

    async def _noted(self, work: Coroutine[Any, Any, T]) -> T:
        self._current = asyncio.current_task()
        try:
            if self.given_up.is_set():
                work.close()
                raise asyncio.CancelledError
            return await work
        finally:
            self._current = None

    def _cancel(self) -> None:
        if self._current is not None:
            self._current.cancel()


async def _ended() -> None:
    leaving = [task for task in asyncio.all_tasks() if task.cancelling()]
    if leaving:
        await asyncio.wait(leaving, timeout=_CLOSE_S)
