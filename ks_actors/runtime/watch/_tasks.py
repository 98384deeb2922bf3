"""The tasks of an instance, with their states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ks_actors.task import TaskState

if TYPE_CHECKING:
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.watch._partition_state import PartitionStates


class TaskMetadata(msgspec.Struct, frozen=True):
    """A snapshot of one task of an instance (as TaskMetadata of Kafka Streams, with the state).

    `partitions` are those of its source topics, in order. A `standby` reads none of them, only its
    changelogs.
    """

    task: TaskId
    state: TaskState
    standby: bool
    partitions: tuple[TopicPartition, ...]


def task_metadata(parts: PartitionStates) -> tuple[TaskMetadata, ...]:
    """Return the metadata of all tasks that are assigned here or not closed yet, in order."""
    found = {
        task.id: TaskMetadata(task.id, task.life.state, False, tuple(sorted(task.group.queues)))
        for task in parts.metrics.tasks.values()
    }
    for task_id, entry in (
        () if parts.state_manager is None else parts.state_manager._entries.items()
    ):
        # A task with open stores may have been closed, or not begun, by the task manager.
        if task_id not in found:
            order = entry.order
            reads = () if order is None else tuple(sorted(order.positions))
            found[task_id] = TaskMetadata(task_id, entry.life.state, order is None, reads)
    if (poller := parts.poller) is not None:
        for task_id in poller._pending - found.keys():
            reads = tuple(sorted(poller._tasks.get(task_id, ())))
            found[task_id] = TaskMetadata(task_id, TaskState.CREATED, False, reads)
    return tuple(found[task_id] for task_id in sorted(found))
