"""Which task a free worker gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors._task_id import TaskId
    from ks_actors.runtime._task import Task

PATIENCE_MS: Final = 100
"""How long a task may be passed over for others that have more to do."""


@final
class Schedule:
    """Pick the task of the highest `priority`; of equal ones that which has waited for longest, if that is too long, else that with the most to do.

    The one with the most buffered records makes the largest batches. But a task that has few must not wait until all others have none.
    """

    def __init__(self, priority: Callable[[TaskId], int] | None) -> None:
        self._priority = priority
        self._since: dict[TaskId, int] = {}

    def pick(self, fit: Iterable[tuple[Task, bool]], now_ms: int) -> tuple[Task, bool] | None:
        """Return one of these that have something to do, which are all that have; None when there is none."""
        best: tuple[Task, bool] | None = None
        most: tuple[int, int, int] | None = None
        since: dict[TaskId, int] = {}
        for each in fit:
            task = each[0]
            began = since[task.id] = self._since.get(task.id, now_ms)
            waited = now_ms - began
            rank = (0 if self._priority is None else self._priority(task.id), waited if waited >= PATIENCE_MS else 0, task.group.buffered)
            if most is None or rank > most:
                best, most = each, rank
        if best is not None:
            del since[best[0].id]
        self._since = since
        return best
