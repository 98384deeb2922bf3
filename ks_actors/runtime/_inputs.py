"""The partitions of the tasks that are here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

from ks_actors.runtime._buffers import InputBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ks_actors._task_id import TaskId
    from ks_actors.log._types import Fetched, TopicPartition
    from ks_actors.runtime._offsets import Position
    from ks_actors.runtime._task import Task


@final
class Inputs:
    """Hand what is fetched to the tasks, count it, and know where each partition was committed last.

    While a thread is at a task's queues nothing is put into them: it is kept beside them, and counts as what they hold.
    """

    def __init__(self, records: int, size: int) -> None:
        self.budget: InputBudget = InputBudget(records, size)
        self.committed: dict[TopicPartition, Position] = {}
        self._owners: dict[TopicPartition, Task] = {}
        self._stale_below: dict[TopicPartition, int] = {}
        self._held: dict[TaskId, list[Callable[[], object]]] = {}

    def begin(self, task: Task, positions: Mapping[TopicPartition, Position]) -> None:
        """Take in the partitions of a new task."""
        for partition in positions:
            self._owners[partition] = task
            self._stale_below.pop(partition, None)
        self.committed.update(positions)

    def end(self, task: Task) -> None:
        """Forget the partitions of a task that is given up."""
        self._drop(task)
        for partition in task.group.queues:
            del self._owners[partition]
            self.committed.pop(partition, None)

    def rewind(self, task: Task, epoch: int) -> dict[TopicPartition, Position]:
        """Forget what was fetched for a task before `epoch`; return where it goes on."""
        self._drop(task)
        self._stale_below.update(dict.fromkeys(task.group.queues, epoch))
        return {partition: self.committed[partition] for partition in task.group.queues}

    def _drop(self, task: Task) -> None:
        self._held.pop(task.id, None)
        self.budget.forget(task.group.queues)

    def owner(self, partition: TopicPartition, epoch: int) -> Task | None:
        """Return the task that reads a partition; None when what was fetched in `epoch` is not wanted any more."""
        return None if epoch < self._stale_below.get(partition, 0) else self._owners.get(partition)

    def add(self, task: Task, fetched: Fetched, *, in_thread: bool) -> bool:
        """Take in what was fetched; return whether the partition is not to be fetched any more."""
        self._do(task, partial(task.add, fetched.partition, fetched.batch, fetched.next_offset, fetched.end_offset), in_thread=in_thread)
        return self.budget.added(fetched.partition, fetched.batch)

    def move(self, task: Task, partition: TopicPartition, position: int, begin: int, *, in_thread: bool) -> None:
        """Have a partition go on at `position`: the log begins at `begin` now, or its end has gone back."""
        committed = self.committed[partition]
        if committed.offset < begin:
            # What lies in between is not in the log: nobody can go back to it.
            self.committed[partition] = committed._replace(offset=position)
        self._do(task, partial(task.move, partition, position), in_thread=in_thread)

    def end_known(self, task: Task, partition: TopicPartition, end: int, *, in_thread: bool) -> None:
        """Note how far the log goes: behind a `move` that is kept, too."""
        self._do(task, partial(task.group.queues[partition].note_end, end), in_thread=in_thread)

    def _do(self, task: Task, work: Callable[[], object], *, in_thread: bool) -> None:
        if in_thread:
            self._held.setdefault(task.id, []).append(work)
        else:
            work()

    def taken_back(self, task: Task) -> tuple[TopicPartition, ...]:
        """Note that nobody is at a task any more; return the partitions that may be fetched again, of all tasks."""
        for work in self._held.pop(task.id, ()):
            work()
        return self.budget.consumed((partition, queue.buffered) for partition, queue in task.group.queues.items())
