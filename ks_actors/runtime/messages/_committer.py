"""Messages to the committer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Ref, Reply

if TYPE_CHECKING:
    from ks_actors.records import TaskId
    from ks_actors.runtime.messages._worker import WorkerMessage


class Commit(Message, frozen=True):
    """Commit all tasks that are at rest.

    Requests that arrive during a commit are served by the next commit.

    `hold`: defer all later commits until AllowCommits. `rebalancing`: until AllowCommits, the group
    may move on to its next generation at any moment. `closing`: the app shuts down and does not
    wait for that generation. While the group takes no commits, the request fails at once with
    IllegalGeneration. `due_only`: skip tasks with calls that were fed again a moment ago. `one_of`:
    answer when the commit includes one of these tasks. `calm`: from now on, tasks begin no long
    calls.
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
        """Whether the caller has stopped waiting and the request has no effect on later commits."""
        return self.reply is not None and not (self.reply.wanted() or self.hold or self.rebalancing)


class CommitTimer(Message, frozen=True):
    """The commit interval is over (internal)."""


class WorkBegins(Message, frozen=True):
    """A task is leased, moved or given back, the first since there was nothing to commit."""


class WorkersChanged(Message, frozen=True):
    """The current workers."""

    workers: tuple[Ref[WorkerMessage], ...]


class DrainStalled(Message, frozen=True):
    """A task that began to drain at `since` has made no progress for `seconds`."""

    task: TaskId
    since: float
    seconds: float


class Rollback(Message, frozen=True):
    """Rewind tasks to their last commit: `tasks` under at-least-once, all tasks under exactly-once.

    `give_up`: the tasks are about to be given up; commit nothing until AllowCommits.
    Answered with whether a commit has succeeded since tasks were last given up.
    """

    reply: Reply[bool]
    tasks: frozenset[TaskId] | None
    cause: Exception
    give_up: bool = False


class AllowCommits(Message, frozen=True):
    """Serve all commits again: a handover has ended, or this member knows the next generation."""


class EndCommits(Message, frozen=True):
    """Commit and roll back nothing more: the app closes.

    Answered when no commit or rollback is under way.
    """

    reply: Reply[None]


CommitterMessage: TypeAlias = (
    Commit
    | CommitTimer
    | WorkBegins
    | WorkersChanged
    | Rollback
    | DrainStalled
    | AllowCommits
    | EndCommits
)
