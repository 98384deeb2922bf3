"""Messages to the instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Reply

if TYPE_CHECKING:
    from ks_actors.runtime.shared import UncaughtResponse, WorkerState


class Start(Message, frozen=True):
    """Start all actors; answered when the instance runs."""

    reply: Reply[None]


class StopInstance(Message, frozen=True):
    """Commit and close everything; answered when closed.

    A static member leaves its group only with `leave`.
    """

    reply: Reply[None]
    leave: bool = False


class InstanceStopped(Message, frozen=True):
    """Everything is closed.

    Answer callers after all messages that were still on their way (internal).
    """

    reply: Reply[None]


class PauseAll(Message, frozen=True):
    """Process no more records of a query, or at all, until ResumeAll; keep tasks and state."""

    reply: Reply[None]
    query: str | None = None


class ResumeAll(Message, frozen=True):
    """Resume processing of a query, or of all, after PauseAll."""

    reply: Reply[None]
    query: str | None = None


class AddWorker(Message, frozen=True):
    """Start one more worker.

    Answered with its name, or None when the state of the instance does not allow it.
    """

    reply: Reply[str | None]


class RemoveWorker(Message, frozen=True):
    """Stop a worker gracefully.

    Answered with its name when it has ended, or None when there is no worker.
    """

    reply: Reply[str | None]


class TasksChanged(Message, frozen=True):
    """The tasks of the instance are revoked, newly assigned, or all run.

    `stage` is the state of its workers from now on: PARTITIONS_REVOKED, PARTITIONS_ASSIGNED or
    RUNNING.
    """

    stage: WorkerState


class Fatal(Message, frozen=True):
    """A failure that concerns the whole instance: the uncaught handler decides.

    `rolled_back`: the tasks are back at their last commit.
    """

    error: Exception
    rolled_back: bool


class HandlerDecided(Message, frozen=True):
    """The uncaught handler has decided about an error (internal).

    `worker` names the worker that the error killed.
    """

    error: Exception
    response: UncaughtResponse
    worker: str | None
    rolled_back: bool


InstanceMessage: TypeAlias = (
    Start
    | StopInstance
    | InstanceStopped
    | PauseAll
    | ResumeAll
    | AddWorker
    | RemoveWorker
    | TasksChanged
    | Fatal
    | HandlerDecided
)
