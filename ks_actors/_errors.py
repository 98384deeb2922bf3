"""Everything that ks_actors raises by itself.

KsActorsError
├── ConfigError             a setting is unknown, ill-typed or contradicts another one: fix it (also a ValueError)
├── TopologyError           the topology cannot be built as told: names the node and what to do (also a ValueError)
├── SerializationError      bytes that are no record of this serde, or an object that it cannot write
├── LogError                what a log cannot do
│   ├── UnknownTopicOrPartition
│   ├── TopicExists
│   ├── OffsetOutOfRange    the position is outside of what the log holds: reset it
│   ├── ProduceFailed       some batches were refused: `errors` says which and why
│   ├── RecordTooLarge      a record is larger than its topic's max.message.bytes
│   ├── InvalidRecord       a record that its topic cannot hold (a compacted topic: one without a key)
│   ├── Fenced              a newer producer has taken the transactional id: stop, it is in charge
│   ├── IllegalGeneration   the group has moved on: rejoin
│   ├── FencedInstanceId    another process has come with the same group_instance_id: give each one of its own
│   ├── TransactionAborted  the transaction is void (timeout, a failed batch): start again from what is committed
│   ├── LogCorrupted        what is on disk is not what was written
│   ├── StorageFull         no room to write: free some, nothing was acknowledged
│   ├── LogTimeout          a broker did not answer, or not as hoped, until the deadline of the call
│   ├── NotAuthorized       a broker does not know this user, or does not let it do that
│   └── LogClosed
├── StateError              what a store cannot do
│   ├── StoreNotConnected   a processor asked for a store that it was not given (also a KeyError)
│   ├── StoreClosed
│   ├── UnknownStore        the topology has no store of that name
│   ├── QueryFailed         a store cannot be read here and now: `reason` says why, and whether to ask again or elsewhere
│   ├── StateLocked         another process has the state directory
│   ├── StateFull           no room to write state: free some, what was committed is in the changelog
│   ├── SnapshotRefused     a snapshot is not whole, not as it was written, or not of this application and these stores
│   ├── SnapshotFailed      a snapshot could not be taken; the app goes on
│   └── TaskCorrupted       the local state of a task is not to be trusted: it is wiped and restored
├── StreamsError            what ends processing; names topic, partition, offset, task and node
│   ├── DeserializationFailed
│   ├── ProcessingFailed
│   ├── ProductionFailed
│   ├── TimestampInvalid
│   ├── TaskTimeout         a task did not come to rest, or a user's call did not return, in time
│   ├── TaskMigrated        the tasks are somebody else's now
│   ├── MissingSourceTopics topics to read from do not exist
│   └── MissingSinkTopics   topics to write to do not exist, as the start finds
├── BatchError              what a job on the batch bridge cannot do
│   ├── SparkUnavailable    pyspark, or Java, is not there, or no session could be had
│   ├── JobFailed           a job has failed: what it failed by is the cause, with its record where there is one
│   ├── JobCancelled        somebody has cancelled the job, or the bridge has ended
│   ├── JobTimeout          the job was not done by its deadline, and was cancelled
│   ├── BackfillRefused     what cannot be the same over history: `reasons` names each, and what to do
│   └── PublishRefused      what a backfill has written is not what was published of it before
├── ResetRefused            an application cannot be reset now: nothing has changed
├── ResetIncomplete         a reset has ended in the middle: run it again before the application is started
├── IllegalTransition       a life cycle was asked to go where it cannot: a bug (names both states)
└── NotRunning              the call needs a running app (or one that is not running)
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.records import TaskId, TopicPartition


class KsActorsError(Exception):
    """Base of all errors of ks_actors."""


class ConfigError(KsActorsError, ValueError):
    """A setting is unknown, ill-typed, or contradicts another one."""


class TopologyError(KsActorsError, ValueError):
    """The topology cannot be built as it was told."""


class SerializationError(KsActorsError):
    """A serde met bytes, or an object, that are none of its own."""


class LogError(KsActorsError):
    """A log could not do what it was asked for."""


class UnknownTopicOrPartition(LogError):
    """There is no such topic or partition."""


class TopicExists(LogError):
    """A topic of that name exists."""


class OffsetOutOfRange(LogError):
    """A position is outside of what the log holds of the partition: `begin` to `end`."""

    def __init__(self, partition: TopicPartition, position: int, begin: int, end: int) -> None:
        super().__init__(f"{partition} holds offsets {begin} to {end}, position {position} is outside")
        self.partition: TopicPartition = partition
        self.position: int = position
        self.begin: int = begin
        self.end: int = end


class ProduceFailed(LogError):
    """Some batches were not written; `errors` tells the error by partition, all other batches were."""

    def __init__(self, errors: Mapping[TopicPartition, Exception]) -> None:
        super().__init__("; ".join(f"{partition}: {error}" for partition, error in errors.items()))
        self.errors: Mapping[TopicPartition, Exception] = errors


class RecordTooLarge(LogError):
    """A record is larger than `max.message.bytes` of its topic; its batch was not written.

    `records` tells which, counted through all batches of the partition in that call; empty when that is not known.
    """

    def __init__(self, text: str, records: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.records: frozenset[int] = frozenset(records)


class InvalidRecord(LogError):
    """A record is of a kind that its topic cannot hold; its batch was not written.

    `records` tells which, counted through all batches of the partition in that call; empty when that is not known.
    """

    def __init__(self, text: str, records: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.records: frozenset[int] = frozenset(records)


class Fenced(LogError):
    """A newer producer has the transactional id: what this one did since its last commit is void."""


class IllegalGeneration(LogError):
    """The group has moved on to another generation, or does not know the member."""


class FencedInstanceId(LogError):
    """Another process has come with the same group instance id, and has the place in the group."""


class TransactionAborted(LogError):
    """The open transaction is void; the producer is ready for the next one."""


class LogCorrupted(LogError):
    """What is stored is not what was written, or becomes more than may be decompressed.

    `partition` says where, `offset` names the first record that cannot be read, and `next_offset` the one at which reading can go on: each is None
    if it is not known.
    """

    def __init__(self, text: str, *, partition: TopicPartition | None = None, offset: int | None = None, next_offset: int | None = None) -> None:
        super().__init__(text)
        self.partition: TopicPartition | None = partition
        self.offset: int | None = offset
        self.next_offset: int | None = next_offset


class StorageFull(LogError):
    """There is no room to write; what was to be written is not, and nothing else is harmed."""


class LogTimeout(LogError):
    """What was asked for was not done within the time for it; the message says what was waited for, and what went wrong last."""


class NotAuthorized(LogError):
    """A broker does not accept the user, or does not allow what was asked for."""


class LogClosed(LogError):
    """The log, or this part of it, has been closed."""


class StateError(KsActorsError):
    """A store could not do what it was asked for."""


class StoreNotConnected(StateError, KeyError):
    """A processor asked for a store that it is not connected to."""

    def __str__(self) -> str:
        return str(self.args[0])


class StoreClosed(StateError):
    """The store has been closed, with its task."""


class UnknownStore(StateError):
    """The topology has no store of that name."""


class QueryFailed(StateError):
    """A store, or a partition of it, cannot be read here and now; `reason` says why."""

    def __init__(self, text: str, *, reason: FailureReason, store: str | None = None, partition: int | None = None) -> None:
        super().__init__(text)
        self.reason: FailureReason = reason
        self.store: str | None = store
        self.partition: int | None = partition


class StateLocked(StateError):
    """Another process, or another app in this one, has the state directory."""


class StateFull(StateError):
    """There is no room on the disk for a task's state; what was committed is in the changelog."""


class SnapshotRefused(StateError):
    """A snapshot cannot be used: it is not whole, not as it was written, too old, or of something else."""


class SnapshotFailed(StateError):
    """A snapshot could not be taken; nothing else is harmed."""


class TaskCorrupted(StateError):
    """The local state of a task cannot be trusted; it is wiped and restored from the changelog."""


class StreamsError(KsActorsError):
    """Processing cannot go on; fields say where, as far as it is known."""

    def __init__(
        self,
        message: str,
        *,
        task: TaskId | None = None,
        node: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        where = [
            f"{name} {value}"
            for name, value in (("task", task), ("node", node), ("topic", topic), ("partition", partition), ("offset", offset))
            if value is not None
        ]
        super().__init__(f"{message} ({', '.join(where)})" if where else message)
        self.task: TaskId | None = task
        self.node: str | None = node
        self.topic: str | None = topic
        self.partition: int | None = partition
        self.offset: int | None = offset


class DeserializationFailed(StreamsError):
    """A record's key or value is not what its serde reads."""


class ProcessingFailed(StreamsError):
    """A processor, or a function given to the DSL, raised; its error is the cause."""


class ProductionFailed(StreamsError):
    """A record could not be serialized or written."""


class TimestampInvalid(StreamsError):
    """A timestamp extractor gave a negative time."""


class TaskTimeout(StreamsError):
    """A task did not come to rest in time."""


class TaskMigrated(StreamsError):
    """The tasks belong to another member of the group by now."""


class MissingSourceTopics(StreamsError):
    """Topics that the topology reads do not exist."""


class MissingSinkTopics(StreamsError):
    """Topics that the app is going to write to do not exist: those of sinks, or the dead letter queue."""


class BatchError(KsActorsError):
    """A job on the batch bridge could not do what it was to do."""


class SparkUnavailable(BatchError):
    """There is no Spark to be had: a package or Java is missing, or the cluster does not answer."""


class JobFailed(BatchError):
    """A job has failed. What it failed by is the `__cause__`; of an error in a Spark task that is the task's own."""


class JobCancelled(BatchError):
    """A job was cancelled before it was done."""


class JobTimeout(BatchError):
    """A job was not done by its deadline, and was cancelled."""


class BackfillRefused(BatchError):
    """A topology has something that would not be the same over history; `reasons` has a line for each, with what to do."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("the backfill is refused: " + "; ".join(reasons))
        self.reasons: tuple[str, ...] = tuple(reasons)

    def __reduce__(self) -> tuple[type[BackfillRefused], tuple[tuple[str, ...]]]:
        """Be made again from the reasons, where it has come from another process."""
        return type(self), (self.reasons,)


class PublishRefused(BatchError):
    """What a backfill has written is not what the log has of the same job already; nothing was written."""


class ResetRefused(KsActorsError):
    """An application cannot be reset as things are; nothing has changed."""


class ResetIncomplete(KsActorsError):
    """A reset has ended behind some of its steps: it has to be run again before the application is started."""


class IllegalTransition(KsActorsError):
    """A life cycle was asked to go where it cannot."""


class NotRunning(KsActorsError):
    """The app is in a state in which this cannot be done."""


class FailureReason(Enum):
    """Why a partition of a store did not answer."""

    UNKNOWN_QUERY_TYPE = "unknown_query_type"
    """The store cannot be asked that."""
    NOT_ACTIVE = "not_active"
    """An active task was asked for, and here is a standby, or a task that is still being restored: try later, or another instance."""
    NOT_UP_TO_BOUND = "not_up_to_bound"
    """The store has not come as far as the request's bound: try later, or another instance."""
    NOT_PRESENT = "not_present"
    """The partition is not on this instance, or has left it: ask the one that has it."""
    DOES_NOT_EXIST = "does_not_exist"
    """The store has no partition of that number."""
    STORE_EXCEPTION = "store_exception"
    """Something was raised; the message tells."""
