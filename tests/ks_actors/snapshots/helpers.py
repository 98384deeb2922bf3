"""Snapshots to test with."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from ks_actors import Batch
from ks_actors.snapshots import Shape, SnapshotManifest, SnapshotWriter, SourcePosition

COUNTS = Shape("counts", "timestamped_key_value")
WINDOWS = Shape("windows", "timestamped_window", retention_ms=600_000, segment_ms=300_000)
Rows = list[tuple[bytes, bytes, int]]


def in_memory() -> str:
    """Return a new place in memory."""
    return f"memory://snapshots-{uuid.uuid4().hex}"


def batch_of(rows: Sequence[tuple[bytes, bytes, int]]) -> Batch:
    """Return rows as a batch."""
    return Batch([key for key, _, _ in rows], [value for _, value, _ in rows], [time for _, _, time in rows])


def window_key(key: bytes, start: int, sequence: int = 0) -> bytes:
    """Return the key of a window in a changelog."""
    return key + start.to_bytes(8, "big", signed=True) + sequence.to_bytes(4, "big", signed=True)


def write(uri: str, rows: Rows, *, shape: Shape = COUNTS, deflate: bool = True, created_ms: int = 1_000) -> SnapshotManifest:
    """Write a snapshot of one store of one task."""
    writer = SnapshotWriter(uri, "app", created_ms=created_ms)
    store = writer.store("0_0", shape, deflate=deflate)
    store.write(batch_of(rows))
    writer.add("0_0", store.close(changelog="app-counts-changelog", next_offset=7), positions=[SourcePosition("lines", 0, 5)])
    return writer.commit()
