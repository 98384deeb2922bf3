"""The broker: topics, appends and ends of transactions.

Its methods are plain calls on the event loop; each call takes effect completely or not at all.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from ks_actors._errors import (
    InvalidRecord,
    LogError,
    ProduceFailed,
    RecordTooLarge,
    TopicExists,
    UnknownTopicOrPartition,
)
from ks_actors.lifecycle import component_log
from ks_actors.log.embedded._partition import Partition
from ks_actors.log.embedded._segment import ABORT, COMMIT, DATA, NO_PRODUCER, TRANSACTIONAL, Segment
from ks_actors.log.embedded._storage import TransactionalId
from ks_actors.log.embedded._topic import INTERNAL, Topic, check_topics
from ks_actors.log.embedded._transactions import Transaction
from ks_actors.records import Batch, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ks_actors.log._types import NewTopic, OffsetAndMetadata, Outgoing
    from ks_actors.log.embedded._storage import Loaded, Storage

_logger = component_log(__name__)

# The approximate overhead of a record: without it, empty records would never be cleaned.
_RECORD_BYTES = 64


@final
class Broker:
    """The state of a log in memory, and the order of changes.

    Each change goes to storage first, then to memory, then to the waiting readers.
    """

    def __init__(
        self,
        storage: Storage,
        topics_changed: Callable[[set[str]], None],
        grown: Callable[[Partition], None],
        clock: Callable[[], int],
    ) -> None:
        self.storage: Storage = storage
        self.name: str = ""
        self.incarnation: int = 0
        self.topics: dict[str, Topic] = {}
        self.partitions: dict[TopicPartition, Partition] = {}
        self.offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self.transactions: dict[str, Transaction] = {}
        self._next_topic = 0
        self._next_pid = 0
        self._topics_changed = topics_changed
        self._grown = grown
        self._clock = clock

    def take_in(self, loaded: Loaded, *, read_only: bool = False) -> None:
        """Load the content of storage.

        Open transactions stay open until their producer returns, or their timeout passes. In a
        read-only log they stay open for ever: only the writer of the log may end them.
        """
        self.name = loaded.name
        self.incarnation = loaded.incarnation
        self.offsets = loaded.offsets
        self._next_topic = loaded.next_topic
        by_pid: dict[int, Transaction] = {}
        for name, pid, epoch, timeout_ms in loaded.transactional_ids:
            self.transactions[name] = by_pid[pid] = Transaction(name, pid, epoch, timeout_ms)
        # An id must never be used again, since it connects markers to records.
        self._next_pid = max(by_pid, default=-1) + 1
        for identity, name, count, configs in loaded.topics:
            topic = self._enter(Topic(identity, name, configs), count)
            for partition in topic.partitions:
                place = identity, partition.name.partition
                _restore(
                    partition, loaded.bounds.get(place, (0, 0)), loaded.segments.get(place, ())
                )
                for pid in partition.open:
                    transaction = by_pid[pid]
                    transaction.partitions[partition] = None
        for transaction in self.transactions.values():
            # The timeout starts again: it is unknown how long the log was closed, and the producer
            # may return.
            if transaction.partitions and not read_only:
                self._start_timer(transaction)

    def _enter(self, topic: Topic, count: int) -> Topic:
        topic.partitions = [Partition(topic, number, self.storage.load) for number in range(count)]
        self.topics[topic.name] = topic
        self.partitions.update({partition.name: partition for partition in topic.partitions})
        return topic

    def id_of(self, topic: Topic) -> str:
        """Return the id of a topic, unique among the topics of all logs."""
        # If a log of an earlier format is opened read-only, it has no name.
        return f"{self.name}-{topic.id}" if self.name else ""

    def partition(self, name: TopicPartition) -> Partition:
        """Return a partition. Raises UnknownTopicOrPartition."""
        partition = self.partitions.get(name)
        if partition is None:
            raise UnknownTopicOrPartition(
                f"there is no {TopicPartition(*name)}: {self._what_is_there(name[0])}"
            )
        return partition

    def _what_is_there(self, name: str) -> str:
        topic = self.topics.get(name)
        return (
            f"no topic {name!r}"
            if topic is None
            else f"topic {name!r} has partitions 0 to {len(topic.partitions) - 1}"
        )

    def create_topic(self, new: NewTopic) -> None:
        """Create a topic. Raises TopicExists, ConfigError, StorageFull, LogError."""
        if new.name in self.topics:
            raise TopicExists(f"topic {new.name!r} already exists")
        check_topics((new,), self.topics)
        topic = Topic(self._next_topic, new.name, dict(new.configs))
        topic.partitions = [
            Partition(topic, number, self.storage.load) for number in range(new.partitions)
        ]
        # Write to storage before memory: if the disk is full, memory must not have a topic that
        # storage lacks.
        self.storage.add_topic(topic)
        self._next_topic += 1
        self._enter(topic, new.partitions)
        self._topics_changed({topic.name})

    def create_partitions(self, counts: Mapping[str, int]) -> None:
        """Give topics more partitions, and then raise the error of the first refused topic.

        Raises UnknownTopicOrPartition, LogError, after all other topics have grown; StorageFull.
        """
        refused: LogError | None = None
        grown: set[str] = set()
        for name, count in counts.items():
            topic = self.topics.get(name)
            if topic is None:
                refused = refused or UnknownTopicOrPartition(
                    f"topic {name!r} does not exist, so it cannot get more partitions: create it"
                )
            elif count <= len(topic.partitions):
                there = len(topic.partitions)
                refused = refused or LogError(
                    f"topic {name} already has {there} partitions, and {count} is not more: give "
                    "the new total number of partitions"
                )
            else:
                self.storage.grow_topic(topic, count)
                added = [
                    Partition(topic, number, self.storage.load)
                    for number in range(len(topic.partitions), count)
                ]
                topic.partitions += added
                self.partitions.update({partition.name: partition for partition in added})
                grown.add(name)
        if grown:
            # Report all grown topics together, so that groups rebalance only once.
            self._topics_changed(grown)
        if refused is not None:
            raise refused

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics, and the groups' committed offsets of these topics.

        Raises UnknownTopicOrPartition, after all other topics were deleted; StorageFull, LogError.
        """
        unknown = [name for name in names if name not in self.topics]
        for name in names:
            if name in self.topics:
                self._delete_topic(self.topics[name])
        if unknown:
            raise UnknownTopicOrPartition(f"topics {', '.join(unknown)} do not exist")

    def _delete_topic(self, topic: Topic) -> None:
        name = topic.name
        offsets = {
            group: [place for place in places if place.topic == name]
            for group, places in self.offsets.items()
        }
        self.storage.remove_topic(topic, offsets)
        del self.topics[name]
        for group, gone in offsets.items():
            for committed in gone:
                del self.offsets[group][committed]
        for transaction in self.transactions.values():
            transaction.leave_out(topic.partitions)
        for partition in topic.partitions:
            del self.partitions[partition.name]
            partition.deleted = True
            # Waiting readers learn that the topic is deleted.
            partition.notify()
        self._topics_changed({name})

    def append(
        self, batches: Sequence[Outgoing], transaction: Transaction | None = None
    ) -> list[int]:
        """Append batches; return the offset after each batch.

        Raises ProduceFailed: then nothing was written to the partitions that it names.
        """
        errors: dict[TopicPartition, Exception] = {}
        checked: list[tuple[Partition, Batch, int]] = []
        for index, outgoing in enumerate(batches):
            try:
                if outgoing.partition[0] in INTERNAL:
                    raise LogError(
                        f"topic {outgoing.partition[0]} is internal to the log: write to another "
                        "one"
                    )
                partition = self.partition(outgoing.partition)
                checked.append(
                    (partition, outgoing.batch, partition.check(outgoing.batch, self._clock))
                )
            except LogError as error:
                name = TopicPartition(*outgoing.partition)
                before = sum(
                    len(other.batch) for other in batches[:index] if other.partition == name
                )
                # Like Kafka, refuse all batches of this partition, and write the other partitions.
                errors[name] = _both(errors.get(name), error, before)
        kind, pid = (DATA, NO_PRODUCER) if transaction is None else (TRANSACTIONAL, transaction.pid)
        ends: dict[Partition, int] = {}
        behind: list[int] = []
        added: list[tuple[Partition, Segment, Batch]] = []
        for partition, batch, size in checked:
            if errors and partition.name in errors:
                continue
            # The next batch for the same partition continues at the end of the previous batch.
            base = ends.get(partition, partition.end)
            count = len(batch)
            ends[partition] = end = base + count
            behind.append(end)
            # An empty batch gets no segment.
            if count:
                timestamps = (
                    [self._clock()] * count
                    if partition.topic.settings.append_time
                    else batch.timestamps
                )
                stored = Batch(
                    batch.keys, batch.values, timestamps, batch.headers, range(base, end)
                )
                added.append(
                    (
                        partition,
                        Segment(base, end, kind=kind, pid=pid, count=count, size=size),
                        stored,
                    )
                )
        if added:
            try:
                self.storage.append(added)
            except LogError as error:
                raise ProduceFailed(
                    {
                        **errors,
                        **dict.fromkeys((partition.name for partition, _, _ in added), error),
                    }
                ) from error
            self._take_in(added, transaction)
        if errors:
            raise ProduceFailed(errors)
        return behind

    def _take_in(
        self, added: Sequence[tuple[Partition, Segment, Batch]], transaction: Transaction | None
    ) -> None:
        # The first append opens the transaction, and starts its timeout.
        if transaction is not None and not transaction.partitions:
            self._start_timer(transaction)
        for partition, segment, _ in added:
            partition.add(segment)
            if transaction is not None:
                transaction.partitions[partition] = None
            if partition.topic.settings.cleaned:
                partition.grown += segment.size + _RECORD_BYTES * segment.count
                self._grown(partition)
        for partition, _, _ in added:
            # Notify after all partitions are in memory: a reader must see the whole append.
            partition.notify()

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit offsets outside of transactions. Raises StorageFull, LogError."""
        self.storage.end((), group_id, offsets)
        self.offsets.setdefault(group_id, {}).update(offsets)

    def commit(
        self,
        transaction: Transaction,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Make a transaction and offsets visible at once.

        Raises StorageFull, LogError: then the transaction is still open.
        """
        self._end(transaction, COMMIT, group_id, offsets)

    def abort(self, transaction: Transaction) -> None:
        """Abort a transaction; none of its records ever becomes visible.

        Raises StorageFull, LogError: then the transaction is still open.
        """
        self._end(transaction, ABORT, "", {})

    def _end(
        self,
        transaction: Transaction,
        kind: int,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        markers = [
            (partition, Segment(partition.end, partition.end + 1, kind=kind, pid=transaction.pid))
            for partition in transaction.partitions
        ]
        self.storage.end(markers, group_id, offsets)
        # The outcome is already on disk, and the steps below cannot fail.
        for partition, marker in markers:
            partition.add(marker)
        if offsets:
            self.offsets.setdefault(group_id, {}).update(offsets)
        transaction.clear()
        for partition, _ in markers:
            partition.notify()

    def begin_transactional(self, name: str, timeout_ms: int) -> Transaction:
        """Take over a transactional id: abort its open transaction, fence all earlier producers.

        Raises StorageFull, LogError.
        """
        transaction = self.transactions.get(name)
        if transaction is None:
            transaction = Transaction(name, self._next_pid, -1, timeout_ms)
        if transaction.partitions:
            self.abort(transaction)
        epoch = transaction.epoch + 1
        # Write before memory changes: after a crash the old epoch must not return.
        self.storage.put_transactional_id(TransactionalId(name, transaction.pid, epoch, timeout_ms))
        self.transactions[name] = transaction
        self._next_pid = max(self._next_pid, transaction.pid + 1)
        transaction.epoch = epoch
        transaction.timeout_ms = timeout_ms
        transaction.doom = None
        return transaction

    def _start_timer(self, transaction: Transaction) -> None:
        loop = asyncio.get_running_loop()
        transaction.timer = loop.call_later(
            transaction.timeout_ms / 1000, self._expire, transaction
        )

    def _expire(self, transaction: Transaction) -> None:
        # Set this first: even if the abort fails, no more records may join this transaction.
        transaction.doom = f"it was open for longer than {transaction.timeout_ms} ms"
        try:
            self.abort(transaction)
        except LogError as error:
            _logger.warning(
                "transaction of %s has timed out, but could not be aborted yet: %s",
                transaction.name,
                error,
            )
            # Try again after another timeout.
            self._start_timer(transaction)

    def stop(self) -> None:
        """Stop all timers."""
        for transaction in self.transactions.values():
            transaction.stop_timer()

    def truncate(self, partition: Partition, before: int) -> None:
        """Move the begin of a partition to `before`."""
        self.storage.set_begin(partition, before)
        self.storage.discard(partition, partition.drop_before(before))
        partition.notify()


def _restore(partition: Partition, bounds: tuple[int, int], segments: Sequence[Segment]) -> None:
    begin, end = bounds
    for segment in segments:
        partition.add(segment)
    partition.begin = begin
    # The last segments may have been deleted, but their offsets must not be used again.
    partition.end = max(partition.end, end)


def _both(first: Exception | None, second: LogError, before: int) -> Exception:
    """Return one error for two batches of a partition, with the failed records of both."""
    if not isinstance(second, RecordTooLarge | InvalidRecord):
        return first or second
    numbers = [before + number for number in second.records]
    if first is None:
        return type(second)(str(second), numbers)
    if isinstance(first, RecordTooLarge | InvalidRecord) and type(first) is type(second):
        return type(first)(str(first), [*first.records, *numbers])
    return first
