"""Where a commit is."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors._errors import StreamsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ks_actors._task_id import TaskId
    from ks_actors.runtime._task import Task

from enum import Enum

from ks_actors.runtime._lifecycle import Transitions


class Phase(Enum):
    """Where a commit is.

    IDLE ──COMMIT──▶ PAUSING ──all PAUSED──▶ FREEZING ──tokens──▶ ENDING ──acknowledged──▶ IDLE
                        │                       │                    │
                        └──────── failed ───────┴────── failed ──────┴──▶ IDLE (rolled back)

    Nothing to commit leads from FREEZING to IDLE as well.
    """

    IDLE = "idle"
    PAUSING = "pausing"
    FREEZING = "freezing"
    ENDING = "ending"


COMMITTING = Transitions(
    {
        Phase.IDLE: {Phase.PAUSING},
        Phase.PAUSING: {Phase.FREEZING, Phase.IDLE},
        Phase.FREEZING: {Phase.ENDING, Phase.IDLE},
        Phase.ENDING: {Phase.IDLE},
    }
)


class TasksBroken(StreamsError):
    """A worker died in the middle of a task: nothing can be committed before all is rolled back."""

    @classmethod
    def of(cls, tasks: Iterable[TaskId]) -> TasksBroken:
        """Return the error about these tasks."""
        return cls(f"what failed in task {', '.join(map(str, tasks))} has to be rolled back before anything can be committed")


@final
class Uncommitted:
    """What the stores of all tasks hold uncommitted, which is to stay below `limit` bytes (-1: whatever they hold).

    How much came with the last slice of work tells what the next one may bring: a commit is asked for before the limit is crossed.
    """

    def __init__(self, limit: int) -> None:
        self._limit: int = limit
        self._last: int = 0
        self._known: dict[TaskId, int] = {}

    def reason_to_commit(self, task: Task, tasks: Iterable[Task]) -> str | None:
        """Return why to commit now that something was done in a task, if there is a reason."""
        if self._limit >= 0:
            known = self._known  # while a thread is at a task it stays what it was
            self._known = {
                each.id: known.get(each.id, 0) if each.absence.since is not None else each.stores.uncommitted_bytes
                for each in tasks
                if each.stores is not None
            }
            total = sum(self._known.values())
            growth, self._last = total - self._last, total
            if total > 0 and total + max(0, growth) >= self._limit:
                return "statestore_uncommitted_max_bytes is about to be reached"
        return f"task {task.id} requested it" if task.commit_requested else None
