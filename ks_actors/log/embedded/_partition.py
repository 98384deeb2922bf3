"""The index of one partition: its offsets, and which of them are readable."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Protocol, final

from ks_actors._errors import InvalidRecord, OffsetOutOfRange, RecordTooLarge
from ks_actors.log.embedded._refusals import check_times
from ks_actors.log.embedded._segment import ABORT, TRANSACTIONAL, joined, payload, sizes_of
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ks_actors.log.embedded._segment import Segment
    from ks_actors.log.embedded._topic_settings import TopicSettings
    from ks_actors.records import Batch


class Watcher(Protocol):
    """An observer of a partition's changes."""

    def changed(self, partition: Partition, /) -> None:
        """Check `partition` again: its records have changed, or it is deleted."""
        ...


class TopicOfPartition(Protocol):
    """The attributes of a topic that its partitions use; see Topic."""

    id: int
    name: str
    settings: TopicSettings


@final
class Partition:
    """Offsets from `begin` to before `end`, as segments in order, with gaps after compaction.

    This index in memory never fails, so callers write each change to storage first.
    `load` gets the records of a segment.
    """

    __slots__ = (
        "_bases",
        "_load",
        "begin",
        "deleted",
        "end",
        "grown",
        "name",
        "open",
        "segments",
        "size",
        "topic",
        "watchers",
    )

    def __init__(
        self, topic: TopicOfPartition, number: int, load: Callable[[Partition, Segment], Batch]
    ) -> None:
        self.topic: TopicOfPartition = topic
        self.name: TopicPartition = TopicPartition(topic.name, number)
        self.begin: int = 0
        self.end: int = 0
        self.segments: list[Segment] = []
        self._bases: list[int] = []
        # First offsets of open transactions by producer; ascending, as each is added at the begin
        # of its transaction.
        self.open: dict[int, int] = {}
        self.size: int = 0
        # Bytes since the last cleaning.
        self.grown: int = 0
        self.deleted: bool = False
        # A dict, not a set: in each run watchers are called in the order of registration.
        self.watchers: dict[Watcher, None] = {}
        self._load = load

    @property
    def stable(self) -> int:
        """The last stable offset: records of open transactions are at this offset or later."""
        for first in self.open.values():
            return max(first, self.begin)
        return self.end

    def check(self, batch: Batch, clock: Callable[[], int]) -> int:
        """Return the size of `batch` in bytes; `clock` gives the time in ms.

        Raises RecordTooLarge, InvalidRecord.
        """
        size = payload(batch)
        settings = self.topic.settings
        if size > settings.max_message_bytes:
            sizes = sizes_of(batch)
            most = max(sizes)
            if most > settings.max_message_bytes:
                raise RecordTooLarge(
                    f"record {sizes.index(most)} of a batch for {self.name} has {most} bytes, "
                    f"max.message.bytes is {settings.max_message_bytes}",
                    [index for index, one in enumerate(sizes) if one > settings.max_message_bytes],
                )
        if settings.compacted and None in batch.keys:
            raise InvalidRecord(
                f"record {batch.keys.index(None)} of a batch for {self.name} has no key, but the "
                "topic is compacted",
                [index for index, key in enumerate(batch.keys) if key is None],
            )
        if settings.before_max_ms is not None or settings.after_max_ms is not None:
            check_times(self.name, settings, batch.timestamps, clock())
        return size

    def check_position(self, position: int) -> None:
        """Raise OffsetOutOfRange for a position outside of the partition's offsets."""
        if not self.begin <= position <= self.end:
            raise OffsetOutOfRange(self.name, position, self.begin, self.end)

    def add(self, segment: Segment) -> None:
        """Add a new segment, which begins at or after `end`."""
        self.segments.append(segment)
        self._bases.append(segment.base)
        self.end = segment.end
        self.size += segment.size
        if segment.kind == TRANSACTIONAL:
            # Only the first segment of a transaction bounds the stable offset.
            self.open.setdefault(segment.pid, segment.base)
        elif segment.is_marker:
            self._end_transaction(segment)

    def _end_transaction(self, marker: Segment) -> None:
        first = self.open.pop(marker.pid, None)
        if first is None or marker.kind != ABORT:
            return
        # Segments of the transaction begin at its first offset, and end before the marker.
        for segment in self.segments[self.find(first) :]:
            if segment.pid == marker.pid:
                segment.aborted = True

    def notify(self) -> None:
        """Notify all watchers."""
        for watcher in tuple(self.watchers):
            watcher.changed(self)

    def find(self, offset: int) -> int:
        """Return the index of the first segment that ends after `offset`."""
        index = bisect_right(self._bases, offset) - 1
        return index + 1 if index < 0 or self.segments[index].end <= offset else index

    def load(self, segment: Segment) -> Batch:
        """Return the records of a segment, including those below `begin`."""
        batch = segment.batch
        return self._load(self, segment) if batch is None else batch

    def newest(self, segment: Segment) -> int:
        """Return the highest timestamp of a segment; -1 for a marker."""
        if segment.newest is None:
            segment.newest = max(self.load(segment).timestamps) if segment.count else -1
        return segment.newest

    def read(self, position: int, max_records: int, *, committed: bool) -> tuple[Batch, int]:
        """Return at most `max_records` from `position` on, and the next position.

        Deleted and invisible records are skipped.
        """
        limit = self.stable if committed else self.end
        parts: list[Batch] = []
        for index in range(self.find(position), len(self.segments)):
            segment = self.segments[index]
            if segment.base >= limit:
                break
            if segment.is_marker or (committed and segment.aborted):
                continue
            if not max_records:
                return joined(parts), segment.base
            batch = self.load(segment)
            start = bisect_left(batch.offsets, position) if position > segment.base else 0
            stop = min(len(batch), start + max_records)
            if start < stop:
                parts.append(batch if stop - start == len(batch) else batch.slice(start, stop))
                max_records -= stop - start
            if stop < len(batch):
                return joined(parts), batch.offsets[stop]
        return joined(parts), limit

    def offset_for_time(self, time: int) -> int:
        """Return the first offset of a record at or after `time` (ms), else `end`."""
        for segment in self.segments[self.find(self.begin) :]:
            if segment.count and self.newest(segment) >= time:
                batch = self.load(segment)
                for offset, timestamp in zip(batch.offsets, batch.timestamps, strict=True):
                    if timestamp >= time and offset >= self.begin:
                        return offset
        return self.end

    def drop_before(self, offset: int) -> Sequence[Segment]:
        """Move `begin` to `offset`; return the removed segments."""
        self.begin = offset
        count = self.find(offset)
        gone = self.segments[:count]
        del self.segments[:count], self._bases[:count]
        self.size -= sum(segment.size for segment in gone)
        return gone

    def replace(self, start: int, stop: int, segment: Segment | None) -> None:
        """Replace segments `start` to before `stop` by one segment, or by no segment."""
        self.size -= sum(old.size for old in self.segments[start:stop])
        if segment is None:
            del self.segments[start:stop], self._bases[start:stop]
            return
        self.segments[start:stop] = [segment]
        self._bases[start:stop] = [segment.base]
        self.size += segment.size

    def runs(self, boundary: int, least: int) -> Iterator[tuple[int, int]]:
        """Yield runs of adjacent segments that end before offset `boundary`, as index ranges.

        Each run has at least `least` records if possible. Between two runs, the partition may lose
        its head, or even the segments of the last run.
        """
        offset = self.begin
        while not self.deleted:
            start = stop = self.find(max(offset, self.begin))
            count = 0
            while (
                stop < len(self.segments) and self.segments[stop].end <= boundary and count < least
            ):
                count += self.segments[stop].count
                stop += 1
            if start == stop:
                return
            offset = self.segments[stop - 1].end
            yield start, stop
