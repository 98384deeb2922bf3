"""Metrics of an instance."""

from __future__ import annotations

from collections import Counter, deque
from time import perf_counter
from typing import TYPE_CHECKING

from ks_actors.history import History
from ks_actors.metrics import Registry, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from actors import Ref
    from ks_actors.history import CommitClock
    from ks_actors.metrics import RecordingLevel
    from ks_actors.records import TaskId
    from ks_actors.runtime.messages import WorkerMessage
    from ks_actors.snapshots import SnapshotManifest
    from ks_actors.task import Task

_KEPT = 10_000


class Metrics:
    """Counters and last durations of one instance; `snapshot` uses Kafka Streams' names."""

    def __init__(self, level: RecordingLevel) -> None:
        self.registry: Registry = Registry(level)
        self.history: History = History()
        # Of the state directory; empty until it is open.
        self.process_id: str = ""
        self.tasks: dict[TaskId, Task] = {}
        # Tasks that may have something to commit.
        self.touched: Callable[[], Mapping[TaskId, Task]] = dict
        # Whether a worker has a task.
        self.at_work: Callable[[], bool] = bool
        # Workers whose threads have a task at this moment.
        self.in_threads: Callable[[], Collection[Ref[WorkerMessage]]] = tuple
        self.standbys: Callable[[], int] = int
        self.buffered: Callable[[], int] = int
        self.processed_total: int = 0
        # Of closed tasks, by subtopology.
        self.processed_before: Counter[int] = Counter()
        self.produced: int = 0
        self.stale: int = 0
        self.rolled_back: int = 0
        # The last failure of each task, and of all tasks (None), until they go on.
        self.failures: dict[TaskId | None, str] = {}
        # In seconds.
        self.longest_wait: float = 0.0
        self.stalled_partitions: int = 0
        self.stalls_mended: int = 0
        self.unreachable_ms: Callable[[], int] = int
        self.failed_workers: int = 0
        self.alive_workers: int = 0
        self.global_dropped: int = 0
        self.commits: int = 0
        self.snapshots: int = 0
        self.snapshots_failed: int = 0
        self.snapshots_used: int = 0
        self.snapshots_refused: int = 0
        self.snapshot_rows: int = 0
        self.snapshot_seconds: float = 0.0
        self.committing: bool = False
        # There was nothing to commit: the committer is idle until work is reported.
        self.commits_rest: bool = False
        # Workers pause for a commit: other work should wait.
        self.pausing: bool = False
        self.commit_seconds: deque[float] = deque(maxlen=_KEPT)
        self.pause_seconds: deque[float] = deque(maxlen=_KEPT)
        self.wait_seconds: deque[float] = deque(maxlen=_KEPT)
        # In ms.
        self.commit_times: Timing = Timing(self.registry.window)
        self.tasks_closed: int = 0
        self.loop_lag: Timing = Timing(self.registry.window)
        self.read_times: Timing = Timing(self.registry.window)
        # Of each task with a database, as last asked in a thread.
        self.databases: Mapping[str, Mapping[str, float]] = {}
        self._dropped_before: int = 0

    def processed(self, records: int) -> None:
        """Count processed records."""
        self.processed_total += records

    def paused(self, clock: CommitClock) -> None:
        """Record the pause of workers for a commit, and the wait until all had paused."""
        phases = clock.phases
        self.pause_seconds.append(phases["freeze"] / 1000)
        self.wait_seconds.append((phases["drain"] + phases["pause"]) / 1000)

    def committed(self, clock: CommitClock, tasks: int, left_out: int) -> None:
        """Record a commit of so many tasks, at least one, and the tasks that it has left out."""
        run = self.history.commits.note(
            clock, processed=self.processed_total, tasks=tasks, left_out=left_out
        )
        self.commits += 1
        self.commit_seconds.append(run.took_ms / 1000)
        self.commit_times.add(run.took_ms)

    def commit_failed(self, clock: CommitClock, error: Exception) -> None:
        """Record a commit that has failed."""
        self.history.commits.note(
            clock, processed=self.processed_total, tasks=0, left_out=0, error=error
        )

    def snapshot_taken(self, manifest: SnapshotManifest, seconds: float) -> None:
        """Record a snapshot of this instance, with its duration in seconds."""
        self.snapshots += 1
        self.snapshot_rows = sum(
            store.rows for task in manifest.tasks.values() for store in task.stores.values()
        )
        self.snapshot_seconds = seconds

    def stuck_seconds(self) -> float:
        """Return the seconds that the longest running threaded function has taken; 0 if none."""
        now = perf_counter()
        return max(
            (
                now - task.thread_guard.since
                for task in self.tasks.values()
                if task.thread_guard.since is not None
            ),
            default=0.0,
        )

    def forget(self, task: TaskId) -> None:
        """Drop a closed task, but keep its counts."""
        self.failures.pop(task, None)
        gone = self.tasks.pop(task, None)
        if gone is not None:
            self.tasks_closed += 1
            self._dropped_before += gone.dropped
            self.processed_before[task.subtopology] += gone.processed

    @property
    def dropped(self) -> int:
        """Number of records left out."""
        return (
            self._dropped_before
            + self.global_dropped
            + sum(task.dropped for task in self.tasks.values())
        )

    def snapshot(self) -> dict[str, float]:
        """Return all metrics by name; latencies in ms over the last commits."""
        commits = sorted(self.commit_seconds)
        pauses = sorted(self.pause_seconds)
        return {
            "process-total": self.processed_total,
            "produced-records-total": self.produced,
            "dropped-records-total": self.dropped,
            "stale-messages-total": self.stale,
            "commit-total": self.commits,
            "commit-latency-avg": _mean(commits) * 1000,
            "commit-latency-max": (commits[-1] if commits else 0.0) * 1000,
            "commit-pause-p50": _quantile(pauses, 0.5) * 1000,
            "commit-pause-p99": _quantile(pauses, 0.99) * 1000,
            "commit-pause-max": (pauses[-1] if pauses else 0.0) * 1000,
            "rolled-back-total": self.rolled_back,
            "snapshot-total": self.snapshots,
            "snapshot-failed-total": self.snapshots_failed,
            "snapshot-rows": self.snapshot_rows,
            "snapshot-latency": self.snapshot_seconds * 1000,
            "snapshot-restored-tasks-total": self.snapshots_used,
            "snapshot-refused-total": self.snapshots_refused,
            "longest-wait-ms": self.longest_wait * 1000,
            "stalled-partitions": self.stalled_partitions,
            "stalls-mended-total": self.stalls_mended,
            "log-unreachable-ms": self.unreachable_ms(),
            "failed-workers": self.failed_workers,
            "alive-workers": self.alive_workers,
            "active-tasks": len(self.tasks),
            "standby-tasks": self.standbys(),
            "enforced-processing-total": sum(task.group.enforced for task in self.tasks.values()),
            "uncommitted-bytes": sum(task.uncommitted_bytes for task in self.tasks.values()),
            "active-buffer-count": self.buffered(),
        }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _quantile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0
