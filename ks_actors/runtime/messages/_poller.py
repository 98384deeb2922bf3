"""Messages to the poller."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors._errors import OffsetOutOfRange
    from ks_actors.log import Fetched, GroupMetadata, MembershipEvent, OffsetAndMetadata
    from ks_actors.records import TaskId, TopicPartition


class MembershipChanged(Message, frozen=True):
    """A group event: Assigned, Revoked or Lost."""

    event: MembershipEvent


class MembershipFailed(Message, frozen=True):
    """Waiting for a group event failed (`waiting`), or handling one did."""

    error: Exception
    waiting: bool


class FetchSucceeded(Message, frozen=True):
    """A fetch succeeded."""

    fetched: Sequence[Fetched]
    epoch: int


class TopicsGone(Message, frozen=True):
    """A fetch failed because these topics, which matched a pattern, no longer exist (internal)."""

    topics: frozenset[str]


class FetchFailed(Message, frozen=True):
    """A fetch failed."""

    error: Exception
    epoch: int


class PositionKnown(Message, frozen=True):
    """The new position of a partition after its old one left the log (internal)."""

    error: OffsetOutOfRange
    offset: int


class AskEnds(Message, frozen=True):
    """Look up the end offsets of the partitions of a task that seems to be idle."""

    partitions: tuple[TopicPartition, ...]


class EndsKnown(Message, frozen=True):
    """The end offsets of partitions that may never return records.

    `asked`: the answer to AskEnds.
    """

    ends: Mapping[TopicPartition, int]
    epoch: int
    asked: bool = False


class EndLookupFailed(Message, frozen=True):
    """The lookup for AskEnds failed (internal)."""

    error: Exception


class BufferHigh(Message, frozen=True):
    """Stop fetching these partitions."""

    partitions: tuple[TopicPartition, ...]


class BufferLow(Message, frozen=True):
    """Fetch these partitions again."""

    partitions: tuple[TopicPartition, ...]


class RefetchStalled(Message, frozen=True):
    """Begin the fetch of a partition anew: the log has records, and no fetch brings them."""

    partition: TopicPartition
    position: int


class TaskReady(Message, frozen=True):
    """A task runs: fetch its partitions from these offsets."""

    task: TaskId
    positions: Mapping[TopicPartition, int]


class FetchNew(Message, frozen=True):
    """Begin to fetch for all tasks that have become ready since (internal)."""


class SeekAll(Message, frozen=True):
    """Rewind fetching to these offsets after a rollback, and rest for `rest` seconds.

    Records carry `epoch` from now on. The offsets are from before the resets behind `resets`.
    """

    reply: Reply[None]
    positions: Mapping[TopicPartition, int]
    resets: int
    epoch: int
    rest: float


class CommitOffsets(Message, frozen=True):
    """Commit offsets of the group, outside of transactions."""

    reply: Reply[None]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


class AskGroup(Message, frozen=True):
    """Ask for the current group metadata."""

    reply: Reply[GroupMetadata]


class Rejoin(Message, frozen=True):
    """Give up all tasks as lost and rejoin the group."""

    cause: Exception


class AppCloses(Message, frozen=True):
    """The app is about to commit for the last time.

    A commit that the group accepts only in its next generation must not wait long for it.
    """


class ClosingTimedOut(Message, frozen=True):
    """A closing app has waited long enough for the group's next generation (internal)."""


class StopFollowing(Message, frozen=True):
    """Stop fetching and ignore further group events: the app closes.

    The membership stays until LeaveGroup.
    """

    reply: Reply[None]


class LeaveGroup(Message, frozen=True):
    """Stop fetching and leave the group.

    A static member keeps its place in the group, unless `for_good`.
    """

    reply: Reply[None]
    for_good: bool


class GroupRequestEnded(Message, frozen=True):
    """A commit of offsets or the departure from the group has ended (internal).

    `error`: the request of it could not be answered.
    """

    error: Exception | None


class HandoverEnded(Message, frozen=True):
    """The work before the next group event is done (internal)."""


class TasksGivenUp(Message, frozen=True):
    """All tasks are given up (internal).

    `made_progress`: a commit has succeeded since the last time.
    """

    made_progress: bool


class FetchRestOver(Message, frozen=True):
    """The rest before the next fetch is over (internal)."""


class TasksAtRest(Message, frozen=True):
    """Tasks that are to move have come to rest (internal)."""


class ReenterGroup(Message, frozen=True):
    """The rest before rejoining the group is over (internal)."""


GroupMessage: TypeAlias = (
    MembershipChanged
    | MembershipFailed
    | CommitOffsets
    | AskGroup
    | Rejoin
    | AppCloses
    | ClosingTimedOut
    | StopFollowing
    | LeaveGroup
    | GroupRequestEnded
    | HandoverEnded
    | TasksGivenUp
    | TasksAtRest
    | ReenterGroup
)
PollerMessage: TypeAlias = (
    FetchSucceeded
    | FetchFailed
    | TopicsGone
    | PositionKnown
    | AskEnds
    | EndsKnown
    | EndLookupFailed
    | BufferHigh
    | BufferLow
    | RefetchStalled
    | TaskReady
    | FetchNew
    | SeekAll
    | FetchRestOver
    | GroupMessage
)
