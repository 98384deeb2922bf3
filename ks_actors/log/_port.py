"""The port to a log: what the runtime needs, whether Kafka or the embedded log does it.

One conformance suite (tests/log) runs against every implementation. All methods are called on the event loop; `async` ones may wait, plain ones
never block. Every wait has a deadline and ends in a `LogError` that says what it waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import msgspec

from ks_actors.log._types import Assigned, Lost, Revoked

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ks_actors.log._lease import Lease
    from ks_actors.log._types import (
        Fetched,
        GroupMetadata,
        IsolationLevel,
        MemberAssignment,
        MemberInfo,
        NewTopic,
        OffsetAndMetadata,
        Outage,
        Outgoing,
        TopicDescription,
        TransactionScope,
    )
    from ks_actors.records import TopicPartition

MembershipEvent: TypeAlias = Assigned | Revoked | Lost


class Fetcher(Protocol):
    """Read partitions from positions of its own."""

    def assign(self, positions: Mapping[TopicPartition, int], /) -> None:
        """Read exactly these partitions from these offsets; what is paused stays so, positions of partitions that stay are set anew."""
        ...

    def seek(self, partition: TopicPartition, offset: int, /) -> None:
        """Read on from `offset`; what is in flight for the partition is dropped."""
        ...

    def position(self, partition: TopicPartition, /) -> int:
        """Return the offset that the partition will be read from next; raises KeyError when it is not assigned."""
        ...

    def pause(self, partitions: Iterable[TopicPartition], /) -> None:
        """Leave partitions out of fetches until `resume`."""
        ...

    def resume(self, partitions: Iterable[TopicPartition], /) -> None:
        """Fetch partitions again, from where they were paused."""
        ...

    async def fetch(self, *, max_wait_ms: int, max_records: int = 10_000) -> Sequence[Fetched]:
        """Wait for records and return them, at most `max_records` of each partition; an empty sequence when none came within `max_wait_ms`.

        Positions have moved behind what is returned. Raises OffsetOutOfRange (naming partition, position and the range there is),
        UnknownTopicOrPartition, LogClosed. Cancelling loses nothing: positions stay.
        """
        ...

    async def close(self) -> None:
        """End; a waiting fetch raises LogClosed."""
        ...


class Writer(Protocol):
    """Write, idempotently: a batch that was acknowledged is there once, in the order of sends per partition."""

    async def send(self, batches: Sequence[Outgoing], /) -> Sequence[int]:
        """Append all batches; return the offset behind each one's last record, in order.

        Raises ProduceFailed, which has an error per partition that got nothing of this call; the others are written. Where it is about single records
        (RecordTooLarge, InvalidRecord) the error tells which, if the log can know.
        """
        ...

    async def close(self) -> None:
        """End; an open transaction is aborted."""
        ...


class Producer(Writer, Protocol):
    """Write without transactions. One with a lease writes only while that holds: what is to be sent waits for it."""

    def abandon(self) -> None:
        """Send nothing more of what `send` was given, and repeat nothing. Calls that wait raise, when it is known what came of what was sent."""
        ...


class TransactionalProducer(Writer, Protocol):
    """Write in transactions of which at most one is open. `send` begins one if none is.

    A producer that was overtaken by a newer one of its transactional id gets Fenced from every call.
    """

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, /) -> None:
        """Make what was sent, and `offsets` as the group's, visible at once.

        Raises Fenced, IllegalGeneration (the group has moved on), TransactionAborted: then nothing of it is or will be visible.
        """
        ...

    async def abort(self) -> None:
        """Make sure that nothing sent since the last commit ever becomes visible. Does nothing when no transaction is open."""
        ...


class Membership(Protocol):
    """A place in a group."""

    @property
    def group(self) -> GroupMetadata:
        """The group as of the last event."""
        ...

    async def event(self) -> MembershipEvent:
        """Wait for what happens next to the membership. Raises LogClosed after `leave`."""
        ...

    def revoked(self, user_data: bytes | None = None, topics: Collection[str] | None = None, /) -> None:
        """Say that the partitions of the last Revoked are let go of: the rebalance may go on.

        User data and topics that are given take the place of those that the group was told before.
        """
        ...

    def rejoin(self, user_data: bytes, topics: Collection[str] | None = None, /) -> None:
        """Ask for a new assignment, with new user data, and new topics if any are given."""
        ...

    async def committed(self, partitions: Iterable[TopicPartition], /) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return what the group has committed, without the partitions that it never did. Waits for open transactions (require_stable)."""
        ...

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        """Commit offsets outside of transactions. Raises IllegalGeneration when the group has moved on: nothing is committed then."""
        ...

    async def leave(self) -> None:
        """Leave the group at once, also with an instance id, so that others need not wait for a timeout."""
        ...

    async def close(self) -> None:
        """End. Who has an instance id keeps its place and its partitions for when it comes again within the session timeout; others leave."""
        ...


Assignor: TypeAlias = "Callable[[Sequence[MemberInfo], Mapping[str, int]], Mapping[str, MemberAssignment]]"
"""Called on the leader, in any thread: members, partition counts of all their topics -> assignment by member id. Depends on nothing else."""


class NewMember(msgspec.Struct, frozen=True, kw_only=True):
    """Who enters a group: what it reads, what it tells the leader, and the `assignor` for the case that it is the leader.

    `instance_id` makes it a static member: who comes with the same one has its place and its partitions, at once and without a rebalance, and it is
    thrown out. With `takes_over` members of the same client id are of a process that has died, and are thrown out now, not by their session timeouts;
    so are other processes' members of that kind when they die, as far as the log can tell: Kafka's can for processes of this machine. Then what the
    member's `transactional_id` has left open is aborted, too, and what it has left pending in the `transaction_scope` is ended.

    Who does not get on for `rebalance_timeout_ms` loses its place, so that others get what it has: because the loop stands still, or because
    `stuck`, which is asked again and again, tells of so many seconds. A log in this process cannot look at its own loop while that stands still:
    there only a rebalance that waits for so long costs the place.

    The `lease` is extended as long as the group knows the member, and ends with the membership.
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
    """A log that may be out of reach. It may be asked before it has started; one that is in this process never is."""

    def outages(self) -> Sequence[Outage]:
        """Return what does not answer at this moment, the longest first; nothing when all that is asked answers."""
        ...


@runtime_checkable
class WritesBytes(Protocol):
    """A log that makes bytes of records as record batches have them: what is that already is best left as it is. Others get records by columns."""

    @property
    def batch_bytes(self) -> int:
        """How many bytes of records it writes at most as one."""
        ...


class Log(Protocol):
    """A log: topics, and those who read and write them."""

    async def start(self) -> None:
        """Connect, or open; may be called once."""
        ...

    async def close(self) -> None:
        """End all that was made from this log, and release what it holds."""
        ...

    def fetcher(self, *, client_id: str, isolation: IsolationLevel) -> Fetcher:
        """Return a new reader that has no partitions yet."""
        ...

    async def producer(self, *, client_id: str, lease: Lease | None = None, topics: Collection[str] = ()) -> Producer:
        """Return a new idempotent producer, which writes only while the lease holds, if it has one.

        `topics` are those that it is going to write to, as far as that is known: what there is to find out about them need not wait for records.
        """
        ...

    async def transactional_producer(
        self, transactional_id: str, *, client_id: str, timeout_ms: int, scope: TransactionScope | None = None
    ) -> TransactionalProducer:
        """Return a producer of that id, fence all earlier ones and abort what they left open.

        A transaction that stays open for longer than `timeout_ms` is aborted. Where a log can fail in a way that leaves a transaction ended here and
        pending there, it is in the `scope` that the last one of the id is looked for, and ended as it was.
        """
        ...

    async def join(self, group_id: str, member: NewMember, /) -> Membership:
        """Enter a group; the first event is Assigned. Membership does not depend on the caller's loop being free."""
        ...

    async def create_topics(self, topics: Iterable[NewTopic], /) -> None:
        """Create topics. Raises TopicExists (then the others were created all the same)."""
        ...

    async def delete_topics(self, names: Iterable[str], /) -> None:
        """Delete topics. Raises UnknownTopicOrPartition."""
        ...

    async def describe_topics(self, names: Iterable[str] | None = None, /, *, configs: bool = True) -> Mapping[str, TopicDescription]:
        """Return those of the topics that exist; all topics for None. Without `configs` theirs are left empty, which may be faster."""
        ...

    async def delete_records(self, before: Mapping[TopicPartition, int], /) -> None:
        """Delete all records below the given offsets."""
        ...

    async def begin_offsets(self, partitions: Iterable[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """Return the first offset that is there, per partition. Raises UnknownTopicOrPartition."""
        ...

    async def end_offsets(self, partitions: Iterable[TopicPartition], isolation: IsolationLevel, /) -> Mapping[TopicPartition, int]:
        """Return the offset behind the last record (READ_COMMITTED: the last stable offset). Raises UnknownTopicOrPartition."""
        ...

    async def offsets_for_times(self, times: Mapping[TopicPartition, int], /) -> Mapping[TopicPartition, int]:
        """Return the first offset at or after each time (ms); the end offset where there is none."""
        ...
