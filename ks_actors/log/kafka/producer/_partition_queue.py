"""The queue of batches to one partition."""

from __future__ import annotations

from collections import deque
from math import inf
from sys import maxsize
from typing import TYPE_CHECKING, Final, NamedTuple, final

from ks_actors.log.kafka.client import Backoff
from ks_actors.log.kafka.producer._outcome import Outcome

if TYPE_CHECKING:
    from ks_actors._errors import LogError
    from ks_actors.log.kafka.wire import Encoder, RecordBatch
    from ks_actors.records import Batch, TopicPartition

SLOW_SECONDS: Final = 10.0
SEQUENCES: Final = 2**31


class Identity(NamedTuple):
    """A producer's id and epoch for brokers; both -1 before they are known."""

    producer_id: int
    epoch: int


NOBODY = Identity(-1, -1)


@final
class InFlightBatch:
    """One record batch, until its outcome is known.

    `number` orders the batches of a queue as they were sent; the parts of a split batch share it.
    `sequence` is the sequence number for brokers, -1 before the first attempt. `records` has the
    source records, for a split; `first` is the index of the batch's first record among all records
    of the call. Once the batch is written, `next_offset` gets the offset after its last record.
    `repeated` means that an earlier attempt may have written the batch.
    """

    __slots__ = (
        "batch",
        "deadline",
        "first",
        "next_offset",
        "number",
        "records",
        "repeated",
        "sequence",
    )

    def __init__(
        self,
        batch: RecordBatch,
        records: Batch,
        next_offset: Outcome,
        deadline: float,
        first: int,
    ) -> None:
        self.batch: RecordBatch = batch
        self.records: Batch = records
        self.next_offset: Outcome = next_offset
        self.deadline: float = deadline
        self.first: int = first
        self.number = -1
        self.sequence = -1
        self.repeated = False

    @property
    def place(self) -> tuple[int, int]:
        """The batch's place in the order of the queue."""
        return self.number, self.first

    def split(self, encoder: Encoder) -> list[InFlightBatch]:
        """Split into smaller batches with the same records and sequence numbers."""
        made = list[InFlightBatch]()
        half, sequence, first = self.batch.count // 2, self.sequence, self.first
        for part in (self.records.slice(0, half), self.records.slice(half, self.batch.count)):
            start = 0
            for written in encoder.write(part, self.batch.size - 1):
                # The broker decides about single records: compressed alone, a record may take more
                # bytes than together with another record.
                batch = encoder.finish(written._replace(limit=maxsize))
                smaller = InFlightBatch(
                    batch,
                    part.slice(start, start + batch.count),
                    Outcome(),
                    self.deadline,
                    first,
                )
                first += batch.count
                # Keep the sequence numbers: the broker has refused the whole batch, and expects
                # exactly these numbers next. But an earlier attempt may have written it.
                smaller.sequence, smaller.number = sequence, self.number
                smaller.repeated = self.repeated
                sequence, start = (sequence + batch.count) % SEQUENCES, start + batch.count
                made.append(smaller)
        return made

    def fail(self, error: LogError) -> None:
        """Fail the batch, even if no caller waits: `send` raises the error for lost records."""
        if not self.next_offset.done():
            self.next_offset.set_exception(error)


@final
class PartitionQueue:
    """The queue to a partition.

    Each batch gets its sequence number at the first attempt, without gaps, and brokers reject a
    batch that does not follow the last batch. So after a temporary failure batches are repeated one
    at a time, from the first on (`repeating`). A producer's first batch is also sent alone: before
    its acknowledgment no batch can follow. After a final rejection no batch of the same identity
    can follow (`poisoned`). In a transaction, which is void as a whole, later batches then fail
    with `refused`; otherwise they wait until all sent batches are decided and `renew` is called.
    """

    __slots__ = (
        "abandoned",
        "acknowledged",
        "backoff",
        "batches",
        "identity",
        "in_flight",
        "missing_since",
        "next_offset",
        "next_sequence",
        "not_before",
        "numbers",
        "partition",
        "poisoned",
        "reason",
        "refused",
        "repeating",
        "since",
    )  # fmt: skip

    def __init__(self, partition: TopicPartition, identity: Identity) -> None:
        self.partition: TopicPartition = partition
        self.identity: Identity = identity
        self.batches: deque[InFlightBatch] = deque()
        self.in_flight: list[InFlightBatch] = []
        self.next_sequence = 0
        self.numbers = 0
        self.abandoned = 0
        self.acknowledged = False
        # The offset up to which all sent batches have been acknowledged.
        self.next_offset = 0
        self.repeating = False
        self.poisoned = False
        self.refused: LogError | None = None
        # The time of the first attempt of a repeated batch, until the slow warning is logged.
        self.since: float | None = None
        self.not_before = 0.0
        self.backoff: Backoff = Backoff()
        self.missing_since: float | None = None
        self.reason = "it had not been sent yet"

    def put(self, pending: InFlightBatch) -> None:
        """Append a new batch."""
        # The transaction is void: failing here saves a round trip.
        if self.refused is not None:
            pending.fail(self.refused)
            return
        pending.number = self.numbers
        self.numbers += 1
        self.batches.append(pending)

    def abandon(self) -> None:
        """Mark all batches in the queue or in flight: they are not sent or repeated any more."""
        self.abandoned = self.numbers

    def is_abandoned(self) -> bool:
        """Return whether the first batch in the queue is abandoned."""
        return bool(self.batches) and self.batches[0].number < self.abandoned

    def poison(self, refused: LogError | None) -> None:
        """Stop sending; with `refused`, queued and later batches fail with it."""
        self.poisoned, self.refused = True, refused
        while refused is not None and self.batches:
            self.batches.popleft().fail(refused)

    def may_send(self, now: float) -> bool:
        """Return whether the first batch in the queue may be sent."""
        if not self.batches or self.not_before > now or self.batches[0].number < self.abandoned:
            return False
        # A batch after an undecided batch would be rejected as out of order.
        if self.in_flight and (self.repeating or not self.acknowledged):
            return False
        # Batches with a number have the old identity, and must end before a new identity is used.
        return not self.poisoned or self.batches[0].sequence >= 0

    def due(self, now: float) -> float:
        """Return the time of the next timer of the first batch."""
        deadline = self.batches[0].deadline
        if self.not_before > now:
            return min(self.not_before, deadline) if deadline > now else self.not_before
        # While an earlier batch is in flight, this batch does not time out.
        return deadline if deadline > now else inf

    def take(self) -> InFlightBatch:
        """Remove the first batch for sending, and give it a sequence number."""
        pending = self.batches.popleft()
        if pending.sequence < 0:
            self.repeating = False
            # Only at the first attempt: a repeated batch keeps the number that the leader knows.
            pending.sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + pending.batch.count) % SEQUENCES
        self.in_flight.append(pending)
        return pending

    def answered(self, pending: InFlightBatch) -> None:
        """Note that a response for the batch has arrived."""
        self.in_flight.remove(pending)

    def written(self, pending: InFlightBatch, next_offset: int) -> None:
        """Note that the batch was written, and complete it."""
        self.in_flight.remove(pending)
        self.acknowledged = True
        # Responses of several connections may arrive out of order. An undecided batch, if written,
        # must be at `self.next_offset` or later.
        if not self.unresolved_before(pending):
            self.next_offset = next_offset
        self.backoff.end()
        if not pending.next_offset.done():
            pending.next_offset.set_result(next_offset)

    def is_slow(self, now: float) -> bool:
        """Return whether repeats have taken long; true only once per series of repeats."""
        if not self.backoff:
            self.since = now
        if self.since is None or now - self.since < SLOW_SECONDS:
            return False
        self.since = None
        return True

    def requeue(self, reason: str, *pending_batches: InFlightBatch) -> None:
        """Put a batch, or its parts after a split, back into its place, to repeat it."""
        self.reason = reason
        self.repeating = True
        batches = self.batches
        # Find the place in the order: later batches may have been put back already.
        place = 0
        while place < len(batches) and batches[place].place < pending_batches[0].place:
            place += 1
        for pending in reversed(pending_batches):
            batches.insert(place, pending)

    def unresolved_before(self, pending: InFlightBatch) -> bool:
        """Return whether an earlier batch is undecided: then brokers cannot accept this batch."""
        if not (self.in_flight or self.batches):
            return False
        return any(other.place < pending.place for other in self.in_flight) or (
            bool(self.batches) and self.batches[0].place < pending.place
        )

    def unresolved(self) -> bool:
        """Return whether sent batches are undecided.

        A batch behind a batch without a number counts as decided: it was not written, as leaders
        accept batches only in order.
        """
        return bool(self.in_flight) or (bool(self.batches) and self.batches[0].sequence >= 0)

    def renew(self, identity: Identity) -> None:
        """Start over with a new identity."""
        self.identity = identity
        # After lost records the log may be shorter than before.
        self.next_sequence = self.next_offset = 0
        for pending in self.batches:
            pending.sequence, pending.repeated = -1, False
        # The first batch of the new identity is again sent alone.
        self.acknowledged = self.repeating = self.poisoned = False
        self.refused = None
