"""Messages to the TaskManager."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from actors import Message, Ref, Reply
from ks_actors.runtime.messages._poller import EndsKnown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.log import Fetched, OffsetAndMetadata
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.messages._worker import WorkerMessage
    from ks_actors.state import TaskStores
    from ks_actors.task import Frozen, Position, RecordContextHolder, TaskLife


class Assign(Message, frozen=True):
    """Run a task with restored stores, from these positions (offset and partition time).

    `assignment`: the number of its assignment. `life` goes with the task.
    """

    task: TaskId
    positions: Mapping[TopicPartition, Position]
    stores: TaskStores | None
    current: RecordContextHolder
    assignment: int
    life: TaskLife


class Records(Message, frozen=True):
    """The records of a fetch."""

    fetched: Sequence[Fetched]
    epoch: int


class PositionReset(Message, frozen=True):
    """A position was not in the log, which begins at `begin`.

    Its partition continues at `position`. Resets have ascending numbers.
    """

    partition: TopicPartition
    position: int
    begin: int
    number: int
    epoch: int


class NextTask(Message, frozen=True):
    """A worker is free."""

    worker: Ref[WorkerMessage]


class TaskDone(Message, frozen=True):
    """A lease has ended, after `records` records of `tasks`, which took these `seconds` each.

    Tasks that are `untouched` come back unprocessed. A worker that `dies` keeps the task that
    killed it.
    """

    worker: Ref[WorkerMessage]
    tasks: tuple[TaskId, ...]
    seconds: tuple[float, ...]
    records: int
    untouched: tuple[TaskId, ...] = ()
    dies: bool = False


class Wake(Message, frozen=True):
    """Check for work in this task, or for timers that are due (internal)."""

    task: TaskId | None = None


class SuspendTasks(Message, frozen=True):
    """Stop these tasks (None: all), and begin no task of assignments up to number `assignment`.

    Answered when no worker has any of them.
    """

    reply: Reply[None]
    tasks: frozenset[TaskId] | None
    assignment: int


class Close(Message, frozen=True):
    """Close the processors of these tasks (None: all) and give the tasks back.

    Answered with their ids when no worker has any of them.
    """

    reply: Reply[frozenset[TaskId]]
    tasks: frozenset[TaskId] | None


class AskBusy(Message, frozen=True):
    """Ask which of these tasks have work in hand or uncommitted."""

    reply: Reply[frozenset[TaskId]]
    tasks: frozenset[TaskId]


class Drain(Message, frozen=True):
    """Let the records in flight finish, and feed no new records to asynchronous processors.

    Answered when no records are left in flight, or only records of longer calls. The tasks of
    longer calls keep draining, outside of the commit. `due_only`: skip tasks with calls that have
    not been fed long enough. `calm`: from now on, tasks begin no long calls.
    """

    reply: Reply[None]
    due_only: bool
    calm: bool = False


class Freeze(Message, frozen=True):
    """Freeze the stores of all tasks and return the content of the commit.

    All workers are paused.
    """

    reply: Reply[Frozen]
    transactional: bool


class ResumeFeeding(Message, frozen=True):
    """Lease tasks again after Drain; their output belongs to `epoch`.

    Tasks that still drain are fed again only if the commit has `failed`.
    """

    failed: bool
    epoch: int


class Rewound(NamedTuple):
    """The positions to fetch from, after all resets up to a number."""

    positions: Mapping[TopicPartition, int]
    resets: int


class Rewind(Message, frozen=True):
    """Discard the uncommitted work of these tasks (None: all); answered with the fetch positions.

    All workers are paused. Records fetched before `epoch` are stale for these tasks. The `failed`
    task (None: all tasks) is not processed for `rest` seconds.
    """

    reply: Reply[Rewound]
    tasks: frozenset[TaskId] | None
    epoch: int
    failed: TaskId | None
    rest: float


class TaskRestOver(Message, frozen=True):
    """The pause of a failed task is over (internal)."""

    task: TaskId


class CommittedTasks(Message, frozen=True):
    """These positions are committed."""

    positions: Mapping[TopicPartition, OffsetAndMetadata]


class PurgeEnded(Message, frozen=True):
    """The deletion of repartition records has ended (internal)."""

    error: Exception | None


class OutputPressure(Message, frozen=True):
    """The collector's backlog is too large (`high`), or it has room again."""

    high: bool


class PauseProcessing(Message, frozen=True):
    """Give out no leases of a query, or none at all, while `paused`."""

    paused: bool
    query: str | None = None


class RetireWorker(Message, frozen=True):
    """Give this worker no more leases, and close it when it has none."""

    worker: Ref[WorkerMessage]


class WorkerLost(Message, frozen=True):
    """This worker is dead; take back its leases."""

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
    | TaskRestOver
    | CommittedTasks
    | PurgeEnded
    | OutputPressure
    | PauseProcessing
    | RetireWorker
    | WorkerLost
)
