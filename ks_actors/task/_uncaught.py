"""Errors of a task that are not of class Exception, and that no node has wrapped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ks_actors._errors import ProcessingFailed

if TYPE_CHECKING:
    from ks_actors.task._task import Task


def uncaught(task: Task, raised: BaseException) -> ProcessingFailed:
    """Return such an error as a failure of the task, near its current record."""
    at = task._current.metadata()
    near = (
        ""
        if at is None
        else f", in the work after {at.topic}-{at.partition} offset {at.offset} or with it"
    )
    cancelled = "" if not isinstance(raised, asyncio.CancelledError) else "a cancelled future"
    failure = ProcessingFailed(
        f"user code raised {type(raised).__name__}: {str(raised) or cancelled}{near}",
        task=task.id,
    )
    failure.__cause__ = raised
    return failure
