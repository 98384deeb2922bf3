"""The deadline for the log when an app closes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# Seconds at the end for the steps after the last commit, and their largest share of the time.
_KEPT_S: Final = 6.0
_KEPT_SHARE: Final = 0.4
# The second step of closing. By its end, the last commit has succeeded or has been rolled back.
ROLLED_BACK: Final = 1
# Not a step of closing: the time in which the app waits for calls in flight, while other tasks
# continue. The last commit has its own part of that time.
CALLS: Final = -1
_COMMIT_S: Final = 6.0
_COMMIT_SHARE: Final = 0.25


@final
class Closing:
    """The deadline at which a closing app abandons unanswered requests to its log.

    Times are those of the event loop. The last commit may take most of the time. A share at the end
    is reserved, in equal parts, for the abort of its transaction, for leaving the group, and for
    closing the clients. Before the app closes there is no limit here.
    """

    __slots__ = ("_calls_end", "_ends", "_under_way", "seconds")

    def __init__(self) -> None:
        self.seconds: float = 0.0
        self._ends: tuple[float, ...] = ()
        self._calls_end: float = inf
        # The limits of current waits: their own deadlines, and their steps, if any.
        self._under_way: dict[asyncio.Timeout, tuple[float, int | None]] = {}

    def begin(self, seconds: float) -> None:
        """Set the deadline `seconds` from now, unless it is earlier already.

        Call it on the event loop.
        """
        now = asyncio.get_running_loop().time()
        if self._ends and self._ends[-1] <= now + seconds:
            return
        self.seconds = seconds
        kept = min(_KEPT_S, _KEPT_SHARE * seconds)
        # The ends of the last commit, of its rollback, of leaving the group, and of closing.
        self._ends = tuple(now + seconds - kept * part / 3 for part in (3, 2, 1, 0))
        self._calls_end = self._ends[0] - min(_COMMIT_S, _COMMIT_SHARE * (seconds - kept))
        for timeout, (end, step) in tuple(self._under_way.items()):
            if not timeout.expired():
                timeout.reschedule(_finite(self.end(end, step)))

    @property
    def begun(self) -> bool:
        """Whether the app closes."""
        return bool(self._ends)

    @property
    def over(self) -> bool:
        """Whether the time is over, so that nothing new may begin."""
        return bool(self._ends) and asyncio.get_running_loop().time() >= self._ends[-2]

    @property
    def too_late_to_commit(self) -> bool:
        """Whether the time of the last commit is over."""
        return bool(self._ends) and asyncio.get_running_loop().time() >= self._ends[0]

    def end(self, end: float, step: int | None = None) -> float:
        """Return the deadline of a wait that begins now and has until `end`.

        Once the app closes, this is at the latest the end of `step`, or of the current step.
        """
        if not self._ends:
            return end
        if step == CALLS:
            return min(end, self._calls_end)
        if step is not None:
            return min(end, self._ends[step])
        now = asyncio.get_running_loop().time()
        return min(end, next((each for each in self._ends if each > now), self._ends[-1]))

    @asynccontextmanager
    async def timeout_at(self, end: float = inf, step: int | None = None) -> AsyncIterator[None]:
        """Raise TimeoutError when the block has not ended by `end`.

        Once the app closes, the deadline of a step applies, as in `end`.
        """
        async with asyncio.timeout_at(_finite(self.end(end, step))) as timeout:
            self._under_way[timeout] = (end, step)
            try:
                yield
            finally:
                del self._under_way[timeout]


def _finite(when: float) -> float | None:
    return None if when == inf else when
