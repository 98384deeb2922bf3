"""Metrics of workers and of the actors beside them, by the names of Kafka Streams' threads."""

from __future__ import annotations

from ks_actors.metrics._family import Group

THREAD = Group("stream-thread-metrics", "thread-id")

STATE = THREAD.text("state", "The state of the worker")
THREAD_STATE = THREAD.gauge(
    "thread-state",
    "The state of the worker as a number: CREATED 0, STARTING 1, PARTITIONS_REVOKED 2, "
    "PARTITIONS_ASSIGNED 3, RUNNING 4, PENDING_SHUTDOWN 5, DEAD 6",
    tags=("thread-id", "process-id"),
)
THREAD_START_TIME = THREAD.gauge(
    "thread-start-time", "When the worker was started, in ms since the epoch"
)
PROCESS = THREAD.rate("process-rate", "Records that were processed", total="process-total")
PROCESS_LATENCY = THREAD.spread("process-latency", "Time per record of a slice in ms")
PROCESS_RATIO = THREAD.ratio(
    "process-ratio", "The share of the last minute that was spent on processing"
)
PROCESS_RECORDS = THREAD.spread("process-records", "Records of a task's slice")
PUNCTUATE = THREAD.rate("punctuate-rate", "Calls of punctuators", total="punctuate-total")
PUNCTUATE_LATENCY = THREAD.spread("punctuate-latency", "Time of a call of a punctuator in ms")
PUNCTUATE_RATIO = THREAD.ratio(
    "punctuate-ratio", "The share of the last minute that was spent on punctuators"
)
COMMIT = THREAD.rate("commit-rate", "Commits that were not empty", total="commit-total")
COMMIT_LATENCY = THREAD.spread("commit-latency", "Time of a commit in ms")
COMMIT_RATIO = THREAD.ratio(
    "commit-ratio", "The share of the last minute in which a commit was under way"
)
TASK_CREATED = THREAD.rate("task-created-rate", "Tasks that began", total="task-created-total")
TASK_CLOSED = THREAD.rate("task-closed-rate", "Tasks that were closed", total="task-closed-total")
