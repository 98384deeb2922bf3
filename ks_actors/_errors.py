"""The errors that ks_actors raises.

KsActorsError
├── ConfigError             an unknown, ill-typed or contradictory setting (also a ValueError)
├── TopologyError           an invalid topology: names the node and the fix (also a ValueError)
├── SerializationError      bytes or objects that a serde cannot read or write
├── LogError                a log operation failed
│   ├── UnknownTopicOrPartition
│   ├── TopicExists
│   ├── OffsetOutOfRange    the position is outside of the log: reset it
│   │   └── LogTruncated    the log has lost records that were read
│   ├── ProduceFailed       some batches were refused: see `errors`
│   ├── RecordTooLarge      a record is larger than its topic's max.message.bytes
│   ├── InvalidRecord       the topic cannot hold the record (compacted: one without a key)
│   ├── Fenced              a newer producer has the transactional id and is in charge: stop
│   ├── IllegalGeneration   the group has moved on: rejoin
│   ├── FencedInstanceId    another process has the same group_instance_id: make it unique
│   ├── TransactionAborted  transaction aborted (timeout, failed batch): resume from the commit
│   ├── LogCorrupted        the data on disk is corrupt
│   ├── StorageFull         no room to write: free some, nothing was acknowledged
│   ├── LogTimeout          no success before the deadline of the call
│   ├── NotAuthorized       a broker does not know this user, or denies the operation
│   └── LogClosed
├── StateError              a store operation failed
│   ├── StoreNotConnected   a processor is not connected to the store (also a KeyError)
│   ├── StoreClosed
│   ├── UnknownStore        the topology has no store of that name
│   ├── QueryFailed         a store cannot be read here and now: see `reason`
│   ├── StateLocked         another process has the state directory
│   ├── StateFull           no room to write state: free some, commits are in the changelog
│   ├── SnapshotRefused     a snapshot is incomplete, corrupt, or of another application
│   ├── SnapshotFailed      a snapshot could not be taken; the app continues
│   └── TaskCorrupted       the local state of a task is corrupt: it is wiped and restored
├── StreamsError            processing cannot continue; names topic, partition, offset, task, node
│   ├── DeserializationFailed
│   ├── ProcessingFailed
│   ├── ProductionFailed
│   ├── TimestampInvalid
│   ├── TaskTimeout         a task's work, or a user's call, did not end in time
│   ├── TaskMigrated        another member of the group has the tasks
│   ├── MissingSourceTopics topics to read from do not exist
│   └── MissingSinkTopics   topics to write to do not exist, checked at the start
├── RegistryError           a schema registry refuses a request, or answers with an error
│   ├── RegistryUnavailable it gave no usable answer before the deadline
│   ├── RegistryRefused     it does not know this user, or denies the operation
│   ├── SchemaNotFound      it has no such schema, subject or version
│   └── SchemaIncompatible  the subject's rules refuse the schema
├── BatchError              a job on the batch bridge failed
│   ├── SparkUnavailable    pyspark or Java is missing, or no session starts
│   ├── JobFailed           a job has failed; its error is the cause, with its record if known
│   ├── JobCancelled        the job was cancelled, or the bridge has ended
│   ├── JobTimeout          the job missed its deadline, and was cancelled
│   ├── BackfillRefused     a backfill would differ from live processing: see `reasons`
│   └── PublishRefused      a backfill's output differs from its published output
├── ResetRefused            an application cannot be reset now: nothing has changed
├── ResetIncomplete         a reset has ended in the middle: run it again before the next start
├── IllegalTransition       an illegal transition of a life cycle: a bug (names both states)
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

    def log_fields(self) -> dict[str, object]:
        """Return the known facts about this error as fields of log records."""
        facts = (
            (name, getattr(self, name, None)) for name in ("task", "topic", "partition", "offset")
        )
        fields: dict[str, object] = {}
        for name, fact in facts:
            tells = getattr(fact, "log_fields", None)
            if tells is not None:
                fields |= tells()
            elif fact is not None:
                fields[name] = fact
        return fields


class ConfigError(KsActorsError, ValueError):
    """A setting is unknown, ill-typed, or contradicts another one."""


class TopologyError(KsActorsError, ValueError):
    """The topology is invalid."""


class SerializationError(KsActorsError):
    """A serde got bytes, or an object, that it cannot read or write."""


class LogError(KsActorsError):
    """A log operation failed."""


class UnknownTopicOrPartition(LogError):
    """The topic or partition does not exist."""


class TopicExists(LogError):
    """A topic of that name exists."""


class OffsetOutOfRange(LogError):
    """A position is outside of the partition's log: `begin` to `end`."""

    def __init__(self, partition: TopicPartition, position: int, begin: int, end: int) -> None:
        super().__init__(
            f"{partition} has offsets {begin} to {end}, position {position} is outside"
        )
        self.partition: TopicPartition = partition
        self.position: int = position
        self.begin: int = begin
        self.end: int = end


class LogTruncated(OffsetOutOfRange):
    """The log no longer has the last record that was read, or has another one at its offset.

    This happens when a leader has lost records that readers had seen: after an unclean leader
    election, or when a broker has lost its disk. `diverges_at` is the first offset that now has,
    or will have, another record; None when the leader cannot tell (KIP-320).
    """

    def __init__(
        self,
        partition: TopicPartition,
        position: int,
        begin: int,
        end: int,
        diverges_at: int | None,
    ) -> None:
        since = "" if diverges_at is None else f" from offset {diverges_at} on"
        # The base class would say that the position is out of range, but it may be inside.
        super(OffsetOutOfRange, self).__init__(
            f"{partition} has lost records{since} that were read before position {position}: the "
            f"log was truncated, and has offsets {begin} to {end} now"
        )
        self.partition: TopicPartition = partition
        self.position: int = position
        self.begin: int = begin
        self.end: int = end
        self.diverges_at: int | None = diverges_at


class ProduceFailed(LogError):
    """Some batches were not written; all others were. `errors` has the error by partition.

    For such a partition, `written` has how many of the call's records were written, from the first
    record on (no entry: none). Records after the first error may be written, too.
    """

    def __init__(
        self,
        errors: Mapping[TopicPartition, Exception],
        written: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        super().__init__("; ".join(f"{partition}: {error}" for partition, error in errors.items()))
        self.errors: Mapping[TopicPartition, Exception] = errors
        self.written: Mapping[TopicPartition, int] = {} if written is None else written


class RecordTooLarge(LogError):
    """A record is larger than `max.message.bytes` of its topic; its batch was not written.

    `records` are the indexes of such records, counted through all batches of the partition in that
    call; empty when unknown.
    """

    def __init__(self, text: str, records: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.records: frozenset[int] = frozenset(records)


class InvalidRecord(LogError):
    """A record is of a kind that its topic cannot hold; its batch was not written.

    `records` are the indexes of such records, counted through all batches of the partition in that
    call; empty when unknown.
    """

    def __init__(self, text: str, records: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.records: frozenset[int] = frozenset(records)


class Fenced(LogError):
    """A newer producer has the transactional id.

    The work of this producer since its last commit is aborted.
    """


class IllegalGeneration(LogError):
    """The group is in another generation, or does not know the member."""


class FencedInstanceId(LogError):
    """Another process with the same group instance id has the place in the group."""


class TransactionAborted(LogError):
    """The open transaction is aborted; the producer is ready for the next one."""


class LogCorrupted(LogError):
    """The stored data is corrupt, or exceeds the limit of decompression.

    `offset` is the offset in `partition` of the first unreadable record, and `next_offset` the
    offset to continue at. Each is None when unknown.
    """

    def __init__(
        self,
        text: str,
        *,
        partition: TopicPartition | None = None,
        offset: int | None = None,
        next_offset: int | None = None,
    ) -> None:
        super().__init__(text)
        self.partition: TopicPartition | None = partition
        self.offset: int | None = offset
        self.next_offset: int | None = next_offset


class StorageFull(LogError):
    """There is no room to write; the data was not written, and nothing else was changed."""


class LogTimeout(LogError):
    """An operation did not end in time.

    The message names the operation and the last error.
    """


class NotAuthorized(LogError):
    """A broker does not accept the user, or denies the operation."""


class LogClosed(LogError):
    """The log, or this part of it, has been closed."""


class StateError(KsActorsError):
    """A store operation failed."""


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

    def __init__(
        self,
        text: str,
        *,
        reason: FailureReason,
        store: str | None = None,
        partition: int | None = None,
    ) -> None:
        super().__init__(text)
        self.reason: FailureReason = reason
        self.store: str | None = store
        self.partition: int | None = partition


class StateLocked(StateError):
    """Another process, or another app in this one, has the state directory."""


class StateFull(StateError):
    """The disk has no room for a task's state; committed changes are in the changelog."""


class SnapshotRefused(StateError):
    """A snapshot cannot be used: it is incomplete, corrupt, too old, or of something else."""


class SnapshotFailed(StateError):
    """A snapshot could not be taken; nothing else was changed."""


class TaskCorrupted(StateError):
    """The local state of a task cannot be trusted; it is wiped and restored from the changelog."""


class StreamsError(KsActorsError):
    """Processing cannot continue; fields say where, as far as known."""

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
            for name, value in (
                ("task", task),
                ("node", node),
                ("topic", topic),
                ("partition", partition),
                ("offset", offset),
            )
            if value is not None
        ]
        super().__init__(f"{message} ({', '.join(where)})" if where else message)
        self.task: TaskId | None = task
        self.node: str | None = node
        self.topic: str | None = topic
        self.partition: int | None = partition
        self.offset: int | None = offset


class DeserializationFailed(StreamsError):
    """A serde cannot read a record's key or value."""


class ProcessingFailed(StreamsError):
    """A processor, or a function given to the DSL, raised; its error is the cause."""


class ProductionFailed(StreamsError):
    """A record could not be serialized or written."""


class TimestampInvalid(StreamsError):
    """A timestamp extractor returned a negative time."""


class TaskTimeout(StreamsError):
    """A task did not finish its work in time."""


class TaskMigrated(StreamsError):
    """Another member of the group has the tasks by now."""


class MissingSourceTopics(StreamsError):
    """Topics that the topology reads do not exist."""


class MissingSinkTopics(StreamsError):
    """Topics that the app writes to do not exist: those of sinks, or the dead letter queue."""


class RegistryError(KsActorsError):
    """A schema registry refuses a request; `status` is HTTP's, `code` the registry's, or None."""

    def __init__(self, text: str, *, status: int | None = None, code: int | None = None) -> None:
        super().__init__(text)
        self.status: int | None = status
        self.code: int | None = code


class RegistryUnavailable(RegistryError):
    """A schema registry gave no usable answer before the deadline."""


class RegistryRefused(RegistryError):
    """A schema registry does not know this user, or denies the operation."""


class SchemaNotFound(RegistryError):
    """The registry has no such schema, subject or version."""


class SchemaIncompatible(RegistryError):
    """The rules of the subject refuse the schema."""


class BatchError(KsActorsError):
    """A job on the batch bridge failed."""


class SparkUnavailable(BatchError):
    """Spark is not available: a package or Java is missing, or the cluster does not answer."""


class JobFailed(BatchError):
    """A job has failed.

    Its error is the `__cause__`; for a Spark task it is the task's own error.
    """


class JobCancelled(BatchError):
    """A job was cancelled before it was done."""


class JobTimeout(BatchError):
    """A job missed its deadline, and was cancelled."""


class BackfillRefused(BatchError):
    """A backfill of the topology would differ from live processing.

    `reasons` has a line for each cause, with the fix.
    """

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("the backfill is refused: " + "; ".join(reasons))
        self.reasons: tuple[str, ...] = tuple(reasons)

    def __reduce__(self) -> tuple[type[BackfillRefused], tuple[tuple[str, ...]]]:
        """Pickle the reasons: the error may come from another process."""
        return type(self), (self.reasons,)


class PublishRefused(BatchError):
    """A backfill's output differs from the same job's output in the log; nothing was written."""


class ResetRefused(KsActorsError):
    """An application cannot be reset as things are; nothing has changed."""


class RedriveRefused(KsActorsError):
    """A dead letter cannot be written back to its source; nothing was written."""


class ResetIncomplete(KsActorsError):
    """A reset has ended after some of its steps: run it again before the application is started."""


class IllegalTransition(KsActorsError):
    """A life cycle cannot make the requested transition."""


class NotRunning(KsActorsError):
    """The app is in a state that does not allow the call."""


class FailureReason(Enum):
    """The reason why a partition of a store did not answer."""

    UNKNOWN_QUERY_TYPE = "unknown_query_type"
    """The store does not support the query."""
    NOT_ACTIVE = "not_active"
    """The query requires an active task, and this one is a standby, or being restored.

    Try later, or another instance.
    """
    NOT_UP_TO_BOUND = "not_up_to_bound"
    """The store has not reached the request's bound: try later, or another instance."""
    NOT_PRESENT = "not_present"
    """The partition is not on this instance, or has left it: ask the instance that has it."""
    DOES_NOT_EXIST = "does_not_exist"
    """The store has no partition of that number."""
    STORE_EXCEPTION = "store_exception"
    """An error was raised; see the message."""
