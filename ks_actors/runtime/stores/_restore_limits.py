"""Restore limits of source topics that serve as changelogs: the app's committed offsets."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, final

from ks_actors.log import Fetched

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ks_actors.log import Membership
    from ks_actors.records import TopicPartition


@final
class Limits:
    """The group's committed offsets for changelogs that are source topics.

    Records after a limit are still to be processed. If a store already contained them, processing
    would not see the changes that they make. Without a committed offset the limit is 0, as in Kafka
    Streams. `interval_ms` is the interval between lookups of the committed offsets.
    """

    def __init__(
        self,
        topics: Collection[str],
        membership: Callable[[], Membership],
        interval_ms: int,
    ) -> None:
        self.seconds: float = max(100, interval_ms) / 1000
        self._topics: frozenset[str] = frozenset(topics)
        self._membership = membership
        self._limits: dict[TopicPartition, int] = {}

    def __bool__(self) -> bool:
        return bool(self._topics)

    def among(self, changelogs: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the changelogs that have limits."""
        return [changelog for changelog in changelogs if changelog.topic in self._topics]

    async def fetch(self, changelogs: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the current limits of the changelogs that have limits. Raises the log's errors."""
        wanted = self.among(changelogs)
        found = await self._membership().committed(wanted) if wanted else {}
        return {
            changelog: found[changelog].offset if changelog in found else 0 for changelog in wanted
        }

    def note(self, limits: Mapping[TopicPartition, int]) -> None:
        """Store limits; they never decrease."""
        for changelog, limit in limits.items():
            # A late answer may be older than a limit that has been applied already.
            self._limits[changelog] = max(limit, self._limits.get(changelog, 0))

    def forget(self, changelog: TopicPartition) -> None:
        """Forget a limit."""
        self._limits.pop(changelog, None)

    def end(self, changelog: TopicPartition, end: int) -> int:
        """Return the offset to stop at: the end of the log or the limit."""
        return min(end, self._limits.get(changelog, end))

    def reached(self, changelog: TopicPartition, position: int) -> bool:
        """Return whether the position is at or beyond the limit."""
        limit = self._limits.get(changelog)
        return limit is not None and position >= limit

    def within(self, fetched: Fetched) -> Fetched:
        """Return the fetched records before the limit."""
        limit = self._limits.get(fetched.partition)
        if limit is None or fetched.next_offset <= limit:
            return fetched
        batch = fetched.batch
        return Fetched(
            fetched.partition,
            batch.slice(0, bisect_left(batch.offsets, limit)),
            limit,
            fetched.end_offset,
        )
