"""The state of each partition of an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actors import Ref
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.commit import Committer
    from ks_actors.runtime.input import Poller
    from ks_actors.runtime.instance import Workers
    from ks_actors.runtime.messages import WorkerMessage
    from ks_actors.runtime.processing import TaskManager
    from ks_actors.runtime.shared import Metrics
    from ks_actors.runtime.stores import Restorer, StateManager
    from ks_actors.task import Task
    from ks_actors.task.calls import Call


class PartitionState(NamedTuple):
    """The state of a partition.

    `position` is the offset to process next, None while unknown. `buffered` counts records in
    memory, `lag` the offsets in the log behind them, and `end` is the end of the log. `task` is
    the running task; None while its stores are being opened or restored. `absent` is the time since
    when a thread has had the task.
    """

    task_id: TaskId
    partition: TopicPartition
    task: Task | None
    position: int | None
    buffered: int
    lag: int | None
    end: int | None
    absent: float | None = None


@final
class PartitionStates:
    """Read the parts of an instance from outside, on the loop, without messages or changes."""

    def __init__(self, metrics: Metrics, workers: Workers) -> None:
        self.metrics: Metrics = metrics
        self.workers: Workers = workers
        self.manager: TaskManager | None = None
        self.poller: Poller | None = None
        self.committer: Committer | None = None
        self.state_manager: StateManager | None = None
        self.restorer: Restorer | None = None

    @property
    def member_id(self) -> str | None:
        """The id of this instance in its group; None before it has joined."""
        return None if self.poller is None else self.poller._membership.group.member_id

    @property
    def paused(self) -> bool:
        """Whether processing is paused."""
        return self.manager is not None and self.manager._paused

    @property
    def holders(self) -> list[Ref[WorkerMessage]]:
        """The workers with tasks in hand.

        Includes dead workers that the task manager does not know of yet.
        """
        return [] if self.manager is None else list(self.manager._leased.values())

    def places(self, ends: Mapping[TopicPartition, int]) -> Iterator[PartitionState]:
        """Iterate over the partitions of all assigned tasks.

        `ends` are the end offsets looked up where no fetch has returned them.
        """
        tasks = self.metrics.tasks
        for task in tuple(tasks.values()):
            for partition, queue in task.group.queues.items():
                absent = task.thread_guard.since
                position = queue._behind if absent is not None else queue.position
                lag = _further(queue.lag, ends.get(partition), queue._behind)
                end = None if lag is None else queue._behind + lag
                yield PartitionState(
                    task.id, partition, task, position, queue.buffered, lag, end, absent
                )
        yield from self._pending(ends)

    def _pending(self, ends: Mapping[TopicPartition, int]) -> Iterator[PartitionState]:
        """Iterate over the partitions of tasks whose stores are being opened or restored."""
        poller, state_manager, tasks = self.poller, self.state_manager, self.metrics.tasks
        if poller is None or state_manager is None:
            return
        for task_id in tuple(poller._pending):
            if task_id in tasks:
                continue
            entry = state_manager._entries.get(task_id)
            known = {} if entry is None or entry.order is None else entry.order.positions
            for partition in poller._tasks.get(task_id, ()):
                at = known[partition].offset if partition in known else None
                end = ends.get(partition)
                lag = None if at is None else _further(None, end, at)
                yield PartitionState(task_id, partition, None, at, 0, lag, end)

    def backlogs(
        self, ends: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[TaskId, TopicPartition, int]]:
        """Iterate over tasks and partitions, with the number of offsets to process.

        An unknown lag counts as none: a partition that was never fetched would keep an app unready.
        Callable from any thread: it reads numbers alone, as records move on the loop meanwhile.
        """
        tasks = self.metrics.tasks
        for task in tuple(tasks.values()):
            for partition, queue in task.group.queues.items():
                lag = _further(queue.lag, ends.get(partition), queue._behind)
                yield task.id, partition, queue.buffered + (lag or 0)
        for place in self._pending(ends):
            yield place.task_id, place.partition, place.lag or 0

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions of all tasks that run here or are about to."""
        here = {
            partition
            for task in tuple(self.metrics.tasks.values())
            for partition in task.group.queues
        }
        return frozenset(here if self.poller is None else here.union(*self.poller._tasks.values()))

    def calls(self) -> Iterator[tuple[Task, str, Call]]:
        """Iterate over the longest-running asynchronous call of each task and node."""
        for task in tuple(self.metrics.tasks.values()):
            for node in () if task._plan is None else task._plan.asynchronous:
                if (call := node.oldest) is not None:
                    yield task, node.node, call


def _further(lag: int | None, end: int | None, behind: int) -> int | None:
    """Return the lag from the fetches and from a lookup of the end offset."""
    if end is None:
        return lag
    return max(lag or 0, end - behind, 0)


def worker_of(workers: Workers, ref: Any) -> str:
    """Return the name of a worker."""
    return workers.name_of(ref) or "a worker that is stopping"
