"""The share of updates that replace a row that is already cached."""

from __future__ import annotations

from typing import final

_SAMPLE = 1000


@final
class HitRatio:
    """The share of updates that replaced a cached update.

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
            ratio = _ratio(self._updates, self._fresh)
            self._samples += 1
            self._sum += ratio
            self._least, self._most = min(self._least, ratio), max(self._most, ratio)
            self._updates = self._fresh = 0

    def figures(self) -> dict[str, float]:
        """Return average, minimum and maximum by Kafka Streams' names.

        All are 0 before the first update. Before the first full sample, the updates so far serve as
        a sample. The call changes no counts, as a thread may count meanwhile.
        """
        samples, updates = self._samples, self._updates
        if samples:
            mean, least, most = self._sum / samples, self._least, self._most
        else:
            mean = least = most = _ratio(updates, self._fresh) if updates else 0.0
        return {"hit-ratio-avg": mean, "hit-ratio-min": least, "hit-ratio-max": most}


def _ratio(updates: int, fresh: int) -> float:
    return max(0.0, 1 - fresh / updates)
