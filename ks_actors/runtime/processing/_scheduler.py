"""The schedule: the task for a free worker."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ks_actors.records import TaskId
    from ks_actors.runtime.processing._shares import Shares
    from ks_actors.task import Task

PATIENCE_S: Final = 0.1
"""The longest time, in seconds, that busier tasks of the same priority may go first."""
STARVED_S: Final = 1.0
"""The longest time, in seconds, that tasks of a higher priority may go first."""
_SPARE: Final = 64


@final
class _Order:
    """Tasks by a number, the lowest first; outdated entries are skipped."""

    def __init__(self) -> None:
        self._numbers: dict[TaskId, float] = {}
        self._heap: list[tuple[float, int, TaskId]] = []
        self._order = count()

    def enter(self, task: TaskId, number: float) -> None:
        if self._numbers.get(task) == number:
            return
        self._numbers[task] = number
        # The counter keeps tasks with equal numbers in their order of arrival.
        heappush(self._heap, (number, next(self._order), task))
        if len(self._heap) > 2 * len(self._numbers) + _SPARE:
            # A sorted list is a heap. Outdated entries are dropped in bulk, which is cheaper than
            # finding each of them at its change.
            self._heap = sorted(
                entry for entry in self._heap if self._numbers.get(entry[2]) == entry[0]
            )

    def leave(self, task: TaskId) -> None:
        del self._numbers[task]

    def first(self) -> TaskId:
        while True:
            number, _, task = self._heap[0]
            if self._numbers.get(task) == number:
                return task
            heappop(self._heap)


@final
class _Level:
    """The ready tasks of one priority, by waiting time and by buffered records."""

    def __init__(self) -> None:
        self.waiting: dict[TaskId, tuple[Task, float]] = {}
        # By time and by count, from the first choice on: a turn that takes all tasks needs none.
        self._orders: tuple[_Order, _Order] | None = None

    def enter(self, task: Task, since: float) -> None:
        new = task.id not in self.waiting
        if new:
            self.waiting[task.id] = task, since
        if self._orders is not None:
            if new:
                self._orders[0].enter(task.id, since)
            self._orders[1].enter(task.id, -task.group.buffered)

    def leave(self, task: TaskId) -> float:
        if self._orders is not None:
            for order in self._orders:
                order.leave(task)
        return self.waiting.pop(task)[1]

    def oldest(self) -> tuple[Task, float]:
        return self.waiting[self._ordered()[0].first()]

    def best(self, now: float) -> tuple[Task, float]:
        oldest = self.oldest()
        if now - oldest[1] >= PATIENCE_S:
            return oldest
        return self.waiting[self._ordered()[1].first()]

    def all(self, now: float) -> list[tuple[Task, float]]:
        """Return all tasks in the order of `best`."""

        def place(ready: tuple[Task, float]) -> tuple[bool, float]:
            task, since = ready
            late = now - since >= PATIENCE_S
            return not late, since if late else -task.group.buffered

        return sorted(self.waiting.values(), key=place)

    def _ordered(self) -> tuple[_Order, _Order]:
        if self._orders is None:
            self._orders = _Order(), _Order()
            for task, since in self.waiting.values():
                self._orders[0].enter(task.id, since)
                self._orders[1].enter(task.id, -task.group.buffered)
        return self._orders


@final
class Schedule:
    """The ready tasks: pick the highest `priority` first, then the most buffered records.

    The task with the most buffered records makes the largest batches. But a task with few must not
    wait until all others have none. Among equal priorities, the task that has waited longest comes
    first once it has waited PATIENCE_S. A task of lower priority comes first after STARVED_S, in
    every second turn at most. So each task is picked after STARVED_S and two turns for each task
    that has waited longer.

    Times are in seconds, of a clock that never goes back. The priority is read when a task becomes
    ready. With `shares`, the query whose turn it is comes first among equal priorities.
    """

    def __init__(
        self, priority: Callable[[TaskId], int] | None, shares: Shares | None = None
    ) -> None:
        self._priority = priority
        self._shares = shares
        # The ready tasks by priority and query.
        self._levels: dict[tuple[int, str], _Level] = {}
        self.waiting: dict[TaskId, tuple[int, str]] = {}
        """All ready tasks, each with its level."""
        self._made_up: bool = False

    def __contains__(self, task: TaskId) -> bool:
        return task in self.waiting

    def __iter__(self) -> Iterator[TaskId]:
        return iter(self.waiting)

    def enter(self, task: Task, since: float) -> None:
        """Add a task that has been ready since `since`, or update its buffered records."""
        level = self.waiting.get(task.id)
        if level is None:
            level = self.waiting[task.id] = (
                0 if self._priority is None else self._priority(task.id),
                "" if self._shares is None else self._shares.query(task.id),
            )
        if level not in self._levels:
            self._levels[level] = _Level()
            if self._shares is not None:
                self._shares.begin(level[1])
        self._levels[level].enter(task, since)

    def leave(self, task: TaskId) -> float | None:
        """Remove a task that is not ready any more.

        Return the time since when it was ready, or None when it was not in the schedule.
        """
        level = self.waiting.pop(task, None)
        if level is None:
            return None
        since = self._levels[level].leave(task)
        if not self._levels[level].waiting:
            del self._levels[level]
        return since

    def __len__(self) -> int:
        return len(self.waiting)

    def pick(
        self, now: float, fits: Callable[[Task], bool] | None = None
    ) -> tuple[Task, float] | None:
        """Remove and return the next task, with the time since when it was ready.

        Return None when no task is ready, or the next task does not fit.
        """
        if not self.waiting:
            return None
        first = self._top()
        top = self._levels[first]
        # Queries of the same priority get their turns by their shares.
        task, since = min(
            (
                level.oldest()
                for place, level in self._levels.items()
                if place == first or place[0] < first[0]
            ),
            key=_since,
        )
        made_up = not self._made_up and now - since >= STARVED_S and task.id not in top.waiting
        if not made_up:
            task, since = top.best(now)
        if fits is not None and not fits(task):
            return None
        self._made_up = made_up
        self.leave(task.id)
        return task, since

    def take_all(self, now: float, most: float, work_ms: float) -> Sequence[tuple[Task, float]]:
        """Remove and return all tasks in order if they are of one level and `most` at the most.

        Their work must fit into `work_ms`, and none may need a thread. Otherwise return none.
        """
        if len(self._levels) != 1 or len(self.waiting) > most:
            return ()
        ((query, level),) = self._levels.items()
        for task, _ in level.waiting.values():
            work_ms -= task.work_ms
            if work_ms < 0 or task.blocking:
                return ()
        if self._shares is not None:
            self._shares.first((query[1],))
        self.waiting.clear()
        self._levels.clear()
        self._made_up = False
        return level.all(now)

    def _top(self) -> tuple[int, str]:
        top = max(self._levels)
        if self._shares is None:
            return top
        return top[0], self._shares.first(
            query for priority, query in self._levels if priority == top[0]
        )


def _since(waits: tuple[Task, float]) -> float:
    return waits[1]
