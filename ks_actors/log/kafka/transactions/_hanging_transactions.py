"""Complete hanging transactions.

A broker that returns may treat partitions without a leader as deleted. Then it reports a
transaction as complete although these partitions lack the end marker (KAFKA-20734, seen with
4.3.1). Records and offsets stay pending, and readers wait for them. The next end marker of the same
producer id decides them, maybe differently from the other partitions. So two kinds of producers
check that all partitions have the end marker: a producer whose coordinator was unreachable at the
end of a transaction, and a producer that takes over a transactional id.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, final

from ks_actors._errors import LogError, LogTimeout, NotAuthorized, TransactionAborted
from ks_actors.lifecycle import component_log
from ks_actors.log._types import IsolationLevel
from ks_actors.log.kafka.admin import Admin, fetch_unstable
from ks_actors.log.kafka.producer import EpochRefused
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from ks_actors.log._types import TransactionScope
    from ks_actors.log.kafka.client import KafkaClient
    from ks_actors.log.kafka.producer import Identity
    from ks_actors.log.kafka.transactions._transaction_coordinator import (
        TransactionCoordinator,
        TransactionState,
    )

_log = component_log(__name__)
_LEADERS_S: Final = 5
_PAUSE_S: Final = 0.1


class Ended(NamedTuple):
    """An ended transaction: the partitions that it may have changed, and its outcome.

    `written` has partitions with records, `committed` the partitions with offsets, by group.
    """

    written: AbstractSet[TopicPartition]
    committed: Mapping[str, AbstractSet[TopicPartition]]
    commit: bool

    @property
    def is_any(self) -> bool:
        """Whether the transaction has any partitions."""
        return bool(self.written or self.committed)


@final
class HangingTransactions:
    """Find pending parts of an id's transactions, and complete them with the same outcome.

    For the id's previous producer only the partitions of the scope are checked.
    """

    def __init__(
        self,
        client: KafkaClient,
        coordination: TransactionCoordinator,
        scope: TransactionScope | None,
    ) -> None:
        self._client: KafkaClient = client
        self._admin: Admin = Admin(client)
        self._coordination: TransactionCoordinator = coordination
        self._scope: TransactionScope | None = scope
        # Whether the outcome of an earlier end is unknown, so that it must be repeated.
        self._begun = False

    async def complete(self, identity: Identity, ended: Ended) -> None:
        """End a transaction again, with the same outcome, if records or offsets are pending.

        The pending data may belong to other producers: then the end marker has no effect. Raises
        EpochRefused, and LogTimeout; after LogTimeout call this method again.
        """
        await self._refresh({partition.topic for partition in ended.written})
        left = await self._left(ended)
        if left.is_any or self._begun:
            await self._end(identity, left)

    async def _left(self, ended: Ended) -> Ended:
        """Return the pending partitions of a transaction; call `_refresh` just before."""
        await self._coordination.until_complete()  # unfinished markers do not hang
        committed = {
            group: await fetch_unstable(self._client, group, partitions)
            for group, partitions in ended.committed.items()
        }
        # Partitions that were deleted need no end marker.
        there = [partition for partition in ended.written if self._is_there(partition)]
        # A partition that answers has a leader: without a leader the end marker would again be
        # skipped.
        stable = await self._admin.end_offsets(there, IsolationLevel.READ_COMMITTED)
        ends = await self._admin.end_offsets(there, IsolationLevel.READ_UNCOMMITTED)
        return Ended(
            {partition for partition in there if stable[partition] < ends[partition]},
            {group: partitions for group, partitions in committed.items() if partitions},
            ended.commit,
        )

    async def _refresh(self, topics: AbstractSet[str]) -> None:
        await self._client.retry("to look up leaders", lambda: self._client.refresh(topics))
        if any(self._client.known(topic) is None for topic in topics):
            # A broker does not know a topic, perhaps because the broker has just returned.
            with suppress(NotAuthorized):
                await self._client.metadata(topics, patient=True)

    def _is_there(self, partition: TopicPartition) -> bool:
        topic = self._client.known(partition.topic)
        return topic is not None and partition.partition in topic.leaders

    async def _end(self, identity: Identity, left: Ended) -> None:
        name, taken = self._coordination.name, bool(left.committed)
        # Set this before the first request: a cancelled request may have taken effect.
        self._begun = True
        async for added, _ in self._coordination.add_all(identity, left.written):
            taken = taken or bool(added)  # an unwritable partition needs no end marker
        for group in left.committed:
            await self._coordination.add_offsets(identity, group)
        try:
            await self._coordination.end(identity, commit=left.commit)
        except TransactionAborted:
            if taken:
                raise
            # Nothing was open: an earlier attempt without a response has had no effect.
        self._begun = False
        if not await self._coordination.until_complete():
            raise LogTimeout(
                f"the coordinator of {name} did not answer while the end of a transaction was "
                "written again; the producer repeats it"
            )
        _log.info(
            "writing the end of a transaction of %s again: a broker may have left records or "
            "offsets of it pending",
            name,
        )

    # --- the previous producer's transaction ------------------------------------------------------

    async def last(self) -> TransactionState | None:
        """Return the state of the id's last transaction; None if it is unknown.

        Raises LogTimeout.
        """
        try:
            return None if self._scope is None else await self._coordination.describe()
        except LogTimeout:
            raise
        except LogError as error:
            # This user has no permission for the request.
            _log.debug(
                "could not find out how the last transaction of %s ended: %s",
                self._coordination.name,
                error,
            )
            return None

    async def complete_last(self, last: TransactionState | None, expected: Identity) -> None:
        """Complete the id's last transaction everywhere before the id is taken over.

        Once the id is taken over, the outcome of the transaction would be unknown. A dedicated
        epoch records the outcome, so that another process can finish the work if this process dies.
        If pending parts cannot be looked up, they stay unchanged. Raises LogTimeout, and
        EpochRefused when another process does the same.
        """
        if last is None or not (last.open or last.ended or last.completing):
            return
        try:
            if last.open and last.to_commit:
                # The epoch is a mark by another process, which was completing a commit. A new epoch
                # would abort this commit.
                await self._coordination.end(last.identity, commit=True)
            elif last.open:
                # The new epoch aborts the transaction, and tells other processes this outcome.
                expected = await self._coordination.begin_completing(expected, commit=False)
            left = await self._left_in_scope(commit=last.to_commit)
            if left.is_any:
                identity = await self._coordination.begin_completing(expected, commit=left.commit)
                if identity.producer_id != last.identity.producer_id:
                    raise LogError(
                        "its epochs are used up, and a transaction under another producer id "
                        "cannot end it"
                    )
                await self._end(identity, left)
        except (LogTimeout, EpochRefused):
            raise
        except LogError as error:
            _log.warning(
                "could not find out whether the last transaction of %s has ended on all brokers: "
                "%s",
                self._coordination.name,
                error,
            )

    async def _left_in_scope(self, *, commit: bool) -> Ended:
        scope = self._scope
        if scope is None:
            return Ended(frozenset(), {}, commit)
        await self._until_led(scope.topics | scope.sources)
        offsets = {scope.group_id: self._partitions(scope.sources)} if scope.sources else {}
        # A partition without a leader cannot answer, and must not delay the others.
        led = {
            partition
            for partition in self._partitions(scope.topics)
            if self._client.leader(partition) is not None
        }
        return await self._left(Ended(led, offsets, commit))

    async def _until_led(self, topics: AbstractSet[str]) -> None:
        """Wait a short time for leaders: a partition may have lost all its replicas."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + _LEADERS_S
        await self._refresh(topics)
        while clock() < deadline and any(
            self._client.leader(partition) is None for partition in self._partitions(topics)
        ):
            await asyncio.sleep(_PAUSE_S)
            await self._refresh(topics)

    def _partitions(self, topics: Iterable[str]) -> set[TopicPartition]:
        known = [found for found in map(self._client.known, topics) if found is not None]
        return {TopicPartition(topic.name, number) for topic in known for number in topic.leaders}
