"""Compaction and retention: what topics' settings say that need not be kept."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any, Final

from ks_actors._batch import Batch
from ks_actors.log.embedded._segment import DATA, Segment, joined, payload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.log.embedded._broker import Broker
    from ks_actors.log.embedded._partition import Partition

# Records of a step, after which others may run; small segments are joined up to this size.
STEP: Final = 500


def retain(broker: Broker, partition: Partition, now: int) -> None:
    """Delete whole segments from the head that are older than `retention.ms` at `now` (ms), or that `retention.bytes` has no room for.

    Never what open transactions are about. Raises StorageFull, LogError.
    """
    settings = partition.topic.settings
    size = partition.size
    before = partition.begin
    for segment in partition.segments:
        # Markers go with what follows them, or for good with the last record.
        too_old = settings.retention_ms is not None and partition.newest(segment) < now - settings.retention_ms
        too_much = settings.retention_bytes is not None and size - segment.size >= settings.retention_bytes
        if segment.end > partition.stable or not (too_old or too_much):
            break
        size -= segment.size
        before = segment.end
    if before > partition.begin:
        broker.truncate(partition, before)


def compact(broker: Broker, partition: Partition, now: int) -> Iterator[None]:
    """Keep the last committed record of each key below the last stable offset; in steps between which anything may happen.

    A tombstone survives the first compaction, and those within `delete.retention.ms` of it, so that whoever reads from the beginning meanwhile does
    not miss it. Markers and aborted records go. Raises StorageFull, LogError, LogCorrupted: then what was not compacted yet is as it was.
    """
    boundary = partition.stable
    latest: dict[Any, int] = {}
    for start, stop in partition.runs(boundary, STEP):
        for segment in partition.segments[start:stop]:
            if segment.count and not segment.aborted:
                batch = partition.load(segment)
                latest.update(zip(batch.keys, batch.offsets, strict=True))
        yield
    for start, stop in partition.runs(boundary, STEP):
        _rewrite(broker, partition, start, stop, latest, now)
        yield


def _rewrite(broker: Broker, partition: Partition, start: int, stop: int, latest: dict[Any, int], now: int) -> None:
    old = partition.segments[start:stop]
    horizon: int | None = None
    parts: list[Batch] = []
    for segment in old:
        if not segment.count or segment.aborted:
            continue
        batch = partition.load(segment)
        mortal = segment.horizon is not None and segment.horizon <= now
        kept = _survivors(batch, latest, partition.begin, tombstones=not mortal)
        if None in kept.values:
            last = now + partition.topic.settings.delete_retention_ms if segment.horizon is None else segment.horizon
            horizon = last if horizon is None else max(last, horizon)
        if len(kept):
            parts.append(kept)
    batch = joined(parts)
    if len(old) == 1 and old[0].kind == DATA and len(batch) == old[0].count and horizon == old[0].horizon:
        return
    new = None
    if len(batch):
        # It ends where the last one did, so that no reader is sent back.
        new = Segment(batch.offsets[0], old[-1].end, count=len(batch), size=payload(batch))
        new.horizon = horizon
    broker.storage.replace(partition, old, new, batch)
    partition.replace(start, stop, new)


def _survivors(batch: Batch, latest: dict[Any, int], begin: int, *, tombstones: bool) -> Batch:
    keep = [
        offset >= begin and latest[key] == offset and (tombstones or value is not None)
        for key, value, offset in zip(batch.keys, batch.values, batch.offsets, strict=True)
    ]
    if all(keep):
        return batch
    return Batch(
        list(compress(batch.keys, keep)),
        list(compress(batch.values, keep)),
        list(compress(batch.timestamps, keep)),
        None if batch.headers is None else list(compress(batch.headers, keep)),
        list(compress(batch.offsets, keep)),
    )
