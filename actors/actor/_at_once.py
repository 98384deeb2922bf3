"""Asks of an idle actor, handled in the asker's step of the event loop.

Without it an ask costs two wake-ups: the actor's and the asker's.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from asyncio import _get_running_loop, current_task
from asyncio.tasks import _enter_task, _leave_task
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from actors.events import Failed
from actors.messages import fail_replies
from actors.supervision import failed

if TYPE_CHECKING:
    from contextvars import Context

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
        or _get_running_loop() is not core.loop  # of another thread, or between two runs
        or (context := cell.task.get_context()) is _context_of(asker := current_task(core.loop))
        or not (began := core.dispatch.enter())
    ):
        return False
    receive: Any = life.receive
    hook: Any = None
    error: BaseException | None = None
    cell.current = message
    cell.since = began
    asked_in = sys.exception()
    if asker is not None:
        _leave_task(core.loop, asker)
    _enter_task(core.loop, cell.task)
    try:
        hook = context.run(receive, message)
    except (Exception, asyncio.CancelledError) as raised:
        error = raised
        _cut(raised, asked_in)
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
        receive = message = hook = error = asker = asked_in = None
        inbox.wake()
    return True


def _context_of(task: Any) -> Context | None:
    """Return the context of the asker's task: a task may share the actor's, which is entered."""
    # A Task has the method since Python 3.12.
    found: Context | None = None if task is None else task.get_context()
    return found


def _cut(error: BaseException, handled: BaseException | None) -> None:
    """Take the exception that the asker handles out of the error's contexts."""
    while handled is not None and error.__context__ is not None:
        if error.__context__ is handled:
            error.__context__ = None
        else:
            error = error.__context__


async def go_on(cell: Cell) -> bool:
    """Take over the message that `handle_now` began. Return whether to go on."""
    begun: Begun = cell.begun  # type: ignore[assignment]
    cell.begun = None
    message, hook = begun.message, begun.hook
    try:
        if begun.error is not None:
            raise begun.error
        cell.since = perf_counter()
        await hook
    except (Exception, asyncio.CancelledError) as error:
        cell.failure = cell.own(cell.explained(error, hook))
    if begun.error is None:
        cell.busy += perf_counter() - cell.since
    begun = hook = None  # type: ignore[assignment]
    if cell.failure is not None:
        return await failed(cell, message)
    cell.current = None
    return True


def drop_begun(cell: Cell) -> None:
    """Fail the ask of a begun message, as the task was cancelled before it took over."""
    begun, cell.begun = cell.begun, None
    if begun is None:
        return
    if isinstance(begun.error, Exception):
        fail_replies(begun.message, begun.error)
        number = 0 if cell.incarnation is None else cell.incarnation.number
        cell.core.publish(Failed(cell.path, begun.error, number, begun.message, "stop"))
        return
    if inspect.iscoroutine(begun.hook):
        begun.hook.close()
    cell.inbox.refuse(begun.message, "stopped")
