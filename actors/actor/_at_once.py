"""Asks of an idle actor, handled in the asker's step of the event loop.

Without it an ask costs two wake-ups: the actor's and the asker's.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from asyncio import current_task
from asyncio.tasks import _enter_task, _leave_task
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from actors.supervision import failed

if TYPE_CHECKING:
    from actors.actor._cell import Cell


class Begun(NamedTuple):
    """A message that was begun in its asker's step: the result of `receive`, or its error."""

    message: Any
    hook: Any
    error: BaseException | None


def handle_now(cell: Cell, message: Any, /) -> bool:
    """Handle the message of an ask if the actor sleeps; return whether it did.

    `receive` runs as if in the actor's own task and context. The task takes over what needs it:
    a coroutine to await, or a failure for its supervisor.
    """
    inbox, life, core = cell.inbox, cell.incarnation, cell.core
    waiter = inbox.waiter
    if (
        waiter is None
        or waiter.done()
        or cell.current is not None  # it handles such an ask now
        or inbox.user
        or inbox.ahead
        or not inbox.room  # urgent types, or closed: the mailbox decides
        or life is None
        or life.awaits
        or sys.version_info < (3, 12)  # a task does not tell its context
        or get_ident() != core.thread
        or not (began := core.dispatch.enter())
    ):
        return False
    receive: Any = life.receive
    hook: Any = None
    error: BaseException | None = None
    cell.current = message
    cell.since = began
    asker = current_task(core.loop)
    if asker is not None:
        _leave_task(core.loop, asker)
    _enter_task(core.loop, cell.task)
    try:
        hook = cell.task.get_context().run(receive, message)
    except (Exception, asyncio.CancelledError) as raised:
        error = raised
    finally:
        _leave_task(core.loop, cell.task)
        if asker is not None:
            _enter_task(core.loop, asker)
    cell.processed += 1
    cell.busy += perf_counter() - began
    if hook is None and error is None:
        cell.current = None
    else:
        life.awaits = error is None
        cell.begun = Begun(message, hook, error)
        # The error's traceback holds this frame.
        receive = message = hook = error = None
        inbox.wake()
    return True


async def go_on(cell: Cell) -> bool:
    """Take over the message that `handle_now` began. Return whether to go on."""
    begun: Begun = cell.begun  # type: ignore[assignment]
    cell.begun = None
    message, hook = begun.message, begun.hook
    try:
        if begun.error is not None:
            raise begun.error
        await hook
    except (Exception, asyncio.CancelledError) as error:
        cell.failure = cell.own(cell.explained(error, hook))
    begun = hook = None  # type: ignore[assignment]
    cell.busy += perf_counter() - cell.since
    if cell.failure is not None:
        return await failed(cell, message)
    cell.current = None
    return True


def drop_begun(cell: Cell) -> None:
    """Fail the ask of a begun message, as the task was cancelled before it took over."""
    begun, cell.begun = cell.begun, None
    if begun is not None:
        if inspect.iscoroutine(begun.hook):
            begun.hook.close()
        cell.inbox.refuse(begun.message, "stopped")
