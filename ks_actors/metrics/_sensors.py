"""Sensors, which measure a batch at a time, without names and tags."""

from __future__ import annotations

from bisect import bisect_left
from math import inf, isnan, nan
from typing import TYPE_CHECKING, Final, NamedTuple, final

from ks_actors.metrics._metric import Distribution

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@final
class Window:
    """The number of the current time window, which the registry advances every 30 s.

    Sensors compare numbers instead of reading a clock.
    """

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number: int = 0


STILL: Final = Window()
"""A window that never advances, for tasks without an app."""


class Spread(NamedTuple):
    """The mean, the highest and the lowest of the values of the last 30 to 60 s.

    NaN without values.
    """

    mean: float
    most: float
    least: float


@final
class Timing:
    """The spread of durations, or of other values, over the last two windows."""

    __slots__ = (
        "_before",
        "_count",
        "_least",
        "_most",
        "_number",
        "_total",
        "_window",
        "count",
        "total",
    )

    def __init__(self, window: Window = STILL) -> None:
        self.count: int = 0
        """The number of values so far."""
        self.total: float = 0.0
        """The sum of all values so far."""
        self._window = window
        self._number: int = window.number
        self._before: tuple[int, float, float, float] = _NOTHING
        self._count, self._total, self._most, self._least = _NOTHING

    def add(self, value: float, times: int = 1) -> None:
        """Add a value that was measured `times` times."""
        # Check the window on use: thousands of timers would keep an idle app awake.
        if self._number != self._window.number:
            self._turn()
        self.count += times
        self.total += (more := value * times)
        self._count += times
        self._total += more
        if value > self._most:  # noqa: PLR1730 - faster than a call
            self._most = value
        if value < self._least:  # noqa: PLR1730 - faster than a call
            self._least = value

    def spread(self) -> Spread:
        """Return the spread of the last two windows."""
        if self._number != self._window.number:
            self._turn()
        count, total, most, least = self._before
        count += self._count
        if not count:
            return _NO_SPREAD
        return Spread((total + self._total) / count, max(most, self._most), min(least, self._least))

    def _turn(self) -> None:
        here = (self._count, self._total, self._most, self._least)
        # Windows in between had no values, so earlier values are too old to count.
        self._before = here if self._window.number == self._number + 1 else _NOTHING
        self._count, self._total, self._most, self._least = _NOTHING
        self._number = self._window.number


_NOTHING: Final = (0, 0.0, -inf, inf)
_NO_SPREAD: Final = Spread(nan, nan, nan)


def joined(timings: Iterable[Timing]) -> Spread:
    """Combine timings into one Spread: overall most and least, unweighted mean of the means."""
    known = [spread for one in timings if not isnan((spread := one.spread()).mean)]
    if not known:
        return _NO_SPREAD
    return Spread(
        sum(spread.mean for spread in known) / len(known),
        max(spread.most for spread in known),
        min(spread.least for spread in known),
    )


@final
class Histogram:
    """Values counted by size, since the start."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds: tuple[float, ...] = tuple(bounds)
        self._counts: list[int] = [0] * (len(bounds) + 1)
        self._total: float = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def distribution(self) -> Distribution:
        """Return the counts."""
        return Distribution(self._bounds, tuple(self._counts), self._total)
