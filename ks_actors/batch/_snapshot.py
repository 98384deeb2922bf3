"""The state that a backfill leaves: one snapshot, written task by task, and its manifest when all tasks are done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.batch._plan import stores_of
from ks_actors.runtime._snapshot_files import shape_of, topology_fingerprint
from ks_actors.snapshots import Place, SnapshotWriter, SourcePosition, StoreSnapshot, StoreWriter
from ks_actors.state import CheckpointRows, SharedResources, has_last_rows
from ks_actors.state._stored import DATABASE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ks_actors.batch._task_run import TaskDone
    from ks_actors.runtime._setup import Setup
    from ks_actors.snapshots import SnapshotManifest


def write_stores(setup: Setup, done: TaskDone, directory: Path, snapshot: Place) -> tuple[StoreSnapshot, ...]:
    """Write the stores of a task that is done, from its directory; return what the manifest is to say of them. Blocks.

    They have no offsets in their changelogs: whoever goes on from them has to write those first, from the rows.
    """
    specs = [spec for spec in stores_of(setup, done.task.subtopology) if has_last_rows(spec)]
    if not specs:
        return ()
    task, shared, written = str(done.task), SharedResources(), []
    try:
        with CheckpointRows(task, directory / task / DATABASE, shared) as rows:
            for spec in specs:
                writer = StoreWriter(snapshot, task, shape_of(spec))
                for batch in rows.batches(spec):
                    writer.write(batch)
                observed, sequence = rows.facts(spec.name)
                written.append(writer.close(changelog=setup.changelog(spec.name), observed=observed, sequence=sequence))
    finally:
        shared.close()
    return tuple(written)


def commit_snapshot(
    writer: SnapshotWriter, done: Iterable[tuple[TaskDone, tuple[StoreSnapshot, ...]]]
) -> SnapshotManifest:
    """Write the manifest of all tasks: from now on it is a snapshot. Blocks."""
    for task, stores in done:
        positions = [SourcePosition(topic, number, at.offset, at.metadata) for (topic, number), at in sorted(task.positions.items())]
        writer.add(str(task.task), *stores, positions=positions)
    return writer.commit()


def new_snapshot(setup: Setup, uri: str) -> SnapshotWriter:
    """Return what writes the snapshot of a backfill."""
    specs = {subtopology.id: setup.store_specs(subtopology.stores) for subtopology in setup.topology.subtopologies()}
    return SnapshotWriter(uri, setup.application_id, created_ms=setup.wall_time(), topology=topology_fingerprint(specs))
