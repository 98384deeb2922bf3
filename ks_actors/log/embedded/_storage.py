"""The storage contract for segments, offsets and topics, and the storage in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, final
from uuid import uuid4

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ks_actors.log._types import OffsetAndMetadata
    from ks_actors.log.embedded._partition import Partition
    from ks_actors.log.embedded._segment import Segment
    from ks_actors.log.embedded._topic import Topic
    from ks_actors.records import Batch, TopicPartition


class TransactionalId(NamedTuple):
    """The record of a transactional id; a higher epoch fences all lower epochs."""

    name: str
    pid: int
    epoch: int
    timeout_ms: int


def new_name() -> str:
    """Return a name for a new log, which makes the ids of its topics unique."""
    return uuid4().hex


class TopicRecord(NamedTuple):
    """The record of a topic."""

    identity: int
    name: str
    partitions: int
    configs: dict[str, str]


class Loaded(msgspec.Struct):
    """The content of storage at its opening.

    Segments are in order of offsets; places are (id of a topic, number of the partition).
    """

    name: str
    incarnation: int = 1
    topics: list[TopicRecord] = []
    bounds: dict[tuple[int, int], tuple[int, int]] = {}
    segments: dict[tuple[int, int], list[Segment]] = {}
    offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    transactional_ids: list[TransactionalId] = []
    next_topic: int = 0


class Storage(Protocol):
    """The contract of storage. Each writing method does all or nothing.

    This holds even if the process is killed. If a method raises StorageFull or LogError, it has
    done nothing. A partition that has grown by `growth` bytes may have records to clean.
    """

    growth: int

    def open(self) -> Loaded:
        """Open the storage and return its content. Blocks; may be called in a thread."""
        ...

    def close(self) -> None:
        """Release all resources. Blocks; may be called in a thread."""
        ...

    def load(self, partition: Partition, segment: Segment) -> Batch:
        """Return the records of a segment. Raises LogCorrupted."""
        ...

    def append(self, added: Sequence[tuple[Partition, Segment, Batch]]) -> None:
        """Write new segments."""
        ...

    def end(
        self,
        markers: Sequence[tuple[Partition, Segment]],
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Write the end of a transaction: markers and offsets; or offsets alone."""
        ...

    def add_topic(self, topic: Topic) -> None:
        """Write a topic, with all its partitions."""
        ...

    def grow_topic(self, topic: Topic, partitions: int) -> None:
        """Write the new number of a topic's partitions."""
        ...

    def remove_topic(self, topic: Topic, offsets: Mapping[str, Iterable[TopicPartition]]) -> None:
        """Delete a topic, its records, and the groups' committed offsets for the topic."""
        ...

    def put_transactional_id(self, transactional_id: TransactionalId) -> None:
        """Write a transactional id, or its new epoch."""
        ...

    def set_begin(self, partition: Partition, begin: int) -> None:
        """Write the new begin of a partition."""
        ...

    def discard(self, partition: Partition, segments: Sequence[Segment]) -> None:
        """Delete segments before the partition's begin.

        The deletion may be deferred, so the caller gets no error.
        """
        ...

    def replace(
        self, partition: Partition, old: Sequence[Segment], new: Segment | None, batch: Batch
    ) -> None:
        """Replace `old` by `new`, with the records of `batch`."""
        ...


@final
class MemoryStorage:
    """Storage in memory: batches stay in their segments."""

    growth: int = 8 << 20

    def open(self) -> Loaded:
        """Return no content."""
        return Loaded(new_name())

    def close(self) -> None:
        """Do nothing: the content is freed together with the log."""

    # pragma: no cover - a segment in memory has its batch
    def load(self, partition: Partition, segment: Segment) -> Batch:
        """Raise NotImplementedError: this is never called."""
        raise NotImplementedError(partition, segment)

    def append(self, added: Sequence[tuple[Partition, Segment, Batch]]) -> None:
        """Keep the batches in their segments."""
        for _, segment, batch in added:
            segment.batch = batch

    def end(
        self,
        markers: Sequence[tuple[Partition, Segment]],
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Do nothing: the broker has it."""

    def add_topic(self, topic: Topic) -> None:
        """Do nothing: the broker has it."""

    def grow_topic(self, topic: Topic, partitions: int) -> None:
        """Do nothing: the broker has it."""

    def remove_topic(self, topic: Topic, offsets: Mapping[str, Iterable[TopicPartition]]) -> None:
        """Do nothing: the broker has it."""

    def put_transactional_id(self, transactional_id: TransactionalId) -> None:
        """Do nothing: the broker has it."""

    def set_begin(self, partition: Partition, begin: int) -> None:
        """Do nothing: the broker has it."""

    def discard(self, partition: Partition, segments: Sequence[Segment]) -> None:
        """Do nothing: there are no more references to the segments."""

    def replace(
        self,
        partition: Partition,  # noqa: ARG002 - part of the contract
        old: Sequence[Segment],  # noqa: ARG002 - part of the contract
        new: Segment | None,
        batch: Batch,
    ) -> None:
        """Keep the batch in the new segment."""
        if new is not None:
            new.batch = batch
