"""Kafka as a log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar, final

from ks_actors._errors import LogClosed, LogError
from ks_actors.lifecycle import in_background
from ks_actors.log._port import BaseLog
from ks_actors.log._types import IsolationLevel
from ks_actors.log.kafka.admin import Admin
from ks_actors.log.kafka.client import KafkaClient, KafkaOptions, LoopThread
from ks_actors.log.kafka.consumer import KafkaFetcher
from ks_actors.log.kafka.group import GroupAdmin, KafkaMembership, join_group
from ks_actors.log.kafka.producer import KafkaProducer
from ks_actors.log.kafka.transactions import KafkaTransactionalProducer
from ks_actors.log.kafka.wire import HEADER
from ks_actors.system import check_posix

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ks_actors.log._groups import GroupMember
    from ks_actors.log._lease import Lease
    from ks_actors.log._port import NewMember
    from ks_actors.log._request_figures import RequestFigures
    from ks_actors.log._types import (
        AllowedOperations,
        NewTopic,
        OffsetAndMetadata,
        Outage,
        TopicDescription,
        TransactionScope,
    )
    from ks_actors.records import TopicPartition

_Part: TypeAlias = KafkaFetcher | KafkaProducer | KafkaTransactionalProducer | KafkaMembership
P = TypeVar("P", KafkaProducer, KafkaTransactionalProducer)


@final
class KafkaLog(BaseLog):
    """A Kafka cluster, 2.8 or newer, reached at `bootstrap_servers` ("host:port,host:port").

    Transactions, and so exactly-once, require Kafka 3.0 or newer.

    `client_id` names the log's requests for topics, offsets and groups (default: `ks-actors`, and
    in an app the name of its admin client). Readers and writers have names of their own.

    A call retries until its deadline while leaders and coordinators move and brokers restart; then
    it raises LogTimeout. Use the log with `async with`, or with `start` and `close`, on one event
    loop. After an error in `start` you may start the log again.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        options: KafkaOptions | None = None,
        client_id: str | None = None,
    ) -> None:
        self._servers: str = bootstrap_servers
        self._options: KafkaOptions = options or KafkaOptions()
        self._has_name: bool = client_id is not None
        client_id = client_id or "ks-actors"
        self._client: KafkaClient = KafkaClient(
            bootstrap_servers, self._options, client_id=client_id
        )
        self._admin: Admin = Admin(self._client)
        self._groups: GroupAdmin = GroupAdmin(self._client)
        self._threads: LoopThread = LoopThread(f"{client_id} heartbeats")
        self._parts: dict[_Part, None] = {}
        # The tasks that end memberships: they continue if `close` is cancelled.
        self._leaving: set[asyncio.Task[None]] = set()
        self._state = "not started"

    @property
    def bootstrap_servers(self) -> str:
        """The servers at which the cluster is reached."""
        return self._servers

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, as reported by the first broker that answers.

        After that, brokers of other clusters are refused.
        """
        return self._client.cluster_id

    @property
    def batch_bytes(self) -> int:
        """The most bytes of records in one record batch."""
        return self._options.batch_bytes - HEADER.size

    def take_client_id(self, client_id: str, /) -> None:
        """Use this client id for the log's own requests, unless the log was made with one."""
        if not self._has_name:
            self._client.name(client_id)

    def outages(self) -> Sequence[Outage]:
        """Return the brokers that fail to answer at this moment, the longest outage first.

        You may call it before the start, and from any thread.
        """
        return self._client.outages.now()

    def requests(self) -> Sequence[RequestFigures]:
        """Return the figures of all open fetchers and producers."""
        return [part.figures for part in self._parts if not isinstance(part, KafkaMembership)]

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            # `__aexit__` is not called after a failed `__aenter__`, but connections may be open.
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<KafkaLog at {self._servers}, {self._state}>"

    async def start(self) -> None:
        """Connect.

        Raises LogTimeout, NotAuthorized and ConfigError (on Windows, too), and LogError when the
        log was started before.
        """
        if self._state != "not started":
            raise LogError(f"a log can be started only once, and this one is {self._state}")
        check_posix("Kafka")
        self._state = "starting"
        try:
            await self._client.start()
        except BaseException:
            if self._state == "starting":
                self._state = "not started"
            raise
        self._check_starting()
        self._state = "started"

    def _check_starting(self) -> None:
        if self._state != "starting":
            raise LogClosed(f"the log is {self._state}")

    async def close(self) -> None:
        """Close everything made from this log, and all connections.

        Aborts open transactions. A second call does nothing.
        """
        if self._state == "closed":
            return
        self._state = "closed"
        for failed in await asyncio.gather(
            *(part.close() for part in tuple(self._parts)), return_exceptions=True
        ):
            if isinstance(failed, BaseException) and not isinstance(failed, LogError):
                raise failed
        await self._threads.close()
        if self._leaving:
            # Each task waits only for the thread, which has ended, so no deadline is required.
            await asyncio.wait(self._leaving)
        await self._client.close()

    def _check(self) -> None:
        if self._state != "started":
            remedy = ": await start(), or use `async with`" if self._state == "not started" else ""
            raise LogClosed(f"the log is {self._state}{remedy}")

    def _remove(self, part: _Part) -> None:
        self._parts.pop(part, None)

    def _leave(self, member: KafkaMembership, ending: asyncio.Task[None]) -> None:
        self._remove(member)
        self._leaving.add(ending)
        ending.add_done_callback(self._leaving.discard)

    def fetcher(
        self, *, client_id: str, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> KafkaFetcher:
        """Return a new fetcher without partitions."""
        self._check()
        committed = isolation is IsolationLevel.READ_COMMITTED
        fetcher = KafkaFetcher(self._client, client_id, committed=committed, closed=self._remove)
        self._parts[fetcher] = None
        return fetcher

    async def producer(
        self, *, client_id: str, lease: Lease | None = None, topics: Collection[str] = ()
    ) -> KafkaProducer:
        """Return a new idempotent producer; with a lease, it writes only while the lease holds.

        While it starts, it looks up the record size limits of `topics` and connects to their
        leaders.
        """
        self._check()
        client = self._another_client(client_id)
        return await self._started(
            KafkaProducer(client, self._admin, client_id, self._remove, lease=lease, topics=topics),
            topics,
        )

    async def transactional_producer(
        self,
        transactional_id: str,
        *,
        client_id: str,
        timeout_ms: int,
        scope: TransactionScope | None = None,
    ) -> KafkaTransactionalProducer:
        """Return a producer of that id; fence all earlier producers and abort their transactions.

        Kafka aborts a transaction that stays open for longer than `timeout_ms`; it checks every ten
        seconds. If a broker is killed while a transaction ends, parts in the `scope` may stay
        pending; the new producer completes these parts with the same outcome.
        """
        self._check()
        client = self._another_client(client_id)
        producer = KafkaTransactionalProducer(
            client,
            self._admin,
            transactional_id,
            client_id=client_id,
            timeout_ms=timeout_ms,
            scope=scope,
            closed=self._remove,
        )
        return await self._started(producer, () if scope is None else scope.topics)

    def _another_client(self, client_id: str) -> KafkaClient:
        client = KafkaClient(self._servers, self._options, client_id=client_id)
        client.begin_like(self._client)
        client.share_coordinators(self._client)
        return client

    async def _started(self, part: P, topics: Collection[str]) -> P:
        """Start a producer while looking up the record size limits of its topics.

        On an error or cancellation the producer is closed.
        """
        self._parts[part] = None
        try:
            async with in_background(
                self._admin.learn_limits(topics), f"limits for {part.client_id}"
            ):
                await part.start()
        except BaseException:
            await part.close()
            raise
        return part

    async def join(self, group_id: str, member: NewMember, /) -> KafkaMembership:
        """Join a group; the first event is Assigned.

        Heartbeats are sent by a thread of their own, so the caller's loop may be busy. If the group
        answers, members that `member` takes over from are removed first.
        """
        self._check()
        membership = await join_group(
            self._client, self._servers, self._threads, group_id, member, ends=self._leave
        )
        if self._state != "started":
            await membership.close()
            self._check()
        self._parts[membership] = None
        return membership

    async def create_topics(self, topics: Iterable[NewTopic], /) -> None:
        """Create topics, and wait until they can be used.

        Raises TopicExists or ConfigError; the other topics are created nevertheless.
        """
        self._check()
        await self._admin.create_topics(topics)

    async def check_new_topics(self, topics: Iterable[NewTopic], /) -> None:
        """Raise the first error of `create_topics`, such as ConfigError; create none.

        Topics that exist are no error.
        """
        self._check()
        await self._admin.check_new_topics(topics)

    async def create_partitions(self, counts: Mapping[str, int], /) -> None:
        """Raise the number of partitions of each topic, and wait until they can be used.

        Raises UnknownTopicOrPartition, and LogError for a number that is not larger than the
        present number; the other topics grow nevertheless.
        """
        self._check()
        await self._admin.create_partitions(counts)

    async def delete_topics(self, names: Iterable[str], /) -> None:
        """Delete topics.

        Raises UnknownTopicOrPartition; the other topics are deleted nevertheless.
        """
        self._check()
        await self._admin.delete_topics(names)

    async def describe_topics(
        self, names: Iterable[str] | None = None, /, *, configs: bool = True
    ) -> Mapping[str, TopicDescription]:
        """Return the topics that exist among `names`; for None, all topics but Kafka's own.

        Configs include defaults; topics that this user may not describe have no configs. Without
        `configs`, no configs are looked up.
        """
        self._check()
        return await self._admin.describe_topics(names, configs=configs)

    async def set_configs(self, configs: Mapping[str, Mapping[str, str]], /) -> None:
        """Set these configs of topics; their other configs stay unchanged.

        Raises UnknownTopicOrPartition, ConfigError.
        """
        self._check()
        await self._admin.set_configs(configs)

    async def delete_records(self, before: Mapping[TopicPartition, int], /) -> None:
        """Delete all records below the given offsets.

        Raises UnknownTopicOrPartition, OffsetOutOfRange.
        """
        self._check()
        await self._admin.delete_records(before)

    async def delete_read(self, before: Mapping[TopicPartition, int], /) -> None:
        """Delete records that fetchers of this log have read, below the given offsets.

        Partitions without a fetcher are skipped. Raises UnknownTopicOrPartition, OffsetOutOfRange,
        and LogTruncated when the log of a partition has lost records that were read.
        """
        self._check()
        await self._admin.delete_read(before)

    async def begin_offsets(
        self, partitions: Iterable[TopicPartition], /
    ) -> Mapping[TopicPartition, int]:
        """Return the first available offset of each partition. Raises UnknownTopicOrPartition."""
        self._check()
        return await self._admin.begin_offsets(partitions)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], isolation: IsolationLevel, /
    ) -> Mapping[TopicPartition, int]:
        """Return the offset after the last record (READ_COMMITTED: the last stable offset).

        Raises UnknownTopicOrPartition.
        """
        self._check()
        return await self._admin.end_offsets(partitions, isolation)

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], /
    ) -> Mapping[TopicPartition, int]:
        """Return the first offset at or after each time (ms), else the partition's end offset.

        Raises UnknownTopicOrPartition.
        """
        self._check()
        return await self._admin.offsets_for_times(times)

    async def group_ids(self) -> Sequence[str]:
        """Return the ids of all groups that this user may see."""
        self._check()
        return await self._groups.ids()

    async def group_members(self, group_id: str, /) -> Sequence[GroupMember]:
        """Return the members of a group; none when there is no such group. Raises NotAuthorized."""
        self._check()
        return await self._groups.members(group_id)

    async def allowed_operations(
        self, topics: Iterable[str], group_id: str, transactional_id: str | None = None, /
    ) -> AllowedOperations:
        """Return the permitted operations on topics, a group, a transactional id and the cluster.

        The transactional id should be unused.
        """
        self._check()
        return await self._groups.allowed(topics, group_id, transactional_id)

    async def remove_members(self, group_id: str, members: Iterable[GroupMember], /) -> None:
        """Remove members from a group; ignore members that have left.

        A process that still runs may join again.
        """
        self._check()
        await self._groups.remove(group_id, members)

    async def group_offsets(self, group_id: str, /) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return all offsets that a group has committed.

        Waits for open transactions that are about to change the offsets. Raises LogTimeout when
        these transactions stay open.
        """
        self._check()
        return await self._groups.offsets(group_id)

    async def set_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        """Commit offsets for a group without members, all in one request.

        Raises IllegalGeneration, UnknownTopicOrPartition.
        """
        self._check()
        await self._groups.set_offsets(group_id, offsets)
