"""Where a commit is."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, final

from ks_actors._errors import StreamsError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ks_actors.records import TaskId
    from ks_actors.task import Task

from enum import Enum

from ks_actors.lifecycle import Transitions


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
class Uncertain(Exception):
    """The end of a transaction failed in a way that leaves open whether it has happened; `cause` tells more."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause: Exception = cause


@final
class Uncommitted:
    """What the stores of all tasks hold uncommitted, which is to stay below `limit` bytes (-1: whatever they hold).

    The most that came with a slice of work at a task since the last commit tells what the next one may bring: a commit is `asked` for before the
    limit is crossed. Until that commit takes what there is, which one that is under way may keep it from, the stores are `full`: nothing more is to
    be put. What tasks hold that a commit has left out, as calls of theirs take long, no commit can take: they leave half of the limit to others.
    """

    def __init__(self, limit: int) -> None:
        self.asked: bool = False
        self.full: bool = False
        self._limit: int = limit
        self._bytes: dict[TaskId, int] = {}
        self._total: int = 0
        # Tasks of which a commit has not taken all at once from stores of the user's own: it may have gone by the next look.
        self._lasting: dict[TaskId, Task] = {}
        self._last: int = 0
        self._growth: int = 0
        # They are given nothing new until a commit takes them.
        self._draining: Sequence[Task] = ()

    def reason_to_commit(self, tasks: Collection[Task]) -> str | None:
        """Return why to ask for a commit now that something was done in tasks, if there is a reason and nobody has asked yet."""
        if self._limit >= 0:
            for each in list(self._lasting.values()):
                if not self._note(each):
                    del self._lasting[each.id]
            for task in tasks:
                self._note(task)
                self._growth, self._last = max(self._growth, self._total - self._last), self._total
            self.full = self._total > self._kept() and self._free <= self._growth
        if self.asked:
            return None
        if self.full:
            reason = "statestore_uncommitted_max_bytes is about to be reached"
        elif (asking := next((task for task in tasks if task.commit_requested and task.draining.since is None), None)) is not None:
            reason = f"task {asking.id} requested it"
        else:
            return None
        self.asked = True
        return reason

    @property
    def room(self) -> float:
        """How many tasks may be processed before the next look, if none of them brings more than one has brought since the last commit."""
        return self._free // self._growth if self._limit >= 0 and self._growth else inf

    @property
    def _free(self) -> int:
        """How many bytes more may be put."""
        return max(self._limit - self._total, self._limit // 2 - self._total + kept if (kept := self._kept()) else 0)

    def _kept(self) -> int:
        return sum(self._bytes.get(task.id, 0) for task in self._draining if task.draining.since is not None)

    def taken(self, tasks: Iterable[Task], left_out: Sequence[Task] | None = None) -> None:
        """Take note that a commit or a rollback has taken what these tasks had, but nothing of those `left_out`: the next is to be asked for anew."""
        self.asked = self.full = False
        self._draining = self._draining if left_out is None else left_out
        self._growth = 0
        if self._limit >= 0:
            self._lasting.update((task.id, task) for task in tasks if self._note(task))
        self._last = self._kept()

    def forget(self, task: TaskId) -> None:
        """Take note that a task has gone."""
        self._total -= self._bytes.pop(task, 0)
        self._lasting.pop(task, None)
        self.taken(())

    def _note(self, task: Task) -> int:
        now = task.uncommitted_bytes
        self._total += now - self._bytes.get(task.id, 0)
        self._bytes[task.id] = now
        return now
