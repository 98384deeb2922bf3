"""A process's connection to a log, which a test may cut."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ks_actors.log import IsolationLevel, TellsGroups

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from ks_actors.log import (
        Fetched,
        Fetcher,
        GroupMember,
        GroupMetadata,
        Lease,
        Log,
        Membership,
        MembershipEvent,
        NewMember,
        NewTopic,
        OffsetAndMetadata,
        Outgoing,
        Producer,
        TopicDescription,
        TopicPartition,
        TransactionalProducer,
        TransactionScope,
        Writer,
    )

P = ParamSpec("P")
T = TypeVar("T")


class Connection:
    """A `Log` that delegates to another one, until it is cut like that of a dead process.

    From then on nothing gets through, and no call returns, except those that close something. The
    log notices nothing: transactions stay open, and members stay in their groups, until their
    timeouts.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._fetchers: list[Fetcher] = []
        self.memberships: list[Membership] = []
        self.is_cut: bool = False

    def cut(self) -> None:
        """Let nothing through from now on."""
        self.is_cut = True

    async def reap(self) -> None:
        """Close the open fetchers, which a log does not track."""
        for fetcher in self._fetchers:
            await fetcher.close()

    async def through(
        self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Make a call; it never returns when the connection is cut before it would."""
        if not self.is_cut:
            try:
                result = await call(*args, **kwargs)
            except Exception:
                if not self.is_cut:
                    raise
            else:
                if not self.is_cut:
                    return result
        # As in a process that is gone, the call never returns.
        await asyncio.get_running_loop().create_future()
        raise AssertionError("only a cancellation ends this wait")

    async def start(self) -> None:
        """Do nothing: the log has been started."""

    async def close(self) -> None:
        """Do nothing: the connection does not own the log."""

    def fetcher(
        self, *, client_id: str, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> Fetcher:
        """Return a new reader."""
        inner = self._log.fetcher(client_id=client_id, isolation=isolation)
        self._fetchers.append(inner)
        return _Fetcher(self, inner)

    async def producer(
        self, *, client_id: str, lease: Lease | None = None, topics: Collection[str] = ()
    ) -> Producer:
        """Return a new producer."""
        return _Producer(
            self,
            await self.through(self._log.producer, client_id=client_id, lease=lease, topics=topics),
        )

    async def transactional_producer(
        self,
        transactional_id: str,
        *,
        client_id: str,
        timeout_ms: int,
        scope: TransactionScope | None = None,
    ) -> TransactionalProducer:
        """Return a producer of the transactional id."""
        make = self._log.transactional_producer
        return _TransactionalProducer(
            self,
            await self.through(
                make, transactional_id, client_id=client_id, timeout_ms=timeout_ms, scope=scope
            ),
        )

    async def join(self, group_id: str, member: NewMember, /) -> Membership:
        """Join a group."""
        inner = await self.through(self._log.join, group_id, member)
        self.memberships.append(inner)
        return _Membership(self, inner)

    async def create_topics(self, topics: Iterable[NewTopic], /) -> None:
        """Create topics."""
        await self.through(self._log.create_topics, topics)

    async def delete_topics(self, names: Iterable[str], /) -> None:
        """Delete topics."""
        await self.through(self._log.delete_topics, names)

    async def describe_topics(
        self, names: Iterable[str] | None = None, /, *, configs: bool = True
    ) -> Mapping[str, TopicDescription]:
        """Return those of the topics that exist."""
        return await self.through(self._log.describe_topics, names, configs=configs)

    async def group_members(self, group_id: str, /) -> Sequence[GroupMember]:
        """Return the members of a group."""
        return await self.through(self._groups.group_members, group_id)

    async def group_offsets(self, group_id: str, /) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return all committed offsets of a group."""
        return await self.through(self._groups.group_offsets, group_id)

    @property
    def _groups(self) -> TellsGroups:
        assert isinstance(self._log, TellsGroups)
        return self._log

    async def delete_records(self, before: Mapping[TopicPartition, int], /) -> None:
        """Delete records."""
        await self.through(self._log.delete_records, before)

    async def begin_offsets(
        self, partitions: Iterable[TopicPartition], /
    ) -> Mapping[TopicPartition, int]:
        """Return the first offsets."""
        return await self.through(self._log.begin_offsets, partitions)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], isolation: IsolationLevel, /
    ) -> Mapping[TopicPartition, int]:
        """Return the offsets after the last records."""
        return await self.through(self._log.end_offsets, partitions, isolation)

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], /
    ) -> Mapping[TopicPartition, int]:
        """Return the first offsets at or after times."""
        return await self.through(self._log.offsets_for_times, times)


class _Fetcher:
    def __init__(self, connection: Connection, inner: Fetcher) -> None:
        self._connection = connection
        self._inner = inner

    def assign(self, positions: Mapping[TopicPartition, int], /) -> None:
        if not self._connection.is_cut:
            self._inner.assign(positions)

    def seek(self, partition: TopicPartition, offset: int, /) -> None:
        if not self._connection.is_cut:
            self._inner.seek(partition, offset)

    def position(self, partition: TopicPartition, /) -> int:
        return self._inner.position(partition)

    def pause(self, partitions: Iterable[TopicPartition], /) -> None:
        if not self._connection.is_cut:
            self._inner.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition], /) -> None:
        if not self._connection.is_cut:
            self._inner.resume(partitions)

    def describe(self, partition: TopicPartition, /) -> str:
        return self._inner.describe(partition)

    async def fetch(self, *, max_wait_ms: int, max_records: int = 10_000) -> Sequence[Fetched]:
        return await self._connection.through(
            self._inner.fetch, max_wait_ms=max_wait_ms, max_records=max_records
        )

    async def close(self) -> None:
        if not self._connection.is_cut:
            await self._inner.close()


class _Writer:
    def __init__(self, connection: Connection, inner: Writer) -> None:
        self._connection = connection
        self._writer = inner

    async def send(self, batches: Sequence[Outgoing], /) -> Sequence[int]:
        return await self._connection.through(self._writer.send, batches)

    async def close(self) -> None:
        if not self._connection.is_cut:
            await self._writer.close()


class _Producer(_Writer):
    def __init__(self, connection: Connection, inner: Producer) -> None:
        super().__init__(connection, inner)
        self._inner = inner

    def abandon(self) -> None:
        if not self._connection.is_cut:
            self._inner.abandon()


class _TransactionalProducer(_Writer):
    def __init__(self, connection: Connection, inner: TransactionalProducer) -> None:
        super().__init__(connection, inner)
        self._inner = inner

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, /
    ) -> None:
        await self._connection.through(self._inner.commit, offsets, group)

    async def abort(self) -> None:
        await self._connection.through(self._inner.abort)


class _Membership:
    def __init__(self, connection: Connection, inner: Membership) -> None:
        self._connection = connection
        self._inner = inner

    @property
    def group(self) -> GroupMetadata:
        return self._inner.group

    async def event(self) -> MembershipEvent:
        return await self._connection.through(self._inner.event)

    def revoked(
        self, user_data: bytes | None = None, topics: Collection[str] | None = None, /
    ) -> None:
        if not self._connection.is_cut:
            self._inner.revoked(user_data, topics)

    def rejoin(self, user_data: bytes, topics: Collection[str] | None = None, /) -> None:
        if not self._connection.is_cut:
            self._inner.rejoin(user_data, topics)

    async def committed(
        self, partitions: Iterable[TopicPartition], /
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return await self._connection.through(self._inner.committed, partitions)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        await self._connection.through(self._inner.commit, offsets)

    async def leave(self) -> None:
        if not self._connection.is_cut:
            await self._inner.leave()

    async def close(self) -> None:
        if not self._connection.is_cut:
            await self._inner.close()
