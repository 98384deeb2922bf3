"""Messages to the poller."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors._errors import OffsetOutOfRange
    from ks_actors.log import Fetched
    from ks_actors.records import TaskId, TopicPartition


class TaskReady(Message, frozen=True):
    """A task runs: fetch its partitions from these offsets."""

    task: TaskId
    positions: Mapping[TopicPartition, int]


class FetchTasks(Message, frozen=True):
    """Fetch the partitions of these tasks, too, from their offsets."""

    tasks: tuple[TaskReady, ...]


class ForgetTasks(Message, frozen=True):
    """Stop fetching for these tasks (None: for all tasks).

    No records of their partitions are handed on after the answer.
    """

    reply: Reply[None]
    tasks: frozenset[TaskId] | None


class SeekAll(Message, frozen=True):
    """Rewind fetching to these offsets after a rollback, and pause it for `rest` seconds.

    Records carry `epoch` from now on. The offsets are from before the resets after number `resets`.
    """

    reply: Reply[None]
    positions: Mapping[TopicPartition, int]
    resets: int
    epoch: int
    rest: float


class AskEnds(Message, frozen=True):
    """Look up the end offsets of the partitions of a task that seems to be idle."""

    partitions: tuple[TopicPartition, ...]


class BufferHigh(Message, frozen=True):
    """Stop fetching these partitions."""

    partitions: tuple[TopicPartition, ...]


class BufferLow(Message, frozen=True):
    """Fetch these partitions again."""

    partitions: tuple[TopicPartition, ...]


class RefetchStalled(Message, frozen=True):
    """Restart the fetch of a partition: the log has records, but no fetch returns them."""

    partition: TopicPartition
    position: int


class StopFetching(Message, frozen=True):
    """The app closes: begin no fetch or lookup, and ignore failures of those under way."""


class FetchSucceeded(Message, frozen=True):
    """A fetch succeeded."""

    fetched: Sequence[Fetched]
    epoch: int


class FetchFailed(Message, frozen=True):
    """A fetch failed."""

    error: Exception
    epoch: int


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


class PositionKnown(Message, frozen=True):
    """The new position of a partition after its old one left the log (internal)."""

    error: OffsetOutOfRange
    offset: int


class TopicsGone(Message, frozen=True):
    """A fetch failed because these topics, which matched a pattern, no longer exist (internal)."""

    topics: frozenset[str]


class FetchRestOver(Message, frozen=True):
    """The pause before the next fetch is over (internal)."""


FetchRequest: TypeAlias = (
    FetchTasks
    | ForgetTasks
    | SeekAll
    | AskEnds
    | BufferHigh
    | BufferLow
    | RefetchStalled
    | StopFetching
)
FetchOutcome: TypeAlias = (
    FetchSucceeded
    | FetchFailed
    | EndsKnown
    | EndLookupFailed
    | PositionKnown
    | TopicsGone
    | FetchRestOver
)
PollerMessage: TypeAlias = FetchRequest | FetchOutcome
