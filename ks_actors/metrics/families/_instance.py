"""Metrics of an app as a whole that Kafka Streams lacks, or has only for parts of an app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ks_actors.metrics._family import Group
from ks_actors.metrics._values import INSTANCE_GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.metrics._family import Instrument

INSTANCE = Group(INSTANCE_GROUP, "client-id")

_COUNTERS: Final = {
    "process-total": "Records that were processed",
    "produced-records-total": "Records that were written, those of changelogs included",
    "dropped-records-total": "Records that were left out: late ones, null keys, and those that "
    "handlers skipped",
    "stale-messages-total": "Fetches and outputs that came after a rollback, and were dropped",
    "commit-total": "Commits that were not empty",
    "rolled-back-total": "Rollbacks to the last commit",
    "snapshot-total": "Snapshots that were taken",
    "snapshot-failed-total": "Snapshots that failed",
    "snapshot-restored-tasks-total": "Tasks that began with the state of a snapshot",
    "snapshot-refused-total": "Snapshots that did not fit a task, which restored its changelogs",
    "failed-workers": "Workers that have died",
    "stalls-mended-total": "Fetches restarted because they brought nothing for stall_warning_ms: "
    "a fault of this library, please report it",
    "enforced-processing-total": "Times that a task went on without records of a partition, when "
    "max_task_idle_ms was over",
}
_GAUGES: Final = {
    "commit-latency-avg": "The mean time of a commit in ms, of the last 10,000",
    "commit-latency-max": "The longest time of a commit in ms, of the last 10,000",
    "commit-pause-p50": "The median time in ms that workers paused for a commit",
    "commit-pause-p99": "The time in ms that workers paused for a commit at most, in 99 of 100",
    "commit-pause-max": "The longest time in ms that workers paused for a commit",
    "snapshot-rows": "Rows of the last snapshot",
    "snapshot-latency": "Time in ms that the last snapshot took",
    "longest-wait-ms": "The longest time in ms that records of a partition have waited",
    "stalled-partitions": "Partitions whose records have waited for stall_warning_ms or longer",
    "log-unreachable-ms": "Longest time in ms without an answer, or with fetches refused; else 0",
    "alive-workers": "Workers that run or take part in a rebalance",
    "active-tasks": "Active tasks here",
    "standby-tasks": "Standbys here",
    "uncommitted-bytes": "The approximate memory of uncommitted changes of all stores, in bytes",
    "active-buffer-count": "Records that were fetched and not processed",
}

INSTRUMENTS: Final[Mapping[str, Instrument]] = {
    name: INSTANCE.counter(name, text) for name, text in _COUNTERS.items()
} | {name: INSTANCE.gauge(name, text) for name, text in _GAUGES.items()}
