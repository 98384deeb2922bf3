"""Messages to the restorer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Reply
from ks_actors.runtime.messages._poller import FetchFailed, FetchSucceeded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.records import TaskId, TopicPartition


class Restore(Message, frozen=True):
    """Read these changelogs of a task from these offsets to their end.

    A position of None begins at the log's first record. Reads already under way continue from where
    they are. The answer carries the `order_id`.
    """

    task: TaskId
    changelogs: Mapping[TopicPartition, int | None]
    order_id: int


class Follow(Message, frozen=True):
    """Follow these changelogs of a standby from these offsets, until stopped.

    A position of None begins at the log's first record. Reads already under way continue from where
    they are. The answer carries the `order_id`.
    """

    task: TaskId
    changelogs: Mapping[TopicPartition, int | None]
    order_id: int


class StopRestoring(Message, frozen=True):
    """Stop reading the changelogs of these tasks (None: of all tasks).

    Answered when no more messages about them follow.
    """

    reply: Reply[None]
    tasks: frozenset[TaskId] | None


class LookUpEnds(Message, frozen=True):
    """Look up the begin and end offsets of the changelogs of the new orders (internal)."""


class ChangelogEnds(Message, frozen=True):
    """The begin and end offsets of the changelogs of all these orders (internal)."""

    orders: Sequence[Restore | Follow]
    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    limits: Mapping[TopicPartition, int]


class LookAtLimits(Message, frozen=True):
    """Look up the limits of standbys that follow source topics (internal)."""


class LookAtProgress(Message, frozen=True):
    """Check that restoring makes progress (internal)."""


class EndsNow(Message, frozen=True):
    """The present end offsets of changelogs whose restore makes no progress (internal)."""

    ends: Mapping[TopicPartition, int]


class LimitsKnown(Message, frozen=True):
    """The offsets up to which standbys may read source topics (internal).

    Partitions with a failed lookup are missing.
    """

    limits: Mapping[TopicPartition, int]


class EndsUnknown(Message, frozen=True):
    """The lookup of changelog begin and end offsets failed (internal)."""

    orders: Sequence[Restore | Follow]
    error: Exception


class RecordsApplied(Message, frozen=True):
    """The stores have applied one RestoredRecords: there is room for more records."""


class FollowAgain(Message, frozen=True):
    """The pause after a failure is over (internal)."""


RestorerMessage: TypeAlias = (
    Restore
    | Follow
    | StopRestoring
    | LookUpEnds
    | ChangelogEnds
    | EndsUnknown
    | RecordsApplied
    | FollowAgain
    | LookAtLimits
    | LookAtProgress
    | EndsNow
    | LimitsKnown
    | FetchSucceeded
    | FetchFailed
)
