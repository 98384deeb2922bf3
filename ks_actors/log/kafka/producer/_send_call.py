"""One call of `send`: its batches and their outcomes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, final

from ks_actors._errors import InvalidRecord, ProduceFailed, RecordTooLarge
from ks_actors.lifecycle import in_thread
from ks_actors.log._types import IsolationLevel
from ks_actors.log.kafka.client import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ks_actors.log._types import Outgoing
    from ks_actors.log.kafka.admin import Admin
    from ks_actors.log.kafka.client import KafkaClient
    from ks_actors.log.kafka.producer._outcome import Outcome
    from ks_actors.log.kafka.producer._sender import Sender
    from ks_actors.log.kafka.wire import Encoder, RecordBatch, Written
    from ks_actors.records import TopicPartition

# The most bytes to encode before other tasks can run.
_AT_ONCE: Final = 1 << 20
# Compression that takes this many seconds is done in a thread; to start a thread takes 0.1 ms.
_SLOW_S: Final = 0.004


@final
class SendCall:
    """Batches of one call.

    If a batch is known to be unwritable before sending, its partition gets no batch of the call.
    """

    def __init__(self, admin: Admin, batches: Sequence[Outgoing]) -> None:
        self._admin: Admin = admin
        self._batches: list[tuple[TopicPartition, Outgoing]] = [
            (each.partition, each) for each in batches
        ]
        self._encoded: list[list[RecordBatch]] = []
        self._too_large: dict[int, RecordTooLarge] = {}
        self._outcomes: list[list[Outcome]] = []
        self.errors: dict[TopicPartition, Exception] = {}

    async def encode(self, encoder: Encoder) -> None:
        """Make record batches. Raises TypeError for keys and values that are not bytes."""
        topics = {partition.topic for partition, _ in self._batches}
        if any(self._admin.known_limit(topic) is None for topic in topics):
            await self._admin.learn_limits(topics)
        pending_batches: list[tuple[int, Written]] = []
        size = 0
        for number, (partition, outgoing) in enumerate(self._batches):
            self._encoded.append([])
            for written in encoder.write(outgoing.batch, self._admin.limit(partition.topic)):
                pending_batches.append((number, written))
                size += len(written.buffer)
                if size >= _AT_ONCE:
                    await self._finish(encoder, pending_batches, size)
                    pending_batches, size = [], 0
                    # Let other tasks run.
                    await asyncio.sleep(0)
        await self._finish(encoder, pending_batches, size)
        self._note_too_large(encoder)

    async def _finish(
        self, encoder: Encoder, pending_batches: list[tuple[int, Written]], size: int
    ) -> None:
        """Make record batches of pieces; if that would delay other tasks, use a thread.

        Meanwhile the caller keeps the order of sends. After a cancellation the thread still
        finishes its pieces, and drops them.
        """
        finish = partial(_finished, encoder, [written for _, written in pending_batches])
        slow = encoder.seconds(size) > _SLOW_S
        # In a thread of its own: the app's functions may keep the loop's threads busy for long.
        done = await in_thread(finish, name="compress") if slow else finish()
        for (number, _), made in zip(pending_batches, done, strict=True):
            if isinstance(made, RecordTooLarge):
                self._too_large.setdefault(number, made)
            else:
                self._encoded[number].append(made)

    def _note_too_large(self, encoder: Encoder) -> None:
        if not self._too_large:
            return
        before: dict[TopicPartition, int] = {}
        too_large: dict[TopicPartition, list[int]] = {}
        for number, (partition, outgoing) in enumerate(self._batches):
            passed = before.get(partition, 0)
            before[partition] = passed + len(outgoing.batch)
            error = self._too_large.get(number)
            if error is not None:
                records = too_large.setdefault(partition, [])
                records += [
                    passed + index
                    for index in encoder.too_large(
                        outgoing.batch, self._admin.limit(partition.topic)
                    )
                ]
                self.errors[partition] = RecordTooLarge(str(error), records)
                self._encoded[number] = []

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions with records to send."""
        return {
            partition
            for partition, outgoing in self._batches
            if len(outgoing.batch) and partition not in self.errors
        }

    def refuse(self, errors: Mapping[TopicPartition, Exception]) -> None:
        """Send nothing to these partitions."""
        self.errors.update(errors)

    def put(self, sender: Sender) -> list[Outcome]:
        """Hand all writable batches to the sender; return their outcomes."""
        deadline = sender.deadline
        for (partition, outgoing), encoded in zip(self._batches, self._encoded, strict=True):
            refused = partition in self.errors or not encoded
            self._outcomes.append(
                [] if refused else sender.put(partition, encoded, outgoing.batch, deadline)
            )
        sender.go()
        return [outcome for outcomes in self._outcomes for outcome in outcomes]

    def take_errors(self) -> Iterable[Exception]:
        """Record the failures, and yield them; all outcomes are known."""
        before: dict[TopicPartition, int] = {}
        for (partition, outgoing), outcomes in zip(
            self._batches, self._outcomes, strict=bool(self._outcomes)
        ):
            passed = before.get(partition, 0)
            before[partition] = passed + len(outgoing.batch)
            for outcome in outcomes:
                error = outcome.exception()
                if error is not None:
                    self._note_error(partition, error, passed)
                    yield error

    def _written(self) -> dict[TopicPartition, int]:
        """Return how many records of each partition were written before its first error."""
        written: dict[TopicPartition, int] = {}
        broken: set[TopicPartition] = set()
        for (partition, outgoing), encoded, outcomes in zip(
            self._batches, self._encoded, self._outcomes, strict=bool(self._outcomes)
        ):
            if not outcomes:
                # No record of this batch was sent, which is no failure if the batch is empty.
                broken.update([partition] if len(outgoing.batch) else [])
                continue
            for batch, outcome in zip(encoded, outcomes, strict=True):
                if outcome.exception() is not None:
                    broken.add(partition)
                elif partition not in broken:
                    written[partition] = written.get(partition, 0) + batch.count
        return {partition: count for partition, count in written.items() if partition in broken}

    def _note_error(self, partition: TopicPartition, error: Exception, passed: int) -> None:
        """Keep a partition's first error; `passed` of its records are before the failed batches."""
        if isinstance(error, InvalidRecord | RecordTooLarge):
            records = {passed + index for index in error.records}
            known = self.errors.get(partition)
            if isinstance(known, InvalidRecord | RecordTooLarge):
                # Later batches were sent with a new identity, and may have refused records, too.
                self.errors[partition] = type(known)(str(known), [*known.records, *records])
                return
            error = type(error)(str(error), [*records])
        self.errors.setdefault(partition, error)

    async def result(self) -> list[int]:
        """Return the offset after each batch; all outcomes are known. Raises ProduceFailed."""
        if self.errors:
            raise ProduceFailed(self.errors, self._written())
        empty = [partition for (partition, outgoing) in self._batches if not len(outgoing.batch)]
        ends = (
            await self._admin.end_offsets(empty, IsolationLevel.READ_UNCOMMITTED) if empty else {}
        )
        return [
            outcomes[-1].result() if outcomes else ends[partition]
            for (partition, _), outcomes in zip(self._batches, self._outcomes, strict=True)
        ]


def _finished(
    encoder: Encoder, pending_batches: Sequence[Written]
) -> list[RecordBatch | RecordTooLarge]:
    done: list[RecordBatch | RecordTooLarge] = []
    for written in pending_batches:
        try:
            done.append(encoder.finish(written))
        except RecordTooLarge as error:
            done.append(error)
    return done


async def missing(
    client: KafkaClient, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Exception]:
    """Return the errors of missing partitions, after a short wait for new topics.

    A partition is missing when brokers have told so for `missing_topic_wait_s`. If they fall silent
    before that, it is left to the sender, which waits for them.
    """
    clock = asyncio.get_running_loop().time
    wait, began = client.options.missing_topic_wait_s, clock()
    unknown = [partition for partition in partitions if client.leader(partition) is None]
    while unknown:
        try:
            await client.refresh({partition.topic for partition in unknown})
        except Unavailable:
            break
        unknown = [
            partition
            for partition in unknown
            if client.leader(partition) is None
            and not isinstance(client.why_no_leader(partition), Unavailable)
        ]
        errors: dict[TopicPartition, Exception] = {
            partition: error
            for partition in unknown
            if not isinstance(error := client.why_no_leader(partition, since=began), Unavailable)
        }
        if len(errors) == len(unknown) or clock() - began >= client.options.api_timeout_ms / 1000:
            return errors
        await asyncio.sleep(wait / 10)
    return {}
