"""Metrics of active tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ks_actors.metrics import joined
from ks_actors.metrics.families import task as f
from ks_actors.runtime.watch import WaitReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.metrics import MetricSource, Readings, Spread
    from ks_actors.records import TaskId
    from ks_actors.runtime.metrics._watched import Watched
    from ks_actors.runtime.shared import Metrics
    from ks_actors.runtime.watch import Wait

_NO_WAIT: Final = frozenset({WaitReason.RECORDS, WaitReason.PROCESSING})


def task_source(metrics: Metrics, watched: Watched) -> MetricSource:
    """Return the source of the metrics of active tasks."""
    thread, client = watched.pool, watched.config.client_id

    def read() -> Iterator[Readings]:
        waits = _waits(watched)
        for task in tuple(metrics.tasks.values()):
            name = str(task.id)
            yield (
                {"thread-id": thread, "task-id": name},
                [
                    (f.ACTIVE_PROCESS_RATIO, task.busy),
                    (f.DROPPED, task.dropped),
                    (f.BUFFER_COUNT, task.group.buffered),
                    (f.ENFORCED, task.group.enforced),
                    (f.PROCESS, task.processed),
                    (f.PROCESS_LATENCY, in_ns(task.record_times.spread())),
                    (f.PUNCTUATE, task.punctuator_times.count),
                    (f.PUNCTUATE_LATENCY, in_ns(task.punctuator_times.spread())),
                    (f.LATENESS, joined(queue.lateness for queue in task.group.queues.values())),
                    (f.CACHE_SIZE, sum(cache.weight for cache in task.caches)),
                ],
            )
            wait = waits.get(task.id)
            if wait is not None:
                yield (
                    {"client-id": client, "task-id": name},
                    [
                        (f.WAIT_REASON, wait.reason.value),
                        (f.WAITED, 0 if wait.reason in _NO_WAIT else wait.waited_ms),
                        (f.UNCOMMITTED, task.uncommitted_bytes),
                    ],
                )

    return read


def in_ns(spread: Spread) -> tuple[float, float]:
    """Return mean and highest of seconds in ns, the unit of Kafka Streams' tasks and stores."""
    return spread.mean * 1e9, spread.most * 1e9


def _waits(watched: Watched) -> dict[TaskId, Wait]:
    """Return the longest wait of each task."""
    instance = watched.instance()
    found: dict[TaskId, Wait] = {}
    for wait in () if instance is None else instance.waiting():
        if wait.task is not None and (
            wait.task not in found or wait.waited_ms > found[wait.task].waited_ms
        ):
            found[wait.task] = wait
    return found
