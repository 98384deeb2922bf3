"""The due times of many tasks."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from ks_actors.records import TaskId

_SPARE: Final = 64


@final
class DueTimes:
    """One time per task, in ms of any clock; finds the earliest without a scan of all tasks."""

    def __init__(self) -> None:
        self._at: dict[TaskId, float] = {}
        # Outdated entries stay in the heap and are skipped.
        self._heap: list[tuple[float, int, TaskId]] = []
        self._order = count()

    def set(self, task: TaskId, at: float | None) -> None:
        """Set the time of a task; None removes it."""
        if at is None:
            self._at.pop(task, None)
        elif self._at.get(task) != at:
            self._at[task] = at
            heappush(self._heap, (at, next(self._order), task))
            if len(self._heap) > 2 * len(self._at) + _SPARE:
                self._heap = [(time, next(self._order), each) for each, time in self._at.items()]
                heapify(self._heap)

    @property
    def tasks(self) -> list[TaskId]:
        """The tasks that have a time."""
        return list(self._at)

    @property
    def next(self) -> float | None:
        """The earliest time of all; None when there is none."""
        heap = self._heap
        while heap and self._at.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: float) -> list[TaskId]:
        """Return the tasks that are due, earliest first, and remove their times."""
        found: list[TaskId] = []
        while (at := self.next) is not None and at <= now:
            task = heappop(self._heap)[2]
            del self._at[task]
            found.append(task)
        return found
