"""What those are told who make work last: StateManager, Restorer, Collector and Committer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Ref, Reply
from ks_actors.runtime._messages_group import Arrived, FetchFailed
from ks_actors.runtime._messages_snapshots import PointStep, TakePoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors._task_id import TaskId
    from ks_actors.log._types import Fetched, GroupMetadata, OffsetAndMetadata, Outgoing, TopicPartition
    from ks_actors.runtime._messages_tasks import Frozen, WorkerMessage
    from ks_actors.runtime._offsets import Position


# --- to the StateManager --------------------------------------------------------------------------------------------------------


class OpenTask(Message, frozen=True, tag="ASSIGN"):
    """Make this task: open its stores, restore them, pass it on. `assignment`: which one it came by, counted by the poller."""

    task: TaskId
    positions: Mapping[TopicPartition, Position]
    assignment: int


class OpenStandby(Message, frozen=True, tag="STAND_BY"):
    """Keep the stores of this task up to date from now on, if you do not yet; it is processed elsewhere."""

    task: TaskId


class Recycle(Message, frozen=True, tag="RECYCLE"):
    """These tasks, which the task manager has given back, are standbys from now on; what they have not committed is void. Answered when it is so."""

    reply: Reply[None]
    tasks: frozenset[TaskId]


class AskOffsets(Message, frozen=True, tag="ASK_OFFSETS"):
    """Tell how far the state is of all tasks that are not processed: standbys, and what is on disk, as sums of the changelogs' offsets."""

    reply: Reply[Mapping[TaskId, int]]


class Opened(Message, frozen=True, tag="OPENED"):
    """The stores of a task are open (internal)."""

    task: TaskId


class OpenFailed(Message, frozen=True, tag="OPEN_FAILED"):
    """The stores of a task could not be opened (internal)."""

    task: TaskId
    error: Exception


class RestoredRecords(Message, frozen=True, tag="RESTORED_RECORDS"):
    """Changelog records, straight from the log; TAKEN_IN tells the restorer when they are in the stores."""

    fetched: Sequence[Fetched]


class Restored(Message, frozen=True, tag="RESTORED"):
    """The changelogs of a task are read to their end, as the order of that number wanted."""

    task: TaskId
    ticket: int


class RestoreFailed(Message, frozen=True, tag="RESTORE_FAILED"):
    """Reading changelogs failed."""

    error: Exception


class CloseStores(Message, frozen=True, tag="CLOSE_STORES"):
    """Close the stores of these tasks (None: of all); answered when they are. `clean` writes what is committed first.

    Without `standbys` those of all tasks that are standbys stay.
    """

    reply: Reply[None]
    tasks: frozenset[TaskId] | None
    clean: bool
    standbys: bool = True


class EncodeChangelog(Message, frozen=True, tag="FLUSH"):
    """Write the changelog records of a commit to the collector; answered when that is done."""

    reply: Reply[None]
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
    """Give up stores of a task that do not fit their changelogs, for the reasons given, or all of them without any, and restore these."""

    task: TaskId
    reason: str
    changelogs: Mapping[TopicPartition, str] = {}


class FlushStep(Message, frozen=True, tag="FLUSH_STEP"):
    """Write a little of the committed layers to disk (internal)."""


class CleanUp(Message, frozen=True, tag="CLEAN_UP"):
    """Delete the directories of tasks that have not been here for long (internal)."""


class CleanedUp(Message, frozen=True, tag="CLEANED_UP"):
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
    | Keep
    | FlushStep
    | LookIdle
    | Corrupted
    | TakePoint
    | PointStep
)

# --- to the Restorer ------------------------------------------------------------------------------------------------------------


class Restore(Message, frozen=True, tag="ASSIGN"):
    """Read these changelogs of a task, from these offsets to their end. A position of None begins at the log's first record.

    What is being read of them goes on from where it is. The answer has the `ticket`.
    """

    task: TaskId
    changelogs: Mapping[TopicPartition, int | None]
    ticket: int


class Follow(Message, frozen=True, tag="FOLLOW"):
    """Read these changelogs of a standby, from these offsets on, until told otherwise; in all else as for ASSIGN."""

    task: TaskId
    changelogs: Mapping[TopicPartition, int | None]
    ticket: int


class StopRestoring(Message, frozen=True, tag="CLOSE"):
    """Read the changelogs of these tasks no more (None: of none); answered when nothing more will be said of them."""

    reply: Reply[None]
    tasks: frozenset[TaskId] | None


class ChangelogEnds(Message, frozen=True, tag="ENDS"):
    """Where changelogs begin and end (internal)."""

    order: Restore | Follow
    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    limits: Mapping[TopicPartition, int]


class LookAtLimits(Message, frozen=True, tag="LOOK_AT_LIMITS"):
    """It is time to see how far standbys may be read that follow source topics (internal)."""


class LookAtProgress(Message, frozen=True, tag="LOOK_AT_PROGRESS"):
    """It is time to see whether restoring gets on (internal)."""


class LimitsKnown(Message, frozen=True, tag="LIMITS"):
    """How far standbys may be read that follow source topics; without those of which it could not be found out (internal)."""

    limits: Mapping[TopicPartition, int]


class EndsUnknown(Message, frozen=True, tag="ENDS_UNKNOWN"):
    """Where changelogs begin and end could not be found out (internal)."""

    order: Restore | Follow
    error: Exception


class TakenIn(Message, frozen=True, tag="TAKEN_IN"):
    """What one RESTORED_RECORDS brought is in the stores: there is room for more."""


class FollowAgain(Message, frozen=True, tag="FOLLOW_AGAIN"):
    """The rest after a failure is over (internal)."""


RestorerMessage: TypeAlias = (
    Restore
    | Follow
    | StopRestoring
    | ChangelogEnds
    | EndsUnknown
    | TakenIn
    | FollowAgain
    | LookAtLimits
    | LookAtProgress
    | LimitsKnown
    | Arrived
    | FetchFailed
)

# --- to the Collector -----------------------------------------------------------------------------------------------------------


class Output(Message, frozen=True, tag="OUTPUT"):
    """Records to be written, in order per partition; of a later epoch after the commit, of a `lot` with the commit that takes their task."""

    batches: Sequence[Outgoing]
    epoch: int
    lot: int | None = None


class Sent(Message, frozen=True, tag="SENT"):
    """A send has ended (internal)."""

    batches: Sequence[Outgoing]
    ends: Sequence[int]


class SendFailed(Message, frozen=True, tag="SEND_FAILED"):
    """A send has failed (internal)."""

    batches: Sequence[Outgoing]
    error: Exception


class Partitioned(Message, frozen=True, tag="PARTITIONED"):
    """The sizes of topics are known, or why they are not (internal)."""

    partitions: Mapping[str, int]
    error: Exception | None


class Flush(Message, frozen=True, tag="DRAIN"):
    """Write all of `epoch`, and of the `lots` of committed tasks; answered with the ends of the partitions written to since the last commit."""

    reply: Reply[Mapping[TopicPartition, int]]
    epoch: int
    lots: frozenset[int]


class KeepLots(Message, frozen=True, tag="KEEP_LOTS"):
    """The lots of the tasks that there are: output kept for other lots is void, as its tasks were given up or begun anew."""

    lots: frozenset[int]


class CommitTransaction(Message, frozen=True, tag="COMMIT_TXN"):
    """Commit what was written, and the offsets."""

    reply: Reply[None]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    group: GroupMetadata


class Abandon(Message, frozen=True, tag="ABANDON"):
    """Write nothing more: the membership is lost, and who has the tasks next may be writing already."""


class Abort(Message, frozen=True, tag="ABORT"):
    """Forget what was not committed: of the current epoch and of all later ones."""

    reply: Reply[None]
    epoch: int


class Lingered(Message, frozen=True, tag="LINGERED"):
    """Output that has come little by little was gathered for as long as it is to be."""


class NextEpoch(Message, frozen=True, tag="NEXT_EPOCH"):
    """The commit is over: what waited for it may be written."""

    epoch: int


CollectorMessage: TypeAlias = Output | Sent | SendFailed | Partitioned | Flush | KeepLots | CommitTransaction | Abandon | Abort | Lingered | NextEpoch

# --- to the Committer -----------------------------------------------------------------------------------------------------------


class Commit(Message, frozen=True, tag="COMMIT"):
    """Commit all tasks that are at rest; several that come during one commit are served by the next one.

    `hold`: and none after this one until HOLD ends. `rebalancing`: from now until HOLD ends the group may move on to its next generation at any
    moment. `closing`: the app ends, and does not wait for that generation: as long as the group takes no commits this is IllegalGeneration at once.
    `due_only`: tasks with calls that were fed again a moment ago need not be part of it. `one_of`: it is served when one of these tasks is in it.
    `calm`: from now on no task begins calls that take long.
    """

    reply: Reply[None] | None
    reason: str
    hold: bool = False
    rebalancing: bool = False
    closing: bool = False
    due_only: bool = False
    one_of: frozenset[TaskId] | None = None
    calm: bool = False

    @property
    def given_up(self) -> bool:
        """Whether somebody has waited for it, and does not any more: then it is not wanted, unless it changes how commits go on."""
        return self.reply is not None and not (self.reply.wanted() or self.hold or self.rebalancing)


class CommitTimer(Message, frozen=True, tag="COMMIT_TIMER"):
    """The commit interval has gone by (internal)."""


class WorkersChanged(Message, frozen=True, tag="WORKERS"):
    """These are the workers now."""

    workers: tuple[Ref[WorkerMessage], ...]


class Undrained(Message, frozen=True, tag="UNDRAINED"):
    """A task that has begun to drain at `since` has calls in flight after the longest time that they may take."""

    task: TaskId
    since: float


class Rollback(Message, frozen=True, tag="ROLLBACK"):
    """Bring tasks back to their last commit: `tasks` under at least once, all of them under exactly once.

    `give_up`: they are going to be given up; nothing is committed until HOLD ends. Answered with whether a commit has succeeded since the last time
    that tasks were given up.
    """

    reply: Reply[bool]
    tasks: frozenset[TaskId] | None
    cause: Exception
    give_up: bool = False


class Purged(Message, frozen=True, tag="PURGED"):
    """Deleting records of repartition topics is over (internal)."""

    error: Exception | None


class HoldCommits(Message, frozen=True, tag="HOLD"):
    """Commit nothing while `held`: the group is between two generations, and would refuse it."""

    held: bool


class EndCommits(Message, frozen=True, tag="END_COMMITS"):
    """Commit nothing and roll nothing back any more: the app closes. Answered when nothing of that is under way."""

    reply: Reply[None]


CommitterMessage: TypeAlias = Commit | CommitTimer | WorkersChanged | Rollback | Undrained | Purged | HoldCommits | EndCommits
