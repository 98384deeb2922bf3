"""The state of each partition of an instance."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.commit import Committer
    from ks_actors.runtime.fetching import Poller
    from ks_actors.runtime.instance import Workers
    from ks_actors.runtime.membership import Member
    from ks_actors.runtime.processing import TaskManager
    from ks_actors.runtime.shared import Metrics
    from ks_actors.runtime.stores import Restorer, StateManager
    from ks_actors.task import Task


class PartitionState(NamedTuple):
    """The state of a partition.

    `position` is the offset to process next, None while unknown. `buffered` counts records in
    memory, `lag` the offsets in the log behind them, and `end` is the end of the log. `task` is the
    running task; None while its stores are being opened or restored. `absent` is the time when a
    thread took the task.
    """

    task_id: TaskId
    partition: TopicPartition
    task: Task | None
    position: int | None
    buffered: int
    lag: int | None
    end: int | None
    absent: float | None = None


class PartitionStates(NamedTuple):
    """The actors and tasks of an instance, read from outside, without messages or changes.

    Read them on the loop, except where a method says otherwise.
    """

    metrics: Metrics
    workers: Workers
    manager: TaskManager
    poller: Poller
    member: Member
    committer: Committer
    state_manager: StateManager
    restorer: Restorer

    def places(self, ends: Mapping[TopicPartition, int]) -> Iterator[PartitionState]:
        """Iterate over the partitions of all assigned tasks.

        `ends` are the end offsets looked up where no fetch has returned them.
        """
        for task in tuple(self.metrics.tasks.values()):
            absent = task.thread_guard.since
            for partition, queue in task.group.queues.items():
                fetched = queue.fetch_position
                position = fetched if absent is not None else queue.position
                lag = queue.lag_to(ends.get(partition))
                end = None if lag is None else fetched + lag
                yield PartitionState(
                    task.id, partition, task, position, queue.buffered, lag, end, absent
                )
        yield from self._pending(ends)

    def _pending(self, ends: Mapping[TopicPartition, int]) -> Iterator[PartitionState]:
        """Iterate over the partitions of tasks whose stores are being opened or restored."""
        member = self.member.status()
        pending = [task for task in member.pending if task not in self.metrics.tasks]
        stores = self.state_manager.status() if pending else {}
        for task in pending:
            known = (stores[task].positions if task in stores else None) or {}
            for partition in member.tasks.get(task, ()):
                at = known[partition].offset if partition in known else None
                end = ends.get(partition)
                lag = None if at is None or end is None else max(end - at, 0)
                yield PartitionState(task, partition, None, at, 0, lag, end)

    def backlogs(
        self, ends: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[TaskId, TopicPartition, int]]:
        """Iterate over tasks and partitions, with the number of offsets to process.

        An unknown lag counts as none: a partition that was never fetched would keep an app unready.
        Callable from any thread: the method reads only numbers, because records move on the loop
        meanwhile.
        """
        for task in tuple(self.metrics.tasks.values()):
            for partition, queue in task.group.queues.items():
                yield task.id, partition, queue.buffered + (queue.lag_to(ends.get(partition)) or 0)
        for place in self._pending(ends):
            yield place.task_id, place.partition, place.lag or 0

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions of all tasks that run here or are about to."""
        here = [task.group.queues for task in tuple(self.metrics.tasks.values())]
        return frozenset(chain(*here, *self.member.status().tasks.values()))
