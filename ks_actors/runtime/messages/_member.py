"""Messages to the member."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Reply
from ks_actors.runtime.messages._poller import SeekAll, TaskReady

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.log import GroupMetadata, MembershipEvent, OffsetAndMetadata
    from ks_actors.records import TaskId, TopicPartition


class CommitOffsets(Message, frozen=True):
    """Commit offsets of the group, outside of transactions."""

    reply: Reply[None]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


class AskGroup(Message, frozen=True):
    """Ask for the current group metadata."""

    reply: Reply[GroupMetadata]


class PartitionsGone(Message, frozen=True):
    """The topics of some partitions are gone, and these tasks continue without them."""

    tasks: frozenset[TaskId]


class ReenterGroup(Message, frozen=True):
    """Ask the group for an assignment: topics have changed, or the pause after a loss is over.

    `reason` is for the history of rebalances.
    """

    reason: str = ""


class Rejoin(Message, frozen=True):
    """Give up all tasks as lost and rejoin the group."""

    cause: Exception


class AppCloses(Message, frozen=True):
    """The app is about to commit for the last time.

    A commit that the group accepts only in its next generation must not wait long for that
    generation.
    """


class StopFollowing(Message, frozen=True):
    """Stop fetching and ignore further group events: the app closes.

    The membership stays until LeaveGroup.
    """

    reply: Reply[None]


class LeaveGroup(Message, frozen=True):
    """Leave the group.

    A static member keeps its place in the group, unless `for_good`.
    """

    reply: Reply[None]
    for_good: bool


class MembershipChanged(Message, frozen=True):
    """A group event: Assigned, Revoked or Lost."""

    event: MembershipEvent


class MembershipFailed(Message, frozen=True):
    """Waiting for a group event failed (`waiting`), or handling a group event failed."""

    error: Exception
    waiting: bool


class HandoverEnded(Message, frozen=True):
    """The work before the next group event is done (internal)."""


class TasksGivenUp(Message, frozen=True):
    """All tasks are given up (internal).

    `made_progress`: a commit has succeeded since the last time.
    """

    made_progress: bool


class TasksAtRest(Message, frozen=True):
    """Tasks that are to move are at rest (internal)."""


class FetchNew(Message, frozen=True):
    """Begin to fetch for all tasks that have become ready meanwhile (internal)."""


class ClosingTimedOut(Message, frozen=True):
    """A closing app has waited long enough for the group's next generation (internal)."""


class GroupRequestEnded(Message, frozen=True):
    """A commit of offsets or the departure from the group has ended (internal).

    `error`: the reason why its request could not be answered.
    """

    error: Exception | None


MemberRequest: TypeAlias = (
    CommitOffsets
    | AskGroup
    | TaskReady
    | SeekAll
    | PartitionsGone
    | ReenterGroup
    | Rejoin
    | AppCloses
    | StopFollowing
    | LeaveGroup
)
MemberOutcome: TypeAlias = (
    MembershipChanged
    | MembershipFailed
    | HandoverEnded
    | TasksGivenUp
    | TasksAtRest
    | FetchNew
    | ClosingTimedOut
    | GroupRequestEnded
)
MemberMessage: TypeAlias = MemberRequest | MemberOutcome
