"""The limits of buffered input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ks_actors.records import mean_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ks_actors.records import Batch, TopicPartition

_SAMPLE: Final = 8
_RECORD_OVERHEAD: Final = 120
_HEADER_OVERHEAD: Final = 140
# Partitions paused for the total are fetched again when the total falls to this share of its limit.
# Otherwise they would be paused and resumed with each slice.
_LOW: Final = 0.75


@final
class InputBudget:
    """Decide when to stop fetching a partition, and when to fetch it again.

    `records` is the limit per partition. `size` is the limit of all partitions together in bytes
    (-1: none), estimated from a sample of each batch (KIP-770). A partition without buffered
    records is fetched whatever the total is: its task may need these records before it can process
    records of other partitions. So the total may exceed `size` by one fetch of each partition.

    Queries may have shares in `size`. A query may use more than its share while there is room; at
    the limit the partitions of such queries are stopped, and the others are not. So a query that
    stands still does not stop the others, and the total may come to twice the `size`.
    """

    def __init__(self, records: int, size: int) -> None:
        self._records: int = records
        self._size: float = float("inf") if size < 0 else float(size)
        self._counts: dict[TopicPartition, int] = {}
        self._record_bytes: dict[TopicPartition, float] = {}
        # Partitions at their own limit, and partitions paused because of the limit for all
        # partitions.
        self._full: set[TopicPartition] = set()
        self._squeezed: set[TopicPartition] = set()
        # The query of each partition, the share of each query in bytes, and its estimate.
        self._queries: dict[TopicPartition, str] = {}
        self._shares: dict[str, float] = {}
        self._estimates: dict[str, float] = {}
        self.buffered: int = 0
        self.estimate: float = 0.0
        """The approximate number of bytes buffered in all partitions."""

    def divide(self, partition: TopicPartition, query: str, fraction: float) -> None:
        """Count a partition in a query, which has this fraction of the size as its share."""
        self._queries[partition] = query
        self._shares[query] = self._size * fraction
        self._estimates.setdefault(query, 0.0)

    def added(self, partition: TopicPartition, batch: Batch) -> bool:
        """Note a new batch; return whether to stop fetching the partition now."""
        count = self._counts.get(partition, 0)
        if size := len(batch):
            mean = mean_bytes(batch, _SAMPLE) + _RECORD_OVERHEAD
            if batch.headers is not None:
                taken = min(size, _SAMPLE)
                step = size // taken
                mean += (
                    sum(
                        len(name) + len(content or b"") + _HEADER_OVERHEAD
                        for at in range(0, taken * step, step)
                        for name, content in batch.headers[at]
                    )
                    / taken
                )
            self._note(partition, 0)
            self._record_bytes[partition] = mean
            count += size
        self._note(partition, count)
        if self.stopped(partition):
            return False
        if count > self._records:
            self._full.add(partition)
            return True
        if count and self.estimate > self._size and self._beyond_share(partition):
            self._squeezed.add(partition)
            return True
        return False

    def consumed(self, counts: Iterable[tuple[TopicPartition, int]]) -> tuple[TopicPartition, ...]:
        """Note the numbers of records buffered; return all partitions that may be fetched again."""
        low: list[TopicPartition] = []
        for partition, count in counts:
            self._note(partition, count)
            if partition in self._full and count <= self._records // 2:
                self._full.discard(partition)
                self._squeezed.add(partition)
            if not count and partition in self._squeezed:
                self._squeezed.discard(partition)
                low.append(partition)
        if self._squeezed and self.estimate <= self._size * _LOW:
            low += self._squeezed
            self._squeezed.clear()
        elif self._squeezed and self._shares:
            within = {each for each in self._squeezed if not self._beyond_share(each, _LOW)}
            low += within
            self._squeezed -= within
        return tuple(low)

    def stopped(self, partition: TopicPartition) -> bool:
        """Return whether the limits have stopped a partition."""
        return partition in self._full or partition in self._squeezed

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that are gone or are fetched from another position."""
        for partition in partitions:
            self._note(partition, 0)
            self._counts.pop(partition, None)
            self._record_bytes.pop(partition, None)
            self._full.discard(partition)
            self._squeezed.discard(partition)
        if not self._counts:
            self.estimate = 0.0

    def _beyond_share(self, partition: TopicPartition, factor: float = 1.0) -> bool:
        """Return whether the partition's query has more than `factor` times its share."""
        query = self._queries.get(partition)
        return query is None or self._estimates[query] > self._shares[query] * factor

    def _note(self, partition: TopicPartition, count: int) -> None:
        more = count - self._counts.get(partition, 0)
        if more:
            self._counts[partition] = count
            self.buffered += more
            size = more * self._record_bytes.get(partition, 0.0)
            self.estimate += size
            if (query := self._queries.get(partition)) is not None:
                self._estimates[query] += size
            if not self.buffered:
                self.estimate = 0.0  # sums of fractions drift
                self._estimates = dict.fromkeys(self._estimates, 0.0)
