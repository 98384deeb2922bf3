"""Tasks that begin no more calls that take long: the app closes when those in flight have ended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

from actors import ActorsError
from ks_actors._errors import KsActorsError
from ks_actors.lifecycle import CALLS
from ks_actors.runtime import messages as m

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from actors import Ref
    from ks_actors.lifecycle import Closing
    from ks_actors.records import TaskId
    from ks_actors.runtime.watch import PartitionStates
    from ks_actors.task import Task

# Calls that take longer are not begun any more; the last commit waits for those that take less time (s).
_LONG_S: Final = 0.5
_log = logging.getLogger("ks_actors")


@final
class LastCalls:
    """Know which tasks are given nothing new, for their calls, or those of others of the same subtopology, take long.

    Held are also those of a subtopology in which calls are in flight that a commit has left out, as long as these are, and all that have calls and
    have come since. Tasks without calls, and those of which calls end soon, go on.
    """

    def __init__(self, tasks: Iterable[Task], draining: Collection[TaskId]) -> None:
        known = tuple(tasks)
        self._known: frozenset[TaskId] = frozenset(task.id for task in known)
        self._slow: set[int] = set()
        self._draining = draining
        for task in known:
            self.note(task)

    def holds(self, task: Task) -> bool:
        """Return whether a task with calls is to be given nothing new."""
        part = task.id.subtopology
        return part in self._slow or task.id not in self._known or any(other.subtopology == part for other in self._draining)

    def note(self, task: Task) -> None:
        """Note how long a task has taken to come to rest."""
        if task.draining.took > _LONG_S:
            self._slow.add(task.id.subtopology)


async def let_calls_end(standing: PartitionStates, closing: Closing) -> None:
    """Wait until calls in flight that take long have ended and are committed, while other tasks go on: for as long as an app that closes may."""
    committer, tasks = standing.committer, standing.metrics.tasks
    if committer is None or not any(task.draining.calls and task.in_flight for task in tasks.values()):
        return
    try:
        async with closing.timeout_at(step=CALLS):
            ref: Ref[m.CommitterMessage] = committer.ctx.self_ref
            await ref.ask(m.Commit, "calls in flight end before the app closes", closing=True, calm=True).within(closing.seconds)
    except (TimeoutError, ActorsError, KsActorsError) as error:
        # The last commit says so if it cannot be done, and why.
        _log.info("the app closes, though calls in flight have not ended: %s", error)
