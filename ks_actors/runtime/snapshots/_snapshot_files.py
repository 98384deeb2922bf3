"""What of a task's stores goes into a snapshot, and into which form."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, cast

from ks_actors._errors import SnapshotFailed
from ks_actors.snapshots import Shape, SourcePosition, fingerprint
from ks_actors.state import CheckpointRows, has_rows, segment_ms_of
from ks_actors.topology import StoreKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from ks_actors.records import TopicPartition
    from ks_actors.runtime.messages import Checkpoint
    from ks_actors.snapshots import LeftOut, SnapshotWriter, StoreSnapshot
    from ks_actors.state import SharedResources
    from ks_actors.topology import StoreSpec

_REST_SECONDS: Final = 0.0005
"""Between two batches of rows: the event loop has its turn, however busy this thread is."""


def shape_of(spec: StoreSpec) -> Shape:
    """Return what a store is, as far as its rows depend on it."""
    kind = cast("Any", spec.kind.value)
    if spec.kind is StoreKind.CUSTOM:
        return Shape(spec.name, kind)
    retention_ms = spec.history_retention_ms if spec.kind is StoreKind.VERSIONED else spec.retention_ms
    return Shape(spec.name, kind, retention_ms, segment_ms_of(spec), spec.retain_duplicates)


def shapes_of(specs: Iterable[StoreSpec]) -> dict[str, Shape]:
    """Return the shapes of the stores that snapshots have, by name."""
    return {spec.name: shape_of(spec) for spec in specs if has_rows(spec)}


def left_out(specs: Iterable[StoreSpec], written: Collection[StoreSnapshot]) -> dict[str, LeftOut]:
    """Return which stores of a task are not among those that were written, and why."""
    names = {stored.shape.name for stored in written}
    missing = [spec for spec in specs if spec.name not in names]
    return {spec.name: "no_changelog" if not spec.logging else "custom" if spec.kind is StoreKind.CUSTOM else "in_threads" for spec in missing}


def topology_fingerprint(specs: Mapping[int, Sequence[StoreSpec]]) -> str:
    """Return what tells topologies apart, by the stores of their subtopologies."""
    return fingerprint({number: shapes_of(each) for number, each in specs.items()})


def write_checkpoint_rows(
    point: Checkpoint,
    specs: Iterable[StoreSpec],
    writer: SnapshotWriter,
    shared: SharedResources,
    changelog: Callable[[str], str],
    stop: Callable[[], bool],
) -> list[StoreSnapshot]:
    """Write the stores that are in a point's database; return what the manifest is to say of them. Blocks.

    Raises SnapshotFailed once `stop` says so.
    """
    assert point.directory is not None
    task, written = str(point.task), []
    with CheckpointRows(task, point.directory, shared) as rows:
        for spec in specs:
            if spec.type == "in_memory" or not has_rows(spec):
                continue
            store = writer.store(task, shape_of(spec))
            for batch in rows.batches(spec):
                if stop():
                    raise SnapshotFailed(f"the snapshot {writer.name} was given up in the middle of store {spec.name} of task {task}")
                store.write(batch)
                time.sleep(_REST_SECONDS)
            observed, sequence = rows.facts(spec.name)
            offset = point.next_offsets[spec.name]
            written.append(store.close(changelog=changelog(spec.name), next_offset=offset, observed=observed, sequence=sequence))
    return written


def positions_of(positions: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str]) -> list[SourcePosition]:
    """Return positions as a manifest has them."""
    return [SourcePosition(*partition, offset, metadata.get(partition, "")) for partition, offset in sorted(positions.items())]


def checkpoint_directory(state_directory: Path) -> Path:
    """Return where the copies of databases are that snapshots are written from."""
    return state_directory / "snapshots"
