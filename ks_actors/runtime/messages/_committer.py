"""Messages to the committer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Ref, Reply

if TYPE_CHECKING:
    from ks_actors.records import TaskId
    from ks_actors.runtime.messages._worker import WorkerMessage


class Commit(Message, frozen=True):
    """Commit all tasks that are at rest; several that come during one commit are served by the next one.

    `hold`: and none after this one until HOLD ends. `rebalancing`: from now until HOLD ends the group may move on to its next generation at any
    moment. `closing`: the app ends, and does not wait for that generation: as long as the group takes no commits this is IllegalGeneration at once.
    `due_only`: tasks with calls that were fed again a moment ago need not be part of it. `one_of`: it is served when one of these tasks is in it.
    `calm`: from now on no task begins calls that take long.
    """

    reply: Reply[None] | None
    reason: str
    hold: bool = False
    rebalancing: bool = False
    closing: bool = False
    due_only: bool = False
    one_of: frozenset[TaskId] | None = None
    calm: bool = False

    @property
    def given_up(self) -> bool:
        """Whether somebody has waited for it, and does not any more: then it is not wanted, unless it changes how commits go on."""
        return self.reply is not None and not (self.reply.wanted() or self.hold or self.rebalancing)


class CommitTimer(Message, frozen=True):
    """The commit interval has gone by (internal)."""


class WorkersChanged(Message, frozen=True):
    """These are the workers now."""

    workers: tuple[Ref[WorkerMessage], ...]


class Undrained(Message, frozen=True):
    """A task that has begun to drain at `since` has calls in flight after the longest time that they may take."""

    task: TaskId
    since: float


class Rollback(Message, frozen=True):
    """Bring tasks back to their last commit: `tasks` under at least once, all of them under exactly once.

    `give_up`: they are going to be given up; nothing is committed until HOLD ends. Answered with whether a commit has succeeded since the last time
    that tasks were given up.
    """

    reply: Reply[bool]
    tasks: frozenset[TaskId] | None
    cause: Exception
    give_up: bool = False


class Purged(Message, frozen=True):
    """Deleting records of repartition topics is over (internal)."""

    error: Exception | None


class DeferCommits(Message, frozen=True):
    """Commit nothing while `held`: the group is between two generations, and would refuse it."""

    held: bool


class EndCommits(Message, frozen=True):
    """Commit nothing and roll nothing back any more: the app closes. Answered when nothing of that is under way."""

    reply: Reply[None]


CommitterMessage: TypeAlias = Commit | CommitTimer | WorkersChanged | Rollback | Undrained | Purged | DeferCommits | EndCommits
