"""What the TaskManager and the Workers are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from actors import Message, Ref, Reply
from ks_actors.runtime.messages._poller import EndsKnown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.log import Fetched, OffsetAndMetadata
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.messages._worker import WorkerMessage
    from ks_actors.state import TaskStores, Token
    from ks_actors.task import Position, RecordContextHolder, Task


# --- to the TaskManager ---------------------------------------------------------------------------------------------------------


class Assign(Message, frozen=True):
    """A task's stores are restored: it is yours to run, from these positions (offset and partition time). `assignment`: which one it came by."""

    task: TaskId
    positions: Mapping[TopicPartition, Position]
    stores: TaskStores | None
    current: RecordContextHolder
    assignment: int


class Records(Message, frozen=True):
    """What a fetch brought."""

    fetched: Sequence[Fetched]
    epoch: int


class PositionReset(Message, frozen=True):
    """A position was not in the log, which begins at `begin`: its partition is read on from `position`."""

    partition: TopicPartition
    position: int
    begin: int
    epoch: int


class NextTask(Message, frozen=True):
    """A worker is free."""

    worker: Ref[WorkerMessage]


class TaskDone(Message, frozen=True):
    """A lease has ended, with so many records of `tasks`; those `untouched` come back as they were. A worker that `dies` keeps the one it died of."""

    worker: Ref[WorkerMessage]
    tasks: tuple[TaskId, ...]
    records: int
    untouched: tuple[TaskId, ...] = ()
    dies: bool = False


class Wake(Message, frozen=True):
    """Look again whether there is something to do: in this task, or where time has come (internal)."""

    task: TaskId | None = None


class SuspendTasks(Message, frozen=True):
    """Have these tasks (None: all) processed no more, and take none of them that came by `assignment`, or one before it.

    Answered when no worker has any of them.
    """

    reply: Reply[None]
    tasks: frozenset[TaskId] | None
    assignment: int


class Close(Message, frozen=True):
    """Give these tasks back (None: all), processors closed; answered with their ids when no worker has any of them."""

    reply: Reply[frozenset[TaskId]]
    tasks: frozenset[TaskId] | None


class AskBusy(Message, frozen=True):
    """Tell which of these tasks have something in hand, or done, that no commit has taken."""

    reply: Reply[frozenset[TaskId]]
    tasks: frozenset[TaskId]


class Drain(Message, frozen=True):
    """Let the records in flight come to an end and feed no new ones to asynchronous processors.

    Answered when none is left, or only those of calls that take longer: their tasks go on to drain, and are not part of the commit.
    `due_only`: tasks with calls that were fed again a moment ago are left alone. `calm`: from now on no task begins calls that take long.
    """

    reply: Reply[None]
    due_only: bool
    calm: bool = False


class Freeze(Message, frozen=True):
    """All workers stand still: freeze the stores of all tasks, and tell what to commit."""

    reply: Reply[Frozen]
    transactional: bool


class Frozen(msgspec.Struct, frozen=True):
    """The content of one commit: positions by partition, tokens of the stores by task; and the tasks that are left out, with calls in flight."""

    positions: Mapping[TopicPartition, OffsetAndMetadata]
    tokens: Mapping[TaskId, Token]
    tasks: Mapping[TaskId, Task]
    left_out: frozenset[TaskId] = frozenset()


class ResumeFeeding(Message, frozen=True):
    """After DRAIN: asynchronous processors may be fed again, those that still drain only when the commit has failed."""

    failed: bool


class Rewind(Message, frozen=True):
    """All workers stand still: throw away what these tasks (None: all) did since the last commit; answered with where to fetch from.

    Records that were fetched before `epoch` are stale for them. The one that has `failed` (None: all) is not processed for `rest` seconds.
    """

    reply: Reply[Mapping[TopicPartition, int]]
    tasks: frozenset[TaskId] | None
    epoch: int
    failed: TaskId | None
    rest: float


class RestOver(Message, frozen=True):
    """The task has rested for long enough after it has failed (internal)."""

    task: TaskId


class CommittedTasks(Message, frozen=True):
    """These positions are final."""

    positions: Mapping[TopicPartition, OffsetAndMetadata]


class OutputPressure(Message, frozen=True):
    """The collector has too much (`high`), or has room again."""

    high: bool


class PauseProcessing(Message, frozen=True):
    """Give out no leases (`paused`), or again."""

    paused: bool


class RetireWorker(Message, frozen=True):
    """Give this worker no more leases, and tell it to close when it has none."""

    worker: Ref[WorkerMessage]


class WorkerLost(Message, frozen=True):
    """This worker is dead; what it had leased is taken back."""

    worker: Ref[WorkerMessage]


TaskManagerMessage: TypeAlias = (
    Assign
    | Records
    | EndsKnown
    | PositionReset
    | NextTask
    | TaskDone
    | Wake
    | SuspendTasks
    | Close
    | AskBusy
    | Drain
    | ResumeFeeding
    | Freeze
    | Rewind
    | RestOver
    | CommittedTasks
    | OutputPressure
    | PauseProcessing
    | RetireWorker
    | WorkerLost
)

# --- to a Worker ----------------------------------------------------------------------------------------------------------------
