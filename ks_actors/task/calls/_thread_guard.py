"""When a thread has a task, and who waits for it to come back."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ThreadGuard:
    """Tell whether a thread is at a task: then nothing on the event loop may look at it. `since` is when that began.

    Whoever wants to look at the task adds a function to `visits`, which is called when the thread is done with it, before the next one can begin.
    """

    __slots__ = ("since", "visits")

    def __init__(self) -> None:
        self.since: float | None = None
        self.visits: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Note that a thread begins."""
        self.since = perf_counter()

    def end(self, *, quiet: bool = True) -> None:
        """Note that nobody waits for the thread any more; when it is `quiet`, those who have waited for that have their turn."""
        self.since = None
        if quiet:
            visits, self.visits = self.visits, []
            for visit in visits:
                visit()
