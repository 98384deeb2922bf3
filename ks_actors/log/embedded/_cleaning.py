"""Compaction and retention, as the topics' settings demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors.log.embedded._segment import DATA, Segment, joined, payload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.log.embedded._broker import Broker
    from ks_actors.log.embedded._partition import Partition
    from ks_actors.records import Batch

# Records of a step, after which other tasks may run; small segments are joined up to this size.
STEP: Final = 500


def retain(broker: Broker, partition: Partition, now: int) -> None:
    """Delete whole segments from the head, by `retention.ms` at `now` (ms) and `retention.bytes`.

    Segments of open transactions stay. Raises StorageFull, LogError.
    """
    settings = partition.topic.settings
    size = partition.size
    before = partition.begin
    for segment in partition.segments:
        # A marker is deleted with the segment after it, or with the last record.
        too_old = (
            settings.retention_ms is not None
            and partition.newest(segment) < now - settings.retention_ms
        )
        too_much = (
            settings.retention_bytes is not None and size - segment.size >= settings.retention_bytes
        )
        if segment.end > partition.stable or not (too_old or too_much):
            break
        size -= segment.size
        before = segment.end
    if before > partition.begin:
        broker.truncate(partition, before)


def compact(broker: Broker, partition: Partition, now: int) -> Iterator[None]:
    """Keep the last committed record of each key below the last stable offset.

    Works in steps; the log may change between them. A tombstone survives the first compaction, and
    later compactions within `delete.retention.ms` of it, so that a reader from the beginning does
    not miss it. Markers and aborted records are removed. A segment with a record younger than
    `min.compaction.lag.ms` at `now` (ms) is left alone, and so are all segments after it.

    Raises StorageFull, LogError, LogCorrupted: then the rest of the partition is as before.
    """
    boundary = _compactable(partition, now)
    # Two passes: find the last offset of each key, then rewrite the segments.
    latest: dict[Any, int] = {}
    for start, stop in partition.runs(boundary, STEP):
        for _, batch in _loaded(partition, partition.segments[start:stop]):
            for piece in _pieces(batch):
                latest.update(zip(piece.keys, piece.offsets, strict=True))
                if len(piece) == STEP:
                    yield
        yield
    for start, stop in partition.runs(boundary, STEP):
        old = partition.segments[start:stop]
        kept = _Kept(partition, now)
        for segment, batch in _loaded(partition, old):
            for piece in _pieces(batch):
                kept.add(segment, piece, latest)
                if len(piece) == STEP:
                    yield
        # The head of the partition may be deleted by now: then leave the run unchanged.
        if partition.segments[start:stop] == old:
            _rewrite(broker, partition, start, stop, kept)
        yield


def _compactable(partition: Partition, now: int) -> int:
    """Return the end of the compactable offsets.

    It is the first offset of an open transaction, or of a segment that is too young.
    """
    lag = partition.topic.settings.min_compaction_lag_ms
    if lag > 0:
        for segment in partition.segments:
            if segment.base >= partition.stable:
                break
            if partition.newest(segment) > now - lag:
                return segment.base
    return partition.stable


def _loaded(partition: Partition, segments: list[Segment]) -> list[tuple[Segment, Batch]]:
    """Load the segments to compact, before they can change."""
    return [
        (segment, partition.load(segment))
        for segment in segments
        if segment.count and not segment.aborted
    ]


def _pieces(batch: Batch) -> Iterator[Batch]:
    return (
        iter((batch,))
        if len(batch) <= STEP
        else (batch.slice(start, start + STEP) for start in range(0, len(batch), STEP))
    )


class _Kept:
    """The remaining records of a run of segments, and the time when its tombstones may end."""

    def __init__(self, partition: Partition, now: int) -> None:
        self.parts: list[Batch] = []
        self.horizon: int | None = None
        self._partition: Partition = partition
        self._now: int = now

    def add(self, segment: Segment, piece: Batch, latest: dict[Any, int]) -> None:
        """Add the remaining records of a piece of a segment."""
        mortal = segment.horizon is not None and segment.horizon <= self._now
        kept = _survivors(piece, latest, self._partition.begin, tombstones=not mortal)
        if None in kept.values:
            last = (
                self._now + self._partition.topic.settings.delete_retention_ms
                if segment.horizon is None
                else segment.horizon
            )
            self.horizon = last if self.horizon is None else max(last, self.horizon)
        if len(kept):
            self.parts.append(kept)


def _rewrite(broker: Broker, partition: Partition, start: int, stop: int, kept: _Kept) -> None:
    old = partition.segments[start:stop]
    batch = joined(kept.parts)
    # No record is dropped, so the segment stays as it is.
    if (
        len(old) == 1
        and old[0].kind == DATA
        and len(batch) == old[0].count
        and kept.horizon == old[0].horizon
    ):
        return
    new = None
    if len(batch):
        # It ends at the end of the last old segment, so that no reader moves back.
        new = Segment(batch.offsets[0], old[-1].end, count=len(batch), size=payload(batch))
        new.horizon = kept.horizon
    broker.storage.replace(partition, old, new, batch)
    partition.replace(start, stop, new)


def _survivors(batch: Batch, latest: dict[Any, int], begin: int, *, tombstones: bool) -> Batch:
    keep = [
        offset >= begin and latest[key] == offset and (tombstones or value is not None)
        for key, value, offset in zip(batch.keys, batch.values, batch.offsets, strict=True)
    ]
    return batch.select(keep)
