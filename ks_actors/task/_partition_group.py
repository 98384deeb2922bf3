"""The choice of a task's next record."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.records import Batch, TopicPartition
    from ks_actors.task._record_queue import RecordQueue

_LAST = 1 << 63


class PartitionGroup:
    """The queues of one task.

    The record with the smallest timestamp comes first; on equal timestamps the first partition
    wins. A task with several partitions waits for data of all of them, as `max_task_idle_ms` says
    (KIP-695). -1 never waits, and 0 waits for records that the log is known to have. A positive
    value (ms) also waits that long, per partition, for records that a producer may still write.
    Times are of a monotonic clock.
    """

    def __init__(self, queues: Sequence[RecordQueue], max_task_idle_ms: int) -> None:
        self.queues: dict[TopicPartition, RecordQueue] = {
            queue.partition: queue for queue in queues
        }
        self.enforced: int = 0
        self._all: tuple[RecordQueue, ...] = tuple(queues)
        self._only: RecordQueue | None = queues[0] if len(queues) == 1 else None
        self._idle: int = max_task_idle_ms
        self._deadlines: dict[TopicPartition, float] = {}
        self._waits_until: float | None = None

    def wait_for_none(self) -> None:
        """Never wait for data of other partitions, whatever `max_task_idle_ms` says."""
        self._idle = -1

    def add(self, queue: RecordQueue) -> None:
        """Add the queue of one more partition."""
        self.queues[queue.partition] = queue
        self._all = (*self._all, queue)
        self._only = queue if len(self._all) == 1 else None

    @property
    def buffered(self) -> int:
        """The number of records in all queues."""
        return (
            self._only.buffered
            if self._only is not None
            else sum(queue.buffered for queue in self._all)
        )

    def ready(self, now_ms: float) -> bool:
        """Return whether a record may be taken now."""
        # One partition has no order to wait for, and most tasks have only one.
        if self._only is not None:
            return self._only.buffered > 0
        return self.buffered > 0 and self._complete(now_ms)

    def wakes_at(self) -> float | None:
        """Return the time (ms) at which waiting for empty partitions ends.

        None unless `ready` waits for nothing else.
        """
        return self._waits_until if self.buffered else None

    def awaited(self) -> RecordQueue | None:
        """Return an empty queue that other queues wait for (`max_task_idle_ms`), or None."""
        if self._idle < 0:
            return None
        empty = [queue for queue in self._all if not queue.buffered]
        known = next((queue for queue in empty if queue.lag != 0), None)
        if known is not None or self._waits_until is None:
            return known
        return next((queue for queue in empty if queue.partition in self._deadlines), None)

    def take(self, limit: int) -> tuple[RecordQueue, Batch] | None:
        """Take the next records of one queue: up to `limit`, all before the heads of the others."""
        only = self._only
        if only is not None:
            return None if only.head(limit) is None else (only, only.take(limit))
        heads = [
            (head, index)
            for index, queue in enumerate(self._all)
            if (head := queue.head(limit)) is not None
        ]
        if not heads:
            return None
        # Ties go to the lower index, as in Kafka Streams: the order of partitions decides.
        heads.sort()
        _, index = heads[0]
        queue = self._all[index]
        if len(heads) == 1:
            # The next records of the empty partitions are unknown: looking again after each record
            # would not change the choice now.
            return queue, queue.take(limit)
        until, other = heads[1]
        return queue, queue.take(limit, (until, index < other))

    def turn(self) -> tuple[RecordQueue, int] | None:
        """Return the next queue, and the time up to which it may continue.

        None when a queue has no decoded record ready. As long as all queues have records, there is
        nothing to wait for, so the caller need not call `ready` again.
        """
        first: RecordQueue | None = None
        time = until = _LAST
        for queue in self._all:
            head = queue.plain
            if head is None:
                return None
            if head < time or first is None:
                # An earlier queue goes first at equal times: this queue has to stay below its head.
                until = time - 1
                first, time = queue, head
            elif head < until:
                until = head
        return None if first is None else (first, until)

    def _complete(self, now_ms: float) -> bool:
        # A negative max_task_idle_ms means: never wait for other partitions, as in Kafka Streams.
        if self._idle < 0:
            return True
        self._waits_until = None
        until, enforced = now_ms, False
        for queue in self._all:
            if queue.buffered:
                self._deadlines.pop(queue.partition, None)
            # The log has records that are not fetched yet, or its end is unknown: wait for a fetch.
            elif queue.lag != 0:
                # New data may come with the next fetch, so the idle time starts again after that
                # fetch.
                self._deadlines.pop(queue.partition, None)
                return False
            elif (
                self._idle
                and (deadline := self._deadlines.setdefault(queue.partition, now_ms + self._idle))
                > now_ms
            ):
                until = max(until, deadline)
            else:
                # The wait for this partition is over: continue without its data.
                enforced = True
        if until > now_ms:
            self._waits_until = until
            return False
        if enforced:
            self.enforced += 1
        return True
