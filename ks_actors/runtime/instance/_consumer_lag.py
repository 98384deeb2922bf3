"""How far an app is behind what its topics hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.log import IsolationLevel

if TYPE_CHECKING:
    from ks_actors.config import StreamsConfig
    from ks_actors.log import Log, TopicPartition
    from ks_actors.runtime.shared import Metrics


async def offsets_behind(metrics: Metrics, log: Log, config: StreamsConfig) -> int:
    """Return how many offsets tasks have not processed; 1 or more as well while something of what they did is not committed."""
    positions: dict[TopicPartition, int] = {}
    unfinished = int(metrics.committing)
    for task in metrics.tasks.values():
        if task.broken or task.absence.since is not None:
            unfinished += 1  # while a thread is at it nobody can tell where it is
            continue
        unfinished += task.commit_needed or task.in_flight > 0
        for partition, queue in task.group.queues.items():
            positions[partition] = queue.position
    isolation = IsolationLevel.READ_COMMITTED if config.processing_guarantee.value != "at_least_once" else IsolationLevel.READ_UNCOMMITTED
    ends = await log.end_offsets(list(positions), isolation)
    return sum(max(0, ends[partition] - position) for partition, position in positions.items()) or unfinished
