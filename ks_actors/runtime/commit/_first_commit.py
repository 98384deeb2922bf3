"""The delay of a due commit for tasks that have just begun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ks_actors.records import TaskId
    from ks_actors.task import Task

LONGEST_DELAY_S: Final = 0.25
"""The longest delay: some partitions may have no records."""
CHECK_AGAIN_S: Final = 0.02


@final
class FirstCommit:
    """Make the first commit of tasks that begin together include all of them.

    Tasks are handed over and fetched one after the other. A commit that comes due in between would
    include only the first task's records. All others would wait for it and for the next one: twice
    as long after an outage, when each answer takes its time. Tasks of another subtopology are not
    waited for: their input may be the very output that this commit makes visible. `touched` returns
    the tasks that may have something to commit. Unless one of them has just begun, the others are
    not scanned.
    """

    def __init__(self, tasks: Mapping[TaskId, Task], touched: Callable[[], Iterable[Task]]) -> None:
        self._tasks: Mapping[TaskId, Task] = tasks
        self._touched = touched
        self._begun: WeakSet[Task] = WeakSet()
        self._since: float | None = None

    def waits(self, now: float) -> bool:
        """Return whether a commit that is due at `now` (seconds) should wait.

        Ask again until it should not.
        """
        if not any(task.commit_needed and task not in self._begun for task in self._touched()):
            self._since = None
            return False
        fresh: dict[int, list[Task]] = {}
        for task_id, task in self._tasks.items():
            if task not in self._begun:
                fresh.setdefault(task_id.subtopology, []).append(task)
        ready = [tasks for tasks in fresh.values() if any(task.commit_needed for task in tasks)]
        if not all(task.commit_needed for tasks in ready for task in tasks):
            self._since = now if self._since is None else self._since
            if now - self._since < LONGEST_DELAY_S:
                return True
        for tasks in ready:
            self._begun.update(tasks)
        self._since = None
        return False

    def forget(self) -> None:
        """Note that nothing is due for a while: the next wait starts from zero."""
        self._since = None
