"""What the actors of an instance say to each other: one closed union per actor.

Control messages carry an epoch where a stale one must not count. Record batches travel as one message per batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from actors import Message, Ref, Reply
from ks_actors._task_id import TaskId
from ks_actors.log._types import Fetched, GroupMetadata, OffsetAndMetadata, Outgoing, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.log import MembershipEvent
    from ks_actors.runtime._current import Current
    from ks_actors.runtime._offsets import Position
    from ks_actors.runtime._task import Task
    from ks_actors.runtime._uncaught import UncaughtResponse
    from ks_actors.state import TaskStores, Token

# --- to the Instance ------------------------------------------------------------------------------------------------------------


class Start(Message, frozen=True, tag="START"):
    """Start everything; answered when the instance runs."""

    reply: Reply[None]


class StopInstance(Message, frozen=True, tag="STOP"):
    """Commit, close everything; answered when that is done."""

    reply: Reply[None]


class PauseAll(Message, frozen=True, tag="PAUSE"):
    """Process no more records until RESUME_ALL; membership and state are kept."""

    reply: Reply[None]


class ResumeAll(Message, frozen=True, tag="RESUME_ALL"):
    """Go on after PAUSE."""

    reply: Reply[None]


class AddWorker(Message, frozen=True, tag="ADD_WORKER"):
    """Start one more worker; answered with its name, None when the instance is not in a state for it."""

    reply: Reply[str | None]


class RemoveWorker(Message, frozen=True, tag="REMOVE_WORKER"):
    """Stop a worker softly; answered with its name when it has ended, None when there is none."""

    reply: Reply[str | None]


class TasksChanged(Message, frozen=True, tag="TASKS_CHANGED"):
    """So many tasks of the current assignment run, and so many are still on their way."""

    running: int
    pending: int


class Fatal(Message, frozen=True, tag="FATAL"):
    """Something failed that concerns all: the uncaught handler decides. `rolled_back` says that the tasks are at their last commit again."""

    error: Exception
    rolled_back: bool


class Decided(Message, frozen=True, tag="DECIDED"):
    """The uncaught handler has decided about an error (internal). `worker` is the name of the one that died of it."""

    error: Exception
    response: UncaughtResponse
    worker: str | None
    rolled_back: bool


InstanceMessage: TypeAlias = Start | StopInstance | PauseAll | ResumeAll | AddWorker | RemoveWorker | TasksChanged | Fatal | Decided

# --- to the Poller --------------------------------------------------------------------------------------------------------------


class MembershipChanged(Message, frozen=True, tag="MEMBERSHIP"):
    """The group has something to say: ASSIGNED, REVOKED or LOST."""

    event: MembershipEvent


class MembershipFailed(Message, frozen=True, tag="MEMBERSHIP_FAILED"):
    """Waiting for the group failed."""

    error: Exception


class Arrived(Message, frozen=True, tag="ARRIVED"):
    """A fetch has ended."""

    fetched: Sequence[Fetched]
    epoch: int


class FetchFailed(Message, frozen=True, tag="FETCH_FAILED"):
    """A fetch has failed."""

    error: Exception
    epoch: int


class BufferHigh(Message, frozen=True, tag="BUFFER_HIGH"):
    """Fetch no more of these."""

    partitions: tuple[TopicPartition, ...]


class BufferLow(Message, frozen=True, tag="BUFFER_LOW"):
    """Fetch these again."""

    partitions: tuple[TopicPartition, ...]


class TaskReady(Message, frozen=True, tag="TASK_READY"):
    """A task runs: fetch its partitions, from these offsets."""

    task: TaskId
    positions: Mapping[TopicPartition, int]


class SeekAll(Message, frozen=True, tag="SEEK"):
    """Fetch again from these offsets, after a rollback; records carry `epoch` from now on."""

    reply: Reply[None]
    positions: Mapping[TopicPartition, int]
    epoch: int


class CommitOffsets(Message, frozen=True, tag="COMMIT_OFFSETS"):
    """Commit offsets of the group, outside of transactions."""

    reply: Reply[None]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


class AskGroup(Message, frozen=True, tag="ASK_GROUP"):
    """Tell who we are in the group now."""

    reply: Reply[GroupMetadata]


class Rejoin(Message, frozen=True, tag="REJOIN"):
    """Give up all tasks as lost, and enter the group anew."""

    cause: Exception


class LeaveGroup(Message, frozen=True, tag="LEAVE"):
    """Stop fetching and leave the group."""

    reply: Reply[None]


class Settled(Message, frozen=True, tag="SETTLED"):
    """What had to happen before the group may go on has happened."""

    generation: int


PollerMessage: TypeAlias = (
    MembershipChanged
    | MembershipFailed
    | Arrived
    | FetchFailed
    | BufferHigh
    | BufferLow
    | TaskReady
    | SeekAll
    | CommitOffsets
    | AskGroup
    | Rejoin
    | LeaveGroup
    | Settled
)

# --- to the TaskManager ---------------------------------------------------------------------------------------------------------


class AssignTask(Message, frozen=True, tag="ASSIGN"):
    """A task's stores are restored: it is yours to run, from these positions (offset and partition time)."""

    task: TaskId
    positions: Mapping[TopicPartition, Position]
    stores: TaskStores | None
    current: Current


class Records(Message, frozen=True, tag="RECORDS"):
    """What a fetch brought."""

    fetched: Sequence[Fetched]
    epoch: int


class NextTask(Message, frozen=True, tag="NEXT_TASK"):
    """A worker is free."""

    worker: Ref[WorkerMessage]


class TaskDone(Message, frozen=True, tag="TASK_DONE"):
    """A lease has ended."""

    worker: Ref[WorkerMessage]
    task: TaskId
    records: int


class Wake(Message, frozen=True, tag="WAKE"):
    """Look again whether there is something to do."""


class CloseTasks(Message, frozen=True, tag="CLOSE"):
    """Give these tasks back (None: all), processors closed; answered with their ids when no worker has any of them."""

    reply: Reply[frozenset[TaskId]]
    tasks: frozenset[TaskId] | None


class Drain(Message, frozen=True, tag="DRAIN"):
    """Let the records in flight come to an end and feed no new ones to asynchronous processors; answered when none is left."""

    reply: Reply[None]


class Freeze(Message, frozen=True, tag="FREEZE"):
    """All workers stand still: freeze the stores of all tasks, and tell what to commit."""

    reply: Reply[Frozen]
    transactional: bool


class Frozen(msgspec.Struct, frozen=True):
    """What one commit is about: positions by partition, tokens of the stores by task."""

    positions: Mapping[TopicPartition, OffsetAndMetadata]
    tokens: Mapping[TaskId, Token]
    tasks: Mapping[TaskId, Task]


class Refed(Message, frozen=True, tag="FEED"):
    """After DRAIN: asynchronous processors may be fed again."""


class Rewind(Message, frozen=True, tag="REWIND"):
    """All workers stand still: throw away what these tasks (None: all) did since the last commit; answered with where to fetch from.

    Records that were fetched before `epoch` are stale for them.
    """

    reply: Reply[Mapping[TopicPartition, int]]
    tasks: frozenset[TaskId] | None
    epoch: int


class CommittedTasks(Message, frozen=True, tag="COMMITTED"):
    """These positions are final."""

    positions: Mapping[TopicPartition, OffsetAndMetadata]


class OutputPressure(Message, frozen=True, tag="OUTPUT_PRESSURE"):
    """The collector has too much (`high`), or has room again."""

    high: bool


class PauseProcessing(Message, frozen=True, tag="PAUSE_PROCESSING"):
    """Give out no leases (`paused`), or again."""

    paused: bool


class RetireWorker(Message, frozen=True, tag="RETIRE_WORKER"):
    """Give this worker no more leases, and tell it to close when it has none."""

    worker: Ref[WorkerMessage]


class WorkerLost(Message, frozen=True, tag="WORKER_LOST"):
    """This worker is dead; what it had leased is taken back."""

    worker: Ref[WorkerMessage]


TaskManagerMessage: TypeAlias = (
    AssignTask
    | Records
    | NextTask
    | TaskDone
    | Wake
    | CloseTasks
    | Drain
    | Refed
    | Freeze
    | Rewind
    | CommittedTasks
    | OutputPressure
    | PauseProcessing
    | RetireWorker
    | WorkerLost
)

# --- to a Worker ----------------------------------------------------------------------------------------------------------------


class Lease(Message, frozen=True, tag="LEASE"):
    """Process this task for a slice; it is yours alone until TASK_DONE."""

    task: Task
    draining: bool


class PauseForCommit(Message, frozen=True, tag="PAUSE_FOR_COMMIT"):
    """Stand still from now on; answered (PAUSED) with the worker's name."""

    reply: Reply[str]
    epoch: int


class Resume(Message, frozen=True, tag="RESUME"):
    """Go on; what is written from now on belongs to `epoch`."""

    epoch: int


class CloseWorker(Message, frozen=True, tag="CLOSE"):
    """End."""


WorkerMessage: TypeAlias = Lease | PauseForCommit | Resume | CloseWorker

# --- to the StateManager --------------------------------------------------------------------------------------------------------


class OpenTask(Message, frozen=True, tag="ASSIGN"):
    """Make this task: open its stores, restore them, pass it on."""

    task: TaskId
    positions: Mapping[TopicPartition, Position]
    epoch: int


class Opened(Message, frozen=True, tag="OPENED"):
    """The stores of a task are open (internal)."""

    task: TaskId


class OpenFailed(Message, frozen=True, tag="OPEN_FAILED"):
    """The stores of a task could not be opened (internal)."""

    task: TaskId
    error: Exception


class RestoredRecords(Message, frozen=True, tag="RESTORED_RECORDS"):
    """Changelog records, straight from the log."""

    fetched: Sequence[Fetched]


class Restored(Message, frozen=True, tag="RESTORED"):
    """The changelogs of a task are read to their end."""

    task: TaskId


class RestoreFailed(Message, frozen=True, tag="RESTORE_FAILED"):
    """Reading changelogs failed."""

    error: Exception


class CloseStores(Message, frozen=True, tag="CLOSE_STORES"):
    """Close the stores of these tasks (None: of all); answered when they are. `clean` writes what is committed first."""

    reply: Reply[None]
    tasks: frozenset[TaskId] | None
    clean: bool


class EncodeChangelog(Message, frozen=True, tag="FLUSH"):
    """Write the changelog records of a commit to the collector; answered with the number of records."""

    reply: Reply[int]
    frozen: Frozen
    epoch: int


class PersistUnlogged(Message, frozen=True, tag="PERSIST"):
    """Write stores without a changelog to disk."""

    reply: Reply[None]
    frozen: Frozen


class Keep(Message, frozen=True, tag="KEEP"):
    """The commit has succeeded: the frozen state is final; `ends` are the changelogs' ends. Answered when it is kept: then the next may be frozen."""

    reply: Reply[None]
    frozen: Frozen
    ends: Mapping[TopicPartition, int]


class LookIdle(Message, frozen=True, tag="LOOK_IDLE"):
    """See whether there is time to write what is committed (internal)."""


class Corrupted(Message, frozen=True, tag="CORRUPTED"):
    """What a task has on disk does not fit its changelogs: wipe it, restore all."""

    task: TaskId
    reason: str


class FlushStep(Message, frozen=True, tag="FLUSH_STEP"):
    """Write a little of the committed layers to disk (internal)."""


StateManagerMessage: TypeAlias = (
    OpenTask
    | Opened
    | OpenFailed
    | RestoredRecords
    | Restored
    | RestoreFailed
    | CloseStores
    | EncodeChangelog
    | PersistUnlogged
    | Keep
    | FlushStep
    | LookIdle
    | Corrupted
)

# --- to the Restorer ------------------------------------------------------------------------------------------------------------


class Restore(Message, frozen=True, tag="ASSIGN"):
    """Read these changelogs of a task, from these offsets to their end. A position of None begins at the log's first record."""

    task: TaskId
    changelogs: Mapping[TopicPartition, int | None]


class StopRestoring(Message, frozen=True, tag="CLOSE"):
    """Read the changelogs of these tasks no more (None: of none)."""

    tasks: frozenset[TaskId] | None


class ChangelogEnds(Message, frozen=True, tag="ENDS"):
    """Where changelogs begin and end (internal)."""

    task: TaskId
    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    positions: Mapping[TopicPartition, int | None]


RestorerMessage: TypeAlias = Restore | StopRestoring | ChangelogEnds | Arrived | FetchFailed

# --- to the Collector -----------------------------------------------------------------------------------------------------------


class Output(Message, frozen=True, tag="OUTPUT"):
    """Records to be written, in order per partition; those of a later epoch wait for the end of the commit."""

    batches: Sequence[Outgoing]
    epoch: int


class Sent(Message, frozen=True, tag="SENT"):
    """A send has ended (internal)."""

    batches: Sequence[Outgoing]
    ends: Sequence[int]


class SendFailed(Message, frozen=True, tag="SEND_FAILED"):
    """A send has failed (internal)."""

    batches: Sequence[Outgoing]
    error: Exception


class Partitioned(Message, frozen=True, tag="PARTITIONED"):
    """The sizes of topics are known (internal)."""

    partitions: Mapping[str, int]
    batches: Sequence[Outgoing]


class Flush(Message, frozen=True, tag="DRAIN"):
    """Write all that belongs to `epoch`; answered with the ends of all partitions that were written to since the last commit."""

    reply: Reply[Mapping[TopicPartition, int]]
    epoch: int


class CommitTransaction(Message, frozen=True, tag="COMMIT_TXN"):
    """Commit what was written, and the offsets."""

    reply: Reply[None]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    group: GroupMetadata


class Abort(Message, frozen=True, tag="ABORT"):
    """Forget what was not committed: of the current epoch and of all later ones."""

    reply: Reply[None]
    epoch: int


class NextEpoch(Message, frozen=True, tag="NEXT_EPOCH"):
    """The commit is over: what waited for it may be written."""

    epoch: int


CollectorMessage: TypeAlias = Output | Sent | SendFailed | Partitioned | Flush | CommitTransaction | Abort | NextEpoch

# --- to the Committer -----------------------------------------------------------------------------------------------------------


class Commit(Message, frozen=True, tag="COMMIT"):
    """Commit all tasks; several that come during one commit are served by the next one."""

    reply: Reply[None] | None
    reason: str


class CommitTimer(Message, frozen=True, tag="COMMIT_TIMER"):
    """The commit interval has gone by (internal)."""


class WorkersChanged(Message, frozen=True, tag="WORKERS"):
    """These are the workers now."""

    workers: tuple[Ref[WorkerMessage], ...]


class Rollback(Message, frozen=True, tag="ROLLBACK"):
    """Bring tasks back to their last commit: `tasks` under at least once, all of them under exactly once."""

    reply: Reply[None]
    tasks: frozenset[TaskId] | None
    cause: Exception


class Purged(Message, frozen=True, tag="PURGED"):
    """Deleting records of repartition topics is over (internal)."""

    error: Exception | None


class HoldCommits(Message, frozen=True, tag="HOLD"):
    """Commit nothing while `held`: the group is between two generations, and would refuse it."""

    held: bool


CommitterMessage: TypeAlias = Commit | CommitTimer | WorkersChanged | Rollback | Purged | HoldCommits
