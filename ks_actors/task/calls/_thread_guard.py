"""The guard of a task that a thread processes."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ThreadGuard:
    """Track whether a thread has a task: then no code on the event loop may use the task.

    `since` is the time when the thread took the task. To use the task, callers add a function to
    `on_return`, which is called when the thread returns, before another thread can begin.
    """

    __slots__ = ("on_return", "since")

    def __init__(self) -> None:
        self.since: float | None = None
        self.on_return: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Record that a thread takes the task."""
        self.since = perf_counter()

    def seconds(self) -> float:
        """Return for how long a thread has had the task, in seconds; 0 when none has it."""
        return 0.0 if (since := self.since) is None else perf_counter() - since

    def end(self, *, quiet: bool = True) -> None:
        """Record that no caller waits for the thread any more.

        If the thread has really ended (`quiet`), call the functions in `on_return`.
        """
        self.since = None
        if quiet:
            on_return, self.on_return = self.on_return, []
            for visit in on_return:
                visit()
