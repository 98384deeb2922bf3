"""What those are told who make work last: StateManager, Restorer, Collector and Committer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Reply
from ks_actors.runtime.messages._snapshots import CheckpointStep, TakeCheckpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.log import Fetched
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.messages._task_manager import Frozen
    from ks_actors.task import Position


# --- to the StateManager --------------------------------------------------------------------------------------------------------


class OpenTask(Message, frozen=True):
    """Make this task: open its stores, restore them, pass it on. `assignment`: which one it came by, counted by the poller."""

    task: TaskId
    positions: Mapping[TopicPartition, Position]
    assignment: int


class OpenStandby(Message, frozen=True):
    """Keep the stores of this task up to date from now on, if you do not yet; it is processed elsewhere."""

    task: TaskId


class Recycle(Message, frozen=True):
    """These tasks, which the task manager has given back, are standbys from now on; what they have not committed is void. Answered when it is so."""

    reply: Reply[None]
    tasks: frozenset[TaskId]


class AskOffsets(Message, frozen=True):
    """Tell how far the state is of all tasks that are not processed: standbys, and what is on disk, as sums of the changelogs' offsets."""

    reply: Reply[Mapping[TaskId, int]]


class Opened(Message, frozen=True):
    """The stores of a task are open (internal)."""

    task: TaskId


class OpenFailed(Message, frozen=True):
    """The stores of a task could not be opened (internal)."""

    task: TaskId
    error: Exception


class RestoredRecords(Message, frozen=True):
    """Changelog records, straight from the log; TAKEN_IN tells the restorer when they are in the stores."""

    fetched: Sequence[Fetched]


class Restored(Message, frozen=True):
    """The changelogs of a task are read to their end, as the order of that number wanted."""

    task: TaskId
    ticket: int


class RestoreFailed(Message, frozen=True):
    """Reading changelogs failed."""

    error: Exception


class CloseStores(Message, frozen=True):
    """Close the stores of these tasks (None: of all); answered when they are. `clean` writes what is committed first.

    Without `standbys` those of all tasks that are standbys stay.
    """

    reply: Reply[None]
    tasks: frozenset[TaskId] | None
    clean: bool
    standbys: bool = True


class EncodeChangelog(Message, frozen=True):
    """Write the changelog records of a commit to the collector; answered when that is done."""

    reply: Reply[None]
    frozen: Frozen
    epoch: int


class PersistUnlogged(Message, frozen=True):
    """Write stores without a changelog to disk."""

    reply: Reply[None]
    frozen: Frozen


class CommitSucceeded(Message, frozen=True):
    """The commit has succeeded: the frozen state is final; `ends` are the changelogs' ends. Answered when it is kept: then the next may be frozen."""

    reply: Reply[None]
    frozen: Frozen
    ends: Mapping[TopicPartition, int]


class LookIdle(Message, frozen=True):
    """See whether there is time to write what is committed (internal)."""


class Corrupted(Message, frozen=True):
    """Give up stores of a task that do not fit their changelogs, for the reasons given, or all of them without any, and restore these."""

    task: TaskId
    reason: str
    changelogs: Mapping[TopicPartition, str] = {}


class FlushStep(Message, frozen=True):
    """Write a little of the committed layers to disk (internal)."""


class CleanUp(Message, frozen=True):
    """Delete the directories of tasks that have not been here for long (internal)."""


class CleanedUp(Message, frozen=True):
    """Directories are deleted, or why they are not (internal)."""

    error: Exception | None


StateManagerMessage: TypeAlias = (
    OpenTask
    | OpenStandby
    | Recycle
    | AskOffsets
    | CleanUp
    | CleanedUp
    | Opened
    | OpenFailed
    | RestoredRecords
    | Restored
    | RestoreFailed
    | CloseStores
    | EncodeChangelog
    | PersistUnlogged
    | CommitSucceeded
    | FlushStep
    | LookIdle
    | Corrupted
    | TakeCheckpoint
    | CheckpointStep
)

# --- to the Restorer ------------------------------------------------------------------------------------------------------------


# --- to the Collector -----------------------------------------------------------------------------------------------------------


# --- to the Committer -----------------------------------------------------------------------------------------------------------
