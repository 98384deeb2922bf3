"""Messages about snapshots, to the Snapshots actor and to the StateManager."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from actors import Message, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.snapshots import SnapshotManifest
    from ks_actors.state import Rows, TaskStores


class Checkpoint(msgspec.Struct, frozen=True):
    """The committed state of a task at one moment.

    `stores` are the task's stores; read them only through `rows`, which has the stores in memory.
    `directory` holds the database of that moment, if there is one. `next_offsets` say where
    changelogs continue, and `positions` where input does. `metadata` was committed with these
    positions. `facts` are, for each store in `rows`, the latest time put and the last sequence
    number.
    """

    task: TaskId
    stores: TaskStores
    directory: Path | None
    next_offsets: Mapping[str, int]
    positions: Mapping[TopicPartition, int]
    metadata: Mapping[TopicPartition, str]
    rows: Mapping[str, Rows]
    facts: Mapping[str, tuple[int, int]]


# --- to the StateManager -----------------------------------------------------------------------


class TakeCheckpoint(Message, frozen=True):
    """Write the committed state of a task to disk and link it into a new directory.

    Answered with None when this instance does not process the task (any more).
    """

    reply: Reply[Checkpoint | None]
    task: TaskId
    directory: Path


class CheckpointStep(Message, frozen=True):
    """Write the next part of a checkpoint (internal)."""


# --- to the Snapshots --------------------------------------------------------------------------


class TakeSnapshot(Message, frozen=True):
    """Take a snapshot now, or wait for the snapshot under way."""

    reply: Reply[SnapshotManifest]


class SnapshotTimer(Message, frozen=True):
    """The snapshot interval is over (internal)."""


class SnapshotTaken(Message, frozen=True):
    """A snapshot is complete (internal)."""

    manifest: SnapshotManifest


class SnapshotNotTaken(Message, frozen=True):
    """A snapshot failed (internal)."""

    error: Exception


SnapshotsMessage: TypeAlias = TakeSnapshot | SnapshotTimer | SnapshotTaken | SnapshotNotTaken
