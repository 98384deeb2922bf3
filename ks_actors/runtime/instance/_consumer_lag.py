"""The lag of an app behind its input topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.log import IsolationLevel

if TYPE_CHECKING:
    from ks_actors.config import StreamsConfig
    from ks_actors.log import Log, TopicPartition
    from ks_actors.runtime.shared import Metrics


async def consumer_lag(metrics: Metrics, log: Log, config: StreamsConfig) -> int:
    """Return the number of offsets that tasks have not processed.

    The number is at least 1 while some work is processed but not committed.
    """
    positions: dict[TopicPartition, int] = {}
    unfinished = int(metrics.committing)
    for task in metrics.tasks.values():
        if task.broken or task.thread_guard.since is not None:
            # While a thread runs the task, its position is unknown.
            unfinished += 1
            continue
        unfinished += task.commit_needed or task.in_flight > 0
        for partition, queue in task.group.queues.items():
            positions[partition] = queue.position
    isolation = (
        IsolationLevel.READ_COMMITTED
        if config.processing_guarantee.value != "at_least_once"
        else IsolationLevel.READ_UNCOMMITTED
    )
    ends = await log.end_offsets(list(positions), isolation)
    return (
        sum(max(0, ends[partition] - position) for partition, position in positions.items())
        or unfinished
    )
