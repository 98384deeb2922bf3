"""Kafka Streams' metrics that are not here, with the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_AVERAGES: Final = ("latency-avg", "latency-max", "rate")
_OPERATIONS: Final = (
    *("all", "delete", "fetch", "get", "prefix-scan", "put", "put-all", "put-if-absent"),
    *("range", "remove"),
)
_BATCHES: Final = (
    "operators read and write whole batches of rows in tables in memory: a single operation has no "
    "time of its own"
)


def _state(names: Iterator[str], reason: str) -> dict[tuple[str, str], str]:
    return {("stream-state-metrics", name): reason for name in names}


ABSENT: Final[Mapping[tuple[str, str], str]] = {
    ("stream-metrics", "commit-id"): "the version names the release",
    (
        "stream-thread-metrics",
        "blocked-time-ns-total",
    ): "nothing waits for Kafka in a worker: fetching and writing go on beside it",
    **{
        ("stream-state-updater-metrics", name): "pausing an app does not pause its restores"
        for name in ("active-paused-tasks", "standby-paused-tasks")
    },
    **{
        ("stream-state-updater-metrics", name): "changelogs are read on the event loop, beside "
        "everything else: no thread has a time to share out"
        for name in ("idle-ratio", "active-restore-ratio", "standby-update-ratio")
    },
    ("stream-state-updater-metrics", "checkpoint-ratio"): "offsets are in the database, written "
    "with the rows",
    **{
        ("stream-processor-node-metrics", f"window-aggregate-final-emit-latency-{end}"): "results "
        "are forwarded in the turn of a record: process-latency of the task has their time"
        for end in ("avg", "max")
    },
    **{
        ("stream-processor-node-metrics", f"idempotent-update-skip-{end}"): "each update of a "
        "source table is forwarded"
        for end in ("rate", "total")
    },
    **{
        ("stream-thread-metrics", f"tasks-{which}-latency-{end}"): "there is no listener that "
        "holds up a thread: rebalance-latency has the time"
        for which in ("assigned", "revoked", "lost")
        for end in ("avg", "max")
    },
    **_state((f"{name}-{end}" for name in _OPERATIONS for end in _AVERAGES), _BATCHES),
    **_state(
        (f"flush-{end}" for end in _AVERAGES),
        "rows go to disk in slices, between the work of tasks; unwritten-bytes tells how many wait",
    ),
    **_state(
        (f"restore-{end}" for end in _AVERAGES),
        "restore-rate of the task, and the group ks-actors-restore-metrics, have it",
    ),
    **_state(
        (f"record-e2e-latency-{end}" for end in ("avg", "max", "min")),
        "the latency of the task's source is that of its stores",
    ),
    **_state(
        iter(("iterator-duration-avg", "iterator-duration-max", "oldest-iterator-open-since-ms")),
        "iterators are counted, not timed: num-open-iterators",
    ),
    **_state(
        (
            f"suppression-buffer-{what}-{end}"
            for what in ("count", "size")
            for end in ("avg", "max")
        ),
        "resident-rows and memory-bytes of the store tell its present size",
    ),
    **_state(
        iter(("compaction-time-min", "memtable-flush-time-min")),
        "RocksDB's histograms have no lowest value",
    ),
}
"""The reasons by group and name."""
