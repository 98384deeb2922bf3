"""The deletion of processed records from repartition topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from ks_actors.records import TopicPartition
    from ks_actors.task import Position

_log = component_log(__name__)


@final
class Purger:
    """Choose the repartition records to delete, at most once every `interval_ms`.

    `delete` deletes them.
    """

    def __init__(
        self,
        topics: Iterable[str],
        interval_ms: int,
        delete: Callable[[Mapping[TopicPartition, int]], Awaitable[None]],
    ) -> None:
        self.delete: Callable[[Mapping[TopicPartition, int]], Awaitable[None]] = delete
        self._topics: frozenset[str] = frozenset(topics)
        self._interval: float = interval_ms / 1000
        self._last: float | None = None
        self._committed: set[TopicPartition] = set()
        self._under_way: bool = False

    def committed(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that offsets of partitions were committed."""
        self._committed.update(one for one in partitions if one.topic in self._topics)

    def due(
        self, positions: Mapping[TopicPartition, Position], now: float
    ) -> dict[TopicPartition, int]:
        """Return the offsets to delete up to, for `delete`; none when it is not time yet.

        Only the committed `positions` of the partitions that are here count. A partition may have
        lost its log since a commit; then unprocessed records of the new log are below the old
        offset.
        """
        if (
            not self._committed
            or self._under_way
            or (self._last is not None and now - self._last < self._interval)
        ):
            return {}
        first, self._last = self._last is None, now
        if first:
            return {}
        # A failed deletion needs no copy of these offsets: offsets grow, so the next deletion
        # covers them.
        wanted = {
            partition: position.offset
            for partition in self._committed
            if (position := positions.get(partition)) is not None
        }
        self._committed.clear()
        self._under_way = bool(wanted)
        return wanted

    def ended(self, error: Exception | None) -> None:
        """Note that the deletion has ended, or failed with `error`."""
        self._under_way = False
        if error is not None:
            _log.warning(
                "could not delete processed records of repartition topics; a later commit "
                "retries: %s",
                error,
            )
