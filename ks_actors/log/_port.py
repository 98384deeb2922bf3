"""The port to a log: the runtime's requirements for Kafka and the embedded log.

One conformance suite (tests/ks_actors/log) runs against every implementation. Call all methods on
the event loop; `async` methods may wait, plain methods never block. Every wait has a deadline, and
at the deadline raises a `LogError` that names the awaited operation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import msgspec

from ks_actors.log._lease import Lease
from ks_actors.log._types import (
    Assigned,
    IsolationLevel,
    Lost,
    MemberAssignment,
    MemberInfo,
    Revoked,
    TransactionScope,
)

if TYPE_CHECKING:
    from ks_actors.log._types import (
        AllowedOperations,
        Fetched,
        GroupMetadata,
        NewTopic,
        OffsetAndMetadata,
        Outage,
        Outgoing,
        TopicDescription,
    )
    from ks_actors.records import TopicPartition

MembershipEvent: TypeAlias = Assigned | Revoked | Lost


class Fetcher(Protocol):
    """A reader of partitions, with its own positions."""

    def assign(self, positions: Mapping[TopicPartition, int], /) -> None:
        """Read exactly these partitions from these offsets.

        Paused partitions stay paused; partitions that remain get the new positions.
        """
        ...

    def seek(self, partition: TopicPartition, offset: int, /) -> None:
        """Continue from `offset`; responses in flight for the partition are dropped."""
        ...

    def position(self, partition: TopicPartition, /) -> int:
        """Return the partition's next offset; raises KeyError when it is not assigned."""
        ...

    def pause(self, partitions: Iterable[TopicPartition], /) -> None:
        """Leave partitions out of fetches until `resume`."""
        ...

    def resume(self, partitions: Iterable[TopicPartition], /) -> None:
        """Fetch partitions again, from where they were paused."""
        ...

    async def fetch(self, *, max_wait_ms: int, max_records: int = 10_000) -> Sequence[Fetched]:
        """Wait for records and return them, at most `max_records` of each partition.

        Returns an empty sequence when none arrive within `max_wait_ms`. Positions move past the
        returned records. A fetch that waits notices `assign`, `seek` and `resume`. Raises
        OffsetOutOfRange (with partition, position and the valid range),
        UnknownTopicOrPartition, LogClosed. A cancellation loses nothing: positions stay.
        """
        ...

    def describe(self, partition: TopicPartition, /) -> str:
        """Return the state of a partition's fetches in one line, for a report of a stall."""
        ...

    async def close(self) -> None:
        """Close; a waiting fetch raises LogClosed."""
        ...


class Writer(Protocol):
    """An idempotent writer.

    An acknowledged batch is written exactly once, and each partition keeps the order of sends.
    """

    async def send(self, batches: Sequence[Outgoing], /) -> Sequence[int]:
        """Append all batches; return the offset after each batch's last record, in order.

        Raises ProduceFailed, with an error per partition that got nothing of this call; the other
        partitions are written. For errors of single records (RecordTooLarge, InvalidRecord) the
        error names the records, if the log knows them.
        """
        ...

    def abandon(self) -> None:
        """Send and repeat nothing more of earlier `send` calls.

        Waiting calls raise an error once the outcome of the sent batches is known. A transaction
        that lacks batches is not committed.
        """
        ...

    async def close(self) -> None:
        """Close; abort an open transaction."""
        ...


class Producer(Writer, Protocol):
    """A writer without transactions.

    With a lease it writes only while the lease holds; until then records wait.
    """


class TransactionalProducer(Writer, Protocol):
    """A writer of transactions, with at most one open; `send` begins one if needed.

    If a newer producer has the same transactional id, every call raises Fenced.
    """

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, /
    ) -> None:
        """Make the sent records and the group's `offsets` visible at once.

        Raises Fenced, IllegalGeneration (the group has a new generation), TransactionAborted: then
        nothing of the transaction is or becomes visible.
        """
        ...

    async def abort(self) -> None:
        """Make sure that records sent since the last commit never become visible.

        Does nothing when no transaction is open.
        """
        ...


class Membership(Protocol):
    """A membership of a group."""

    @property
    def group(self) -> GroupMetadata:
        """The group as of the last event."""
        ...

    async def event(self) -> MembershipEvent:
        """Wait for the next event of the membership. Raises LogClosed after `leave`."""
        ...

    def revoked(
        self, user_data: bytes | None = None, topics: Collection[str] | None = None, /
    ) -> None:
        """Report that the partitions of the last Revoked are released: the rebalance may continue.

        User data and topics, if given, replace the member's previous user data and topics.
        """
        ...

    def rejoin(self, user_data: bytes, topics: Collection[str] | None = None, /) -> None:
        """Ask for a new assignment, with new user data, and new topics if given."""
        ...

    async def committed(
        self, partitions: Iterable[TopicPartition], /
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets, without partitions that have no offset.

        Waits for open transactions (require_stable).
        """
        ...

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        """Commit offsets outside of transactions.

        Raises IllegalGeneration when the group has a new generation: then nothing is committed.
        """
        ...

    async def leave(self) -> None:
        """Leave the group at once, even with an instance id, so that others need not wait."""
        ...

    async def close(self) -> None:
        """Close.

        A member with an instance id keeps its place and partitions, if it returns within the
        session timeout; a member without an instance id leaves the group.
        """
        ...


Assignor: TypeAlias = Callable[
    [Sequence[MemberInfo], Mapping[str, int]], Mapping[str, MemberAssignment]
]
"""The assignment function, called on the leader, in any thread.

The function gets the members, and the partition counts of all their topics. It returns assignments
by member id, which depend on nothing else.
"""


class NewMember(msgspec.Struct, frozen=True, kw_only=True):
    """A new member of a group: its topics, its user data for the leader, and its `assignor`.

    The `assignor` is called if the member is the leader.

    `instance_id` makes this a static member. A new member with the same instance id replaces the
    old member, and gets its partitions at once, without a rebalance. With `takes_over`, members
    with the same client id belong to a dead process and are removed at once, not by their session
    timeouts. Members with `takes_over` in other processes are removed when those processes die, if
    the log notices it: a Kafka log notices it for processes of this machine. When such a member
    is removed, the open transaction of its `transactional_id` is aborted, and pending parts in the
    `transaction_scope` are completed.

    A member without progress for `rebalance_timeout_ms` is removed, so that others get its
    partitions. The reason may be a blocked loop, or the function `stuck`, which is called
    repeatedly and returns the seconds without progress. A log in this process cannot check its own
    loop while the loop is blocked: there a member is removed only if a rebalance waits that long.

    The `lease` is extended while the group knows the member, and ends with the membership.
    """

    client_id: str
    topics: Iterable[str]
    user_data: bytes
    assignor: Assignor
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    takes_over: bool = False
    transactional_id: str | None = None
    transaction_scope: TransactionScope | None = None
    stuck: Callable[[], float] | None = None
    lease: Lease | None = None


@runtime_checkable
class TellsOutages(Protocol):
    """A log that may be unreachable; a log in this process is always reachable.

    You may call `outages` before the start.
    """

    def outages(self) -> Sequence[Outage]:
        """Return the current outages, the longest first; nothing when all brokers serve."""
        ...


@runtime_checkable
class TellsOperations(Protocol):
    """A log that has permissions, and reports them."""

    async def allowed_operations(
        self, topics: Iterable[str], group_id: str, transactional_id: str | None = None, /
    ) -> AllowedOperations:
        """Return the permitted operations on topics, a group, a transactional id and the cluster.

        The transactional id should be unused.
        """
        ...


@runtime_checkable
class WritesBytes(Protocol):
    """A log that encodes records into the bytes of record batches.

    If records are already encoded, pass their bytes on. Other logs get records as columns.
    """

    @property
    def batch_bytes(self) -> int:
        """The most bytes of records in one write."""
        ...


class Log(Protocol):
    """A log: its topics, and their readers and writers."""

    async def start(self) -> None:
        """Connect, or open; call it once."""
        ...

    async def close(self) -> None:
        """Close everything made from this log, and release its resources."""
        ...

    def fetcher(
        self, *, client_id: str, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> Fetcher:
        """Return a new fetcher without partitions.

        By default it returns no records of open and of aborted transactions.
        """
        ...

    async def producer(
        self, *, client_id: str, lease: Lease | None = None, topics: Collection[str] = ()
    ) -> Producer:
        """Return a new idempotent producer; with a lease, it writes only while the lease holds.

        `topics` are the known target topics: they are looked up before the first records.
        """
        ...

    async def transactional_producer(
        self,
        transactional_id: str,
        *,
        client_id: str,
        timeout_ms: int,
        scope: TransactionScope | None = None,
    ) -> TransactionalProducer:
        """Return a producer of that id; fence all earlier producers and abort their transactions.

        A transaction that stays open for longer than `timeout_ms` is aborted. After some failures
        of a log, a transaction may have ended in some partitions, and be pending in others. So the
        id's last transaction is looked up in the `scope`, and completed with the same outcome.
        """
        ...

    async def join(self, group_id: str, member: NewMember, /) -> Membership:
        """Join a group; the first event is Assigned.

        Membership does not depend on the caller's loop being free.
        """
        ...

    async def create_topics(self, topics: Iterable[NewTopic], /) -> None:
        """Create topics.

        Raises TopicExists; the other topics are created nevertheless.
        """
        ...

    async def delete_topics(self, names: Iterable[str], /) -> None:
        """Delete topics. Raises UnknownTopicOrPartition."""
        ...

    async def describe_topics(
        self, names: Iterable[str] | None = None, /, *, configs: bool = True
    ) -> Mapping[str, TopicDescription]:
        """Return the topics that exist among `names`; for None, all topics.

        Without `configs`, the configs of the topics are left empty, which may be faster.
        """
        ...

    async def delete_records(self, before: Mapping[TopicPartition, int], /) -> None:
        """Delete all records below the given offsets."""
        ...

    async def begin_offsets(
        self, partitions: Iterable[TopicPartition], /
    ) -> Mapping[TopicPartition, int]:
        """Return the first available offset of each partition. Raises UnknownTopicOrPartition."""
        ...

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], isolation: IsolationLevel, /
    ) -> Mapping[TopicPartition, int]:
        """Return the offset after the last record (READ_COMMITTED: the last stable offset).

        Raises UnknownTopicOrPartition.
        """
        ...

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], /
    ) -> Mapping[TopicPartition, int]:
        """Return the first offset at or after each time (ms).

        A partition without such a record gets its end offset.
        """
        ...


class BaseMembership(Membership):
    """The base of this package's memberships, with defaults for methods in which groups differ."""

    @property
    def committing(self) -> GroupMetadata:
        """The group metadata to send, at this moment, with a transaction that commits offsets.

        It differs from `group` if, during a rebalance, the group no longer accepts commits of the
        previous generation.
        """
        return self.group


class BaseLog(Log):
    """The base of this package's logs, with defaults for methods in which logs differ."""

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, to tell it from other clusters with topics of the same names.

        Empty before the start, for a log that is not a cluster, and if the brokers report no id.
        """
        return ""

    def take_client_id(self, client_id: str, /) -> None:
        """Use this client id in requests that belong to no reader or writer.

        Does nothing if the log was made with a client id, or uses no client ids.
        """

    async def check_new_topics(self, topics: Iterable[NewTopic], /) -> None:
        """Raise the first error of `create_topics`, if the log can foresee it; create nothing.

        Topics that exist are no error.
        """

    async def delete_read(self, before: Mapping[TopicPartition, int], /) -> None:
        """Delete records that fetchers of this log have read, below the given offsets.

        A log that may lose records skips partitions without a fetcher, and raises LogTruncated when
        the log of a partition has lost records that were read. Then no record is deleted at that
        leader: new records may have replaced the lost records.
        """
        await self.delete_records(before)


def cluster_of(log: Log) -> str:
    """Return the id of a log's cluster; empty if it has none, or none is known."""
    return log.cluster_id if isinstance(log, BaseLog) else ""
