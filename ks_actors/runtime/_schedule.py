"""Which task a free worker gets."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ks_actors._task_id import TaskId
    from ks_actors.runtime._task import Task

PATIENCE_S: Final = 0.1
"""How long a task may be passed over for others of its priority that have more to do, in seconds."""
STARVED_S: Final = 1.0
"""How long a task may be passed over for others of a higher priority, in seconds."""
_SPARE: Final = 64


@final
class _Level:
    """The tasks of one priority that are ready, by how long they have waited, and by how much they have to do."""

    def __init__(self) -> None:
        self.waiting: dict[TaskId, tuple[Task, float]] = {}
        self._counts: dict[TaskId, int] = {}
        # Entries that do not tell a task's count any more are passed over.
        self._heap: list[tuple[int, int, TaskId]] = []
        self._order = count()

    def enter(self, task: Task, now: float) -> None:
        buffered = task.group.buffered
        if task.id not in self.waiting:
            self.waiting[task.id] = task, now
        elif self._counts[task.id] == buffered:
            return
        self._counts[task.id] = buffered
        heappush(self._heap, (-buffered, next(self._order), task.id))
        if len(self._heap) > 2 * len(self.waiting) + _SPARE:
            self._heap = [(-number, next(self._order), each) for each, number in self._counts.items()]
            heapify(self._heap)

    def leave(self, task: TaskId) -> None:
        del self.waiting[task], self._counts[task]

    def best(self, now: float) -> Task:
        task, since = next(iter(self.waiting.values()))
        if now - since >= PATIENCE_S:
            return task
        while True:
            number, _, task_id = self._heap[0]
            if self._counts.get(task_id) == -number:
                return self.waiting[task_id][0]
            heappop(self._heap)


@final
class Schedule:
    """The tasks that are ready: pick the one of the highest `priority`, of equal ones that with the most to do.

    The one with the most buffered records makes the largest batches. But a task that has few must not wait until all others have none: of equal
    priority the one that has waited for longest comes first when that is PATIENCE_S or more. Of lower priority it comes when it has waited for
    STARVED_S, at each second turn at most: after so long and two turns for each task that waits for longer it is picked, whatever the others have.

    Times are in seconds, of a clock that never goes back. The priority is asked for when a task becomes ready.
    """

    def __init__(self, priority: Callable[[TaskId], int] | None) -> None:
        self._priority = priority
        self._levels: dict[int, _Level] = {}
        # All, the one that has waited for longest first, each with its priority.
        self._waiting: dict[TaskId, int] = {}
        self._made_up: bool = False

    def __contains__(self, task: TaskId) -> bool:
        return task in self._waiting

    def __iter__(self) -> Iterator[TaskId]:
        return iter(self._waiting)

    def enter(self, task: Task, now: float) -> None:
        """Take in a task that has become ready at `now`; of one that is in already take note how much it has to do."""
        level = self._waiting.get(task.id)
        if level is None:
            level = self._waiting[task.id] = 0 if self._priority is None else self._priority(task.id)
        if level not in self._levels:
            self._levels[level] = _Level()
        self._levels[level].enter(task, now)

    def leave(self, task: TaskId) -> None:
        """Leave a task out that is not ready any more, if it is in."""
        level = self._waiting.pop(task, None)
        if level is not None:
            self._levels[level].leave(task)
            if not self._levels[level].waiting:
                del self._levels[level]

    def pick(self, now: float) -> Task | None:
        """Return the next task, which leaves; None when none is ready."""
        if not self._waiting:
            return None
        top = self._levels[max(self._levels)]
        first, level = next(iter(self._waiting.items()))
        task, since = self._levels[level].waiting[first]
        self._made_up = not self._made_up and now - since >= STARVED_S and first not in top.waiting
        if not self._made_up:
            task = top.best(now)
        self.leave(task.id)
        return task
