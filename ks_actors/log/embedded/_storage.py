"""Where segments, offsets and topics are kept: what the broker asks of it, and the one that forgets all."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ks_actors.log._types import OffsetAndMetadata
    from ks_actors.log.embedded._partition import Partition
    from ks_actors.log.embedded._segment import Segment
    from ks_actors.log.embedded._topic import Topic
    from ks_actors.records import Batch, TopicPartition


class TransactionalId(NamedTuple):
    """What is kept of a transactional id; a higher epoch fences the lower ones."""

    name: str
    pid: int
    epoch: int
    timeout_ms: int


class TopicRecord(NamedTuple):
    """What is kept of a topic."""

    identity: int
    name: str
    partitions: int
    configs: dict[str, str]


class Loaded(msgspec.Struct):
    """What storage held when it was opened.

    Segments are in order of offsets; places are (id of a topic, number of the partition).
    """

    incarnation: int = 1
    topics: list[TopicRecord] = []
    bounds: dict[tuple[int, int], tuple[int, int]] = {}
    segments: dict[tuple[int, int], list[Segment]] = {}
    offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    transactional_ids: list[TransactionalId] = []
    next_topic: int = 0


class Storage(Protocol):
    """Each writing method does all or nothing, also when the process is killed meanwhile; it raises StorageFull or LogError for nothing.

    A partition that has grown by `growth` bytes is worth looking at: there may be something to
    clean.
    """

    growth: int

    def open(self) -> Loaded:
        """Take hold of what there is, and return it. Blocks; may be called in a thread."""
        ...

    def close(self) -> None:
        """Let go of everything. Blocks; may be called in a thread."""
        ...

    def load(self, partition: Partition, segment: Segment) -> Batch:
        """Return the records of a segment. Raises LogCorrupted."""
        ...

    def append(self, added: Sequence[tuple[Partition, Segment, Batch]]) -> None:
        """Keep new segments."""
        ...

    def end(self, markers: Sequence[tuple[Partition, Segment]], group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Keep the end of a transaction: markers and offsets; or offsets alone."""
        ...

    def add_topic(self, topic: Topic) -> None:
        """Keep a topic, with all its partitions."""
        ...

    def grow_topic(self, topic: Topic, partitions: int) -> None:
        """Keep that a topic has so many partitions from now on."""
        ...

    def remove_topic(self, topic: Topic, offsets: Mapping[str, Iterable[TopicPartition]]) -> None:
        """Forget a topic, its records, and what groups have committed of it."""
        ...

    def put_transactional_id(self, transactional_id: TransactionalId) -> None:
        """Keep a transactional id, or its new epoch."""
        ...

    def set_begin(self, partition: Partition, begin: int) -> None:
        """Keep that a partition begins at `begin`."""
        ...

    def discard(self, partition: Partition, segments: Sequence[Segment]) -> None:
        """Get rid of segments before the partition's begin.

        May be put off: an error is none of the caller's.
        """
        ...

    def replace(self, partition: Partition, old: Sequence[Segment], new: Segment | None, batch: Batch) -> None:
        """Keep `new`, with the records of `batch`, for `old`."""
        ...


@final
class MemoryStorage:
    """Leave batches in their segments, as they came."""

    growth: int = 8 << 20

    def open(self) -> Loaded:
        """Find nothing."""
        return Loaded()

    def close(self) -> None:
        """Do nothing: what was there goes with the log."""

    # pragma: no cover - a segment in memory has its batch
    def load(self, partition: Partition, segment: Segment) -> Batch:
        """Never be called."""
        raise NotImplementedError(partition, segment)

    def append(self, added: Sequence[tuple[Partition, Segment, Batch]]) -> None:
        """Let segments keep their batches."""
        for _, segment, batch in added:
            segment.batch = batch

    def end(self, markers: Sequence[tuple[Partition, Segment]], group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Do nothing: the broker knows."""

    def add_topic(self, topic: Topic) -> None:
        """Do nothing: the broker knows."""

    def grow_topic(self, topic: Topic, partitions: int) -> None:
        """Do nothing: the broker knows."""

    def remove_topic(self, topic: Topic, offsets: Mapping[str, Iterable[TopicPartition]]) -> None:
        """Do nothing: the broker knows."""

    def put_transactional_id(self, transactional_id: TransactionalId) -> None:
        """Do nothing: the broker knows."""

    def set_begin(self, partition: Partition, begin: int) -> None:
        """Do nothing: the broker knows."""

    def discard(self, partition: Partition, segments: Sequence[Segment]) -> None:
        """Do nothing: nobody refers to them any more."""

    def replace(self, partition: Partition, old: Sequence[Segment], new: Segment | None, batch: Batch) -> None:  # noqa: ARG002 - others need them
        """Let the new segment keep its batch."""
        if new is not None:
            new.batch = batch
