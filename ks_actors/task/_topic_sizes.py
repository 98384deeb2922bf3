"""The partition counts of topics, as far as the app knows them."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Protocol, final
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ks_actors.records import TopicPartition


class Follower(Protocol):
    """A part that depends on a topic's partition count; a change sets `stale`."""

    stale: bool


@final
class TopicSizes:
    """The number of partitions by topic; None for a topic of unknown size.

    Topics may grow while the app runs: `know` updates the counts, and marks the followers of a
    topic. All methods are thread-safe. `first` returns counts from another source.
    """

    def __init__(self, first: Callable[[str], int | None]) -> None:
        self._first: Callable[[str], int | None] = first
        self._known: dict[str, int] = {}
        self._followers: dict[str, WeakSet[Follower]] = {}
        self._lock = Lock()

    def __call__(self, topic: str) -> int | None:
        """Return the number of partitions of a topic."""
        found = self._known.get(topic)
        return self._first(topic) if found is None else found

    @property
    def followed(self) -> frozenset[str]:
        """The topics that have, or had, followers."""
        with self._lock:
            return frozenset(self._followers)

    def follow(self, topic: str, follower: Follower) -> None:
        """Mark `follower` whenever the topic's partition count changes, as long as it is alive."""
        with self._lock:
            self._followers.setdefault(topic, WeakSet()).add(follower)

    def know(self, counts: Mapping[str, int]) -> None:
        """Update partition counts."""
        with self._lock:
            changed = {
                topic: count for topic, count in counts.items() if self._known.get(topic) != count
            }
            # A new dict, because readers in other threads take no lock.
            self._known = {**self._known, **changed}
            for follower in [
                follower for topic in changed for follower in self._followers.get(topic, ())
            ]:
                follower.stale = True

    def see(self, partitions: Iterable[TopicPartition]) -> None:
        """Learn from partitions that exist: their topics have at least as many."""
        seen: dict[str, int] = {}
        for topic, number in partitions:
            if number >= max(self(topic) or 0, seen.get(topic, 0)):
                seen[topic] = number + 1
        self.know(seen)
