"""What the stores of tasks tell of themselves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors.records import TaskId
    from ks_actors.task import RegisteredStores, Task


class TaskMetrics(NamedTuple):
    """Figures of one task that is here, active or standby, by Kafka Streams' names."""

    rocksdb: Mapping[str, float]
    """Of its database, which all its stores share (KIP-607): sizes in bytes, of the block cache those of all tasks together. From the recording level
    DEBUG on also what was counted since it was opened (KIP-471), times in ms. Empty when nothing is on disk, or it is being closed."""
    record_caches: Mapping[str, Mapping[str, float]]
    """`hit-ratio-avg`, `-min` and `-max` of each store's cache: how many updates took the place of one that was still held back."""
    commits: Mapping[str, Mapping[str, float]]
    """`commit-rate`, `commit-latency-avg` and `-max` of each store over the last 30 s (KIP-892): how often per second it has made final what was
    frozen, and for how many ms. Without stores that have not committed."""
    memory_bytes: Mapping[str, int]
    """About how much of its state each store has in Python's memory, see `statestore_memory_max_bytes`."""


async def task_metrics(residents: Iterable[RegisteredStores]) -> dict[TaskId, TaskMetrics]:
    """Look at all tasks; their databases are asked in a thread."""
    found = list(residents)
    caches = [_cache_figures(one.processing) for one in found]
    commits = [one.stores.commit_times.figures() for one in found]
    memory = [one.stores.memory_bytes() for one in found]
    databases = await asyncio.to_thread(lambda: [one.stores.statistics() for one in found])
    return {one.task: TaskMetrics(databases[place], caches[place], commits[place], memory[place]) for place, one in enumerate(found)}


def _cache_figures(task: Task | None) -> dict[str, dict[str, float]]:
    plan = None if task is None else task._plan
    return {} if plan is None else {held.name: held.hit_ratio.figures() for held in plan.caches}
