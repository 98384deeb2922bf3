"""How long an app that closes waits for its log, at most."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# Seconds at the end that are kept for the steps behind the last commit, and which part of the time at most.
_KEPT_S: Final = 6.0
_KEPT_SHARE: Final = 0.4
# The step with which the last commit is over, and, when it has failed, all that it takes to roll it back.
ROLLED_BACK: Final = 1
# No step of the end: by then calls in flight are waited for while other tasks go on. The last commit has a part of its time for itself.
CALLS: Final = -1
_COMMIT_S: Final = 6.0
_COMMIT_SHARE: Final = 0.25


@final
class Closing:
    """The one deadline by which an app that closes has given up all that its log has not answered. Times are those of the event loop.

    The last commit may take most of the time. A share at the end is kept, in equal parts, for the abort of its transaction, for leaving the group,
    and for closing the clients. Before the app closes nothing is bounded here.
    """

    __slots__ = ("_calls_end", "_ends", "_under_way", "seconds")

    def __init__(self) -> None:
        self.seconds: float = 0.0
        self._ends: tuple[float, ...] = ()
        self._calls_end: float = inf
        # The bounds of those that wait now: by when they want to be over themselves, and the step that they are bound by, if it is a certain one.
        self._under_way: dict[asyncio.Timeout, tuple[float, int | None]] = {}

    def begin(self, seconds: float) -> None:
        """Have all be over in so many seconds, unless it is to be over sooner already. To be called on the event loop."""
        now = asyncio.get_running_loop().time()
        if self._ends and self._ends[-1] <= now + seconds:
            return
        self.seconds = seconds
        kept = min(_KEPT_S, _KEPT_SHARE * seconds)
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
        """Whether nothing is to be begun any more, as the time is over."""
        return bool(self._ends) and asyncio.get_running_loop().time() >= self._ends[-2]

    @property
    def too_late_to_commit(self) -> bool:
        """Whether the time is over that the last commit may take."""
        return bool(self._ends) and asyncio.get_running_loop().time() >= self._ends[0]

    def end(self, end: float, step: int | None = None) -> float:
        """Return when that is over which begins now and has until `end`: at the latest with a `step` of closing, or the one that is under way."""
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
        """Raise TimeoutError when the block has not ended by `end`, or, once the app closes, with a step of that, as `end` says."""
        async with asyncio.timeout_at(_finite(self.end(end, step))) as timeout:
            self._under_way[timeout] = (end, step)
            try:
                yield
            finally:
                del self._under_way[timeout]


def _finite(when: float) -> float | None:
    return None if when == inf else when
