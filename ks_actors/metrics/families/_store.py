"""Metrics of stores, of their caches and databases, and of restoring them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ks_actors.metrics._family import Group
from ks_actors.metrics._metric import RecordingLevel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.metrics._family import Instrument

_DEBUG = RecordingLevel.DEBUG

STATE_ID: Final = "*-state-id"
"""The name of a tag that differs by the kind of the store, such as `rocksdb-window-state-id`."""

STATE = Group("stream-state-metrics", "thread-id", "task-id", STATE_ID)

UNCOMMITTED = STATE.gauge(
    "uncommitted-bytes", "The approximate memory of uncommitted changes, in bytes"
)
NUM_KEYS = STATE.gauge("num-keys", "Rows of a store that is in memory only")
OPEN_ITERATORS = STATE.gauge("num-open-iterators", "Iterators that are not closed")
COMMIT_RATE = STATE.gauge("commit-rate", "Commits per second, over the last 30 s", level=_DEBUG)
COMMIT_LATENCY = STATE.spread("commit-latency", "Time of a commit in ns", level=_DEBUG)

_PROPERTIES: Final = {
    "num-immutable-mem-table": "Immutable memtables that are not flushed",
    "cur-size-active-mem-table": "Bytes of the active memtable",
    "cur-size-all-mem-tables": "Bytes of active and unflushed memtables",
    "size-all-mem-tables": "Bytes of active, unflushed and pinned memtables",
    "num-entries-active-mem-table": "Entries of the active memtable",
    "num-entries-imm-mem-tables": "Entries of unflushed memtables",
    "num-deletes-active-mem-table": "Deletes in the active memtable",
    "num-deletes-imm-mem-tables": "Deletes in unflushed memtables",
    "mem-table-flush-pending": "1 while a memtable waits to be flushed",
    "num-running-flushes": "Flushes that run",
    "compaction-pending": "1 while a compaction waits",
    "num-running-compactions": "Compactions that run",
    "estimate-pending-compaction-bytes": "Bytes that compactions have to rewrite, estimated",
    "total-sst-files-size": "Bytes of all files",
    "live-sst-files-size": "Bytes of the files of the newest version",
    "num-live-versions": "Versions that are live",
    "block-cache-capacity": "Bytes that the block cache of all tasks may take",
    "block-cache-usage": "Bytes of the block cache of all tasks",
    "block-cache-pinned-usage": "Pinned bytes of the block cache of all tasks",
    "estimate-num-keys": "Keys, estimated",
    "estimate-table-readers-mem": "Bytes of table readers, estimated",
    "background-errors": "Errors of background work",
}
_TOTALS: Final = {
    "bytes-written": "Bytes that were written",
    "bytes-read": "Bytes that were read",
    "memtable-bytes-flushed": "Bytes of memtables that were flushed",
    "bytes-written-compaction": "Bytes that compactions have written",
    "bytes-read-compaction": "Bytes that compactions have read",
}
_COUNTED: Final = {
    "memtable-hit-ratio": "The share of lookups that a memtable answered",
    "block-cache-data-hit-ratio": "The share of data blocks that were in the block cache",
    "block-cache-index-hit-ratio": "The share of index blocks that were in the block cache",
    "block-cache-filter-hit-ratio": "The share of filter blocks that were in the block cache",
    "memtable-flush-time-avg": "The mean time of a flush in ms",
    "memtable-flush-time-max": "The longest time of a flush in ms",
    "compaction-time-avg": "The mean time of a compaction in ms",
    "compaction-time-max": "The longest time of a compaction in ms",
    "write-stall-duration-avg": "The mean time of a write stall in ms",
    "write-stall-duration-total": "The time of all write stalls in ms",
    "number-open-files": "Files that are open",
    "number-file-errors-total": "Errors of files",
}
# For compactions, Kafka Streams has only rates.
_NO_TOTAL: Final = frozenset({"bytes-written-compaction", "bytes-read-compaction"})
DATABASE_PROPERTIES: Final[Mapping[str, Instrument]] = {
    name: STATE.gauge(name, text) for name, text in _PROPERTIES.items()
}
DATABASE_COUNTS: Final[Mapping[str, Instrument]] = {
    f"{name}-total": STATE.rate(
        f"{name}-rate",
        text,
        total=None if name in _NO_TOTAL else f"{name}-total",
        level=_DEBUG,
    )
    for name, text in _TOTALS.items()
} | {name: STATE.gauge(name, text, level=_DEBUG) for name, text in _COUNTED.items()}

CACHE = Group(
    "stream-record-cache-metrics", "thread-id", "task-id", "record-cache-id", level=_DEBUG
)

HIT_RATIO: Final[Mapping[str, Instrument]] = {
    "hit-ratio-avg": CACHE.gauge(
        "hit-ratio-avg", "The mean share of updates that replaced one that was still cached"
    ),
    "hit-ratio-min": CACHE.gauge("hit-ratio-min", "The lowest share of 1,000 updates"),
    "hit-ratio-max": CACHE.gauge("hit-ratio-max", "The highest share of 1,000 updates"),
}

STORE = Group("ks-actors-store-metrics", "client-id", "task-id", "store", "role")

MEMORY = STORE.gauge("memory-bytes", "The approximate memory of the store in Python, in bytes")
RESIDENT = STORE.gauge("resident-rows", "Rows in memory")
UNWRITTEN = STORE.gauge(
    "unwritten-bytes", "The approximate bytes of committed rows that are not on disk"
)

UPDATER = Group("stream-state-updater-metrics", "thread-id")

RESTORING_TASKS = UPDATER.gauge("active-restoring-tasks", "Active tasks that are being restored")
UPDATING_TASKS = UPDATER.gauge("standby-updating-tasks", "Standbys that are kept up to date")
RESTORE_RECORDS = UPDATER.rate(
    "restore-records-rate", "Records of changelogs that were read, of standbys too"
)
RESTORE_CALLS = UPDATER.rate("restore-call-rate", "Batches of changelogs that were read")

RESTORE = Group("ks-actors-restore-metrics", "client-id", "task-id", "topic", "partition", "role")

REMAINING = RESTORE.gauge(
    "remaining-records", "Offsets of the changelog that are to be read; NaN while not known"
)
TIME_LEFT = RESTORE.gauge(
    "time-left-seconds",
    "The estimated time in s until the changelog is read, by its speed so far; NaN without one",
)
CHANGELOG_POSITION = RESTORE.gauge("position", "The offset of the next record to read")
