"""The states of commits, and the uncommitted bytes of stores."""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import TYPE_CHECKING, final

from ks_actors._errors import IllegalGeneration, StreamsError
from ks_actors.lifecycle import Transitions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ks_actors.records import TaskId
    from ks_actors.runtime.messages import Commit
    from ks_actors.task import Task


class Phase(Enum):
    """The phase of a commit.

    IDLE ──Commit──▶ PAUSING ──all paused──▶ FREEZING ──tokens──▶ ENDING ──acknowledged──▶ IDLE
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


class CommitState(Enum):
    """Which commits an instance may begin."""

    OPEN = "any request begins a commit"
    REBALANCING = "likewise, and the group may refuse one: its next generation may have begun"
    ON_HOLD = "a handover follows: a commit in between would meet tasks that are partly closed"
    GENERATION_LOST = "the group takes no commits until this member knows the next generation"
    VOID = "the tasks cannot be committed any more: they are about to be closed"


_PERMISSION = Transitions(
    {
        CommitState.OPEN: (*CommitState,),
        CommitState.REBALANCING: (*CommitState,),
        CommitState.ON_HOLD: {*CommitState} - {CommitState.REBALANCING},
        CommitState.GENERATION_LOST: {*CommitState}
        - {CommitState.REBALANCING, CommitState.ON_HOLD},
        # This state ends only when the tasks are given up.
        CommitState.VOID: (CommitState.VOID, CommitState.GENERATION_LOST),
    }
)


@final
class Permission:
    """The permission to commit, by the state of the group and of the tasks.

    `void` is the reason of VOID, and None in all other states.
    """

    def __init__(self) -> None:
        self._cycle = _PERMISSION.start(CommitState.OPEN)
        self.void: Exception | None = None

    def allows(self, request: Commit) -> bool:
        """Return whether a commit for `request` may begin now."""
        if self._cycle.is_(CommitState.ON_HOLD, CommitState.GENERATION_LOST):
            return request.hold or request.rebalancing
        return self.void is None

    def refusal(self, request: Commit) -> Exception | None:
        """Return the error of a request that is not allowed; None when it waits for OPEN."""
        if request.closing and self._cycle.is_(CommitState.GENERATION_LOST):
            return IllegalGeneration(
                "the group is in a new generation, and the next owner of the tasks starts from the "
                "last commit"
            )
        return self.void

    @property
    def may_come_too_late(self) -> bool:
        """Whether the group may refuse a commit only because its next generation has begun."""
        return self._cycle.is_(CommitState.REBALANCING, CommitState.GENERATION_LOST)

    def open(self) -> None:
        """Allow all commits, unless VOID: a handover has ended, or the generation is known."""
        self._to_if_legal(CommitState.OPEN)

    def follow(self, request: Commit) -> None:
        """Change to the state that `request` announces; call it after its commit."""
        if request.hold:
            self._to_if_legal(CommitState.ON_HOLD)
        elif request.rebalancing:
            self._to_if_legal(CommitState.REBALANCING)

    def come_too_late(self) -> None:
        """Note that the group's next generation has begun during a commit."""
        self._to_if_legal(CommitState.REBALANCING)

    def lose_generation(self) -> None:
        """Wait for the next generation: the group refused a commit, or the tasks are given up."""
        self._cycle.to(CommitState.GENERATION_LOST)
        self.void = None

    def withdraw(self, reason: Exception) -> None:
        """Fail all requests with `reason` until the tasks are given up."""
        self._cycle.to(CommitState.VOID)
        self.void = reason

    def _to_if_legal(self, state: CommitState) -> None:
        if self._cycle.can(state):
            self._cycle.to(state)


class TasksBroken(StreamsError):
    """A worker died in the middle of a task: roll back before the next commit."""

    @classmethod
    def of(cls, tasks: Iterable[TaskId]) -> TasksBroken:
        """Return the error about these tasks."""
        return cls(
            f"task {', '.join(map(str, tasks))} has failed and must be rolled back before anything "
            "can be committed"
        )


@final
class Uncertain(Exception):
    """The end of a transaction failed and may or may not have happened; see `cause`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause: Exception = cause


@final
class Uncommitted:
    """The uncommitted bytes in all tasks' stores, kept below `limit` (-1: no limit).

    The largest growth in a slice of work since the last commit is the estimate for the next slice.
    A commit is `asked` for before the limit is crossed. Until that commit takes the uncommitted
    bytes, the stores are `full`, and nothing more may be put. A commit already under way may delay
    that commit. No commit can take the bytes of tasks that were left out because of long calls, so
    half of the limit is reserved for other tasks.
    """

    def __init__(self, limit: int) -> None:
        self.asked: bool = False
        self.full: bool = False
        self._limit: int = limit
        self._bytes: dict[TaskId, int] = {}
        self._total: int = 0
        # Tasks with bytes left after a commit. Custom stores release their bytes later, maybe by
        # the next check.
        self._lasting: dict[TaskId, Task] = {}
        self._last: int = 0
        self._growth: int = 0
        # These tasks get nothing new until a commit takes them.
        self._draining: Sequence[Task] = ()

    def reason_to_commit(self, tasks: Collection[Task]) -> str | None:
        """Return the reason to ask for a commit now, after work in `tasks`.

        Return None when there is no reason, or a commit is already asked for.
        """
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
            reason = "the stores are close to statestore_uncommitted_max_bytes"
        elif (
            asking := next(
                (task for task in tasks if task.commit_requested and task.draining.since is None),
                None,
            )
        ) is not None:
            reason = f"task {asking.id} requested it"
        else:
            return None
        self.asked = True
        return reason

    @property
    def room(self) -> float:
        """The number of tasks that may be processed before the next check.

        Assumes that no task's stores grow by more than the largest growth since the last commit.
        """
        return self._free // self._growth if self._limit >= 0 and self._growth else inf

    @property
    def _free(self) -> int:
        """The number of bytes that may still be put."""
        return max(
            self._limit - self._total,
            # Without this share a single task with long calls could stop all others until its calls
            # end.
            self._limit // 2 - self._total + kept if (kept := self._kept()) else 0,
        )

    def _kept(self) -> int:
        return sum(
            self._bytes.get(task.id, 0)
            for task in self._draining
            if task.draining.since is not None
        )

    def taken(self, tasks: Iterable[Task], left_out: Sequence[Task] | None = None) -> None:
        """Note that a commit or a rollback has taken the bytes of `tasks`, but not of `left_out`.

        The next commit must be asked for again.
        """
        self.asked = self.full = False
        self._draining = self._draining if left_out is None else left_out
        # Measure the growth again for each commit: one burst must not make all later commits come
        # early.
        self._growth = 0
        if self._limit >= 0:
            self._lasting.update((task.id, task) for task in tasks if self._note(task))
        self._last = self._kept()

    def forget(self, task: TaskId) -> None:
        """Note that a task has left."""
        self._total -= self._bytes.pop(task, 0)
        self._lasting.pop(task, None)
        self.taken(())

    def _note(self, task: Task) -> int:
        now = task.uncommitted_bytes
        self._total += now - self._bytes.get(task.id, 0)
        self._bytes[task.id] = now
        return now
