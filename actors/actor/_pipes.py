"""Work of an actor that runs in parallel to its messages."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from actors._errors import StrayCancellation
from actors.mailbox import STALE, Due

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.mailbox import Inbox


class Pipes:
    """The piped awaitables of one incarnation; neither they nor their results outlive it."""

    __slots__ = ("_inbox", "_limit", "_seconds", "_tasks", "open")

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        # A dict keeps the order: a seed must repeat the schedule.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._limit: dict[Any, float] = {}
        self._seconds: float = 0.0
        self.open: bool = True

    def start(
        self, work: Awaitable[Any], done: Callable[[Any], Any], failed: Callable[[Exception], Any]
    ) -> None:
        """Await `work` in its own task, then queue the message of `done` or `failed`.

        If the pipes are closed, drop `work`.
        """
        if not self.open:
            _drop(work)
            return
        task = self._inbox.core.tasks.start(
            self._run(work, done, failed), f"{self._inbox.owner.path} pipe"
        )
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        # A task that is cancelled before its first step never awaits the work.
        task.add_done_callback(lambda _: _drop(work))

    def close(self) -> None:
        """Cancel running work, and make queued results stale."""
        self.open = False
        for task in tuple(self._tasks):
            task.cancel()

    async def ended(self, stop_within: float) -> None:
        """Wait until all work has cleaned up; cancel it again every `stop_within` seconds.

        If this wait is cancelled, cancel the work again, wait on, and then raise CancelledError.
        """
        self._seconds = max(stop_within, 0.1)
        interrupted = False
        while pending := [task for task in self._tasks if not task.done()]:
            self._limit = self._inbox.core.deadlines.add(self, self._seconds)
            try:
                await asyncio.wait(pending)
            except asyncio.CancelledError:
                interrupted = True
                self.close()
            finally:
                self._limit.pop(self, None)
        if interrupted:
            raise asyncio.CancelledError

    def expire(self) -> None:
        """Cancel work that swallowed its cancellation."""
        self.close()
        self._limit = self._inbox.core.deadlines.add(self, self._seconds)

    async def _run(
        self, work: Awaitable[Any], done: Callable[[Any], Any], failed: Callable[[Exception], Any]
    ) -> None:
        outcome: Any
        try:
            outcome = await work
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # If the work cancelled itself, it has failed; if `close` cancelled it, its outcome is
            # not wanted.
            if task is not None and task.cancelling():
                raise
            self._deliver(failed, StrayCancellation(self._inbox.owner.path))
        except Exception as error:
            self._deliver(failed, error)
        else:
            self._deliver(done, outcome)

    def _deliver(self, to_message: Callable[[Any], Any], outcome: Any) -> None:
        if self.open:
            self._inbox.overtake(_Outcome(self, to_message, outcome))


def _drop(work: Awaitable[Any]) -> None:
    if inspect.iscoroutine(work):
        work.close()
    elif asyncio.isfuture(work):
        work.cancel()


class _Outcome(Due):
    __slots__ = ("_outcome", "_pipes", "_to_message")

    def __init__(self, pipes: Pipes, to_message: Callable[[Any], Any], outcome: Any) -> None:
        self._pipes = pipes
        self._to_message = to_message
        self._outcome = outcome

    def open(self) -> Any:
        # Runs in the actor's turn, so an error of `to_message` is the actor's own failure.
        return self._to_message(self._outcome) if self._pipes.open else STALE
