"""A log that delegates to another log."""

from __future__ import annotations

from abc import abstractmethod
from math import inf
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, ParamSpec, TypeVar

from ks_actors.log._port import BaseLog, BaseMembership, cluster_of
from ks_actors.log._types import IsolationLevel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from ks_actors.log._lease import Lease
    from ks_actors.log._port import (
        Fetcher,
        Log,
        Membership,
        MembershipEvent,
        NewMember,
        Producer,
        TransactionalProducer,
        Writer,
    )
    from ks_actors.log._types import (
        Fetched,
        GroupMetadata,
        NewTopic,
        OffsetAndMetadata,
        Outgoing,
        TopicDescription,
        TransactionScope,
    )
    from ks_actors.records import TopicPartition

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W", bound="Writer")
_SHARE: Final = 0.95


class LogRequest(NamedTuple):
    """A call to a log: `what` follows "asked", `about` are its partitions or topics."""

    what: str
    about: Collection[object] = ()
    waits: float = 0.0
    """The time (s) that a healthy call may take; infinite without a limit."""
    again: bool = True
    """Whether the call may be repeated when its outcome is unknown."""
    share: float = 1.0
    """The part of the caller's time that the call may take."""


class DelegatingLog(BaseLog):
    """A log that, with its parts, delegates all calls to another log by `ask`, `tell` and `end`.

    `start` and `close` do nothing: the code that has started the other log closes it.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._base: BaseLog | None = log if isinstance(log, BaseLog) else None

    @abstractmethod
    async def ask(
        self,
        request: LogRequest,
        call: Callable[P, Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Make a call that waits, and return its result."""

    def tell(self, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Make a call that does not wait."""
        call(*args, **kwargs)

    @abstractmethod
    async def end(self, what: str, call: Callable[[], Awaitable[None]]) -> None:
        """Close a part; `what` follows "when the app"."""

    @property
    def cluster_id(self) -> str:
        """The id of the log's cluster; empty when it has none."""
        return cluster_of(self._log)

    def take_client_id(self, client_id: str, /) -> None:
        """Use this client id in requests that belong to no reader or writer."""
        if self._base is not None:
            self.tell(self._base.take_client_id, client_id)

    async def start(self) -> None:
        """Do nothing: the log is already started."""

    async def close(self) -> None:
        """Do nothing: the code that started the log closes it."""

    def fetcher(
        self, *, client_id: str, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> Fetcher:
        """Return a new fetcher."""
        return DelegatedFetcher(self, self._log.fetcher(client_id=client_id, isolation=isolation))

    async def producer(
        self, *, client_id: str, lease: Lease | None = None, topics: Collection[str] = ()
    ) -> Producer:
        """Return a new producer."""
        make, request = self._log.producer, LogRequest("for a producer id")
        made = await self.ask(request, make, client_id=client_id, lease=lease, topics=topics)
        return _Writer(self, made)

    async def transactional_producer(
        self,
        transactional_id: str,
        *,
        client_id: str,
        timeout_ms: int,
        scope: TransactionScope | None = None,
    ) -> TransactionalProducer:
        """Return a producer of that id."""
        made = await self.ask(
            LogRequest(f"for a producer of transactional id {transactional_id}"),
            self._log.transactional_producer,
            transactional_id,
            client_id=client_id,
            timeout_ms=timeout_ms,
            scope=scope,
        )
        return _TransactionalProducer(self, made, transactional_id)

    async def join(self, group_id: str, member: NewMember, /) -> BaseMembership:
        """Join a group."""
        request = LogRequest(f"to join group {group_id}")
        return DelegatedMembership(self, await self.ask(request, self._log.join, group_id, member))

    async def create_topics(self, topics: Iterable[NewTopic], /) -> None:
        """Create topics."""
        wanted = tuple(topics)
        request = LogRequest("to create", [topic.name for topic in wanted])
        await self.ask(request, self._log.create_topics, wanted)

    async def check_new_topics(self, topics: Iterable[NewTopic], /) -> None:
        """Raise the first error of `create_topics`, if the log can foresee the error."""
        wanted = tuple(topics)
        if self._base is not None:
            request = LogRequest("to check", [topic.name for topic in wanted])
            await self.ask(request, self._base.check_new_topics, wanted)

    async def delete_topics(self, names: Iterable[str], /) -> None:
        """Delete topics."""
        wanted = tuple(names)
        await self.ask(LogRequest("to delete", wanted), self._log.delete_topics, wanted)

    async def describe_topics(
        self, names: Iterable[str] | None = None, /, *, configs: bool = True
    ) -> Mapping[str, TopicDescription]:
        """Return the topics that exist."""
        wanted = None if names is None else tuple(names)
        request = LogRequest("to describe", ("all topics",) if wanted is None else wanted)
        return await self.ask(request, self._log.describe_topics, wanted, configs=configs)

    async def delete_records(self, before: Mapping[TopicPartition, int], /) -> None:
        """Delete records."""
        request = LogRequest("to delete records of", before)
        await self.ask(request, self._log.delete_records, before)

    async def delete_read(self, before: Mapping[TopicPartition, int], /) -> None:
        """Delete records that fetchers have read."""
        delete = self._log.delete_records if self._base is None else self._base.delete_read
        await self.ask(LogRequest("to delete read records of", before, again=False), delete, before)

    async def begin_offsets(
        self, partitions: Iterable[TopicPartition], /
    ) -> Mapping[TopicPartition, int]:
        """Return the first offsets."""
        if not (wanted := tuple(partitions)):
            return {}
        request = LogRequest("for the first offsets of", wanted)
        return await self.ask(request, self._log.begin_offsets, wanted)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], isolation: IsolationLevel, /
    ) -> Mapping[TopicPartition, int]:
        """Return the offsets after the last records."""
        if not (wanted := tuple(partitions)):
            return {}
        request = LogRequest("for the end offsets of", wanted)
        return await self.ask(request, self._log.end_offsets, wanted, isolation)

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], /
    ) -> Mapping[TopicPartition, int]:
        """Return the first offsets at or after times."""
        request = LogRequest("for the offsets at times of", times)
        return await self.ask(request, self._log.offsets_for_times, times)


class DelegatedFetcher:
    """A fetcher that makes its calls through the log that created it."""

    def __init__(self, log: DelegatingLog, inner: Fetcher) -> None:
        self._log = log
        self._inner = inner
        self._assigned: Collection[TopicPartition] = ()
        self.position: Callable[[TopicPartition], int] = inner.position
        self.describe: Callable[[TopicPartition], str] = inner.describe

    def assign(self, positions: Mapping[TopicPartition, int], /) -> None:
        """Read exactly these partitions from these offsets."""
        self._assigned = positions
        self._log.tell(self._inner.assign, positions)

    def seek(self, partition: TopicPartition, offset: int, /) -> None:
        """Continue from `offset`."""
        self._log.tell(self._inner.seek, partition, offset)

    def pause(self, partitions: Iterable[TopicPartition], /) -> None:
        """Leave partitions out of fetches until `resume`."""
        self._log.tell(self._inner.pause, partitions)

    def resume(self, partitions: Iterable[TopicPartition], /) -> None:
        """Fetch partitions again."""
        self._log.tell(self._inner.resume, partitions)

    async def fetch(self, *, max_wait_ms: int, max_records: int = 10_000) -> Sequence[Fetched]:
        """Wait for records and return them."""
        request = LogRequest("for records of", self._assigned, waits=max_wait_ms / 1000)
        return await self._log.ask(
            request, self._inner.fetch, max_wait_ms=max_wait_ms, max_records=max_records
        )

    async def close(self) -> None:
        """Close."""
        await self._log.end("closes a reader", self._inner.close)


class _Writer(Generic[W]):
    def __init__(self, log: DelegatingLog, inner: W) -> None:
        self._log = log
        self._inner: W = inner

    async def send(self, batches: Sequence[Outgoing], /) -> Sequence[int]:
        about = {outgoing.partition for outgoing in batches}
        request = LogRequest("to write records for", about, again=False)
        return await self._log.ask(request, self._inner.send, batches)

    def abandon(self) -> None:
        self._log.tell(self._inner.abandon)

    async def close(self) -> None:
        await self._log.end("closes a producer", self._inner.close)


class _TransactionalProducer(_Writer["TransactionalProducer"]):
    def __init__(self, log: DelegatingLog, inner: TransactionalProducer, name: str) -> None:
        super().__init__(log, inner)
        self._name = name

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, /
    ) -> None:
        what = f"to commit a transaction of {self._name} with offsets of"
        await self._log.ask(LogRequest(what, offsets), self._inner.commit, offsets, group)

    async def abort(self) -> None:
        # The committer waits for the collector, which repeats this call. So use only a part of the
        # committer's time.
        what = f"to abort a transaction of {self._name}"
        await self._log.ask(LogRequest(what, again=False, share=_SHARE), self._inner.abort)


class DelegatedMembership(BaseMembership):
    """A membership that makes its calls through the log that created it."""

    def __init__(self, log: DelegatingLog, inner: Membership) -> None:
        self._log = log
        self._inner = inner
        self._ended: bool = False

    @property
    def group(self) -> GroupMetadata:
        """The group as of the last event."""
        return self._inner.group

    @property
    def committing(self) -> GroupMetadata:
        """The group metadata to send, at this moment, with a transaction that commits offsets."""
        inner = self._inner
        return inner.committing if isinstance(inner, BaseMembership) else inner.group

    async def event(self) -> MembershipEvent:
        """Wait for the next event of the membership, without a limit."""
        return await self._log.ask(
            LogRequest("for an event of the group", waits=inf), self._inner.event
        )

    def revoked(
        self, user_data: bytes | None = None, topics: Collection[str] | None = None, /
    ) -> None:
        """Report that the partitions of the last Revoked are released."""
        self._log.tell(self._inner.revoked, user_data, topics)

    def rejoin(self, user_data: bytes, topics: Collection[str] | None = None, /) -> None:
        """Ask for a new assignment."""
        self._log.tell(self._inner.rejoin, user_data, topics)

    async def committed(
        self, partitions: Iterable[TopicPartition], /
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets."""
        if not (wanted := tuple(partitions)):
            return {}
        request = LogRequest("for the committed offsets of", wanted)
        return await self._log.ask(request, self._inner.committed, wanted)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        """Commit offsets outside of transactions."""
        request = LogRequest("to commit offsets of", offsets)
        await self._log.ask(request, self._inner.commit, offsets)

    async def leave(self) -> None:
        """Leave the group; does nothing after `leave` or `close`."""
        await self._end(self._inner.leave)

    async def close(self) -> None:
        """Close; does nothing after `leave` or `close`."""
        await self._end(self._inner.close)

    async def _end(self, how: Callable[[], Awaitable[None]]) -> None:
        if not self._ended:
            self._ended = True
            await self._log.end("leaves its group", how)
