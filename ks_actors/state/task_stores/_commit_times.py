"""Commit rate and latency of each store of a task (KIP-892's metrics)."""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW_S: Final = 30.0
"""The window of the figures in seconds, as in Kafka Streams."""

_MOST: Final = 1000


class _Store(Protocol):
    name: str

    def publish(self, *, written: bool) -> int: ...


@final
class CommitTimes:
    """The last commits of each store, with end time and duration.

    The duration is the time (s) for which a commit blocked the app's loop.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock: Callable[[], float] = clock
        self._times: dict[str, deque[tuple[float, float]]] = {}

    def publish(self, store: _Store, *, written: bool) -> int:
        """Publish a store's frozen transaction and note how long that took."""
        began = self._clock()
        count = store.publish(written=written)
        self.note(store.name, began)
        return count

    def note(self, store: str, began: float) -> None:
        """Note a commit that has just ended."""
        now = self._clock()
        times = self._times.get(store)
        if times is None:
            times = self._times[store] = deque(maxlen=_MOST)
        times.append((now, now - began))

    def add(self, store: str, seconds: float) -> None:
        """Add time to the last commit of a store."""
        when, before = self._times[store].pop()
        self._times[store].append((when, before + seconds))

    def figures(self) -> dict[str, dict[str, float]]:
        """Return the commit figures of each store that has committed.

        They are `commit-rate` (per second), `commit-latency-avg` and `commit-latency-max` (ms).
        """
        since = self._clock() - WINDOW_S
        found: dict[str, dict[str, float]] = {}
        for store, times in list(self._times.items()):
            seconds = [each for when, each in times if when >= since]
            found[store] = {
                "commit-rate": len(seconds) / WINDOW_S,
                "commit-latency-avg": 1000 * sum(seconds) / max(1, len(seconds)),
                "commit-latency-max": 1000 * max(seconds, default=0.0),
            }
        return found
