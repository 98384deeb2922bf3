"""The producers of the embedded log."""

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
    """A producer that appends at once; it never retries, so there are no duplicates.

    In this log an ended lease is never extended again, so records do not wait for a lease.
    """

    def __init__(
        self,
        broker: Broker,
        faults: Faults,
        client_id: str,
        closed: Callable[[EmbeddedProducer], None],
        *,
        lease: Lease | None = None,
    ) -> None:
        self.client_id: str = client_id
        self._broker: Broker = broker
        self._faults: Faults = faults
        self._lease: Lease | None = lease
        self._on_close = closed
        self._closed = False

    async def send(self, batches: Sequence[Outgoing], /) -> Sequence[int]:
        """Append all batches; return the offset after the last record of each batch.

        Raises ProduceFailed; the partitions that it names got no records of this call, and all
        other partitions got all their records. Raises TypeError for keys or values that are not
        bytes, and IllegalGeneration when the producer's lease does not hold.
        """
        if self._closed:
            raise LogClosed(f"producer {self.client_id} is closed")
        await self._faults.wait("send")
        if self._lease is not None and not self._lease.holds():
            raise IllegalGeneration(
                f"producer {self.client_id} did not send its last records, because their member "
                "has left the group"
            )
        self._faults.before("send")
        behind = self._broker.append(batches)
        await asyncio.sleep(0)
        self._faults.after("send")
        return behind

    def abandon(self) -> None:
        """Do nothing: all sent records are in the log."""

    async def close(self) -> None:
        """Close; does nothing when already closed."""
        self.shut()

    def shut(self) -> None:
        """Close without waiting."""
        if not self._closed:
            self._closed = True
            self._on_close(self)


@final
class EmbeddedTransactionalProducer:
    """A producer that appends within transactions.

    A transaction is void after a failed batch or its timeout. Then each `send` raises
    TransactionAborted until the next `commit`, which also raises it, or `abort`. So no record gets
    into a new transaction while its sender still relies on the void transaction.
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
                f"transactional id {transaction.name} is in epoch {transaction.epoch}, but "
                f"producer {self.client_id} is of epoch {self._epoch}: a newer producer has the id"
            )

    async def send(self, batches: Sequence[Outgoing], /) -> Sequence[int]:
        """Append all batches to the transaction; return the offset after each batch's last record.

        Raises Fenced, ProduceFailed, TransactionAborted; after the latter two the transaction can
        only be aborted.
        """
        self._check()
        transaction = self._transaction
        if transaction.doom is not None:
            raise TransactionAborted(
                f"the transaction of {transaction.name} has failed: {transaction.doom}; abort it, "
                "and send its records again"
            )
        try:
            await self._faults.wait("send")
            self._faults.before("send")
            behind = self._broker.append(batches, transaction)
        except BaseException as error:
            # A cancelled send also voids the transaction: its batches are missing.
            transaction.doom = f"a batch failed ({error})"
            raise
        await asyncio.sleep(0)
        self._faults.after("send")
        return behind

    def abandon(self) -> None:
        """Do nothing: all sent records are in the transaction."""

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, /
    ) -> None:
        """Make the sent records and the group's `offsets` visible at once.

        Raises Fenced, IllegalGeneration, UnknownTopicOrPartition, TransactionAborted: then the
        transaction is aborted. Raises StorageFull, or another LogError if a write fails: then the
        transaction is still open, and may be committed again or aborted. The group is checked only
        if there are offsets.
        """
        self._check()
        await self._faults.wait("commit")
        self._faults.before("commit")
        transaction = self._transaction
        if transaction.doom is not None:
            doom = transaction.doom
            self._abort()
            raise TransactionAborted(
                f"the transaction of {transaction.name} has failed: {doom}; readers will not see "
                "any of it"
            )
        if offsets:
            try:
                self._check_commit(group, offsets)
            except LogError as error:
                self._void(f"the log refused to commit it ({error})")
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
            # There is no room for the markers. The transaction can no longer be committed; it ends
            # by the next abort, or by its timeout.
            return

    def _abort(self) -> None:
        transaction = self._transaction
        if transaction.partitions:
            self._broker.abort(transaction)
        transaction.doom = None

    async def abort(self) -> None:
        """Abort the transaction: nothing sent since the last commit ever becomes visible.

        Raises Fenced. Raises StorageFull, or another LogError if a write fails: call `abort` again.
        """
        self._check()
        await self._faults.wait("abort")
        self._faults.before("abort")
        self._abort()
        await asyncio.sleep(0)
        self._faults.after("abort")

    async def close(self) -> None:
        """Close; abort an open transaction, unless another producer has the transactional id.

        Does nothing when already closed.
        """
        self.shut()

    def shut(self) -> None:
        """Close without waiting; abort the open transaction."""
        if self._closed:
            return
        if self._transaction.epoch == self._epoch:
            self._void("its producer was closed")
        self._closed = True
        self._on_close(self)
