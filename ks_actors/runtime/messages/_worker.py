"""Messages to a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Reply

if TYPE_CHECKING:
    from ks_actors.task import Task


class Lease(Message, frozen=True):
    """Process these tasks, one after the other, for a slice in all; they are yours alone until TASK_DONE."""

    tasks: tuple[Task, ...]
    draining: bool


class PauseForCommit(Message, frozen=True):
    """Stand still from now on; answered (PAUSED) with the worker's name."""

    reply: Reply[str]
    epoch: int


class Resume(Message, frozen=True):
    """Go on; what is written from now on belongs to `epoch`."""

    epoch: int


class CloseWorker(Message, frozen=True):
    """End."""


WorkerMessage: TypeAlias = Lease | PauseForCommit | Resume | CloseWorker
