"""A log that retries calls without an answer for up to `task_timeout_ms`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ks_actors.lifecycle import LogRetries
from ks_actors.log._port import JoinsAhead, WritesBytes, cluster_of
from ks_actors.log._types import IsolationLevel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from ks_actors.lifecycle import Closing
    from ks_actors.log import (
        Fetched,
        Fetcher,
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


_SHARE: Final = 0.95


def patient(log: Log, timeout_ms: int, closing: Closing | None = None) -> PatientLog:
    """Wrap `log` to retry LogTimeout for up to `timeout_ms`; then it raises NoAnswer.

    While the app is `closing`, every call ends by that deadline, and so do readers, writers and
    members.
    """
    return (_PatientLogOfBytes if isinstance(log, WritesBytes) else PatientLog)(
        log, LogRetries(timeout_ms / 1000, closing)
    )


class PatientLog:
    """A `Log` that repeats each call to another log until it is answered.

    NoAnswer, a LogTimeout, names the time of the attempts and the call. Two calls are made once,
    but have the same time limit: `send`, since its outcome is unknown, and `abort`, which the
    collector repeats. The wait for the group's next event has no limit.
    """

    def __init__(self, log: Log, patience: LogRetries) -> None:
        self._log = log
        self._patience = patience

    @property
    def bare(self) -> Log:
        """The log itself, without retries."""
        return self._log

    @property
    def cluster_id(self) -> str:
        """The id of the log's cluster; empty when it has none."""
        return cluster_of(self._log)

    async def start(self) -> None:
        """Do nothing: the log is already started."""

    async def close(self) -> None:
        """Do nothing: the part that started the log closes it."""

    def fetcher(
        self, *, client_id: str, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> Fetcher:
        """Return a new fetcher."""
        return _Fetcher(self._patience, self._log.fetcher(client_id=client_id, isolation=isolation))

    async def producer(
        self, *, client_id: str, lease: Lease | None = None, topics: Collection[str] = ()
    ) -> Producer:
        """Return a new producer."""
        made = await self._patience.ask(
            "for a producer id",
            lambda: self._log.producer(client_id=client_id, lease=lease, topics=topics),
        )
        return _Producer(self._patience, made)

    async def transactional_producer(
        self,
        transactional_id: str,
        *,
        client_id: str,
        timeout_ms: int,
        scope: TransactionScope | None = None,
    ) -> TransactionalProducer:
        """Return a producer of that id."""
        made = await self._patience.ask(
            f"for a producer of transactional id {transactional_id}",
            lambda: self._log.transactional_producer(
                transactional_id, client_id=client_id, timeout_ms=timeout_ms, scope=scope
            ),
        )
        return _TransactionalProducer(self._patience, made, transactional_id)

    async def join(self, group_id: str, member: NewMember, /) -> Membership:
        """Join a group."""
        return _Membership(
            self._patience,
            await self._patience.ask(
                f"to join group {group_id}", lambda: self._log.join(group_id, member)
            ),
        )

    async def create_topics(self, topics: Iterable[NewTopic], /) -> None:
        """Create topics."""
        wanted = tuple(topics)
        await self._patience.ask(
            "to create", lambda: self._log.create_topics(wanted), [topic.name for topic in wanted]
        )

    async def delete_topics(self, names: Iterable[str], /) -> None:
        """Delete topics."""
        wanted = tuple(names)
        await self._patience.ask("to delete", lambda: self._log.delete_topics(wanted), wanted)

    async def describe_topics(
        self, names: Iterable[str] | None = None, /, *, configs: bool = True
    ) -> Mapping[str, TopicDescription]:
        """Return the topics that exist."""
        wanted = None if names is None else tuple(names)
        ask = self._patience.ask
        return await ask(
            "to describe",
            lambda: self._log.describe_topics(wanted, configs=configs),
            ("all topics",) if wanted is None else wanted,
        )

    async def delete_records(self, before: Mapping[TopicPartition, int], /) -> None:
        """Delete records."""
        await self._patience.ask(
            "to delete records of", lambda: self._log.delete_records(before), before
        )

    async def begin_offsets(
        self, partitions: Iterable[TopicPartition], /
    ) -> Mapping[TopicPartition, int]:
        """Return the first offsets."""
        wanted = tuple(partitions)
        return (
            await self._patience.ask(
                "for the first offsets of", lambda: self._log.begin_offsets(wanted), wanted
            )
            if wanted
            else {}
        )

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], isolation: IsolationLevel, /
    ) -> Mapping[TopicPartition, int]:
        """Return the offsets after the last records."""
        wanted = tuple(partitions)
        return (
            await self._patience.ask(
                "for the end offsets of", lambda: self._log.end_offsets(wanted, isolation), wanted
            )
            if wanted
            else {}
        )

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], /
    ) -> Mapping[TopicPartition, int]:
        """Return the first offsets at or after times."""
        return await self._patience.ask(
            "for the offsets at times of", lambda: self._log.offsets_for_times(times), times
        )


class _PatientLogOfBytes(PatientLog):
    @property
    def batch_bytes(self) -> int:
        """The most bytes of records in one write."""
        assert isinstance(self._log, WritesBytes)
        return self._log.batch_bytes


class _Fetcher:
    def __init__(self, patience: LogRetries, inner: Fetcher) -> None:
        self._patience = patience
        self._inner = inner
        self._assigned: Collection[TopicPartition] = ()
        self.seek = inner.seek
        self.position = inner.position
        self.pause = inner.pause
        self.resume = inner.resume
        self.describe = inner.describe

    def assign(self, positions: Mapping[TopicPartition, int], /) -> None:
        self._assigned = positions
        self._inner.assign(positions)

    async def fetch(self, *, max_wait_ms: int, max_records: int = 10_000) -> Sequence[Fetched]:
        call = partial(self._inner.fetch, max_wait_ms=max_wait_ms, max_records=max_records)
        return await self._patience.ask(
            "for records of", call, self._assigned, waits=max_wait_ms / 1000
        )

    async def close(self) -> None:
        await self._patience.end("closes a reader", self._inner.close)


class _Writer:
    def __init__(self, patience: LogRetries, inner: Writer) -> None:
        self._patience = patience
        self._writer = inner

    async def send(self, batches: Sequence[Outgoing], /) -> Sequence[int]:
        what = "to write records for"
        return await self._patience.ask_once(
            what, lambda: self._writer.send(batches), {outgoing.partition for outgoing in batches}
        )

    async def close(self) -> None:
        await self._patience.end("closes a producer", self._writer.close)


class _Producer(_Writer):
    def __init__(self, patience: LogRetries, inner: Producer) -> None:
        super().__init__(patience, inner)
        self.abandon = inner.abandon


class _TransactionalProducer(_Writer):
    def __init__(self, patience: LogRetries, inner: TransactionalProducer, name: str) -> None:
        super().__init__(patience, inner)
        self._inner = inner
        self._name = name

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, /
    ) -> None:
        await self._patience.ask(
            f"to commit a transaction of {self._name} with offsets of",
            lambda: self._inner.commit(offsets, group),
            offsets,
        )

    async def abort(self) -> None:
        # The committer waits for the collector, which repeats this: answer before its whole timeout
        # has passed.
        await self._patience.share(_SHARE).ask_once(
            f"to abort a transaction of {self._name}", self._inner.abort
        )


class _Membership:
    def __init__(self, patience: LogRetries, inner: Membership) -> None:
        self._patience = patience
        self._inner = inner
        self._ended: bool = False
        self.revoked = inner.revoked
        self.rejoin = inner.rejoin

    @property
    def group(self) -> GroupMetadata:
        return self._inner.group

    @property
    def committing(self) -> GroupMetadata:
        inner = self._inner
        return inner.committing if isinstance(inner, JoinsAhead) else inner.group

    async def event(self) -> MembershipEvent:
        return await self._inner.event()

    async def committed(
        self, partitions: Iterable[TopicPartition], /
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        wanted = tuple(partitions)
        return (
            await self._patience.ask(
                "for the committed offsets of", lambda: self._inner.committed(wanted), wanted
            )
            if wanted
            else {}
        )

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        await self._patience.ask(
            "to commit offsets of", lambda: self._inner.commit(offsets), offsets
        )

    async def leave(self) -> None:
        await self._end(self._inner.leave)

    async def close(self) -> None:
        await self._end(self._inner.close)

    async def _end(self, how: Callable[[], Awaitable[None]]) -> None:
        if not self._ended:
            self._ended = True
            await self._patience.end("leaves its group", how)
