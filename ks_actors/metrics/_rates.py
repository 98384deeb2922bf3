"""Rates: totals compared with those of a minute ago."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


Key: TypeAlias = tuple[object, tuple[str, ...]]
"""An instrument, by identity, and the values of its tags."""

_SPAN_S: Final = 60.0


@final
class Rates:
    """The totals of the last minute, sampled every few seconds.

    A rate needs no count of its own: it is the growth of a total since the sample of a minute ago.
    If that sample lacks the total, or the total is lower now, the growth counts from 0.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._notes: deque[tuple[float, Mapping[Key, float]]] = deque([(clock(), {})])

    def note(self, totals: Mapping[Key, float]) -> None:
        """Sample the totals of this moment."""
        now = self._clock()
        self._notes.append((now, totals))
        while self._notes[1][0] <= now - _SPAN_S:
            self._notes.popleft()

    def per_second(self, rate: object, tags: Mapping[str, str], total: float) -> float:
        """Return the growth of a total, per second."""
        then, totals = self._notes[0]
        if (seconds := self._clock() - then) <= 0:
            return 0.0
        before = totals.get((rate, tuple(tags.values())), 0.0)
        return (total - before if total >= before else total) / seconds
