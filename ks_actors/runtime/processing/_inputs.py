"""The partitions of the tasks that are here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

from ks_actors.runtime.processing._input_budget import InputBudget
from ks_actors.task import decode_position

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from ks_actors.log import Fetched, OffsetAndMetadata
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.messages import EndsKnown, PositionReset
    from ks_actors.runtime.processing._shares import Shares
    from ks_actors.task import Position, Task


@final
class Inputs:
    """Pass fetched records to the tasks, count them, and track committed positions.

    While a thread has a task in `leased`, the queues of that task are not touched. New records for
    the task are deferred, and count as buffered. The partitions of tasks that a pause `holds` are
    stopped, or after their first fetch if they are new.
    """

    def __init__(
        self,
        records: int,
        size: int,
        leased: Container[TaskId],
        shares: Shares | None = None,
        *,
        holds: Callable[[TaskId], bool] = lambda _: False,
    ) -> None:
        self.budget: InputBudget = InputBudget(records, size)
        self._shares = shares
        self.committed: dict[TopicPartition, Position] = {}
        self._leased = leased
        self._holds = holds
        # The partitions that were stopped for a pause.
        self._held: set[TopicPartition] = set()
        self._owners: dict[TopicPartition, Task] = {}
        self._stale_below: dict[TopicPartition, int] = {}
        self._moved: dict[TopicPartition, list[PositionReset]] = {}
        self._moving: set[TopicPartition] = set()
        self._deferred: dict[TaskId, list[Callable[[], object]]] = {}

    def begin(self, task: Task, positions: Mapping[TopicPartition, Position]) -> None:
        """Add the partitions of a new task."""
        for partition in positions:
            self._owners[partition] = task
            if self._shares is not None:
                query = self._shares.query(task.id)
                self.budget.divide(partition, query, self._shares.fraction(query))
            self._stale_below.pop(partition, None)
            self._moved.pop(partition, None)
        self.committed.update(positions)

    def end(self, task: Task) -> None:
        """Forget the partitions of a task that is given up."""
        self._drop(task)
        for partition in task.group.queues:
            del self._owners[partition]
            self.committed.pop(partition, None)
            self._moved.pop(partition, None)

    def rewind(self, task: Task, epoch: int) -> dict[TopicPartition, Position]:
        """Drop the records fetched for a task before `epoch`; return its committed positions."""
        self._drop(task)
        self._stale_below.update(dict.fromkeys(task.group.queues, epoch))
        return {partition: self.committed[partition] for partition in task.group.queues}

    def _drop(self, task: Task) -> None:
        self._deferred.pop(task.id, None)
        self._moving.difference_update(task.group.queues)
        self._held.difference_update(task.group.queues)
        self.budget.forget(task.group.queues)

    def _owner(self, partition: TopicPartition, epoch: int) -> Task | None:
        """Return the task that reads a partition; None when records of `epoch` are stale."""
        return None if epoch < self._stale_below.get(partition, 0) else self._owners.get(partition)

    def add(
        self, fetched: Iterable[Fetched], epoch: int
    ) -> tuple[Iterable[TaskId], list[TopicPartition], int]:
        """Add fetched records to the tasks.

        Return the tasks that got some, the partitions to stop fetching, and the number of stale
        fetches.
        """
        changed: dict[TaskId, None] = {}
        high: list[TopicPartition] = []
        stale = 0
        for one in fetched:
            task = self._owner(one.partition, epoch)
            if task is None:
                stale += 1
                continue
            changed[task.id] = None
            if task.blocking:
                self._do(
                    task,
                    partial(task.add, one.partition, one.batch, one.next_offset, one.end_offset),
                )
            else:
                task.add(one.partition, one.batch, one.next_offset, one.end_offset)
            stop = self.budget.added(one.partition, one.batch)
            if self._holds(task.id):
                self._held.add(one.partition)
                stop = True
            if stop:
                high.append(one.partition)
        return changed, high, stale

    def held(self) -> tuple[tuple[TopicPartition, ...], tuple[TopicPartition, ...]]:
        """Return the partitions to stop after a change of pauses, and those to fetch again."""
        held = {one for one, task in self._owners.items() if self._holds(task.id)}
        stop, again = held - self._held, self._held - held
        self._held = held
        return tuple(stop), tuple(one for one in again if not self.budget.stopped(one))

    def move(self, reset: PositionReset) -> Task | None:
        """Move a partition to a new position, as its old position is not in the log.

        Return the task that reads it, if it is here.
        """
        partition = reset.partition
        if (task := self._owner(partition, reset.epoch)) is not None:
            self.committed[partition] = _moved(self.committed[partition], reset)
            self._moved.setdefault(partition, []).append(reset)
            if self._do(task, partial(task.move, partition, reset.position)):
                self._moving.add(partition)
        return task

    def begin_commit(self) -> None:
        """Note that the positions to commit are taken: from now on partitions move ahead of them.

        So do partitions whose move is deferred.
        """
        self._moved = {one: by for one, by in self._moved.items() if one in self._moving}

    def note_committed(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        """Note committed positions; return whether one of them is not in the log any more.

        The partition of such a position has moved meanwhile, and keeps its new position.
        """
        left = False
        for partition, committed in positions.items():
            if partition in self.committed:
                position = decode_position(committed)
                for reset in self._moved.get(partition, ()):
                    position = _moved(position, reset)
                self.committed[partition] = position
                left = left or position.offset != committed.offset
        return left

    def ends_known(self, message: EndsKnown) -> Iterable[TaskId]:
        """Note end offsets, in order; return the tasks concerned."""
        changed: dict[TaskId, None] = {}
        for partition, end in message.ends.items():
            if (task := self._owner(partition, message.epoch)) is not None:
                changed[task.id] = None
                # Defer the work in order: a deferred `move` comes first.
                self._do(task, partial(task.note_end, partition, end, asked=message.asked))
        return changed

    def _do(self, task: Task, work: Callable[[], object]) -> bool:
        """Do work with a task, now or when its thread is done; return whether it is deferred."""
        if deferred := task.id in self._leased and task.blocking:
            self._deferred.setdefault(task.id, []).append(work)
        else:
            work()
        return deferred

    def taken_back(self, tasks: Iterable[Task]) -> tuple[TopicPartition, ...]:
        """Apply deferred work of tasks that have returned from workers.

        Return all partitions that may be fetched again.
        """
        for task in tasks:
            for work in self._deferred.pop(task.id, ()):
                work()
            if self._moving:
                self._moving.difference_update(task.group.queues)
        low = self.budget.consumed(
            (partition, queue.buffered)
            for task in tasks
            for partition, queue in task.group.queues.items()
        )
        return tuple(one for one in low if one not in self._held) if self._held else low


def _moved(committed: Position, reset: PositionReset) -> Position:
    """Return the position for a rewind after a reset that the commit did not include.

    No rewind can go to offsets before the log's first record. After the new position the log has,
    or will have, other records than those of the commit.
    """
    within = reset.begin <= committed.offset <= reset.position
    return committed if within else committed._replace(offset=reset.position)
