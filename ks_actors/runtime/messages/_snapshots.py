"""What is said about snapshots: to those who take them, and to the StateManager, which has what is in them."""

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
    """The state of a task as it was committed at one moment.

    `stores` are the task's, to be read by `rows` alone, which has those in memory; `directory` has the database as it was then, if there is one.
    `next_offsets` are where changelogs go on, `positions` where input does, `metadata` what was committed with these. `facts` are, of those in
    `rows`, the latest time that was put, and the last sequence number.
    """

    task: TaskId
    stores: TaskStores
    directory: Path | None
    next_offsets: Mapping[str, int]
    positions: Mapping[TopicPartition, int]
    metadata: Mapping[TopicPartition, str]
    rows: Mapping[str, Rows]
    facts: Mapping[str, tuple[int, int]]


# --- to the StateManager --------------------------------------------------------------------------------------------------------


class TakeCheckpoint(Message, frozen=True):
    """Bring to disk what is committed of a task, and link it into a new directory; None when the task is not processed here (any more)."""

    reply: Reply[Checkpoint | None]
    task: TaskId
    directory: Path


class CheckpointStep(Message, frozen=True):
    """Write a little of what a point is to have (internal)."""


# --- to the Snapshots -----------------------------------------------------------------------------------------------------------


class TakeSnapshot(Message, frozen=True):
    """Take a snapshot now; one that is under way serves as well."""

    reply: Reply[SnapshotManifest]


class SnapshotTimer(Message, frozen=True):
    """The interval has gone by (internal)."""


class SnapshotTaken(Message, frozen=True):
    """A snapshot is whole (internal)."""

    manifest: SnapshotManifest


class SnapshotNotTaken(Message, frozen=True):
    """A snapshot could not be taken (internal)."""

    error: Exception


SnapshotsMessage: TypeAlias = TakeSnapshot | SnapshotTimer | SnapshotTaken | SnapshotNotTaken
