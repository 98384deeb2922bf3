"""How much input may wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ks_actors.log._types import Fetched, TopicPartition
    from ks_actors.runtime._task import Task

_SAMPLE = 8
_RECORD_OVERHEAD = 120


class InputBudget:
    """Say when a partition is not to be fetched any more, and when again.

    `records` is the limit per partition; `size` is that of all partitions together in bytes, estimated from a sample of each batch (KIP-770).
    """

    def __init__(self, records: int, size: int) -> None:
        self._records: int = records
        self._bytes: int = size
        self._record_bytes: dict[TopicPartition, float] = {}
        self._buffered: dict[TopicPartition, int] = {}
        self._stopped: set[TopicPartition] = set()

    @property
    def estimate(self) -> float:
        """How many bytes wait in all partitions."""
        return sum(count * self._record_bytes.get(partition, 0.0) for partition, count in self._buffered.items())

    def added(self, fetched: Fetched, buffered: int) -> bool:
        """Note what came; return whether the partition is to be stopped now."""
        partition, batch = fetched.partition, fetched.batch
        self._buffered[partition] = buffered
        size = min(len(batch), _SAMPLE)
        if size:
            step = len(batch) // size
            sample = sum(len(batch.keys[at] or b"") + len(batch.values[at] or b"") + _RECORD_OVERHEAD for at in range(0, size * step, step))
            self._record_bytes[partition] = sample / size
        if partition in self._stopped or (buffered <= self._records and self.estimate <= self._bytes):
            return False
        self._stopped.add(partition)
        return True

    def consumed(self, task: Task) -> tuple[TopicPartition, ...]:
        """Note what a task has left; return the partitions that may be fetched again."""
        for partition, queue in task.group.queues.items():
            if partition in self._buffered:
                self._buffered[partition] = queue.buffered
        if not self._stopped or self.estimate > self._bytes:
            return ()
        low = tuple(partition for partition in self._stopped if self._buffered.get(partition, 0) <= self._records // 2)
        self._stopped.difference_update(low)
        return low

    def forget(self, task: Task) -> None:
        """Forget a task's partitions: they are gone, or are fetched anew."""
        for partition in task.group.queues:
            self._buffered.pop(partition, None)
            self._stopped.discard(partition)
