"""What the Instance and the Poller are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors._errors import OffsetOutOfRange
    from ks_actors.log import Fetched, GroupMetadata, MembershipEvent, OffsetAndMetadata
    from ks_actors.records import TaskId, TopicPartition


# --- to the Instance ------------------------------------------------------------------------------------------------------------


# --- to the Poller --------------------------------------------------------------------------------------------------------------


class MembershipChanged(Message, frozen=True):
    """The group has something to say: ASSIGNED, REVOKED or LOST."""

    event: MembershipEvent


class MembershipFailed(Message, frozen=True):
    """Waiting for the group failed (`waiting`), or doing what it wants."""

    error: Exception
    waiting: bool


class Arrived(Message, frozen=True):
    """A fetch has ended."""

    fetched: Sequence[Fetched]
    epoch: int


class TopicsGone(Message, frozen=True):
    """A fetch has failed, since these topics, which matched a pattern, are not there any more (internal)."""

    topics: frozenset[str]


class FetchFailed(Message, frozen=True):
    """A fetch has failed."""

    error: Exception
    epoch: int


class PositionKnown(Message, frozen=True):
    """Where to go on with a partition whose position was not in the log any more (internal)."""

    error: OffsetOutOfRange
    offset: int


class EndsKnown(Message, frozen=True):
    """How far the log goes in partitions of which a fetch may never bring anything."""

    ends: Mapping[TopicPartition, int]
    epoch: int


class BufferHigh(Message, frozen=True):
    """Fetch no more of these."""

    partitions: tuple[TopicPartition, ...]


class BufferLow(Message, frozen=True):
    """Fetch these again."""

    partitions: tuple[TopicPartition, ...]


class TaskReady(Message, frozen=True):
    """A task runs: fetch its partitions, from these offsets."""

    task: TaskId
    positions: Mapping[TopicPartition, int]


class FetchNew(Message, frozen=True):
    """Begin to fetch for all tasks that have become ready meanwhile (internal)."""


class SeekAll(Message, frozen=True):
    """Fetch again from these offsets, after a rollback and a rest of so many seconds; records carry `epoch` from now on."""

    reply: Reply[None]
    positions: Mapping[TopicPartition, int]
    epoch: int
    rest: float


class CommitOffsets(Message, frozen=True):
    """Commit offsets of the group, outside of transactions."""

    reply: Reply[None]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


class AskGroup(Message, frozen=True):
    """Tell who we are in the group now."""

    reply: Reply[GroupMetadata]


class Rejoin(Message, frozen=True):
    """Give up all tasks as lost, and enter the group anew."""

    cause: Exception


class Closing(Message, frozen=True):
    """The app is about to commit for the last time: what the group takes only in its next generation is not to wait long for it."""


class TooLate(Message, frozen=True):
    """An app that closes has waited long enough for the group's next generation (internal)."""


class StopFollowing(Message, frozen=True):
    """Fetch no more, and do no more of what the group wants: the app closes. The membership stays until LEAVE."""

    reply: Reply[None]


class LeaveGroup(Message, frozen=True):
    """Stop fetching and leave the group; a static member keeps its place there, unless it is `for_good`."""

    reply: Reply[None]
    for_good: bool


class Answered(Message, frozen=True):
    """A request that was dealt with beside the messages has its answer (internal); `error`: it could not be given."""

    error: Exception | None


class Settled(Message, frozen=True):
    """What had to happen before the group may go on has happened."""

    generation: int


class GivenUp(Message, frozen=True):
    """All tasks are given up (internal). `fruitful`: something was committed since the last time."""

    fruitful: bool


class Rested(Message, frozen=True):
    """The rest before fetching again is over (internal)."""


class AtRest(Message, frozen=True):
    """Tasks that are to move have come to rest (internal)."""


class ReenterGroup(Message, frozen=True):
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
    | ReenterGroup
)
PollerMessage: TypeAlias = (
    Arrived | FetchFailed | TopicsGone | PositionKnown | EndsKnown | BufferHigh | BufferLow | TaskReady | FetchNew | SeekAll | Rested | GroupMessage
)
