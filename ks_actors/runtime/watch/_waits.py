"""The waits of a task, with their reasons."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ks_actors.records import TaskId, TopicPartition


class WaitReason(Enum):
    """Why records of a task are not processed at this moment."""

    RECORDS = "records"
    """There are none: all that the log is known to have is processed."""
    PROCESSING = "processing"
    """They are being processed: the position has moved on since the last look."""
    PAUSED = "paused"
    """The user has paused the app: `App.resume` lets it go on."""
    PARTITION = "partition"
    """Another partition of the task has no records at hand, and `max_task_idle_ms` says to wait for them."""
    COMMIT = "commit"
    """A commit is under way that lets the task do nothing meanwhile."""
    ASYNC_CALL = "async call"
    """A call of an `async def` function has not returned."""
    FUNCTION = "function"
    """A function of the task that is `blocking` has not returned."""
    WORKER = "worker"
    """All workers are at other tasks."""
    NO_WORKER = "no worker"
    """There is no worker: `App.add_worker` starts one."""
    INPUT_BUFFER = "input buffer"
    """Fetching of the partition has stopped: `input_buffer_max_bytes` or `buffered_records_per_partition` is used up."""
    UNCOMMITTED = "uncommitted state"
    """Stores hold as much uncommitted as `statestore_uncommitted_max_bytes` allows, until the next commit has taken it."""
    OUTPUT = "output"
    """Output waits for the log, and nothing more is written before there is room."""
    RESTORING = "restoring"
    """The stores of the task are being opened, or restored."""
    RESTING = "resting"
    """The task, or all of them, rest before they try again what has failed."""
    REBALANCING = "rebalancing"
    """The group is being asked who has which tasks, or the task is being handed over."""
    LOG = "log"
    """A broker that is asked does not answer."""
    NOT_FETCHED = "not fetched"
    """The log has records that no fetch has brought."""
    UNREAD = "unread"
    """The topology reads the partition, and no member of the group does."""
    SCHEDULE = "schedule"
    """There are records and a worker, and the one does not get the other: that is a fault, please report it."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """The wait of one partition of a task; of the whole task where `partition` is None, of the whole instance where `task` is None, too.

    A partition that no member of the group reads has no task.
    """

    task: TaskId | None
    """The task; None as long as the instance has none, and for a partition that nobody reads."""
    partition: TopicPartition | None
    """The partition whose records wait."""
    reason: WaitReason
    """Why they wait."""
    text: str
    """The reason in words, with names and numbers."""
    since_ms: int
    """Since when, by the wall clock in ms: as it was noticed, at most a second late."""
    waited_ms: int
    """For how many ms by now."""
    buffered: int
    """How many records of the partition are in memory, and wait there."""
    lag: int | None
    """How many offsets the log has behind these, as far as it is known; None when nobody has told yet."""
