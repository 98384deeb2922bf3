"""Requests of a transactional producer to coordinators."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from ks_actors._errors import IllegalGeneration, LogError, LogTimeout
from ks_actors.log.kafka.admin import commit_split
from ks_actors.log.kafka.client import GROUP, TRANSACTION, Backoff, UnknownTopics
from ks_actors.log.kafka.producer import NOBODY, EpochRefused, Identity, missing
from ks_actors.log.kafka.wire import (
    FENCED,
    INVALID_TRANSACTION_TIMEOUT,
    NONE,
    OPERATION_NOT_ATTEMPTED,
    RETRIABLE,
    TRANSACTIONAL_ID_NOT_FOUND,
    UNKNOWN_TOPIC_OR_PARTITION,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeGroupsRequest,
    EndTxnRequest,
    describe_transactions,
    error_of,
    init_producer_id,
    name_of,
    txn_offset_commit,
)
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from ks_actors.log._types import GroupMetadata, OffsetAndMetadata
    from ks_actors.log.kafka.client import KafkaClient

_COMPLETING_S = 5
_PREPARED = "Prepare"
# Timeouts that serve as marks: each pair marks the completion of a commit and of an abort. The
# timeout is the only field of a transactional id that a producer sets and others can read. `begin`
# makes sure that no user's timeout looks like a mark. The longest pair that the brokers allow is
# used: transactions of marked epochs should never time out.
_MARKS: Final = ((600_001, 600_002), (59_001, 59_002), (9_001, 9_002))
_COMMITTING_MS: Final = frozenset(committing for committing, _ in _MARKS)
_MARKED_MS: Final = frozenset(timeout for marks in _MARKS for timeout in marks)
EPOCHS_APART: Final = 3
"""The number of epochs that a producer's successor is ahead: more than an abort by brokers adds."""
PROMPT_S: Final = 1.0
"""If the end of a transaction takes longer (seconds), a broker may have failed meanwhile."""


class _TimeoutRefused(LogError):
    """The brokers do not allow a timeout as long as the requested timeout of a new epoch."""


class TransactionState(NamedTuple):
    """The coordinator's state of a transactional id, its producer, and its timeout.

    `state` is `Empty`, `Ongoing`, `PrepareCommit`, `CompleteAbort` and so on.
    """

    state: str
    identity: Identity
    timeout_ms: int

    @property
    def open(self) -> bool:
        """Whether a transaction is open."""
        return self.state == "Ongoing"

    @property
    def committed(self) -> bool:
        """Whether the last transaction was committed, or is about to be."""
        return self.state in {"PrepareCommit", "CompleteCommit"}

    @property
    def aborted(self) -> bool:
        """Whether the last transaction was aborted, or is about to be."""
        return self.state in {"PrepareAbort", "CompleteAbort", "PrepareEpochFence"}

    @property
    def ended(self) -> bool:
        """Whether the last transaction was committed or aborted."""
        return self.committed or self.aborted

    def aborts(self, identity: Identity) -> bool:
        """Whether the coordinator aborts the transaction of `identity`, or has aborted it."""
        return self.is_near(identity) and (self.open or self.aborted)

    def is_near(self, identity: Identity) -> bool:
        """Whether the epoch follows `identity`, and no newer producer writes with that epoch.

        After its timeout, or when its producer asks for a new epoch, a transaction is aborted with
        the next epoch; Kafka 4.0.0 skips an epoch (KAFKA-19367). A newer producer writes with
        neither epoch: it takes `EPOCHS_APART` epochs. (Other clients take one epoch: do not share
        an id with them.) Only while a newer producer takes its epochs do the two cases look alike.
        But to recover, a producer asks for the epoch after the epoch that it saw. If the newer
        producer was faster, this is refused; if not, it fences this producer a moment later.
        """
        return (
            not self.completing
            and self.identity.producer_id == identity.producer_id
            and 0 < self.identity.epoch - identity.epoch < EPOCHS_APART
        )

    @property
    def to_commit(self) -> bool:
        """Whether to commit pending parts.

        True if the last transaction was committed, or if its unfinished completion is a commit.
        """
        return self.committed or self.timeout_ms in _COMMITTING_MS

    @property
    def completing(self) -> bool:
        """Whether a producer has started to complete pending parts."""
        return self.timeout_ms in _MARKED_MS


@final
class TransactionCoordinator:
    """Requests of one transactional id.

    Each method raises EpochRefused if the coordinator knows a newer epoch, LogTimeout, and LogError
    for any other final error.
    """

    def __init__(self, client: KafkaClient, name: str, timeout_ms: int) -> None:
        self._client: KafkaClient = client
        self.name: str = name
        self.timeout_ms: int = timeout_ms

    async def _ask(self, request: Any, timeout_ms: int = 0) -> Any:
        response = await self._client.send_to_coordinator(
            TRANSACTION, self.name, request, lambda answer: [answer.error_code]
        )
        if response.error_code == INVALID_TRANSACTION_TIMEOUT:
            detail = f"transaction_timeout_ms is {timeout_ms}"
            error = error_of(response.error_code, f"transactional id {self.name}", detail)
            raise _TimeoutRefused(str(error))
        self._check(response.error_code)
        return response

    def _check(self, code: int) -> None:
        # Do not raise Fenced: the coordinator also fences after a timeout, and the producer finds
        # out which of the two it is.
        if code in FENCED:
            raise EpochRefused(
                f"the coordinator of transactional id {self.name} answered {name_of(code)}"
            )
        if code:
            raise error_of(code, f"transactional id {self.name}")

    async def take(self, *, last_attempt: bool) -> Identity:
        """Take the id from its producer, with an epoch that no abort of its transaction gets.

        Raises EpochRefused if another process does the same. At the last attempt it returns instead
        an identity that the other process has fenced.
        """
        identity = await self.begin(NOBODY)
        try:
            # The first producer of an id has no predecessor.
            for _ in range(EPOCHS_APART - 1 if identity.epoch else 0):
                identity = await self.begin(identity)
        except EpochRefused:
            if not last_attempt:
                raise
        return identity

    async def begin(self, identity: Identity) -> Identity:
        """Get a new epoch; an open transaction is aborted.

        Unless `identity` is NOBODY, raises EpochRefused if another producer has obtained an epoch
        since.
        """
        # Such timeouts mark the epochs of `begin_completing`.
        marked = self.timeout_ms in _MARKED_MS
        return await self._begin(identity, self.timeout_ms - 2 if marked else self.timeout_ms)

    async def begin_completing(self, identity: Identity, *, commit: bool) -> Identity:
        """Get a new epoch to complete pending parts.

        The timeout of the epoch tells other producers the outcome, since coordinators store it.
        """
        for committing, aborting in _MARKS:
            with suppress(_TimeoutRefused):
                return await self._begin(identity, committing if commit else aborting)
        raise LogError(
            f"the brokers refuse a timeout of {_MARKS[-1][-1]} ms, which completing a transaction "
            "takes: raise their transaction.max.timeout.ms"
        )

    async def _begin(self, identity: Identity, timeout_ms: int) -> Identity:
        response = await self._ask(init_producer_id(self.name, timeout_ms, *identity), timeout_ms)
        return Identity(response.producer_id, response.producer_epoch)

    async def add_partitions(
        self, identity: Identity, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Add partitions to the transaction; return their error codes, 0 if added."""
        topics: dict[str, list[int]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
        request = AddPartitionsToTxnRequest(self.name, *identity, list(topics.items()))
        response = await self._client.send_to_coordinator(
            TRANSACTION,
            self.name,
            request,
            lambda answer: [
                # An unknown partition may be deleted: the caller decides whether to retry.
                code
                for _, found in answer.errors
                for _, code in found
                if code in RETRIABLE and code != UNKNOWN_TOPIC_OR_PARTITION
            ],
        )
        codes = {
            TopicPartition(topic, number): code
            for topic, found in response.errors
            for number, code in found
        }
        for code in codes.values():
            # If one partition has this error, the producer is fenced.
            if code in FENCED:
                self._check(code)
        return codes

    async def add_all(
        self, identity: Identity, partitions: AbstractSet[TopicPartition]
    ) -> AsyncIterator[tuple[set[TopicPartition], dict[TopicPartition, int]]]:
        """Add partitions to the transaction, with retries until each is added or refused.

        Yields the added partitions, and the error codes of the refused partitions.
        """
        clock = asyncio.get_running_loop().time
        backoff, end = Backoff(), clock() + self._client.options.api_timeout_ms / 1000
        while partitions:
            codes = await self.add_partitions(identity, sorted(partitions))
            refused = {
                partition: code
                for partition, code in codes.items()
                if code not in (NONE, OPERATION_NOT_ATTEMPTED)
            }
            unknown = await self._existing(refused)
            for partition in unknown:
                del refused[partition]
            yield {partition for partition, code in codes.items() if code == NONE}, refused
            # If the coordinator refuses a partition, it adds none of the others: request the others
            # again.
            partitions = unknown | (
                {
                    partition
                    for partition in partitions
                    if codes.get(partition, NONE) == OPERATION_NOT_ATTEMPTED
                }
                if refused or unknown
                else set()
            )
            if unknown:
                if clock() >= end:
                    raise LogTimeout(
                        f"the coordinator of transactional id {self.name} has not known "
                        f"{', '.join(map(str, sorted(unknown)))} for "
                        f"{self._client.options.api_timeout_ms} ms, though brokers list it: check "
                        "whether the coordinator gets the cluster's metadata"
                    )
                await asyncio.sleep(backoff.pause_s(self._client.options))

    async def _existing(self, refused: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Return the partitions that the coordinator does not know, though they exist.

        The coordinator's metadata may lag behind for a moment.
        """
        unknown = {each for each, code in refused.items() if code == UNKNOWN_TOPIC_OR_PARTITION}
        if unknown:
            await self._client.look_for({partition.topic for partition in unknown})
            unknown -= (await missing(self._client, unknown)).keys()
        return unknown

    async def add_offsets(self, identity: Identity, group: str) -> None:
        """Add the group's offsets to the transaction."""
        await self._ask(AddOffsetsToTxnRequest(self.name, *identity, group))

    async def commit_offsets(
        self,
        identity: Identity,
        group: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> dict[TopicPartition, int]:
        """Write offsets for the group; return the error codes."""

        async def send(
            part: Mapping[TopicPartition, OffsetAndMetadata],
        ) -> dict[TopicPartition, int]:
            patience = UnknownTopics(self._client.options)
            response = await self._client.send_to_coordinator(
                GROUP,
                group.group_id,
                txn_offset_commit(self.name, *identity, group, part, self._client.epochs.of(part)),
                # A retry may write the same offsets again, which does no harm.
                lambda answer: patience.retried(
                    code for _, found, _ in answer.topics for _, code, _ in found
                ),
            )
            return {
                TopicPartition(topic, number): code
                for topic, found, _ in response.topics
                for number, code, _ in found
            }

        codes = await commit_split(group.group_id, offsets, send)
        for code in codes.values():
            if code in FENCED:
                self._check(code)
        return codes

    async def check_group_is_empty(self, group: GroupMetadata) -> None:
        """Raise IllegalGeneration if a group has members: then only members may commit its offsets.

        In a transaction Kafka itself would accept offsets from any producer.
        """
        response = await self._client.send_to_coordinator(
            GROUP,
            group.group_id,
            DescribeGroupsRequest([group.group_id]),
            lambda answer: [each[0] for each in answer.groups],
        )
        for code, name, state, *_ in response.groups:
            if not code and state not in ("Empty", "Dead", ""):
                raise IllegalGeneration(
                    f"group {name} has members ({state}), and the committing process is not one of "
                    "them: join, and commit as a member"
                )

    async def end(self, identity: Identity, *, commit: bool) -> None:
        """Decide the transaction. After LogTimeout the outcome is unknown."""
        await self._ask(EndTxnRequest(self.name, *identity, commit))

    async def describe(self) -> TransactionState:
        """Return the state of the id; for an unknown id, a state without a producer."""
        response = await self._client.send_to_coordinator(
            TRANSACTION,
            self.name,
            describe_transactions([self.name]),
            lambda answer: [each[0] for each in answer.transactions],
        )
        code, _, state, timeout_ms, _, producer_id, epoch, *_ = response.transactions[0]
        if code == TRANSACTIONAL_ID_NOT_FOUND:
            return TransactionState("", NOBODY, 0)
        if code:
            raise error_of(code, f"failed to look up transactional id {self.name}")
        return TransactionState(state, Identity(producer_id, epoch), timeout_ms)

    async def until_complete(self) -> bool:
        """Wait until a decided transaction is visible to readers.

        The coordinator writes the end markers after its response. The outcome is already certain,
        so the wait is limited. Returns whether the coordinator has confirmed that the transaction
        is complete, and was reachable all the time.
        """
        pause, lost, clock = 0.001, self._client.lost, asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(_COMPLETING_S):
                # The outcome is decided, but some partitions lack the marker, so their readers do
                # not see the records yet.
                while (await self.describe()).state.startswith(_PREPARED):
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, 0.05)
        except (LogError, TimeoutError):
            return False
        return self._client.lost == lost and clock() - began < PROMPT_S
