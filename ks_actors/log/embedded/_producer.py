"""Writers of the embedded log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from ks_actors._errors import Fenced, IllegalGeneration, LogClosed, LogError, TransactionAborted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ks_actors.log._lease import Lease
    from ks_actors.log._types import GroupMetadata, OffsetAndMetadata, Outgoing
    from ks_actors.log.embedded._broker import Broker
    from ks_actors.log.embedded._faults import Faults
    from ks_actors.log.embedded._transactions import Transaction
    from ks_actors.records import TopicPartition


@final
class EmbeddedProducer:
    """Append at once; nothing is retried, so nothing can be there twice.

    A lease that has ended here is known to be over for good, so nothing waits for it.
    """

    def __init__(
        self, broker: Broker, faults: Faults, client_id: str, closed: Callable[[EmbeddedProducer], None], *, lease: Lease | None = None
    ) -> None:  # fmt: skip
        self.client_id: str = client_id
        self._broker: Broker = broker
        self._faults: Faults = faults
        self._lease: Lease | None = lease
        self._on_close = closed
        self._closed = False

    async def send(self, batches: Sequence[Outgoing], /) -> Sequence[int]:
        """Append all batches; return the offset behind each one's last record.

        Raises ProduceFailed; a partition that it names got nothing of this call, all others got
        everything. Raises TypeError for keys or values that are no bytes, and IllegalGeneration
        when its lease does not hold.
        """
        if self._closed:
            raise LogClosed(f"producer {self.client_id} is closed")
        if self._lease is not None and not self._lease.holds():
            raise IllegalGeneration(f"producer {self.client_id} has not sent its last records: the member that they are of is not one any more")
        await self._faults.wait("send")
        self._faults.before("send")
        behind = self._broker.append(batches)
        await asyncio.sleep(0)
        self._faults.after("send")
        return behind

    def abandon(self) -> None:
        """Do nothing: whatever was sent is there."""

    async def close(self) -> None:
        """End; does nothing when that was done before."""
        self.shut()

    def shut(self) -> None:
        """End."""
        if not self._closed:
            self._closed = True
            self._on_close(self)


@final
class EmbeddedTransactionalProducer:
    """Append within transactions.

    When a transaction is void - a batch of it failed, or its time was over - each `send` raises
    TransactionAborted until `commit`, which raises it for the last time, or `abort`: so no records
    get into a new transaction that their senders take for the old one.
    """

    def __init__(
        self, broker: Broker, faults: Faults, client_id: str, transaction: Transaction, *,
        check_commit: Callable[[GroupMetadata, Mapping[TopicPartition, OffsetAndMetadata]], None],
        closed: Callable[[EmbeddedTransactionalProducer], None],
    ) -> None:  # fmt: skip
        self.client_id: str = client_id
        self._broker: Broker = broker
        self._faults: Faults = faults
        self._transaction: Transaction = transaction
        self._epoch: int = transaction.epoch
        self._check_commit = check_commit
        self._on_close = closed
        self._closed = False

    def _check(self) -> None:
        if self._closed:
            raise LogClosed(f"producer {self.client_id} is closed")
        transaction = self._transaction
        if transaction.epoch != self._epoch:
            raise Fenced(
                f"transactional id {transaction.name} is in its epoch {transaction.epoch}, producer {self.client_id} is of epoch {self._epoch}"
            )

    async def send(self, batches: Sequence[Outgoing], /) -> Sequence[int]:
        """Append all batches to the transaction; return the offset behind each one's last record.

        Raises Fenced, ProduceFailed, TransactionAborted; after the latter two the transaction can
        only be aborted.
        """
        self._check()
        transaction = self._transaction
        if transaction.doom is not None:
            raise TransactionAborted(f"transaction of {transaction.name} is void: {transaction.doom}; abort it, and send again what it had")
        try:
            await self._faults.wait("send")
            self._faults.before("send")
            behind = self._broker.append(batches, transaction)
        except BaseException as error:
            transaction.doom = f"a batch failed ({error})"
            raise
        await asyncio.sleep(0)
        self._faults.after("send")
        return behind

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, /) -> None:
        """Make what was sent, and `offsets` as the group's, visible at once.

        Raises Fenced, IllegalGeneration, UnknownTopicOrPartition, TransactionAborted: then the
        transaction is aborted. Raises StorageFull, or another LogError of writing: then it is still
        open, and may be committed again or aborted. The group is only looked at if there are
        offsets.
        """
        self._check()
        await self._faults.wait("commit")
        self._faults.before("commit")
        transaction = self._transaction
        if transaction.doom is not None:
            doom = transaction.doom
            self._abort()
            raise TransactionAborted(f"transaction of {transaction.name} is void: {doom}; nothing of it will be visible")
        if offsets:
            try:
                self._check_commit(group, offsets)
            except LogError as error:
                self._void(f"its commit was refused ({error})")
                raise
        self._broker.commit(transaction, group.group_id, offsets)
        await asyncio.sleep(0)
        self._faults.after("commit")

    def _void(self, why: str) -> None:
        transaction = self._transaction
        transaction.doom = why
        try:
            self._abort()
        except LogError:
            # No room for the markers. Nobody can commit it any more: it ends with the next abort,
            # or when its time is over.
            return

    def _abort(self) -> None:
        transaction = self._transaction
        if transaction.partitions:
            self._broker.abort(transaction)
        transaction.doom = None

    async def abort(self) -> None:
        """Make sure that nothing sent since the last commit ever becomes visible.

        Raises Fenced; StorageFull, or another LogError of writing: call again.
        """
        self._check()
        await self._faults.wait("abort")
        self._faults.before("abort")
        self._abort()
        await asyncio.sleep(0)
        self._faults.after("abort")

    async def close(self) -> None:
        """End; an open transaction is aborted, unless somebody else has the transactional id.

        Does nothing when that was done before.
        """
        self.shut()

    def shut(self) -> None:
        """End, aborting what is open."""
        if self._closed:
            return
        if self._transaction.epoch == self._epoch:
            self._void("its producer has closed")
        self._closed = True
        self._on_close(self)
