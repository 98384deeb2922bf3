"""What the Instance and the Poller are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors._errors import OffsetOutOfRange
    from ks_actors._task_id import TaskId
    from ks_actors.log import MembershipEvent
    from ks_actors.log._types import Fetched, GroupMetadata, OffsetAndMetadata, TopicPartition
    from ks_actors.runtime._uncaught import UncaughtResponse


# --- to the Instance ------------------------------------------------------------------------------------------------------------


class Start(Message, frozen=True, tag="START"):
    """Start everything; answered when the instance runs."""

    reply: Reply[None]


class StopInstance(Message, frozen=True, tag="STOP"):
    """Commit, close everything; answered when that is done. A static member leaves its group only with `leave`."""

    reply: Reply[None]
    leave: bool = False


class Stopped(Message, frozen=True, tag="STOPPED"):
    """Everything is closed: whoever waits for that is answered, behind all that was still on its way (internal)."""

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


InstanceMessage: TypeAlias = Start | StopInstance | Stopped | PauseAll | ResumeAll | AddWorker | RemoveWorker | TasksChanged | Fatal | Decided

# --- to the Poller --------------------------------------------------------------------------------------------------------------


class MembershipChanged(Message, frozen=True, tag="MEMBERSHIP"):
    """The group has something to say: ASSIGNED, REVOKED or LOST."""

    event: MembershipEvent


class MembershipFailed(Message, frozen=True, tag="MEMBERSHIP_FAILED"):
    """Waiting for the group failed (`waiting`), or doing what it wants."""

    error: Exception
    waiting: bool


class Arrived(Message, frozen=True, tag="ARRIVED"):
    """A fetch has ended."""

    fetched: Sequence[Fetched]
    epoch: int


class TopicsGone(Message, frozen=True, tag="TOPICS_GONE"):
    """A fetch has failed, since these topics, which matched a pattern, are not there any more (internal)."""

    topics: frozenset[str]


class FetchFailed(Message, frozen=True, tag="FETCH_FAILED"):
    """A fetch has failed."""

    error: Exception
    epoch: int


class PositionKnown(Message, frozen=True, tag="POSITION_KNOWN"):
    """Where to go on with a partition whose position was not in the log any more (internal)."""

    error: OffsetOutOfRange
    offset: int


class EndsKnown(Message, frozen=True, tag="ENDS_KNOWN"):
    """How far the log goes in partitions of which a fetch may never bring anything."""

    ends: Mapping[TopicPartition, int]
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


class FetchNew(Message, frozen=True, tag="FETCH_NEW"):
    """Begin to fetch for all tasks that have become ready meanwhile (internal)."""


class SeekAll(Message, frozen=True, tag="SEEK"):
    """Fetch again from these offsets, after a rollback and a rest of so many seconds; records carry `epoch` from now on."""

    reply: Reply[None]
    positions: Mapping[TopicPartition, int]
    epoch: int
    rest: float


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


class Closing(Message, frozen=True, tag="CLOSING"):
    """The app is about to commit for the last time: what the group takes only in its next generation is not to wait long for it."""


class TooLate(Message, frozen=True, tag="TOO_LATE"):
    """An app that closes has waited long enough for the group's next generation (internal)."""


class StopFollowing(Message, frozen=True, tag="STOP_FOLLOWING"):
    """Fetch no more, and do no more of what the group wants: the app closes. The membership stays until LEAVE."""

    reply: Reply[None]


class LeaveGroup(Message, frozen=True, tag="LEAVE"):
    """Stop fetching and leave the group; a static member keeps its place there, unless it is `for_good`."""

    reply: Reply[None]
    for_good: bool


class Answered(Message, frozen=True, tag="ANSWERED"):
    """A request that was dealt with beside the messages has its answer (internal); `error`: it could not be given."""

    error: Exception | None


class Settled(Message, frozen=True, tag="SETTLED"):
    """What had to happen before the group may go on has happened."""

    generation: int


class GivenUp(Message, frozen=True, tag="GIVEN_UP"):
    """All tasks are given up (internal). `fruitful`: something was committed since the last time."""

    fruitful: bool


class Rested(Message, frozen=True, tag="RESTED"):
    """The rest before fetching again is over (internal)."""


class AtRest(Message, frozen=True, tag="AT_REST"):
    """Tasks that are to move have come to rest (internal)."""


class EnterAnew(Message, frozen=True, tag="ENTER_ANEW"):
    """The rest before the group is entered anew is over (internal)."""


GroupMessage: TypeAlias = (
    MembershipChanged
    | MembershipFailed
    | CommitOffsets
    | AskGroup
    | Rejoin
    | Closing
    | TooLate
    | StopFollowing
    | LeaveGroup
    | Answered
    | Settled
    | GivenUp
    | AtRest
    | EnterAnew
)
PollerMessage: TypeAlias = (
    Arrived | FetchFailed | TopicsGone | PositionKnown | EndsKnown | BufferHigh | BufferLow | TaskReady | FetchNew | SeekAll | Rested | GroupMessage
)
