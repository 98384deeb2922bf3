"""The record that a task is at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.processors._operator import RecordMetadata

if TYPE_CHECKING:
    from ks_actors._batch import Batch, Headers
    from ks_actors.runtime._queue import RawRecord, RecordQueue
    from ks_actors.runtime._weave import Weave


class Current:
    """What is known of the source record that is being processed; one object per task, changed from record to record.

    In batch mode it is exact for the partition, and about the batch's first record otherwise: errors name their record by its own offset. In a batch
    of several partitions, `weave`, offsets are places in the order in which their records are processed.
    """

    __slots__ = ("chunk", "headers", "offset", "queue", "stream_time", "timestamp", "weave")

    def __init__(self) -> None:
        self.queue: RecordQueue | None = None
        self.chunk: Batch | None = None
        self.offset: int = -1
        self.timestamp: int = -1
        self.headers: Headers = ()
        self.stream_time: int = -1
        self.weave: Weave | None = None

    def nowhere(self) -> None:
        """Be at no record: a punctuation, or between records."""
        self.queue = self.chunk = None
        self.offset = -1
        self.headers = ()

    def begin_anew(self) -> None:
        """Be as new: the task has been elsewhere meanwhile."""
        self.nowhere()
        self.timestamp = self.stream_time = -1

    def metadata(self) -> RecordMetadata | None:
        """Return topic, partition and offset; None at no record."""
        if self.weave is not None:
            where, _, offset = self.weave.find(self.offset)
            return RecordMetadata(where.partition.topic, where.partition.partition, offset)
        queue = self.queue
        return None if queue is None else RecordMetadata(queue.partition.topic, queue.partition.partition, self.offset)

    def raw(self, offset: int | None = None) -> RawRecord | None:
        """Return the source record as it came; None at no record."""
        place = self.offset if offset is None else offset
        if self.weave is not None:
            queue, chunk, place = self.weave.find(place)
            return queue.raw(chunk, place)
        if self.queue is None or self.chunk is None:
            return None
        return self.queue.raw(self.chunk, place)
