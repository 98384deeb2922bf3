"""Compaction and retention, as the topics' settings demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors.log.embedded._segment import DATA, Segment, joined, payload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.log.embedded._broker import Broker
    from ks_actors.log.embedded._partition import Partition
    from ks_actors.records import Batch

# The records per step; after a step other tasks may run. Small segments are joined up to this size.
STEP: Final = 500


def retain(broker: Broker, partition: Partition, now: int) -> None:
    """Delete whole segments from the head, as `retention.ms` and `retention.bytes` demand.

    `now` is in ms. Segments of open transactions stay. Raises StorageFull, LogError.
    """
    settings = partition.topic.settings
    size = partition.size
    before = partition.begin
    for segment in partition.segments:
        # A marker is deleted together with the records before it or after it.
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

    Works in steps; the log may change between steps. A tombstone stays in the first compaction, and
    in later compactions for `delete.retention.ms` after the first, so that a reader from the
    beginning does not miss it. Markers and aborted records are removed. If a segment has a record
    younger than `min.compaction.lag.ms` at `now` (ms), it stays, and so do all segments after it.

    Raises StorageFull, LogError, LogCorrupted: then the remaining segments are unchanged.
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
        # The head of the partition may have been deleted meanwhile: then do not replace this run.
        if partition.segments[start:stop] == old:
            _rewrite(broker, partition, start, stop, kept)
        yield


def _compactable(partition: Partition, now: int) -> int:
    """Return the end of the compactable offsets.

    The end is the first offset of an open transaction, or of a segment that is too young.
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
    """The remaining records of a run of segments, and the time from which to drop tombstones."""

    def __init__(self, partition: Partition, now: int) -> None:
        self.parts: list[Batch] = []
        self.horizon: int | None = None
        self._partition: Partition = partition
        self._now: int = now

    def add(self, segment: Segment, piece: Batch, latest: dict[Any, int]) -> None:
        """Add the records of a piece of a segment that remain after compaction."""
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
    # If no record is dropped from a single segment, it stays as it is.
    if (
        len(old) == 1
        and old[0].kind == DATA
        and len(batch) == old[0].count
        and kept.horizon == old[0].horizon
    ):
        return
    new = None
    if len(batch):
        # The new segment ends at the end of the last old segment, so that no reader moves back.
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
