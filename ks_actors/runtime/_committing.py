"""Where a commit is."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def reason_to_commit(task: Task, tasks: Iterable[Task], limit: int) -> str | None:
    """Return why to commit now that something was done in a task, if there is a reason; the stores of all may hold `limit` bytes uncommitted."""
    if task.commit_requested:
        return f"task {task.id} requested it"
    if limit >= 0 and sum(each.stores.uncommitted_bytes for each in tasks if each.stores is not None) >= limit:
        return "statestore_uncommitted_max_bytes is reached"
    return None
