"""The waits of a task, with their reasons."""

from __future__ import annotations

from enum import Enum

import msgspec

from ks_actors.records import TaskId, TopicPartition


class WaitReason(Enum):
    """The reason why records of a task are not processed at this moment."""

    RECORDS = "records"
    """There are no records: all known records of the log are processed."""
    PROCESSING = "processing"
    """The records are being processed: the position has moved since the last check."""
    PAUSED = "paused"
    """The user has paused the app: `App.resume` resumes it."""
    PARTITION = "partition"
    """Another partition of the task has no records yet; `max_task_idle_ms` says to wait."""
    COMMIT = "commit"
    """A commit is under way that pauses the task."""
    ASYNC_CALL = "async call"
    """A call of an `async def` function has not returned."""
    FUNCTION = "function"
    """A `blocking` function of the task has not returned."""
    WORKER = "worker"
    """All workers are busy with other tasks."""
    NO_WORKER = "no worker"
    """There is no worker: `App.add_worker` starts a worker."""
    INPUT_BUFFER = "input buffer"
    """Fetching of the partition has stopped.

    `input_buffer_max_bytes` or `buffered_records_per_partition` is used up.
    """
    UNCOMMITTED = "uncommitted state"
    """Stores have reached `statestore_uncommitted_max_bytes`, until the next commit."""
    OUTPUT = "output"
    """Output waits for the log, and nothing more is written until there is room."""
    RESTORING = "restoring"
    """The stores of the task are being opened or restored."""
    RESTING = "resting"
    """The task, or every task, pauses before it retries after a failure."""
    REBALANCING = "rebalancing"
    """The group is assigning tasks, or the task is being handed over."""
    LOG = "log"
    """A broker does not answer."""
    NOT_FETCHED = "not fetched"
    """The log has records that no fetch has brought."""
    TRANSACTION = "transaction"
    """Exactly-once: the records are in, or after, an open transaction of another producer."""
    UNREAD = "unread"
    """The topology reads the partition, but no member of the group does."""
    SCHEDULE = "schedule"
    """There are records and a free worker, but the task is not scheduled.

    That is a fault: please report it.
    """


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """The wait of one partition of a task.

    Without a `partition`, it is the wait of the whole task; without a `task` too, of the whole
    instance. A partition that no member of the group reads has no task.
    """

    task: TaskId | None
    """The task; None while the instance has none, and for a partition that no member reads."""
    partition: TopicPartition | None
    """The partition with the waiting records."""
    reason: WaitReason
    """The reason why the records wait."""
    text: str
    """The reason in words, with names and numbers."""
    since_ms: int
    """The time when the wait was noticed, by the wall clock in ms; at most a second late."""
    waited_ms: int
    """The length of the wait so far, in ms."""
    buffered: int
    """The number of records of the partition that wait in memory."""
    lag: int | None
    """The number of offsets in the log after the buffered records; None while it is unknown."""
