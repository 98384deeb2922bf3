"""The leader epochs of records that were read (KIP-101, KIP-320)."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.log._types import OffsetAndMetadata
    from ks_actors.records import TopicPartition

UNKNOWN_EPOCH: Final = -1
# Older epochs are forgotten: a truncation reaches back by an epoch or two.
_MOST_EPOCHS: Final = 16


@final
class EpochHistory:
    """The epochs of the records that one reader has read of a partition, up to offset `end`.

    An epoch counts from the end of the previous batch. So an offset that compaction has removed
    gets the epoch of the records after the gap: a leader's log may no longer have the epoch of the
    record before the gap.
    """

    __slots__ = ("_epochs", "_starts", "end")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._epochs: list[int] = []
        self.end: int = 0

    def begin(self, offset: int, epoch: int) -> None:
        """Begin at an offset; `epoch` is the epoch of the previous record, or -1."""
        self.end = offset
        self._starts[:], self._epochs[:] = ([], []) if epoch < 0 else ([offset - 1], [epoch])

    def note(self, start: int, end: int, epochs: Sequence[tuple[int, int]]) -> None:
        """Note that the records from `start` to `end` were read.

        `epochs` has pairs: the end of the previous batch, and the epoch from there on. The first
        epoch counts from `start` on.
        """
        if start != self.end:
            self.begin(start, UNKNOWN_EPOCH)
        for at, epoch in epochs:
            if epoch < 0:
                # A message format without epochs gives no information.
                self._starts.clear()
                self._epochs.clear()
            elif not self._epochs or self._epochs[-1] != epoch:
                self._starts.append(max(at, start))
                self._epochs.append(epoch)
        del self._starts[:-_MOST_EPOCHS], self._epochs[:-_MOST_EPOCHS]
        self.end = end

    def before(self, offset: int) -> int:
        """Return the epoch of the last record before an offset, or -1 if it is not known."""
        starts = self._starts
        if not starts or not starts[0] < offset <= self.end:
            return UNKNOWN_EPOCH
        return self._epochs[bisect_left(starts, offset) - 1]

    def diverges_at(self, epoch: int, end: int) -> int:
        """Return the first offset at which a log differs from the records that were read.

        `epoch` is the log's last epoch that is not above the epoch of those records; in the log it
        ends at offset `end`.
        """
        later = (at for at, other in zip(self._starts, self._epochs, strict=True) if other > epoch)
        return min(end, next(later, end))

    def cut(self, offset: int) -> None:
        """Forget the records from an offset on."""
        kept = bisect_left(self._starts, offset)
        del self._starts[kept:], self._epochs[kept:]
        self.end = min(self.end, offset)


@final
class LeaderEpochs:
    """The leader epochs that the readers of a log know.

    A leader increments the epoch when it takes over, and writes it into each record batch. Offset
    and epoch together identify a record, even if another record has later taken its offset. Offsets
    are committed with the epoch of the record before the offset; fetches also send this epoch.
    """

    __slots__ = ("_committed", "_histories", "_last")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, tuple[int, int]] = {}
        self._histories: dict[TopicPartition, list[EpochHistory]] = {}
        self._last: dict[TopicPartition, EpochHistory] = {}

    def add(self, partition: TopicPartition, offset: int) -> EpochHistory:
        """Return the history of a new reader of a partition, which begins at an offset."""
        history = EpochHistory()
        history.begin(offset, self.before(partition, offset))
        self._histories.setdefault(partition, []).append(history)
        return history

    def remove(self, partition: TopicPartition, history: EpochHistory) -> None:
        """Remove the history of an ended reader; keep the partition's last history for a commit."""
        histories = self._histories.get(partition, [])
        if history in histories:
            histories.remove(history)
            self._last[partition] = history
        if not histories:
            self._histories.pop(partition, None)

    def note_committed(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        """Note the epoch of the record before a committed offset; -1 is unknown."""
        self._committed[partition] = offset, epoch

    def forget(self, partition: TopicPartition) -> None:
        """Forget the committed offset and the ended readers of a partition with a changed log."""
        self._committed.pop(partition, None)
        self._last.pop(partition, None)

    def before(self, partition: TopicPartition, offset: int) -> int:
        """Return the epoch of the last record before an offset, or -1 if it is not known."""
        for history in self._histories.get(partition, ()):
            epoch = history.before(offset)
            if epoch >= 0:
                return epoch
        committed, epoch = self._committed.get(partition, (UNKNOWN_EPOCH, UNKNOWN_EPOCH))
        if committed == offset and epoch >= 0:
            return epoch
        last = self._last.get(partition)
        return UNKNOWN_EPOCH if last is None else last.before(offset)

    def read_to(self, partition: TopicPartition) -> int | None:
        """Return the offset up to which readers have read; None without a reader."""
        readers = self._histories.get(partition, ())
        return max((history.end for history in readers), default=None)

    def of(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, int]:
        """Return the epoch of the last record before each offset."""
        return {
            partition: self.before(partition, offset.offset)
            for partition, offset in offsets.items()
        }
