"""The log of a partition, as one broker has it: record batches, what producers have written, and transactions."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tests.simulation.batches import NO_PRODUCER, Batch, marker, placed

if TYPE_CHECKING:
    from collections.abc import Callable

# Kafka's error codes, as far as a log gives them.
OUT_OF_ORDER_SEQUENCE: Final = 45
INVALID_PRODUCER_EPOCH: Final = 47
_REMEMBERED: Final = 5
_INDEX_INTERVAL: Final = 4096
_SEQUENCES: Final = 1 << 31


@dataclass(slots=True)
class Written:
    """The state of a producer in a log: the last batches (first and last sequence, base offset) of its epoch."""

    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Transaction:
    """A transaction in a log; `end` is the offset of its marker."""

    producer: int
    first: int
    end: int | None = None
    aborted: bool = False


class Log:
    """Batches in the order of their offsets, from `start` up to `end`; consumers may read up to `high`, the high watermark.

    `lost` has the offsets that compaction has taken away since records were read: a reader may have them, or not.
    """

    def __init__(self, start: int = 0) -> None:
        self.start: int = start
        self.end: int = start
        self.high: int = start
        # What all replicas have, which a new leader may not know yet.
        self.safe: int = start
        self.batches: list[Batch] = []
        self.producers: dict[int, Written] = {}
        self.transactions: list[Transaction] = []
        self.lost: set[int] = set()
        self.epochs: list[tuple[int, int]] = []
        self._behind: list[int] = []
        # What the broker that has it does when it has changed.
        self.wake: Callable[[], object] = int

    # --- writing ------------------------------------------------------------------------------------------------------------------------

    def judge(self, batch: Batch) -> tuple[int, int]:
        """Return an error code, or 0, and the offset of the batch if it was written before, else -1."""
        if batch.producer == NO_PRODUCER:
            return 0, -1
        known = self.producers.get(batch.producer)
        if known is None:
            # A log that has forgotten a producer takes any sequence.
            return 0, -1
        first, last = batch.sequence, (batch.sequence + batch.behind - batch.base - 1) % _SEQUENCES
        if batch.producer_epoch == known.epoch:
            for begin, end, base in known.batches:
                if (begin, end) == (first, last):
                    return 0, base
        if batch.producer_epoch < known.epoch:
            return INVALID_PRODUCER_EPOCH, -1
        expected = 0
        if batch.producer_epoch == known.epoch and known.batches:
            expected = (known.batches[-1][1] + 1) % _SEQUENCES
        return (0 if first == expected else OUT_OF_ORDER_SEQUENCE), -1

    def append(self, raw: bytes, epoch: int) -> Batch:
        """Write a batch at the end."""
        batch = placed(raw, self.end, epoch)
        self._add(batch)
        return batch

    def end_transaction(self, producer: int, producer_epoch: int, epoch: int, timestamp: int, *, commit: bool) -> Batch:
        """Write the marker of a producer's transaction."""
        return self.append(marker(producer, producer_epoch, timestamp, commit=commit), epoch)

    def skip(self, behind: int) -> None:
        """Leave a gap at the end, as compaction leaves it."""
        self.end = behind

    def _add(self, batch: Batch) -> None:
        if not self.epochs or self.epochs[-1][0] != batch.epoch:
            # A replica takes the base of an epoch's first batch for the begin of the epoch. If a gap is before it, readers of a lost log
            # are told to go back to there, and keep what they have read of the gap: Kafka cannot know better.
            if self.batches:
                self.lost.update(range(self._behind[-1], batch.base))
            self.epochs.append((batch.epoch, batch.base))
        self.batches.append(batch)
        self._behind.append(batch.behind)
        self.end = batch.behind
        if batch.producer == NO_PRODUCER:
            return
        known = self.producers.get(batch.producer)
        if known is None or known.epoch < batch.producer_epoch:
            known = self.producers[batch.producer] = Written(batch.producer_epoch)
        if batch.kind == "data":
            last = (batch.sequence + batch.behind - batch.base - 1) % _SEQUENCES
            known.batches = [*known.batches[1 - _REMEMBERED :], (batch.sequence, last, batch.base)]
            if batch.transactional and self.open_since(batch.producer) is None:
                self.transactions.append(Transaction(batch.producer, batch.base))
        else:
            for each in self.transactions:
                if each.producer == batch.producer and each.end is None:
                    each.end, each.aborted = batch.base, batch.kind == "abort"

    # --- transactions -------------------------------------------------------------------------------------------------------------------

    def open_since(self, producer: int) -> int | None:
        """Return the first offset of a producer's open transaction; None if there is none."""
        return next((each.first for each in self.transactions if each.producer == producer and each.end is None), None)

    def is_open(self, producer: int, epoch: int) -> bool:
        """Return whether a producer of this epoch has an open transaction."""
        return self.open_since(producer) is not None and self.producers[producer].epoch == epoch

    @property
    def stable(self) -> int:
        """The last stable offset: no transaction before it is undecided, or decided by a marker that is not replicated."""
        return min([self.high, *(each.first for each in self.transactions if each.end is None or each.end >= self.high)])

    def aborted(self, begin: int, behind: int) -> list[Transaction]:
        """Return the aborted transactions of which something may be between two offsets."""
        return [each for each in self.transactions if each.aborted and each.end is not None and each.end >= begin and each.first < behind]

    def bound(self, behind: int) -> int:
        """Return the offset up to which Kafka tells aborted transactions of a fetch up to `behind`: the index has only some batches."""
        size = 0
        for batch in self.batches[bisect_right(self._behind, behind) :]:
            if size > _INDEX_INTERVAL:
                return batch.base
            size += len(batch.raw)
        return self.end

    def is_aborted(self, batch: Batch) -> bool:
        """Return whether a batch is of an aborted transaction."""
        return any(
            each.aborted and each.producer == batch.producer and each.end is not None and each.first <= batch.base < each.end
            for each in self.transactions
        )

    # --- reading ------------------------------------------------------------------------------------------------------------------------

    def read(self, offset: int, limit: int, upto: int, *, whole: bool) -> tuple[bytes, int]:
        """Return whole batches from that with the offset on, and the offset behind them.

        The last one may be cut off by the limit; with `whole` the first one is not.
        """
        parts: list[bytes] = []
        size, behind = 0, offset
        for batch in self.batches[bisect_right(self._behind, offset) :]:
            if batch.behind > upto:
                break
            room = limit - size
            if len(batch.raw) > room:
                if whole and not parts:
                    parts.append(batch.raw)
                    behind = batch.behind
                elif parts and room > 0:
                    parts.append(batch.raw[:room])
                break
            parts.append(batch.raw)
            size, behind = size + len(batch.raw), batch.behind
        return b"".join(parts), behind

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to this one, and the offset at which it ends; -1 and -1 for an epoch beyond the last one, or none."""
        if not self.epochs or epoch < 0 or epoch > self.epochs[-1][0]:
            return -1, -1
        found = epoch
        for each, begin in self.epochs:
            if each > epoch:
                return found, begin
            found = each
        return found, self.end

    def begin_epoch(self, epoch: int) -> None:
        """Note that a leader takes over; epochs without a batch leave no trace."""
        while self.epochs and self.epochs[-1][1] >= self.end:
            self.epochs.pop()
        self.epochs.append((epoch, self.end))

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch; -1 without any."""
        return self.epochs[-1][0] if self.epochs else -1

    # --- what happens to a log ----------------------------------------------------------------------------------------------------------

    def fork(self, offset: int) -> Log:
        """Return the log of another replica, which has the batches up to an offset; what it knows of producers comes from these."""
        other = Log(self.start)
        other.lost = self.lost
        if offset >= self.end:
            other.batches, other._behind, other.epochs = self.batches[:], self._behind[:], self.epochs[:]
            other.producers = {producer: Written(known.epoch, known.batches[:]) for producer, known in self.producers.items()}
            other.transactions = [replace(each) for each in self.transactions]
            other.end = self.end
        else:
            for batch in self.batches[: bisect_right(self._behind, offset)]:
                other._add(batch)
        other.high = min(self.high, other.end)
        other.safe = min(max(self.high, self.safe), other.end)
        other.start = min(other.start, other.end)
        return other

    def delete_before(self, offset: int) -> None:
        """Move the start of the log; whole batches before it are gone."""
        self.start = max(self.start, offset)
        count = bisect_right(self._behind, self.start)
        del self.batches[:count], self._behind[:count]
        kept = [(epoch, max(begin, self.start)) for epoch, begin in self.epochs]
        # The last epoch that began before the start begins there.
        self.epochs = [each for index, each in enumerate(kept) if index + 1 == len(kept) or kept[index + 1][1] > self.start]
        self.transactions = [each for each in self.transactions if each.end is None or each.end >= self.start]

    def compact(self, index: int) -> None:
        """Take away a whole batch of records, as if newer ones had their keys."""
        batch = self.batches[index]
        self.lost.update(range(batch.base, batch.behind))
        del self.batches[index], self._behind[index]

    def forget_producers(self) -> None:
        """Forget what producers have written, as a log does whose producers have written nothing for a day."""
        open_ = {each.producer for each in self.transactions if each.end is None}
        self.producers = {producer: known for producer, known in self.producers.items() if producer in open_}

    def restore_producers(self) -> None:
        """Remember what a snapshot has of producers: their last batch only."""
        for known in self.producers.values():
            del known.batches[:-1]
