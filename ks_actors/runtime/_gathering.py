"""When a commit that is due waits for tasks that have just begun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors._task_id import TaskId
    from ks_actors.runtime._task import Task

GATHERING_S: Final = 0.25
"""For how long at most: some partitions may have no records."""
LOOK_AGAIN_S: Final = 0.02


@final
class Gathering:
    """Have the first commit of tasks that begin together hold something of each.

    Tasks are handed over one after the other, and fetched for one after the other. A commit that comes due in between would hold the first one's
    records alone, and all others would wait for it, and for the next one: behind an outage, where each answer takes its time, twice as long.
    """

    def __init__(self, tasks: Mapping[TaskId, Task]) -> None:
        self._tasks: Mapping[TaskId, Task] = tasks
        self._begun: WeakSet[Task] = WeakSet()
        self._since: float | None = None

    def waits(self, now: float) -> bool:
        """Return whether a commit that is due at `now` (seconds) had better wait; it is to be asked again until it does not."""
        fresh = [task for task in self._tasks.values() if task not in self._begun]
        needed = [task.commit_needed for task in fresh]
        if any(needed) and not all(needed):
            self._since = now if self._since is None else self._since
            if now - self._since < GATHERING_S:
                return True
        if any(needed):
            self._begun.update(self._tasks.values())
        self._since = None
        return False
