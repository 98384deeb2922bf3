"""Work that an actor has under way beside its messages."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from actors._control import STALE, Due
from actors._errors import StrayCancellation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors._inbox import Inbox


class Pipes:
    """The piped awaitables of one incarnation; none outlives it, and no result of them either."""

    __slots__ = ("_inbox", "_tasks", "open")

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._tasks: set[asyncio.Task[None]] = set()
        self.open: bool = True

    def start(self, work: Awaitable[Any], done: Callable[[Any], Any], failed: Callable[[Exception], Any]) -> None:
        """Await `work` in a task of its own, then queue what `done` or `failed` makes of the outcome."""
        task = self._inbox.kernel.tasks.create_task(self._run(work, done, failed), name=f"{self._inbox.owner.path} pipe")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if inspect.iscoroutine(work):
            # A task that is cancelled before its first step never awaits the coroutine; closing says that this is meant.
            task.add_done_callback(lambda _: work.close())

    def close(self) -> None:
        """Cancel what is under way, and make results stale that are queued already."""
        self.open = False
        for task in tuple(self._tasks):
            task.cancel()

    async def _run(self, work: Awaitable[Any], done: Callable[[Any], Any], failed: Callable[[Exception], Any]) -> None:
        outcome: Any
        try:
            outcome = await work
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._inbox.overtake(_Outcome(self, failed, StrayCancellation(self._inbox.owner.path)))
        except Exception as error:
            self._inbox.overtake(_Outcome(self, failed, error))
        else:
            self._inbox.overtake(_Outcome(self, done, outcome))


class _Outcome(Due):
    __slots__ = ("_outcome", "_pipes", "_to_message")

    def __init__(self, pipes: Pipes, to_message: Callable[[Any], Any], outcome: Any) -> None:
        self._pipes = pipes
        self._to_message = to_message
        self._outcome = outcome

    def open(self) -> Any:
        # Called by the actor, in its turn: what `to_message` raises is the actor's own failure.
        return self._to_message(self._outcome) if self._pipes.open else STALE
