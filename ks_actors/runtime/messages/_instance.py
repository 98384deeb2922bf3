"""Messages to the instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Reply

if TYPE_CHECKING:
    from ks_actors.runtime.shared import UncaughtResponse


class Start(Message, frozen=True):
    """Start everything; answered when the instance runs."""

    reply: Reply[None]


class StopInstance(Message, frozen=True):
    """Commit, close everything; answered when that is done. A static member leaves its group only with `leave`."""

    reply: Reply[None]
    leave: bool = False


class Stopped(Message, frozen=True):
    """Everything is closed: whoever waits for that is answered, behind all that was still on its way (internal)."""

    reply: Reply[None]


class PauseAll(Message, frozen=True):
    """Process no more records until RESUME_ALL; membership and state are kept."""

    reply: Reply[None]


class ResumeAll(Message, frozen=True):
    """Go on after PAUSE."""

    reply: Reply[None]


class AddWorker(Message, frozen=True):
    """Start one more worker; answered with its name, None when the instance is not in a state for it."""

    reply: Reply[str | None]


class RemoveWorker(Message, frozen=True):
    """Stop a worker softly; answered with its name when it has ended, None when there is none."""

    reply: Reply[str | None]


class TasksChanged(Message, frozen=True):
    """So many tasks of the current assignment run, and so many are still on their way."""

    running: int
    pending: int


class Fatal(Message, frozen=True):
    """Something failed that concerns all: the uncaught handler decides. `rolled_back` says that the tasks are at their last commit again."""

    error: Exception
    rolled_back: bool


class Decided(Message, frozen=True):
    """The uncaught handler has decided about an error (internal). `worker` is the name of the one that died of it."""

    error: Exception
    response: UncaughtResponse
    worker: str | None
    rolled_back: bool


InstanceMessage: TypeAlias = Start | StopInstance | Stopped | PauseAll | ResumeAll | AddWorker | RemoveWorker | TasksChanged | Fatal | Decided
