"""Metrics of tasks."""

from __future__ import annotations

from ks_actors.metrics._family import Group
from ks_actors.metrics._metric import RecordingLevel

_DEBUG = RecordingLevel.DEBUG

TASK = Group("stream-task-metrics", "thread-id", "task-id")

ACTIVE_PROCESS_RATIO = TASK.ratio(
    "active-process-ratio", "The share of the last minute that workers spent on the task"
)
DROPPED = TASK.rate(
    "dropped-records-rate",
    "Records that were left out: late ones, null keys, and those that handlers skipped",
    total="dropped-records-total",
)
BUFFER_COUNT = TASK.gauge(
    "active-buffer-count", "Records that were fetched and not processed", level=_DEBUG
)
ENFORCED = TASK.rate(
    "enforced-processing-rate",
    "Times that the task went on without records of a partition, when max_task_idle_ms was over",
    total="enforced-processing-total",
    level=_DEBUG,
)
PROCESS = TASK.rate(
    "process-rate", "Records that were processed", total="process-total", level=_DEBUG
)
PROCESS_LATENCY = TASK.spread("process-latency", "Time per record of a slice in ns", level=_DEBUG)
PUNCTUATE = TASK.rate(
    "punctuate-rate", "Calls of punctuators", total="punctuate-total", level=_DEBUG
)
PUNCTUATE_LATENCY = TASK.spread(
    "punctuate-latency", "Time of a call of a punctuator in ns", level=_DEBUG
)

LATENESS = TASK.spread(
    "record-lateness",
    "How far in ms a record was behind the highest timestamp of its partition, of the last record "
    "of each slice",
    level=_DEBUG,
)
CACHE_SIZE = TASK.gauge(
    "cache-size-bytes-total", "The approximate bytes of updates that caches hold", level=_DEBUG
)
RESTORE_REMAINING = TASK.gauge(
    "restore-remaining-records-total", "Offsets of changelogs that the task has yet to restore"
)
RESTORE = TASK.rate(
    "restore-rate", "Records that were restored", total="restore-total", level=_DEBUG
)
UPDATE = TASK.rate(
    "update-rate",
    "Records of changelogs that a standby has read",
    total="update-total",
    level=_DEBUG,
)

OWN_TASK = Group("ks-actors-task-metrics", "client-id", "task-id")

WAIT_REASON = OWN_TASK.text(
    "wait-reason", "The reason why the task processes nothing at this moment, as WaitReason"
)
WAITED = OWN_TASK.gauge(
    "waited-ms",
    "The time in ms for which records of the task have waited; 0 while there are none, or while "
    "they are processed",
)
UNCOMMITTED = OWN_TASK.gauge(
    "uncommitted-bytes", "The approximate memory of uncommitted changes of its stores, in bytes"
)
