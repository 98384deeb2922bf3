"""Ends of transactions that have not come to all that was part of them.

A broker that comes back may take partitions that have no leader yet for deleted, and say that a transaction is complete without having written its
end there (KAFKA-20734, seen with 4.3.1). Records and offsets stay pending then: readers wait for them, and they are decided by the next end that the
same producer id writes there, which may be another one than that which others have seen of the rest. So whoever ends a transaction while its
coordinator is away, and whoever takes a transactional id over, sees to it that the end is everywhere.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, final

from ks_actors._errors import LogError, LogTimeout
from ks_actors.log._types import IsolationLevel, TopicPartition
from ks_actors.log.kafka._admin import Admin
from ks_actors.log.kafka._offsets import fetch_unstable
from ks_actors.log.kafka._sender import EpochRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from ks_actors.log._types import TransactionScope
    from ks_actors.log.kafka._client import KafkaClient
    from ks_actors.log.kafka._coordination import Coordination, TransactionState
    from ks_actors.log.kafka._lane import Identity

_log = logging.getLogger("ks_actors")
_TAKE_OVER_S: Final = 10


class Ended(NamedTuple):
    """A transaction that was ended: the partitions that it may have written to, those whose offsets it may have committed by group, and how."""

    written: AbstractSet[TopicPartition]
    committed: Mapping[str, AbstractSet[TopicPartition]]
    commit: bool


@final
class Endings:
    """Look for what is pending of transactions of an id, and end it as they were; for those of whoever had the id before, in the scope."""

    def __init__(self, client: KafkaClient, coordination: Coordination, scope: TransactionScope | None) -> None:
        self._client: KafkaClient = client
        self._admin: Admin = Admin(client)
        self._coordination: Coordination = coordination
        self._scope: TransactionScope | None = scope
        self._begun = False

    async def complete(self, identity: Identity, ended: Ended) -> None:
        """End a transaction once more, the same way, where records or offsets are pending; theirs or others', which is not told.

        An end of somebody who has nothing pending changes nothing. Raises LogTimeout: then it is to be called again, and EpochRefused.
        """
        left = await self._left(ended)
        if left.written or left.committed or self._begun:
            await self._end(identity, left)

    async def _left(self, ended: Ended) -> Ended:
        """Return what is pending of all that may have been part of a transaction."""
        await self._coordination.until_complete()  # what is still being written is not pending for good
        # Whoever answers has a leader by now: brokers that have none for a partition would leave it out again.
        written = await self._pending(ended.written)
        committed = {group: await fetch_unstable(self._client, group, partitions) for group, partitions in ended.committed.items()}
        return Ended(written, {group: partitions for group, partitions in committed.items() if partitions}, ended.commit)

    async def _end(self, identity: Identity, left: Ended) -> None:
        name, self._begun = self._coordination.name, True
        async for _ in self._coordination.take_in(identity, left.written):
            pass  # what cannot be written to any more need not be ended there
        for group in left.committed:
            await self._coordination.add_offsets(identity, group)
        await self._coordination.end(identity, commit=left.commit)
        self._begun = False
        if not await self._coordination.until_complete():
            raise LogTimeout(f"the coordinator of {name} was away while the end of a transaction was written once more: it is to be written again")
        _log.info("the end of a transaction of %s is written once more: a broker may have left records or offsets of it pending", name)

    async def _pending(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that have records of open transactions."""
        # With one that has been deleted since, it would not be known of any.
        await self._client.look_for({partition.topic for partition in partitions})
        there = [partition for partition in partitions if self._is_there(partition)]
        stable = await self._admin.end_offsets(there, IsolationLevel.READ_COMMITTED)
        ends = await self._admin.end_offsets(there, IsolationLevel.READ_UNCOMMITTED)
        return {partition for partition in there if stable[partition] < ends[partition]}

    def _is_there(self, partition: TopicPartition) -> bool:
        topic = self._client.known(partition.topic)
        return topic is not None and partition.partition in topic.leaders

    async def last(self) -> TransactionState | None:
        """Return how the last transaction of the id stands, before it is taken over; None when that is not to be known. Raises LogTimeout."""
        try:
            return None if self._scope is None else await self._coordination.look()
        except LogTimeout:
            raise
        except LogError as error:
            # Nobody has had the id yet; or this user may not ask.
            _log.debug("how the last transaction of %s was ended is not known: %s", self._coordination.name, error)
            return None

    async def take_over(self, identity: Identity, last: TransactionState | None) -> Ended | None:
        """See to it that the last transaction of whoever had the id before is ended everywhere; `last` is how it was when `identity` came.

        When that cannot be known, or not soon, it is left as it is. Return what is still to be completed before the id can be used.
        """
        scope = self._scope
        if scope is None or last is None or not (last.open or last.ended):
            return None
        left: Ended | None = None
        try:
            async with asyncio.timeout(_TAKE_OVER_S):
                await self._client.look_for(scope.topics | scope.sources)
                offsets = {scope.group_id: self._partitions(scope.sources)} if scope.sources else {}
                left = await self._left(Ended(self._partitions(scope.topics), offsets, commit=last.committed))
            if left.written or left.committed:
                await self._end(identity, left)
        except EpochRefused as error:
            _log.debug("somebody else sees to it that the last transaction of %s is ended everywhere: %s", self._coordination.name, error)
        except (LogError, TimeoutError) as error:
            _log.warning("it is not known whether the last transaction of %s is ended everywhere: %r", self._coordination.name, error)
            return left
        return None

    def _partitions(self, topics: Iterable[str]) -> set[TopicPartition]:
        known = [found for found in map(self._client.known, topics) if found is not None]
        return {TopicPartition(topic.name, number) for topic in known for number in topic.leaders}
