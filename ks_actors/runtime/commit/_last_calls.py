"""The last calls of an app that closes.

Tasks begin no more long calls, and the app closes when the long calls in flight have ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from actors import ActorsError
from ks_actors._errors import KsActorsError
from ks_actors.lifecycle import CALLS, component_log
from ks_actors.runtime import messages as m

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from actors import Ref
    from ks_actors.lifecycle import Closing
    from ks_actors.records import TaskId
    from ks_actors.task import Task

# Calls longer than this (s) no longer begin; the last commit waits for shorter calls.
_LONG_S: Final = 0.5
_log = component_log(__name__)


@final
class LastCalls:
    """Hold back tasks in subtopologies with long calls.

    A task is also held back while its subtopology has calls in flight that a commit has left out,
    or if the task was added after this object was made. Tasks without calls, and tasks with short
    calls, go on.
    """

    def __init__(self, tasks: Iterable[Task], draining: Collection[TaskId]) -> None:
        known = tuple(tasks)
        self._known: frozenset[TaskId] = frozenset(task.id for task in known)
        self._slow: set[int] = set()
        self._draining = draining
        for task in known:
            self.note(task)

    def holds(self, task: Task) -> bool:
        """Return whether a task with calls must be given nothing new."""
        part = task.id.subtopology
        return (
            part in self._slow
            or task.id not in self._known
            or any(other.subtopology == part for other in self._draining)
        )

    def note(self, task: Task) -> None:
        """Note how long a task has taken to finish its work in hand."""
        if task.draining.took > _LONG_S:
            self._slow.add(task.id.subtopology)


async def let_calls_end(
    tasks: Mapping[TaskId, Task], committer: Ref[m.CommitterMessage], closing: Closing
) -> None:
    """Wait until long calls in flight have ended and are committed, while other tasks go on.

    Waits as long as a closing app may.
    """
    if not any(task.draining.calls and not task.drained for task in tasks.values()):
        return
    if closing.seconds <= 0:
        _log.info("the app closes although calls in flight have not ended: it has no time to wait")
        return
    try:
        async with closing.timeout_at(step=CALLS):
            await committer.ask(
                m.Commit, "calls in flight end before the app closes", closing=True, calm=True
            ).within(closing.seconds)
    except (TimeoutError, ActorsError, KsActorsError) as error:
        # The last commit reports its own failure.
        _log.info("the app closes although calls in flight have not ended: %s", error)
