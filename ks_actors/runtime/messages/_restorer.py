"""Messages to the restorer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Reply
from ks_actors.runtime.messages._poller import Arrived, FetchFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.records import TaskId, TopicPartition


class Restore(Message, frozen=True):
    """Read these changelogs of a task, from these offsets to their end. A position of None begins at the log's first record.

    What is being read of them goes on from where it is. The answer has the `ticket`.
    """

    task: TaskId
    changelogs: Mapping[TopicPartition, int | None]
    ticket: int


class Follow(Message, frozen=True):
    """Read these changelogs of a standby, from these offsets on, until told otherwise; in all else as for ASSIGN."""

    task: TaskId
    changelogs: Mapping[TopicPartition, int | None]
    ticket: int


class StopRestoring(Message, frozen=True):
    """Read the changelogs of these tasks no more (None: of none); answered when nothing more will be said of them."""

    reply: Reply[None]
    tasks: frozenset[TaskId] | None


class ChangelogEnds(Message, frozen=True):
    """Where changelogs begin and end (internal)."""

    order: Restore | Follow
    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    limits: Mapping[TopicPartition, int]


class LookAtLimits(Message, frozen=True):
    """It is time to see how far standbys may be read that follow source topics (internal)."""


class LookAtProgress(Message, frozen=True):
    """It is time to see whether restoring gets on (internal)."""


class LimitsKnown(Message, frozen=True):
    """How far standbys may be read that follow source topics; without those of which it could not be found out (internal)."""

    limits: Mapping[TopicPartition, int]


class EndsUnknown(Message, frozen=True):
    """Where changelogs begin and end could not be found out (internal)."""

    order: Restore | Follow
    error: Exception


class TakenIn(Message, frozen=True):
    """What one RESTORED_RECORDS brought is in the stores: there is room for more."""


class FollowAgain(Message, frozen=True):
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
