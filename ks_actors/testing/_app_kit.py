"""The actor system of apps under test."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, final

from actors.testing import TestKit

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST_RUN = 0.003


@final
class AppKit(TestKit):
    """A `TestKit` with a virtual wall clock for apps; its seed decides how long work takes.

    Work takes no virtual time, but workers measure their slices by `work_time`: so a slice ends
    after few or many records, depending on the seed.
    """

    def __init__(self, *, seed: int = 0, wall_clock_ms: int = 0) -> None:
        super().__init__(seed=seed)
        self.random: Random = Random(seed)  # noqa: S311 - to be repeatable is the point
        self._start_ms: int = wall_clock_ms
        self._worked: float = 0.0
        self._work = Random(seed)  # noqa: S311 - likewise
        self._spent: Callable[[], float] | None = None

    def set_clock_back(self, seconds: float) -> None:
        """Set the wall clock back, as an administrator or a time server may; timers go on."""
        self._start_ms -= int(seconds * 1000)

    def works_by(self, spent: Callable[[], float]) -> None:
        """Add the progress of `spent`, in seconds, to the time of work: slices end sooner."""
        self._spent = spent

    def wall_time_ms(self) -> int:
        """Return the virtual wall clock."""
        return self._start_ms + int(self.clock.time() * 1000)

    def steady_time_ms(self) -> float:
        """Return the virtual time in ms, independent of the wall clock."""
        return self.clock.time() * 1000

    def work_time(self) -> float:
        """Return a time in seconds that advances with each call."""
        self._worked += self._work.random() * _LONGEST_RUN
        return self._worked if self._spent is None else self._worked + self._spent()
