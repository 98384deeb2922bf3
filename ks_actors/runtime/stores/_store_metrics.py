"""Metrics of the tasks' stores."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ks_actors.lifecycle import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors.records import TaskId
    from ks_actors.task import RegisteredStores, Task


class TaskMetrics(NamedTuple):
    """Metrics of one local task, active or standby, by Kafka Streams' names."""

    rocksdb: Mapping[str, float]
    """Metrics of the database that all stores of the task share, or all tasks (`state_layout`).

    Sizes in bytes (KIP-607); the block cache counts for all tasks together. From the recording
    level DEBUG on, also counts since the database was opened (KIP-471), times in ms. Empty without
    state on disk, or while the database is being closed.
    """
    record_caches: Mapping[str, Mapping[str, float]]
    """`hit-ratio-avg`, `-min` and `-max` of each store's cache.

    The ratio of updates that replaced a cached update.
    """
    commits: Mapping[str, Mapping[str, float]]
    """`commit-rate`, `commit-latency-avg` and `-max` of each store over the last 30 s (KIP-892).

    Published commits per second, and their duration in ms. Without stores that have not committed.
    """
    memory_bytes: Mapping[str, int]
    """Approximate bytes of state of each store in Python's memory.

    See `statestore_memory_max_bytes`.
    """


async def task_metrics(store_registry: Iterable[RegisteredStores]) -> dict[TaskId, TaskMetrics]:
    """Return the metrics of all tasks; query their databases in a thread."""
    found = list(store_registry)
    caches = [_cache_figures(one.processing) for one in found]
    commits = [one.stores.commit_times.figures() for one in found]
    memory = [one.stores.memory_bytes() for one in found]
    databases = await in_thread(partial(_statistics, found))
    return {
        one.task: TaskMetrics(databases[place], caches[place], commits[place], memory[place])
        for place, one in enumerate(found)
    }


def _statistics(found: Iterable[RegisteredStores]) -> list[dict[str, float]]:
    """Ask each database once."""
    figures: list[dict[str, float]] = []
    of_all: dict[str, float] = {}
    for one in found:
        if one.stores.in_shared:
            of_all = of_all or one.stores.statistics()
        figures.append(of_all if one.stores.in_shared else one.stores.statistics())
    return figures


def _cache_figures(task: Task | None) -> dict[str, dict[str, float]]:
    return {} if task is None else {entry.name: entry.hit_ratio.figures() for entry in task.caches}
