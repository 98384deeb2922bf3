"""The leader epochs of records that were read (KIP-101, KIP-320)."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.log._types import OffsetAndMetadata
    from ks_actors.records import TopicPartition

UNKNOWN: Final = -1
# Older epochs are forgotten: a truncation reaches back by an epoch or two.
_MOST_EPOCHS: Final = 16


@final
class _Read:
    """The offsets up to `end` that were read without a gap, and the starts of their epochs."""

    __slots__ = ("end", "epochs", "starts")

    def __init__(self, start: int, epoch: int, end: int) -> None:
        self.starts: list[int] = [start]
        self.epochs: list[int] = [epoch]
        self.end: int = end

    def add(self, start: int, epoch: int) -> None:
        if epoch != self.epochs[-1]:
            self.starts.append(start)
            self.epochs.append(epoch)
            del self.starts[:-_MOST_EPOCHS], self.epochs[:-_MOST_EPOCHS]


@final
class LeaderEpochs:
    """The leader epochs of the records that the readers of a log have read.

    A leader increments the epoch when it takes over, and writes it into each record batch. Together
    with the epoch, an offset tells a record from another one that has taken its place. Offsets are
    committed with the epoch of the record before, and fetches send it along.
    """

    __slots__ = ("_read",)

    def __init__(self) -> None:
        self._read: dict[TopicPartition, _Read] = {}

    def note(
        self, partition: TopicPartition, start: int, end: int, epochs: Sequence[tuple[int, int]]
    ) -> None:
        """Note that `start` to `end` were read; `epochs` has first offsets and epochs, in order.

        The first epoch counts from `start` on, also if compaction has removed its first offsets.
        """
        read = self._read.get(partition)
        if epochs[0][1] < 0:
            # A message format without epochs tells nothing.
            self._read.pop(partition, None)
            return
        if (
            read is None
            or not read.starts[0] <= start <= read.end
            or (epochs[0][1] != read.epochs[-1] and start < read.end)
        ):
            # Another part of the log; one part is enough, and it is the one that was read last.
            read = self._read[partition] = _Read(start, epochs[0][1], end)
        else:
            read.add(start, epochs[0][1])
        for at, epoch in epochs[1:]:
            read.add(at, epoch)
        read.end = max(read.end, end)

    def note_committed(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        """Note the epoch of the record before a committed offset; -1 is unknown."""
        if epoch >= 0 and self.before(partition, offset) != epoch:
            self._read[partition] = _Read(offset - 1, epoch, offset)

    def before(self, partition: TopicPartition, offset: int) -> int:
        """Return the epoch of the last record before an offset, or -1 if it was not read here."""
        read = self._read.get(partition)
        if read is None or not read.starts[0] < offset <= read.end:
            return UNKNOWN
        return read.epochs[bisect_left(read.starts, offset) - 1]

    def of(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, int]:
        """Return the epoch of the last record before each offset."""
        return {
            partition: self.before(partition, offset.offset)
            for partition, offset in offsets.items()
        }

    def diverges_at(self, partition: TopicPartition, epoch: int, end: int) -> int | None:
        """Return the first offset at which a log differs from the records that were read.

        The log's last epoch not above theirs is `epoch`, up to offset `end`. Returns None if too
        little is known of the records.
        """
        read = self._read.get(partition)
        if read is None:
            return None
        later = [at for at, other in zip(read.starts, read.epochs, strict=True) if other > epoch]
        if later and later[0] == read.starts[0] and end > later[0]:
            # The records before were not read here, so both logs may differ earlier.
            return None
        return min(end, later[0] if later else read.end)
