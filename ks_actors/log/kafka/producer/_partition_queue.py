"""What is on its way to one partition."""

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
    """Who a producer is to brokers; -1 and -1 before it was told."""

    producer_id: int
    epoch: int


NOBODY = Identity(-1, -1)


@final
class InFlightBatch:
    """One record batch, until it is known what has become of it.

    `number` orders the pieces of a lane as they were sent; what one was split into has the same. `sequence` is what brokers know it by, -1 before it
    was sent the first time. `records` is where it was made from, to make it smaller if need be. `behind` is the offset behind its last record, once
    it is there. `repeated`: it may be there since it was sent before.
    """

    __slots__ = ("batch", "behind", "deadline", "number", "records", "repeated", "sequence")

    def __init__(self, batch: RecordBatch, records: Batch, behind: asyncio.Future[int], deadline: float) -> None:
        self.batch: RecordBatch = batch
        self.records: Batch = records
        self.behind: asyncio.Future[int] = behind
        self.deadline: float = deadline
        self.number = -1
        self.sequence = -1
        self.repeated = False

    def cut(self, encoder: Encoder) -> list[InFlightBatch]:
        """Return smaller pieces that have, together, the records and the sequence of this one."""
        made = list[InFlightBatch]()
        half, sequence = self.batch.count // 2, self.sequence
        for part in (self.records.slice(0, half), self.records.slice(half, self.batch.count)):
            start = 0
            for batch in encoder.encode(part, self.batch.size - 1):
                smaller = InFlightBatch(batch, part.slice(start, start + batch.count), self.behind.get_loop().create_future(), self.deadline)
                smaller.sequence, smaller.number = sequence, self.number
                sequence, start = (sequence + batch.count) % _SEQUENCES, start + batch.count
                made.append(smaller)
        return made

    def fail(self, error: LogError) -> None:
        """End; whether anybody waits for it or not: what is lost is told by the exception of `send`."""
        if not self.behind.done():
            self.behind.set_exception(error)
        self.behind.exception()


@final
class PartitionQueue:
    """The queue to a partition.

    Sequences are given when a piece leaves for the first time, without gaps, and brokers refuse what does not follow the last one: so pieces that
    fail for a while are repeated one at a time, from the first on (`repeating`). Before the first one was acknowledged there is nothing that it could
    follow, so then too there is one at a time. After one was refused for good no other of that identity can follow (`spoiled`): in a
    transaction, which is void as a whole, what comes fails by `refused`, else it waits for a new identity.
    """

    __slots__ = (
        "abandoned", "acknowledged", "behind", "failures", "flying", "missing_since", "next_sequence", "not_before", "numbers", "partition", "queue",
        "reason", "refused", "repeating", "since", "spoiled",
    )  # fmt: skip

    def __init__(self, partition: TopicPartition) -> None:
        self.partition: TopicPartition = partition
        self.queue: deque[InFlightBatch] = deque()
        self.flying: list[InFlightBatch] = []
        self.next_sequence = 0
        self.numbers = 0
        self.abandoned = 0
        self.acknowledged = False
        # The offset behind the last batch that was acknowledged.
        self.behind = 0
        self.repeating = False
        self.spoiled = False
        self.refused: LogError | None = None
        # When what is repeated was sent first, until that has been told.
        self.since: float | None = None
        self.not_before = 0.0
        self.failures: Failures = Failures()
        self.missing_since: float | None = None
        self.reason = "it had not been sent yet"

    def put(self, piece: InFlightBatch) -> None:
        """Take a new piece in, behind all others."""
        if self.refused is not None:
            piece.fail(self.refused)
            return
        piece.number = self.numbers
        self.numbers += 1
        self.queue.append(piece)

    def abandon(self) -> None:
        """Note that none of the pieces that are there now is to be sent any more, nor repeated."""
        self.abandoned = self.numbers

    def is_abandoned(self) -> bool:
        """Return whether the first piece in the queue is not to be sent any more."""
        return bool(self.queue) and self.queue[0].number < self.abandoned

    def spoil(self, refused: LogError | None) -> None:
        """Let nothing follow any more; what is queued, and what comes, fails by `refused` if it is given."""
        self.spoiled, self.refused = True, refused
        while refused is not None and self.queue:
            self.queue.popleft().fail(refused)

    def may_go(self, now: float, *, recycling: bool) -> bool:
        """Return whether the first piece in the queue may leave."""
        if not self.queue or self.not_before > now or self.is_abandoned():
            return False
        if self.flying and (self.repeating or not self.acknowledged):
            return False
        return not (self.queue[0].sequence < 0 and (recycling or self.spoiled))

    def take(self) -> InFlightBatch:
        """Let the first piece leave, with a sequence."""
        piece = self.queue.popleft()
        if piece.sequence < 0:
            self.repeating = False
            piece.sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + piece.batch.count) % _SEQUENCES
        self.flying.append(piece)
        return piece

    def landed(self, piece: InFlightBatch) -> None:
        """Note that an answer for the piece is there."""
        self.flying.remove(piece)

    def written(self, piece: InFlightBatch, behind: int) -> None:
        """Note that the piece is there, and end it."""
        self.landed(piece)
        self.acknowledged = True
        self.behind = behind
        self.failures.end()
        if not piece.behind.done():
            piece.behind.set_result(behind)

    def is_slow(self, now: float) -> bool:
        """Return whether something has been repeated for long, once for each time that it is."""
        if not self.failures:
            self.since = now
        if self.since is None or now - self.since < SLOW_SECONDS:
            return False
        self.since = None
        return True

    def again(self, reason: str, *pieces: InFlightBatch) -> None:
        """Put a piece, or what it was split into, back where it was in the order, to be repeated."""
        self.reason = reason
        self.repeating = True
        queue = self.queue
        place = 0
        while place < len(queue) and queue[place].number < pieces[0].number:
            place += 1
        for piece in reversed(pieces):
            queue.insert(place, piece)

    def forget_sequences(self, first: InFlightBatch) -> None:
        """Note that a piece in the queue is not there: nor is any behind it, as its leader takes them in their order."""
        for piece in self.queue:
            if piece.number >= first.number:
                piece.sequence = -1

    def unresolved_before(self, piece: InFlightBatch) -> bool:
        """Return whether an earlier piece is not decided yet: then no broker can take this one now."""
        return any(other.number < piece.number for other in (*self.flying, *self.queue) if other.sequence >= 0)

    def unresolved(self) -> bool:
        """Return whether there are pieces that were sent, and of which it is not known whether they are there."""
        return bool(self.flying) or any(piece.sequence >= 0 for piece in self.queue)

    def renew(self) -> None:
        """Begin anew, for a new identity."""
        self.next_sequence = 0
        self.acknowledged = self.repeating = self.spoiled = False
        self.refused = self.since = None
        self.failures.end()


def join(parts: Sequence[asyncio.Future[int]], whole: asyncio.Future[int]) -> None:
    """Let `whole` end when all parts have: with the last one's result, or the first error."""
    left = len(parts)

    def ended(_: asyncio.Future[int]) -> None:
        nonlocal left
        left -= 1
        if left or whole.done():
            return
        failed = next((part.exception() for part in parts if part.exception() is not None), None)
        if failed is not None:
            whole.set_exception(failed)
            whole.exception()
        else:
            whole.set_result(parts[-1].result())

    for part in parts:
        part.add_done_callback(ended)
