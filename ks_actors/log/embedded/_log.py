"""The embedded log, in this process."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar, final

from ks_actors._errors import ConfigError, LogClosed, LogError, OffsetOutOfRange, TopicExists
from ks_actors.lifecycle import in_thread
from ks_actors.log._groups import GroupMember
from ks_actors.log._port import BaseLog
from ks_actors.log._types import GroupMetadata, IsolationLevel, TopicDescription
from ks_actors.log.embedded._broker import Broker
from ks_actors.log.embedded._faults import Faults
from ks_actors.log.embedded._fetcher import EmbeddedFetcher
from ks_actors.log.embedded._group import Groups
from ks_actors.log.embedded._housekeeping import Housekeeper
from ks_actors.log.embedded._member import EmbeddedMembership
from ks_actors.log.embedded._producer import EmbeddedProducer, EmbeddedTransactionalProducer
from ks_actors.log.embedded._refusals import check_transactional
from ks_actors.log.embedded._storage import MemoryStorage
from ks_actors.log.embedded._topic import check_topics
from ks_actors.log.embedded._topic_configs import TopicConfigs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ks_actors.log._lease import Lease
    from ks_actors.log._port import NewMember
    from ks_actors.log._types import NewTopic, OffsetAndMetadata, TransactionScope
    from ks_actors.log.embedded._faults import Operation
    from ks_actors.log.embedded._partition import Partition
    from ks_actors.log.embedded._storage import Storage
    from ks_actors.records import TopicPartition

# This offset means to delete records up to the end.
_ALL = -1
T = TypeVar("T")
P = TypeVar(
    "P", EmbeddedFetcher, EmbeddedProducer, EmbeddedTransactionalProducer, EmbeddedMembership
)
_Part: TypeAlias = (
    EmbeddedFetcher | EmbeddedProducer | EmbeddedTransactionalProducer | EmbeddedMembership
)


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


@final
class EmbeddedLog(BaseLog):
    """A log with Kafka's semantics in this process: in memory, or in a directory.

    One process at a time may use a directory. Acknowledged changes survive the process, however the
    process ends; an ended transaction survives completely or not at all. (A crash of the machine
    may lose the latest changes, as files are not synced.)

    These topic settings take effect: cleanup.policy, retention.ms, retention.bytes,
    max.message.bytes, delete.retention.ms, min.compaction.lag.ms, message.timestamp.type,
    message.timestamp.before.max.ms and message.timestamp.after.max.ms. Retention and times have no
    limit unless it is set. Other settings are only checked, as Kafka does. `clock` gives the time
    in ms since the epoch. If the disk is full, a write fails and changes nothing; later calls work
    again when there is room.

    A `read_only` log takes no lock of the directory: it shows the data as of the start, even while
    another process writes, and each call that would change data raises LogError. Records that are
    deleted meanwhile may be unreadable: then open a new log, which finds the remaining records. Use
    a log with `async with`, or with `start` and `close`, on one event loop.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        clock: Callable[[], int] = _wall_clock,
        read_only: bool = False,
    ) -> None:
        if directory is not None and not isinstance(directory, Path):
            raise TypeError(
                f"directory is {directory!r:.200}: give a pathlib.Path, or None for a log in memory"
            )
        self._directory: Path | None = directory
        self._read_only: bool = read_only
        self._storage: Storage = _storage(directory, read_only=read_only)
        self._broker: Broker = Broker(self._storage, self._topics_changed, self._grown, clock)
        self._groups: Groups = Groups(self._broker)
        self._faults: Faults = Faults()
        self._housekeeper: Housekeeper = Housekeeper(self._broker, clock)
        self._parts: dict[_Part, None] = {}
        self._state = "not started"

    def _topics_changed(self, names: set[str]) -> None:
        self._groups.topics_changed(names)

    def _grown(self, partition: Partition) -> None:
        self._housekeeper.grown(partition)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return (
            "<EmbeddedLog "
            f"{'in memory' if self._directory is None else f'in {self._directory}'}, {self._state}>"
        )

    @property
    def directory(self) -> Path | None:
        """The directory on disk; None in memory."""
        return self._directory

    async def start(self) -> None:
        """Open the log; call it once.

        Raises LogError (another process has the directory), LogCorrupted, StorageFull.
        """
        if self._state != "not started":
            raise LogError(f"a log can be started only once, and this one is {self._state}")
        self._state = "starting"
        try:
            self._broker.take_in(
                await self._blocking(self._storage.open, undo=self._storage.close),
                read_only=self._read_only,
            )
        except BaseException:
            self._state = "closed"
            raise
        self._state = "started"

    async def close(self) -> None:
        """Close all fetchers, producers and memberships, and release the directory.

        Open transactions are aborted. Does nothing when already closed.
        """
        if self._state != "started":
            self._state = "closed"
            return
        self._state = "closed"
        for part in tuple(self._parts):
            part.shut()
        self._broker.stop()
        self._groups.stop()
        await self._housekeeper.close()
        await self._blocking(self._storage.close)

    async def _blocking(self, call: Callable[[], T], undo: Callable[[], None] | None = None) -> T:
        """Run `call` to its end, in a thread if it may take long.

        If the caller is cancelled, run `undo` after `call`.
        """
        if self._directory is None:
            return call()
        future = in_thread(call)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if undo is not None:
                future.add_done_callback(lambda done: done.exception() or undo())
            raise

    def _check(self) -> None:
        if self._state != "started":
            remedy = ": await start(), or use `async with`" if self._state == "not started" else ""
            raise LogClosed(f"the log is {self._state}{remedy}")

    def _add(self, part: P) -> P:
        self._parts[part] = None
        return part

    def _remove(self, part: _Part) -> None:
        del self._parts[part]

    def fetcher(
        self, *, client_id: str, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> EmbeddedFetcher:
        """Return a new fetcher without partitions."""
        self._check()
        committed = isolation is IsolationLevel.READ_COMMITTED
        return self._add(
            EmbeddedFetcher(
                self._broker, self._faults, client_id, committed=committed, closed=self._remove
            )
        )

    async def producer(
        self,
        *,
        client_id: str,
        lease: Lease | None = None,
        topics: Collection[str] = (),  # noqa: ARG002 - there is nothing to be found out about them
    ) -> EmbeddedProducer:
        """Return a new producer; with a lease it writes only while the lease holds."""
        await self._begin("producer")
        return self._add(
            EmbeddedProducer(self._broker, self._faults, client_id, self._remove, lease=lease)
        )

    async def transactional_producer(
        self,
        transactional_id: str,
        *,
        client_id: str,
        timeout_ms: int,
        scope: TransactionScope | None = None,  # noqa: ARG002 - transactions end here at a stroke
    ) -> EmbeddedTransactionalProducer:
        """Return a producer of that id; fence all earlier producers and abort their transactions.

        Transactions from before the opening of this log are aborted too. A transaction that stays
        open for longer than `timeout_ms` is aborted. Parts of a transaction never stay pending, so
        `scope` is not used. Raises StorageFull, and LogError for an id or a timeout that Kafka
        would reject.
        """
        await self._begin("transactional_producer")
        check_transactional(transactional_id, timeout_ms)
        transaction = self._broker.begin_transactional(transactional_id, timeout_ms)
        return self._add(
            EmbeddedTransactionalProducer(
                self._broker,
                self._faults,
                client_id,
                transaction,
                check_commit=self._groups.check_commit,
                closed=self._remove,
            )
        )

    async def join(self, group_id: str, member: NewMember, /) -> EmbeddedMembership:
        """Enter a group; the first event is Assigned.

        The group rebalances when members join, leave or rejoin, and when one of their topics is
        created, grows, or is deleted. It does not rebalance when a member replaces a member with
        the same instance id, or returns within the session timeout after a close. Members in this
        process cannot die unnoticed, and `stuck` is not called: when the loop blocks, all members
        block.
        """
        await self._begin("join")
        group = self._groups.get(group_id)
        made = EmbeddedMembership(group, self._faults, member, closed=self._remove)
        if member.takes_over:
            group.bury(member.client_id)
        made.join()
        return self._add(made)

    async def create_topics(self, topics: Iterable[NewTopic], /) -> None:
        """Create topics.

        Raises TopicExists (the other topics are created nevertheless); ConfigError, LogError for an
        invalid topic (then no topic is created); StorageFull.
        """
        await self._begin("create_topics")
        topics = tuple(topics)
        check_topics(topics, self._broker.topics)
        existing: list[str] = []
        for topic in topics:
            try:
                self._broker.create_topic(topic)
            except TopicExists:
                existing.append(topic.name)
        if existing:
            raise TopicExists(f"topics {', '.join(existing)} already exist")

    async def check_new_topics(self, topics: Iterable[NewTopic], /) -> None:
        """Raise the first error of `create_topics`, ConfigError or LogError; create no topic.

        Topics that exist are no error.
        """
        await self._begin("describe_topics")
        existing = self._broker.topics
        check_topics([topic for topic in topics if topic.name not in existing], existing)

    async def create_partitions(self, counts: Mapping[str, int], /) -> None:
        """Raise the number of partitions of each topic; the topics' groups rebalance.

        Raises UnknownTopicOrPartition, and LogError for a number that is not larger (the other
        topics grow nevertheless); StorageFull.
        """
        await self._begin("create_partitions")
        self._broker.create_partitions(counts)

    async def delete_topics(self, names: Iterable[str], /) -> None:
        """Delete topics.

        Raises UnknownTopicOrPartition (the other topics are deleted nevertheless), StorageFull.
        """
        await self._begin("delete_topics")
        self._broker.delete_topics(tuple(names))

    async def describe_topics(
        self, names: Iterable[str] | None = None, /, *, configs: bool = True
    ) -> Mapping[str, TopicDescription]:
        """Return the topics that exist among `names`; for None, all topics.

        Iterating over the configs gives only the settings that were set; a lookup also finds
        Kafka's defaults. Without `configs`, the configs are empty.
        """
        await self._begin("describe_topics")
        topics = self._broker.topics
        found = [topics[name] for name in (topics if names is None else names) if name in topics]
        return {
            topic.name: TopicDescription(
                topic.name,
                len(topic.partitions),
                TopicConfigs(topic.configs) if configs else {},
                self._broker.id_of(topic),
            )
            for topic in found
        }

    async def delete_records(self, before: Mapping[TopicPartition, int], /) -> None:
        """Delete all records below the given offsets; -1 means all records.

        Raises UnknownTopicOrPartition, OffsetOutOfRange (then no record is deleted), StorageFull.
        """
        await self._begin("delete_records")
        before = {
            name: self._broker.partition(name).end if offset == _ALL else offset
            for name, offset in before.items()
        }
        for name, offset in before.items():
            partition = self._broker.partition(name)
            if not 0 <= offset <= partition.end:
                raise OffsetOutOfRange(partition.name, offset, partition.begin, partition.end)
        for name, offset in before.items():
            partition = self._broker.partition(name)
            if offset > partition.begin:
                self._broker.truncate(partition, offset)

    async def begin_offsets(
        self, partitions: Iterable[TopicPartition], /
    ) -> Mapping[TopicPartition, int]:
        """Return the first available offset per partition. Raises UnknownTopicOrPartition."""
        await self._begin("begin_offsets")
        return {name: self._broker.partition(name).begin for name in partitions}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], isolation: IsolationLevel, /
    ) -> Mapping[TopicPartition, int]:
        """Return the offset after the last record (READ_COMMITTED: the last stable offset).

        Raises UnknownTopicOrPartition.
        """
        await self._begin("end_offsets")
        found = {name: self._broker.partition(name) for name in partitions}
        committed = isolation is IsolationLevel.READ_COMMITTED
        return {
            name: partition.stable if committed else partition.end
            for name, partition in found.items()
        }

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], /
    ) -> Mapping[TopicPartition, int]:
        """Return the first offset at or after each time (ms), else the partition's end offset.

        Raises UnknownTopicOrPartition.
        """
        await self._begin("offsets_for_times")
        return {
            name: self._broker.partition(name).offset_for_time(time) for name, time in times.items()
        }

    async def group_ids(self) -> Sequence[str]:
        """Return the ids of all groups that have members or committed offsets."""
        await self._begin("group_ids")
        return self._groups.ids()

    async def group_members(self, group_id: str, /) -> Sequence[GroupMember]:
        """Return the members of a group, including absent members; all are in this process."""
        await self._begin("group_members")
        members = self._groups.get(group_id).members
        return [
            GroupMember(
                name,
                member.client_id,
                partitions=None if member.given is None else frozenset(member.given.partitions),
                user_data=member.user_data,
            )
            for name, member in members.items()
        ]

    async def remove_members(self, group_id: str, members: Iterable[GroupMember], /) -> None:
        """Remove members from a group; these members get Lost, and may join again.

        Members that have already left are ignored.
        """
        await self._begin("remove_members")
        group = self._groups.get(group_id)
        for member in members:
            if (found := group.members.get(member.member_id)) is not None:
                group.expire(found)

    async def group_offsets(self, group_id: str, /) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return all committed offsets of a group."""
        await self._begin("group_offsets")
        return dict(self._groups.get(group_id).committed())

    async def set_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        """Commit offsets for a group without members, all or none.

        Raises IllegalGeneration, UnknownTopicOrPartition, StorageFull.
        """
        await self._begin("set_group_offsets")
        self._groups.get(group_id).commit(GroupMetadata(group_id, -1, ""), offsets)

    async def _begin(self, operation: Operation) -> None:
        self._check()
        await self._faults.wait(operation)
        self._faults.before(operation)

    async def clean(self) -> None:
        """Delete the records that retention.ms and retention.bytes of topics do not keep.

        Large partitions are cleaned without a request, too. Raises StorageFull.
        """
        self._check()
        await self._housekeeper.clean()

    async def compact(self) -> None:
        """Keep only the last committed record of each key in compacted topics.

        Large partitions are compacted without a request, too. Tombstones are removed by the first
        compaction that runs `delete.retention.ms` after the first compaction that included them.
        Raises StorageFull.
        """
        self._check()
        await self._housekeeper.compact()

    def inject(
        self, operation: Operation, error: Exception, times: int = 1, *, after: bool = False
    ) -> None:
        """Make the next `times` calls of `operation` raise `error`. An aid for tests.

        The calls raise the error before they do anything. With `after` they raise it after the
        work; only calls that write accept this (`send`, `commit`, `abort` and `commit_offsets`). A
        fetch that is already waiting counts as the next call.
        """
        self._faults.order(operation, error, times=times, after=after)
        if operation == "fetch":
            for part in self._parts:
                if isinstance(part, EmbeddedFetcher):
                    part.look_again()

    def hold(self, operation: Operation) -> asyncio.Event:
        """Make calls of `operation` wait, before they do anything, until the returned event is set.

        An aid for tests.
        """
        return self._faults.hold(operation)

    def expire(self, membership: EmbeddedMembership) -> None:
        """Expel a member from its group, as if its session had timed out: it gets Lost.

        Does nothing when the member is not in the group. An aid for tests.
        """
        membership.expire()


def _storage(directory: Path | None, *, read_only: bool) -> Storage:
    if directory is None:
        if read_only:
            raise ConfigError(
                "a log in memory cannot be read by others: read_only needs a directory"
            )
        return MemoryStorage()
    # Import this only here, since a log in memory works without RocksDB.
    from ks_actors.log.embedded._rocks import RocksStorage  # noqa: PLC0415 - needs RocksDB

    return RocksStorage(directory, read_only=read_only)
