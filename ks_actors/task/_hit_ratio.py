"""The share of updates that replace a row that is already cached."""

from __future__ import annotations

from typing import final

_SAMPLE = 1000


@final
class HitRatio:
    """The share of updates that replaced a cached one.

    A sample has a thousand updates or more.
    """

    __slots__ = ("_fresh", "_least", "_most", "_samples", "_sum", "_updates")

    def __init__(self) -> None:
        self._updates: int = 0
        self._fresh: int = 0
        self._samples: int = 0
        self._sum: float = 0.0
        self._least: float = 1.0
        self._most: float = 0.0

    def note(self, updates: int, fresh: int) -> None:
        """Count updates, and the rows that were not cached before."""
        self._updates += updates
        self._fresh += fresh
        if self._updates >= _SAMPLE:
            self._take()

    def _take(self) -> None:
        ratio = max(0.0, 1 - self._fresh / self._updates)
        self._samples += 1
        self._sum += ratio
        self._least, self._most = min(self._least, ratio), max(self._most, ratio)
        self._updates = self._fresh = 0

    def figures(self) -> dict[str, float]:
        """Return average, minimum and maximum by Kafka Streams' names.

        All are 0 before the first update. Without a full sample, the updates so far serve as one.
        """
        if self._updates and not self._samples:
            self._take()
        if not self._samples:
            return {"hit-ratio-avg": 0.0, "hit-ratio-min": 0.0, "hit-ratio-max": 0.0}
        return {
            "hit-ratio-avg": self._sum / self._samples,
            "hit-ratio-min": self._least,
            "hit-ratio-max": self._most,
        }
