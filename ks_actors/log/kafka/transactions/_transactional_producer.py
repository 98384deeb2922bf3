"""The transactional producer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from ks_actors._errors import (
    Fenced,
    LogClosed,
    LogError,
    LogTimeout,
    NotAuthorized,
    TransactionAborted,
)
from ks_actors.lifecycle import component_log
from ks_actors.log._request_figures import RequestFigures
from ks_actors.log.kafka.client import PRODUCE, Backoff
from ks_actors.log.kafka.producer import NOBODY, EpochRefused, Identity, SendCall, Sender, missing
from ks_actors.log.kafka.transactions._early_offsets import EarlyOffsets
from ks_actors.log.kafka.transactions._hanging_transactions import Ended, HangingTransactions
from ks_actors.log.kafka.transactions._transaction_coordinator import (
    PROMPT_S,
    TransactionCoordinator,
)
from ks_actors.log.kafka.wire import Encoder, error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ks_actors.log._types import GroupMetadata, OffsetAndMetadata, Outgoing, TransactionScope
    from ks_actors.log.kafka.admin import Admin
    from ks_actors.log.kafka.client import KafkaClient
    from ks_actors.log.kafka.producer import Outcome
    from ks_actors.log.kafka.transactions._transaction_coordinator import TransactionState
    from ks_actors.records import TopicPartition

_log = component_log(__name__)
# Less than the limit of the actor that closes the producer.
_CLOSING_S = 3
_AGAIN_S = 0.5
_ATTEMPTS = 3


@final
class KafkaTransactionalProducer:
    """Write in transactions.

    A failed batch or a timeout voids a transaction. Then each `send` raises TransactionAborted
    until the next `commit`, which also raises it, or `abort`. So no record gets into a new
    transaction while its sender still relies on the voided transaction. Afterwards the producer
    continues with a new epoch, unless another producer has taken the transactional id.

    Readers see the records when `commit` returns. If the response was lost, `commit` raises
    LogTimeout; call it again to learn the outcome. The same holds for `abort`.
    """

    def __init__(
        self,
        client: KafkaClient,
        admin: Admin,
        name: str,
        *,
        client_id: str,
        timeout_ms: int,
        scope: TransactionScope | None,
        closed: Callable[[KafkaTransactionalProducer], None],
    ) -> None:
        self.client_id: str = client_id
        self._client: KafkaClient = client
        self._admin: Admin = admin
        self._name: str = name
        self._coordination: TransactionCoordinator = TransactionCoordinator(
            client, name, timeout_ms
        )
        self._scope: TransactionScope | None = scope
        self._early_offsets: EarlyOffsets = EarlyOffsets(
            self._coordination, "" if scope is None else scope.group_id
        )
        self._hanging: HangingTransactions = HangingTransactions(client, self._coordination, scope)
        self._encoder: Encoder = Encoder(client.options, transactional=True)
        self.figures: RequestFigures = RequestFigures("produce", client_id)
        self._sender: Sender = Sender(
            client, self._encoder, transactional_id=name, figures=self.figures
        )
        self._on_close = closed
        self._order: asyncio.Lock = asyncio.Lock()
        # Whether a transaction may be open: a request that begins one may have no response.
        self._open = False
        self._added: set[TopicPartition] = set()
        self._groups: dict[str, set[TopicPartition]] = {}
        self._outcomes: list[Outcome] = []
        self._abort_reason: str | None = None
        self._abandoned = 0
        # The identity after which this producer may take the next epoch, since the coordinator no
        # longer has its transaction open.
        self._renew_from: Identity | None = None
        self._fenced: str | None = None
        self._in_doubt = False
        # Counts of lost responses at the start of the transaction, and at the request for its end.
        self._lost = 0
        self._lost_at_end: int | None = None
        self._stale = False
        self._unconfirmed: Ended | None = None
        self._confirming: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """Connect, fence earlier producers of the id, and complete their last transaction.

        An open transaction is aborted. Parts that a broker left pending get the same outcome as the
        other parts.
        """
        await self._client.start()
        self._client.connect_ahead(() if self._scope is None else self._scope.topics, PRODUCE)
        backoff = Backoff()
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                # Do this before the new epoch, which would hide how the last transaction ended.
                await self._hanging.complete_last(await self._hanging.last(), NOBODY)
                self._set(await self._coordination.take(last_attempt=not attempts_left))
                return
            except EpochRefused as error:
                # Other members may be completing the last transaction at this moment.
                if not attempts_left:
                    raise Fenced(
                        f"another process is taking transactional id {self._name} at the same "
                        f"time: {error}"
                    ) from error
                await asyncio.sleep(backoff.pause_s(self._client.options))

    def __repr__(self) -> str:
        return f"<KafkaTransactionalProducer {self._name} {self._sender.identity}>"

    def _check(self) -> None:
        if self._closed:
            raise LogClosed(f"producer {self.client_id} is closed")
        if self._fenced is not None:
            raise Fenced(self._fenced)

    # --- send -------------------------------------------------------------------------------------

    async def send(self, batches: Sequence[Outgoing], /) -> Sequence[int]:
        """Append all batches to the transaction; return the offset after each batch's last record.

        Raises Fenced, ProduceFailed, TransactionAborted, and TypeError for keys or values that are
        not bytes. After the latter three, and after a cancellation, the transaction can only be
        aborted.
        """
        self._check()
        send_call = SendCall(self._admin, batches)
        # Read before the waits below: an `abandon` during them concerns this call, too.
        abandoned = self._abandoned
        try:
            # Calls add partitions and take sequence numbers one after the other, under the lock.
            # Then they wait for the brokers concurrently, outside of the lock.
            async with self._order:
                self._check()
                # Check again under the lock: earlier calls may have voided the transaction.
                self._check_not_failed()
                await self._prepare_transaction()
                await send_call.encode(self._encoder)
                self._check()  # a sender that was closed meanwhile takes no batches
                # First, as a leader refuses records of a partition that was not added.
                await self._add(send_call)
                if abandoned != self._abandoned:
                    raise _not_sent(self._name)
                outcomes = send_call.put(self._sender)
                self._outcomes += outcomes
            await self._sender.wait_for(outcomes)
            for error in send_call.take_errors():
                # A refused epoch concerns the whole transaction, so it takes precedence over errors
                # of single batches.
                if isinstance(error, EpochRefused):
                    raise error
                if isinstance(error, LogClosed):
                    raise LogClosed(str(error))
            return await send_call.result()
        except BaseException as error:
            if self._abort_reason is None and not isinstance(error, LogClosed):
                # Also after a cancellation, some batches may be written, so a commit would be
                # incomplete. Set this before the lookup of the reason, which may fail.
                self._abort_reason = f"a batch failed ({error!r})"
            if isinstance(error, EpochRefused):
                raise await self._explain_refusal(error) from error
            raise

    def abandon(self) -> None:
        """Send and repeat nothing more of earlier `send` calls.

        Waiting calls raise ProduceFailed or TransactionAborted once batches in flight are answered.
        A commit then aborts. If all batches are written, nothing changes: a commit may go on.
        """
        self._abandoned += 1
        self._sender.abandon(_not_sent(self._name))

    def _check_not_failed(self) -> None:
        if self._in_doubt:
            raise LogError(
                f"the outcome of the last transaction of {self._name} is unknown: call commit or "
                "abort again to look it up"
            )
        if self._abort_reason is not None:
            raise TransactionAborted(
                f"the transaction of {self._name} has failed: {self._abort_reason}; abort it, and "
                "send its records again"
            )

    async def _prepare_transaction(self) -> None:
        """Clean up after the last transaction, before a new transaction begins."""
        if not self._open:
            await self._confirm()
            # An unanswered request may still arrive. After a new epoch brokers refuse it.
            if self._stale or self._client.lost > self._lost:
                await self._renew(self._renew_from or self._sender.identity)
                self._renew_from = None

    async def _renew(self, last: Identity) -> None:
        """Get the epoch after `last`; an open transaction is aborted.

        Raises EpochRefused if another producer has obtained an epoch since.
        """
        while True:
            try:
                identity = await self._coordination.begin(last)
                break
            except EpochRefused as refused:
                seen = await self._look(refused)
                if seen.aborts(last):
                    # Brokers before 4.0.1, and brokers without transaction version 2, have aborted
                    # it after its timeout or by this request. Keep the identity, as the response to
                    # the next request may be lost.
                    last = self._renew_from = seen.identity
                elif seen.is_near(last):
                    # The response to an earlier such request was lost, and a new coordinator does
                    # not know of that request. But the epoch that it reports may also belong to a
                    # newer producer at its start, which must not share the next epoch.
                    last = NOBODY
                else:
                    self._renew_from = None
                    raise
        self._set(identity)

    def _set(self, identity: Identity) -> None:
        self._sender.reset(identity)
        self._lost = self._client.lost
        self._stale = False

    async def _look(self, refused: EpochRefused) -> TransactionState:
        """Return the coordinator's state of the id, to explain a refusal."""
        try:
            return await self._coordination.describe()
        except NotAuthorized:
            # Without permission to look, assume a newer producer.
            raise refused from None

    async def _add(self, send_call: SendCall) -> None:
        """Add all new partitions to the transaction; refuse those that cannot be added."""
        new = send_call.partitions - self._added
        if not new:
            return
        send_call.refuse(await missing(self._client, new))
        was_open, self._open = self._open, True
        async for added, refused in self._coordination.add_all(
            self._sender.identity, new - send_call.errors.keys()
        ):
            self._added |= added
            send_call.refuse(
                {
                    partition: error_of(code, f"writing to {partition} is not possible")
                    for partition, code in refused.items()
                }
            )
        self._open = was_open or bool(self._added)
        if self._added:
            # Add offsets while the records are in flight: at the commit it would cost a round trip.
            self._early_offsets.begin(self._sender.identity, self._groups)

    async def _explain_refusal(self, refused: EpochRefused) -> LogError:
        """Find the reason for a refused epoch: an ended transaction, or a newer producer.

        If there is no newer producer, this producer may continue with a new epoch.
        """
        if self._fenced is None and self._renew_from is None:
            self._renew_from, self._abort_reason = await self._identity_after(refused)
        if self._fenced is not None or self._renew_from is None:
            return self._fence(refused)
        return TransactionAborted(
            f"the transaction of {self._name} has failed: {self._abort_reason}; abort it, and "
            "send its records again"
        )

    async def _identity_after(self, refused: EpochRefused) -> tuple[Identity | None, str]:
        """Return the identity after which to take the next epoch, and why; None if fenced."""
        own = self._sender.identity
        try:
            seen = await self._look(refused)
        except EpochRefused:
            return None, str(refused)
        if seen.identity == own:
            # A coordinator that lost its log may have lost the transaction, but not the id.
            return own, str(refused)
        if seen.identity == NOBODY:
            return own, (
                f"the brokers have forgotten id {self._name}, as after a longer pause than their "
                "transactional.id.expiration.ms"
            )
        if seen.aborts(own):
            return seen.identity, self._expired
        return None, str(refused)

    @property
    def _expired(self) -> str:
        return f"it took longer than its timeout of {self._coordination.timeout_ms} ms"

    def _fence(self, refused: LogError) -> Fenced:
        self._fenced = self._fenced or (
            f"transactional id {self._name} has a newer producer than {self.client_id} with epoch "
            f"{self._sender.identity.epoch}: {refused}"
        )
        return Fenced(self._fenced)

    # --- commit -----------------------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, /
    ) -> None:
        """Make the sent records and the group's `offsets` visible at once.

        Raises Fenced, IllegalGeneration, UnknownTopicOrPartition, NotAuthorized,
        TransactionAborted: then the transaction is aborted. Raises LogTimeout: then you may commit
        again or abort. The group is checked only if there are offsets.
        """
        self._check()
        async with self._order:
            self._check()
            # The last commit had no answer. If it has succeeded, another request could commit
            # nothing and report success.
            if self._in_doubt and await self._was_committed():
                return
            # Wait for the outcome of every batch: the coordinator commits whatever has arrived.
            await self._sender.wait_for(self._outcomes)
            failed = next(filter(None, (outcome.exception() for outcome in self._outcomes)), None)
            if failed is not None and self._abort_reason is None:
                self._abort_reason = f"a batch failed ({failed})"
            try:
                if self._abort_reason is None:
                    await self._commit(offsets, group)
                    return
            except EpochRefused as error:
                found = await self._explain_refusal(error)
                if isinstance(found, Fenced):
                    raise found from error
            reason = self._abort_reason
            if await self._abort():
                raise TransactionAborted(
                    f"the transaction of {self._name} has failed: {reason}; readers will not see "
                    "any of it"
                )

    async def _commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        # A request that is still on its way could add the group to the next transaction.
        await self._early_offsets.wait()
        try:
            if offsets:
                # If there are no records, these offsets begin the transaction.
                await self._prepare_transaction()
                await self._commit_offsets(self._sender.identity, offsets, group)
            # A coordinator refuses the end of a transaction that never began.
            if self._open:
                await self._end_by_commit()
        except (EpochRefused, LogTimeout, LogClosed):
            raise
        except LogError as error:
            self._abort_reason = f"the broker refused to commit it ({error})"
            if await self._abort():
                raise

    async def _end_by_commit(self) -> None:
        # Set this before the await, so that a cancellation counts as an unknown outcome.
        self._in_doubt = True
        if self._lost_at_end is None:
            # Keep the count of the first attempt: a retry must still notice a response that was
            # lost in an earlier attempt.
            self._lost_at_end = self._client.lost
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            await self._coordination.end(self._sender.identity, commit=True)
        except LogError as error:
            # Any error response means that the transaction was not committed. Without a response,
            # or after a cancelled wait, the outcome is unknown.
            self._in_doubt = isinstance(error, LogTimeout | LogClosed)
            raise
        await self._committed(
            smoothly=self._client.lost == self._lost_at_end and clock() - began < PROMPT_S
        )

    async def _committed(self, *, smoothly: bool = False) -> None:
        await self._ended(commit=True, smoothly=smoothly)
        self._clear()

    async def _ended(self, *, commit: bool, smoothly: bool) -> None:
        # A coordinator that was unreachable or slow may have skipped partitions without a leader.
        has_parts = bool(self._added or self._groups)
        if not (await self._coordination.until_complete() and smoothly) and has_parts:
            self._unconfirmed = Ended(
                frozenset(self._added),
                {group: offsets for group, offsets in self._groups.items() if offsets},
                commit,
            )
            # One task is enough: it continues until everything is confirmed.
            if self._confirming is None or self._confirming.done():
                self._confirming = asyncio.create_task(
                    self._confirm_soon(), name=f"end of a transaction of {self._name}"
                )

    async def _confirm_soon(self) -> None:
        """Confirm without waiting for the next transaction: until then readers may be blocked."""
        while self._unconfirmed is not None:
            try:
                async with self._order:
                    await self._confirm()
            except (EpochRefused, LogClosed) as error:
                _log.debug(
                    "the next owner of id %s ends its last transaction: %s",
                    self._name,
                    error,
                )
                return
            except LogError as error:
                _log.debug(
                    "the last transaction of %s may not have ended on all brokers yet: %s",
                    self._name,
                    error,
                )
                await asyncio.sleep(_AGAIN_S)

    async def _confirm(self) -> None:
        """Complete the last transaction everywhere, if its coordinator was away at the end."""
        if self._unconfirmed is not None:
            await self._hanging.complete(self._sender.identity, self._unconfirmed)
            self._unconfirmed = None

    async def _commit_offsets(
        self,
        identity: Identity,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
    ) -> None:
        if group.generation < 0:
            await self._coordination.check_group_is_empty(group)
        if group.group_id not in self._groups:
            self._open = True
            await self._coordination.add_offsets(identity, group.group_id)
        # Note them before the request: even a failed request may have left offsets pending.
        self._groups.setdefault(group.group_id, set()).update(offsets)
        codes = await self._coordination.commit_offsets(identity, group, offsets)
        for partition, code in codes.items():
            if code:
                raise error_of(
                    code,
                    f"offset {offsets[partition].offset} of {partition} cannot be committed for "
                    f"group {group.group_id}",
                )

    async def _was_committed(self) -> bool:
        """Find out whether the last transaction was committed; False if it is open or aborted."""
        seen = await self._coordination.describe()
        if seen.aborts(self._sender.identity):
            if seen.open:
                # The outcome is not written yet: another coordinator may still commit it.
                raise LogTimeout(
                    f"the coordinator of transactional id {self._name} has not aborted its last "
                    "transaction yet: call commit or abort again"
                )
            # The transaction timed out before the commit: a commit would have kept the epoch.
            self._renew_from, self._abort_reason = seen.identity, self._expired
        elif seen.identity != self._sender.identity:
            # Another producer came after a commit, or aborted the transaction. Either way this
            # producer is fenced.
            self._fenced = (
                f"transactional id {self._name} has a newer producer than {self.client_id}; it is "
                "not known how its last transaction ended"
            )
            raise Fenced(self._fenced)
        if seen.committed:
            await self._committed()
            return True
        self._in_doubt = False
        return False

    def _clear(self) -> None:
        # In doubt until here: a commit cancelled before this leaves the state of its transaction.
        self._open = self._in_doubt = False
        self._added.clear()
        self._groups = {}
        self._outcomes.clear()
        self._abort_reason = self._renew_from = self._lost_at_end = None
        # A broker may still process a request with a lost response, and add it to the next
        # transaction. A new epoch prevents that.
        self._stale = self._stale or self._client.lost > self._lost
        self._lost = self._client.lost

    # --- abort ------------------------------------------------------------------------------------

    async def abort(self) -> None:
        """Make sure that records sent since the last commit never become visible.

        Raises Fenced. Raises LogTimeout; then call `abort` again. Raises LogError if the
        transaction turns out to be committed, by a commit with a lost response.
        """
        self._check()
        async with self._order:
            self._check()
            if (self._in_doubt and await self._was_committed()) or not await self._abort():
                raise LogError(
                    f"the last transaction of {self._name} cannot be aborted: it was committed, "
                    "though the answer was lost"
                )

    async def _abort(self) -> bool:
        """Abort the transaction; return False if it was committed by an earlier attempt."""
        # Set this first: if `abort` is cancelled, the transaction must not be committed later.
        self._abort_reason = self._abort_reason or "it is being aborted"
        lost, clock = self._lost, asyncio.get_running_loop().time
        # Drop unsent batches; wait for batches in flight, which must end before the new epoch.
        self._sender.abandon(TransactionAborted(f"the transaction of {self._name} was aborted"))
        await self._sender.wait_for(self._outcomes)
        await self._early_offsets.wait()
        began = clock()
        try:
            if not await self._end_by_abort():
                return False
            # If the coordinator has ended the transaction by itself, this client has not seen
            # failures at its end.
            undisturbed = self._client.lost == lost and self._renew_from is None
            await self._ended(commit=False, smoothly=undisturbed and clock() - began < PROMPT_S)
        except EpochRefused as error:
            raise self._fence(error) from error
        self._clear()
        return True

    async def _end_by_abort(self) -> bool:
        identity = self._sender.identity
        try:
            if self._renew_from is None:
                # A new epoch also aborts, and ends the batches whose outcome is unknown.
                if self._sender.poisoned:
                    await self._renew(identity)
                elif self._open:
                    await self._coordination.end(identity, commit=False)
                return True
        except EpochRefused as error:
            found = await self._explain_refusal(error)
            if isinstance(found, Fenced):
                raise found from error
        except (LogTimeout, LogClosed, NotAuthorized):
            raise
        except LogError:
            # The transaction is no longer open, or never was. An earlier commit whose response was
            # lost may have succeeded.
            if self._lost_at_end is not None and await self._was_committed():
                return False
            self._renew_from = self._renew_from or identity
        assert self._renew_from is not None
        await self._renew(self._renew_from)
        return True

    async def close(self) -> None:
        """Close; abort an open transaction, unless another producer has the transactional id.

        A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        self._on_close(self)
        if self._confirming is not None:
            # The confirmation holds the lock that the abort below acquires.
            self._confirming.cancel()
        try:
            if self._fenced is None and not self._in_doubt:
                async with asyncio.timeout(_CLOSING_S), self._order:
                    if self._open or self._renew_from is not None:
                        await self._abort()
                    await self._confirm()
        except (LogError, TimeoutError):
            # The transaction ends by its timeout, or when the id is next taken.
            if self._unconfirmed is not None:
                _log.warning(
                    "%s is closed before the end of its last transaction was written again: its "
                    "offsets may stay pending",
                    self._name,
                )
        finally:
            if self._confirming is not None:
                # The abort may have started a new task.
                self._confirming.cancel()
                await asyncio.wait([self._confirming])
            await self._early_offsets.end()
            await self._sender.close(LogClosed(f"producer {self.client_id} is closed"))
            await self._client.close()


def _not_sent(name: str) -> TransactionAborted:
    return TransactionAborted(
        f"the transaction of {name} was given up before all of its records were sent"
    )
