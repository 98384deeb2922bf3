"""The stores of a task that go into a snapshot, and their form there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, cast

from ks_actors._errors import SnapshotFailed
from ks_actors.snapshots import Shape, SourcePosition, fingerprint
from ks_actors.state import CheckpointRows, has_rows
from ks_actors.topology import StoreKind, StorePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from ks_actors.records import TopicPartition
    from ks_actors.runtime.messages import Checkpoint
    from ks_actors.snapshots import LeftOut, SnapshotWriter, StoreSnapshot
    from ks_actors.state import SharedResources
    from ks_actors.topology import StoreSpec

_REST_SECONDS: Final = 0.0005
"""Seconds between two batches of rows, so that the event loop runs beside this busy thread."""


def shape_of(spec: StoreSpec) -> Shape:
    """Return the properties of a store that its rows depend on."""
    kind = cast("Any", spec.kind.value)
    if spec.kind is StoreKind.CUSTOM:
        return Shape(spec.name, kind)
    retention_ms = (
        spec.history_retention_ms if spec.kind is StoreKind.VERSIONED else spec.retention_ms
    )
    return Shape(spec.name, kind, retention_ms, spec.segment_ms, spec.retain_duplicates)


def shapes_of(specs: Iterable[StoreSpec]) -> dict[str, Shape]:
    """Return the shapes of the stores that go into snapshots, by name."""
    return {spec.name: shape_of(spec) for spec in specs if has_rows(spec)}


def left_out(specs: Iterable[StoreSpec], written: Collection[StoreSnapshot]) -> dict[str, LeftOut]:
    """Return the stores of a task that were not written, with the reasons."""
    names = {stored.shape.name for stored in written}
    missing = [spec for spec in specs if spec.name not in names]
    return {
        spec.name: "no_changelog"
        if not spec.logging
        else "custom"
        if spec.place in {StorePlace.CUSTOM, StorePlace.ENGINE}
        else "in_threads"
        for spec in missing
    }


def topology_fingerprint(specs: Mapping[int, Sequence[StoreSpec]]) -> str:
    """Return a fingerprint of a topology, from the stores of its subtopologies."""
    return fingerprint({number: shapes_of(each) for number, each in specs.items()})


def write_checkpoint_rows(
    checkpoint: Checkpoint,
    specs: Iterable[StoreSpec],
    writer: SnapshotWriter,
    shared: SharedResources,
    changelog: Callable[[str], str],
    topic_ids: Mapping[str, str],
    stop: Callable[[], bool],
) -> list[StoreSnapshot]:
    """Write the stores in a checkpoint's database; return their manifest entries. Blocks.

    Raises SnapshotFailed once `stop` returns True.
    """
    assert checkpoint.directory is not None
    task, written = str(checkpoint.task), []
    with CheckpointRows(task, checkpoint.directory, shared) as rows:
        for spec in specs:
            if spec.place is not StorePlace.DATABASE or not has_rows(spec):
                continue
            store = writer.store(task, shape_of(spec))
            for batch in rows.batches(spec):
                if stop():
                    raise SnapshotFailed(
                        f"writing the snapshot {writer.name} was cancelled in the middle of store "
                        f"{spec.name} of task {task}"
                    )
                store.write(batch)
                time.sleep(_REST_SECONDS)
            observed, sequence = rows.facts(spec.name)
            offset = checkpoint.next_offsets[spec.name]
            written.append(
                store.close(
                    changelog=changelog(spec.name),
                    next_offset=offset,
                    observed=observed,
                    sequence=sequence,
                    changelog_id=topic_ids.get(changelog(spec.name), ""),
                )
            )
    return written


def positions_of(
    positions: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str]
) -> list[SourcePosition]:
    """Return positions in the manifest's form."""
    return [
        SourcePosition(*partition, offset, metadata.get(partition, ""))
        for partition, offset in sorted(positions.items())
    ]


def checkpoint_directory(state_directory: Path) -> Path:
    """Return the directory for the database copies that snapshots are written from.

    Each start empties this directory, so its name is unlikely to be used for other files.
    """
    return state_directory / ".snapshot-copies"
