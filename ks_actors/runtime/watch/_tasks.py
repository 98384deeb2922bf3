"""The tasks of an instance, with their states and their progress."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from ks_actors.records import TaskId, TopicPartition
from ks_actors.runtime.watch._waits import Wait
from ks_actors.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors.runtime.watch._partition_state import PartitionStates


class PartitionProgress(msgspec.Struct, frozen=True):
    """How far a task has come in one of its partitions."""

    partition: TopicPartition
    """The partition of a source topic."""
    position: int | None
    """The offset of the next record to process; None while it is unknown."""
    buffered: int
    """The number of records in memory that wait to be processed."""
    end: int | None
    """The end offset of the log, as last fetched or looked up; None while it is unknown."""

    @property
    def lag(self) -> int | None:
        """The offsets from the position to the end; None while either is unknown."""
        known = self.position is not None and self.end is not None
        return max(0, (self.end or 0) - (self.position or 0)) if known else None


class RestoreProgress(msgspec.Struct, frozen=True):
    """How far a changelog has been read into its store.

    `end` is where an active task's restore ends; None for a standby, which follows without end.
    """

    changelog: TopicPartition
    start: int
    """The offset where the reading began; 0 when the store was empty."""
    position: int
    """The offset of the next record to read."""
    end: int | None

    @property
    def share(self) -> float | None:
        """The part that has been read, from 0 to 1; None without an end."""
        if self.end is None:
            return None
        way = self.end - self.start
        return 1.0 if way <= 0 else min(1.0, max(0.0, (self.position - self.start) / way))


class CallProgress(msgspec.Struct, frozen=True):
    """The calls of one asynchronous node of a task."""

    node: str
    in_flight: int
    """The number of records in flight."""
    room: int
    """The number of records that may be added; with 0 the task waits."""


class TaskMetadata(msgspec.Struct, frozen=True):
    """A snapshot of one task of an instance (as TaskMetadata of Kafka Streams, with the state).

    `partitions` are the partitions of its source topics, in order. A `standby` reads none of them,
    only its changelogs.
    """

    task: TaskId
    state: TaskState
    standby: bool
    partitions: tuple[TopicPartition, ...]
    progress: tuple[PartitionProgress, ...] = ()
    """Positions, buffered records and end offsets, one for each partition of an active task."""
    restores: tuple[RestoreProgress, ...] = ()
    """The changelogs that are being read."""
    calls: tuple[CallProgress, ...] = ()
    """The asynchronous nodes, with their calls in flight."""
    waits: tuple[Wait, ...] = ()
    """The reasons why records of the task are not processed at this moment."""
    query: str | None = None
    """The query of the task, `rest` outside of queries; None if the topology names none."""


def task_metadata(parts: PartitionStates) -> tuple[TaskMetadata, ...]:
    """Return the metadata of all tasks that are assigned here or not closed yet, in order."""
    found = {
        task.id: TaskMetadata(
            task.id,
            task.life.state,
            False,
            tuple(sorted(task.group.queues)),
            calls=tuple(
                CallProgress(node.node, node.in_flight, node.room) for node in task.async_nodes
            ),
        )
        for task in tuple(parts.metrics.tasks.values())
    }
    for task_id, stores in parts.state_manager.status().items():
        # A task with open stores may have been closed, or not begun, by the task manager.
        if task_id not in found:
            standby = stores.positions is None
            reads = tuple(sorted(stores.positions or ()))
            found[task_id] = TaskMetadata(task_id, stores.state, standby, reads)
    member = parts.member.status()
    for task_id in member.pending - found.keys():
        reads = tuple(sorted(member.tasks.get(task_id, ())))
        found[task_id] = TaskMetadata(task_id, TaskState.CREATED, False, reads)
    pauses = parts.manager.pauses
    return tuple(
        msgspec.structs.replace(found[task_id], query=pauses.query(task_id))
        if pauses.named
        else found[task_id]
        for task_id in sorted(found)
    )


def with_progress(
    tasks: Iterable[TaskMetadata],
    parts: PartitionStates,
    ends: Mapping[TopicPartition, int],
    waits: Iterable[Wait],
) -> tuple[TaskMetadata, ...]:
    """Return the tasks with their positions, restores and waits."""
    positions: dict[TaskId, list[PartitionProgress]] = {}
    for place in parts.places(ends):
        queue = None if place.task is None else place.task.group.queues.get(place.partition)
        seen = None if queue is None else queue.end_offset
        end = max(
            (one for one in (seen, ends.get(place.partition)) if one is not None), default=None
        )
        positions.setdefault(place.task_id, []).append(
            PartitionProgress(place.partition, place.position, place.buffered, end)
        )
    restores: dict[TaskId, list[RestoreProgress]] = {}
    for read in parts.restorer.reads():
        end = read.end if read.active else None  # a standby follows without end
        if end is not None or not read.active:
            restores.setdefault(read.task, []).append(
                RestoreProgress(read.changelog, read.start, read.position, end)
            )
    waiting: dict[TaskId | None, list[Wait]] = {}
    for wait in waits:
        waiting.setdefault(wait.task, []).append(wait)
    return tuple(
        msgspec.structs.replace(
            one,
            progress=tuple(sorted(positions.get(one.task, ()), key=attrgetter("partition"))),
            restores=tuple(sorted(restores.get(one.task, ()), key=attrgetter("changelog"))),
            waits=tuple(waiting.get(one.task, ())),
        )
        for one in tasks
    )
