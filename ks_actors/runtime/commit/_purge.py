"""The deletion of processed records from repartition topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from ks_actors.log import OffsetAndMetadata
    from ks_actors.records import TopicPartition

_log = component_log(__name__)


async def nothing_to_delete(_: Mapping[TopicPartition, int]) -> None:
    """Delete nothing."""


class Purger:
    """Choose the repartition records to delete, at most once every `interval_ms`.

    `delete` deletes them.
    """

    def __init__(
        self,
        topics: Iterable[str],
        interval_ms: int,
        delete: Callable[[Mapping[TopicPartition, int]], Awaitable[None]] = nothing_to_delete,
    ) -> None:
        self.delete: Callable[[Mapping[TopicPartition, int]], Awaitable[None]] = delete
        self._topics: frozenset[str] = frozenset(topics)
        self._interval: float = interval_ms / 1000
        self._last: float | None = None
        self._committed: dict[TopicPartition, int] = {}
        self.under_way: bool = False

    def due(
        self, positions: Mapping[TopicPartition, OffsetAndMetadata], now: float
    ) -> dict[TopicPartition, int] | None:
        """Note the committed offsets; return the records to delete now, if any."""
        for partition, committed in positions.items():
            if partition.topic in self._topics:
                self._committed[partition] = committed.offset
        if (
            not self._committed
            or self.under_way
            or (self._last is not None and now - self._last < self._interval)
        ):
            return None
        if self._last is None:
            self._last = now
            return None
        self._last = now
        # A failed deletion needs no copy of these: offsets only grow, so the next one covers them.
        wanted, self._committed = self._committed, {}
        return wanted

    def ended(self, error: Exception | None) -> None:
        """Note that the deletion has ended, or failed with `error`."""
        self.under_way = False
        if error is not None:
            _log.warning(
                "could not delete processed records of repartition topics; the next commit "
                "retries: %s",
                error,
            )
