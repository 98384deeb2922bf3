"""The snapshot of a backfill: stores written task by task, and the manifest at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ks_actors.runtime.snapshots import shape_of, topology_fingerprint
from ks_actors.snapshots import SnapshotWriter, SourcePosition, StoreWriter
from ks_actors.state import (
    CheckpointRows,
    committed_facts,
    committed_rows,
    has_rows,
    log_batch,
    reader_of,
)
from ks_actors.state.disk import DATABASE
from ks_actors.topology import StorePlace

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ks_actors.batch.backfill._result import TaskDone
    from ks_actors.snapshots import Place, Shape, SnapshotManifest, StoreSnapshot
    from ks_actors.state import Rows, SharedResources, TaskStores
    from ks_actors.task import AppTopics, TaskParts
    from ks_actors.topology import StoreSpec


class Target(NamedTuple):
    """Destination of a task's state: a snapshot and, if a task may run twice, the attempt."""

    place: Place
    attempt: int | None = None

    def writer(self, task: str, shape: Shape) -> StoreWriter:
        """Return a writer for one of a task's stores."""
        return StoreWriter(self.place, task, shape, attempt=self.attempt)


def write_memory(
    topics: AppTopics, task: str, specs: Iterable[StoreSpec], stores: TaskStores, target: Target
) -> list[StoreSnapshot]:
    """Write a task's in-memory stores while they are open; return manifest entries. Blocks."""
    written = []
    for spec in specs:
        store = stores.store(spec.name)
        # Stores on disk follow in `write_disk`, when they are closed.
        if not has_rows(spec) or store.engine is not None:
            continue
        shape = shape_of(spec)
        writer = target.writer(task, shape)
        writer.write_unsorted([log_batch(store, list(_rows(store)))])
        observed, sequence = committed_facts(store)
        written.append(
            writer.close(
                changelog=topics.changelog(spec.name), observed=observed, sequence=sequence
            )
        )
    return written


def _rows(store: Any) -> Rows:
    reader: Any = reader_of(store)
    # Take all steps at once: in a backfill nothing else waits for this thread.
    for _ in reader.prepare():
        pass
    rows = committed_rows(reader)
    for _ in rows.steps:
        pass
    return rows


def write_disk(
    topics: AppTopics,
    task: str,
    specs: Iterable[StoreSpec],
    directory: Path,
    target: Target,
    shared: SharedResources,
) -> list[StoreSnapshot]:
    """Write a task's stores on disk from its directory, after they are closed.

    Return their manifest entries. Blocks. The entries have no changelog offsets: a stream that
    continues from them must first write the rows to the changelog.
    """
    wanted = [spec for spec in specs if has_rows(spec) and spec.place is StorePlace.DATABASE]
    if not wanted:
        return []
    written = []
    with CheckpointRows(task, directory / DATABASE, shared) as rows:
        for spec in wanted:
            writer = target.writer(task, shape_of(spec))
            for batch in rows.batches(spec):
                writer.write(batch)
            observed, sequence = rows.facts(spec.name)
            written.append(
                writer.close(
                    changelog=topics.changelog(spec.name), observed=observed, sequence=sequence
                )
            )
    return written


def commit_snapshot(writer: SnapshotWriter, done: Iterable[TaskDone]) -> SnapshotManifest:
    """Write the manifest of all tasks, which completes the snapshot. Blocks."""
    for task in done:
        positions = [
            SourcePosition(topic, number, at.offset, at.metadata)
            for (topic, number), at in sorted(task.positions.items())
        ]
        writer.add(str(task.task), *task.stores, positions=positions)
    return writer.commit()


def new_snapshot(parts: TaskParts, uri: str) -> SnapshotWriter:
    """Return the writer of a backfill's snapshot."""
    return SnapshotWriter(
        uri,
        parts.config.application_id,
        created_ms=parts.clocks.wall_time(),
        topology=topology_fingerprint(parts.stores.by_subtopology),
    )
