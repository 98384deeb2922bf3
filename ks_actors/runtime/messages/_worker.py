"""Messages to a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Reply

if TYPE_CHECKING:
    from ks_actors.task import Task


class Lease(Message, frozen=True):
    """Process these tasks, one after the other, for one slice in all.

    The worker owns them until TaskDone. Their output belongs to `epoch`, or to a later epoch that
    the worker knows of.
    """

    tasks: tuple[Task, ...]
    draining: bool
    epoch: int


class PauseForCommit(Message, frozen=True):
    """Pause from now on; answered with the worker's name."""

    reply: Reply[str]
    epoch: int


class Resume(Message, frozen=True):
    """Resume; output from now on belongs to `epoch`."""

    epoch: int


class CloseWorker(Message, frozen=True):
    """Close the worker."""


WorkerMessage: TypeAlias = Lease | PauseForCommit | Resume | CloseWorker
