"""The queue of batches to one partition."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, final

from ks_actors.log.kafka.client import Failures

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from ks_actors._errors import LogError
    from ks_actors.log.kafka.wire import Encoder, RecordBatch
    from ks_actors.records import Batch, TopicPartition

SLOW_SECONDS: Final = 10.0
_SEQUENCES = 2**31


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
    source records, for a split. `behind` gets the offset after its last record once it is written.
    `repeated` means that an earlier attempt may have written it.
    """

    __slots__ = ("batch", "behind", "deadline", "number", "records", "repeated", "sequence")

    def __init__(
        self, batch: RecordBatch, records: Batch, behind: asyncio.Future[int], deadline: float
    ) -> None:
        self.batch: RecordBatch = batch
        self.records: Batch = records
        self.behind: asyncio.Future[int] = behind
        self.deadline: float = deadline
        self.number = -1
        self.sequence = -1
        self.repeated = False

    def cut(self, encoder: Encoder) -> list[InFlightBatch]:
        """Split into smaller batches with the same records and sequence numbers."""
        made = list[InFlightBatch]()
        half, sequence = self.batch.count // 2, self.sequence
        for part in (self.records.slice(0, half), self.records.slice(half, self.batch.count)):
            start = 0
            for batch in encoder.encode(part, self.batch.size - 1):
                smaller = InFlightBatch(
                    batch,
                    part.slice(start, start + batch.count),
                    self.behind.get_loop().create_future(),
                    self.deadline,
                )
                # The same numbers: the broker has refused the batch as a whole, and expects exactly
                # these next.
                smaller.sequence, smaller.number = sequence, self.number
                sequence, start = (sequence + batch.count) % _SEQUENCES, start + batch.count
                made.append(smaller)
        return made

    def fail(self, error: LogError) -> None:
        """Fail the batch, even if no caller waits: `send` raises the error for lost records."""
        if not self.behind.done():
            self.behind.set_exception(error)
        # Marks the error as retrieved: nobody may be waiting, and asyncio would log it.
        self.behind.exception()


@final
class PartitionQueue:
    """The queue to a partition.

    Each batch gets its sequence number at the first attempt, without gaps, and brokers reject a
    batch that does not follow the last one. So after a temporary failure batches are repeated one
    at a time, from the first on (`repeating`). The first batch also goes alone: until its
    acknowledgment no other can follow it. After a final rejection no batch of the same identity can
    follow (`spoiled`). In a transaction, which is void as a whole, later batches then fail with
    `refused`; otherwise they wait for a new identity.
    """

    __slots__ = (
        "abandoned", "acknowledged", "behind", "failures", "flying", "missing_since",
        "next_sequence", "not_before", "numbers", "partition", "queue", "reason", "refused",
        "repeating", "since", "spoiled",
    )  # fmt: skip

    def __init__(self, partition: TopicPartition) -> None:
        self.partition: TopicPartition = partition
        self.queue: deque[InFlightBatch] = deque()
        self.flying: list[InFlightBatch] = []
        self.next_sequence = 0
        self.numbers = 0
        self.abandoned = 0
        self.acknowledged = False
        # The offset after the last acknowledged batch.
        self.behind = 0
        self.repeating = False
        self.spoiled = False
        self.refused: LogError | None = None
        # The time of the first attempt of a repeated batch, until the slow warning is logged.
        self.since: float | None = None
        self.not_before = 0.0
        self.failures: Failures = Failures()
        self.missing_since: float | None = None
        self.reason = "it had not been sent yet"

    def put(self, piece: InFlightBatch) -> None:
        """Append a new batch."""
        if self.refused is not None:
            piece.fail(self.refused)
            return
        piece.number = self.numbers
        self.numbers += 1
        self.queue.append(piece)

    def abandon(self) -> None:
        """Mark all present batches: they are neither sent nor repeated any more."""
        self.abandoned = self.numbers

    def is_abandoned(self) -> bool:
        """Return whether the first batch in the queue is abandoned."""
        return bool(self.queue) and self.queue[0].number < self.abandoned

    def spoil(self, refused: LogError | None) -> None:
        """Stop sending; with `refused`, queued and later batches fail with it."""
        self.spoiled, self.refused = True, refused
        while refused is not None and self.queue:
            self.queue.popleft().fail(refused)

    def may_go(self, now: float, *, recycling: bool) -> bool:
        """Return whether the first batch in the queue may be sent."""
        if not self.queue or self.not_before > now or self.is_abandoned():
            return False
        # A batch behind an undecided one would be rejected as out of order.
        if self.flying and (self.repeating or not self.acknowledged):
            return False
        # Batches with a number belong to the old identity and must end before a new one is used.
        return not (self.queue[0].sequence < 0 and (recycling or self.spoiled))

    def take(self) -> InFlightBatch:
        """Remove the first batch for sending, and give it a sequence number."""
        piece = self.queue.popleft()
        if piece.sequence < 0:
            self.repeating = False
            piece.sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + piece.batch.count) % _SEQUENCES
        self.flying.append(piece)
        return piece

    def landed(self, piece: InFlightBatch) -> None:
        """Note that a response for the batch has arrived."""
        self.flying.remove(piece)

    def written(self, piece: InFlightBatch, behind: int) -> None:
        """Note that the batch was written, and complete it."""
        self.landed(piece)
        self.acknowledged = True
        self.behind = behind
        self.failures.end()
        if not piece.behind.done():
            piece.behind.set_result(behind)

    def is_slow(self, now: float) -> bool:
        """Return whether repeats have taken long; true once per series of repeats."""
        if not self.failures:
            self.since = now
        if self.since is None or now - self.since < SLOW_SECONDS:
            return False
        self.since = None
        return True

    def again(self, reason: str, *pieces: InFlightBatch) -> None:
        """Put a batch, or its parts after a split, back into its place to be repeated."""
        self.reason = reason
        self.repeating = True
        queue = self.queue
        # By number, because batches after it may have been put back already.
        place = 0
        while place < len(queue) and queue[place].number < pieces[0].number:
            place += 1
        for piece in reversed(pieces):
            queue.insert(place, piece)

    def forget_sequences(self, first: InFlightBatch) -> None:
        """Note that a queued batch was not written, and neither were later ones.

        The leader accepts batches only in order.
        """
        for piece in self.queue:
            if piece.number >= first.number:
                piece.sequence = -1

    def unresolved_before(self, piece: InFlightBatch) -> bool:
        """Return whether an earlier batch is undecided: then no broker can accept this one yet."""
        return any(
            other.number < piece.number
            for other in (*self.flying, *self.queue)
            if other.sequence >= 0
        )

    def unresolved(self) -> bool:
        """Return whether sent batches are undecided."""
        return bool(self.flying) or any(piece.sequence >= 0 for piece in self.queue)

    def renew(self) -> None:
        """Start over with a new identity."""
        self.next_sequence = 0
        self.acknowledged = self.repeating = self.spoiled = False
        self.refused = self.since = None
        self.failures.end()


def join(parts: Sequence[asyncio.Future[int]], whole: asyncio.Future[int]) -> None:
    """Complete `whole` after all parts: with the last one's result, or the first error."""
    left = len(parts)

    def ended(_: asyncio.Future[int]) -> None:
        nonlocal left
        left -= 1
        if left or whole.done():
            return
        failed = next((part.exception() for part in parts if part.exception() is not None), None)
        # The first error: some parts may be written, as `send` documents for LogTimeout.
        if failed is not None:
            whole.set_exception(failed)
            whole.exception()
        else:
            whole.set_result(parts[-1].result())

    for part in parts:
        part.add_done_callback(ended)
