"""Messages to the StateManager."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Reply
from ks_actors.runtime.messages._snapshots import CheckpointStep, TakeCheckpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.log import Fetched
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.task import Frozen, Position


class OpenTask(Message, frozen=True):
    """Open and restore the stores of this task, then pass it on.

    `assignment`: the number of its assignment, counted by the poller.
    """

    task: TaskId
    positions: Mapping[TopicPartition, Position]
    assignment: int


class OpenStandby(Message, frozen=True):
    """Keep the stores of this task up to date from now on; another member processes it."""

    task: TaskId


class Recycle(Message, frozen=True):
    """Turn these tasks, which the task manager has given back, into standbys.

    Discard their uncommitted state. Answered when done.
    """

    reply: Reply[None]
    tasks: frozenset[TaskId]


class AskOffsets(Message, frozen=True):
    """Ask for the state offsets of all tasks with state here.

    These tasks are active, standbys, or on disk. The offset of a task is the sum of its changelog
    offsets.
    """

    reply: Reply[Mapping[TaskId, int]]


class StoresOpened(Message, frozen=True):
    """The stores of a task are open (internal)."""

    task: TaskId


class OpenFailed(Message, frozen=True):
    """The stores of a task failed to open (internal)."""

    task: TaskId
    error: Exception


class RestoredRecords(Message, frozen=True):
    """Changelog records, straight from the log.

    RecordsApplied tells the restorer that the stores have them.
    """

    fetched: Sequence[Fetched]


class TaskRestored(Message, frozen=True):
    """The changelogs of a task are read to their end, as ordered with this `order_id`."""

    task: TaskId
    order_id: int


class RestoreFailed(Message, frozen=True):
    """Reading changelogs failed."""

    error: Exception


class CloseStores(Message, frozen=True):
    """Close the stores of these tasks (None: of all tasks); answered when closed.

    `clean` writes committed state first. Without `standbys`, stores of standbys stay open when
    closing all.
    """

    reply: Reply[None]
    tasks: frozenset[TaskId] | None
    clean: bool
    standbys: bool = True


class EncodeChangelog(Message, frozen=True):
    """Write the changelog records of a commit to the collector; answered when done.

    The answer has the stores' next offsets in these changelogs, from before the commit.
    """

    reply: Reply[Mapping[TopicPartition, int]]
    frozen: Frozen
    epoch: int


class PersistUnlogged(Message, frozen=True):
    """Write stores without a changelog to disk."""

    reply: Reply[None]
    frozen: Frozen


class CommitSucceeded(Message, frozen=True):
    """The commit has succeeded: the frozen state is final, and `ends` are the changelogs' ends.

    Answered when the state is published: then the next commit may freeze.
    """

    reply: Reply[None]
    frozen: Frozen
    ends: Mapping[TopicPartition, int]


class LookIdle(Message, frozen=True):
    """Check whether there is time to write committed state (internal)."""


class StoresCorrupted(Message, frozen=True):
    """Discard the stores that do not fit their changelogs, for the given reasons, and restore them.

    Without `changelogs`, discard all stores of the task.
    """

    task: TaskId
    reason: str
    changelogs: Mapping[TopicPartition, str] = {}


class FlushStep(Message, frozen=True):
    """Write a part of the committed layers to disk (internal)."""


class CleanUp(Message, frozen=True):
    """Delete the directories of tasks that left long ago (internal)."""


class CleanUpEnded(Message, frozen=True):
    """The deletion of directories has ended, or failed with `error` (internal)."""

    error: Exception | None


StateManagerMessage: TypeAlias = (
    OpenTask
    | OpenStandby
    | Recycle
    | AskOffsets
    | CleanUp
    | CleanUpEnded
    | StoresOpened
    | OpenFailed
    | RestoredRecords
    | TaskRestored
    | RestoreFailed
    | CloseStores
    | EncodeChangelog
    | PersistUnlogged
    | CommitSucceeded
    | FlushStep
    | LookIdle
    | StoresCorrupted
    | TakeCheckpoint
    | CheckpointStep
)
