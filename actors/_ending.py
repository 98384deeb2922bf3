"""How an actor ends: children, then Stopping, then what is queued, then the news to those who watch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from actors._ask import fail_replies
from actors._control import Notice
from actors._errors import ActorStopped
from actors._events import DeadLetter, Failed
from actors._lifecycle import State, move
from actors._message import Stopping, Terminated

if TYPE_CHECKING:
    from actors._cell import Cell
    from actors._message import StopReason


async def finish(cell: Cell) -> None:
    """End the actor whatever happens meanwhile; afterwards nothing of it is left but its ref, and its cause of death."""
    was_running = cell.state is not State.STARTING and cell.incarnation is not None
    if cell.state is State.STARTING and cell.restarts == 0 and cell.start_error is None:
        cell.start_error = ActorStopped(cell.path)
    cell.inbox.close()
    cell.state = move(cell.state, State.STOPPING, cell.path)
    try:
        cell.disarm()
        if cell.incarnation is not None:
            cell.incarnation.retire(cell)
        try:
            await cell.children.stop_all()
        except asyncio.CancelledError:
            cell.absorb_kills()
        if was_running:
            await farewell(cell, cell.reason)
    except asyncio.CancelledError:
        cell.absorb_kills()
    finally:
        _bury(cell)


async def farewell(cell: Cell, reason: StopReason) -> None:
    """Have the incarnation handle Stopping, within `stop_within`; a failure in it is the cause of death if there is no other."""
    life = cell.incarnation
    if life is None or not life.hears:
        return
    cell.arm(cell.spec.stop_within)
    try:
        await life.hear(Stopping(reason))
    except (Exception, asyncio.CancelledError) as raised:
        error = cell.own(raised)
        cell.kernel.publish(Failed(cell.path, error, life.number, None, "stop"))
        if cell.cause is None and reason != "restart":
            cell.cause = error
    finally:
        cell.disarm()


def _bury(cell: Cell) -> None:
    cell.disarm()
    cell.state = move(cell.state, State.STOPPED, cell.path)
    cell.incarnation = cell.current = None
    gone = ActorStopped(cell.path)
    for message in cell.stash or ():
        fail_replies(message, gone)
        cell.kernel.publish(DeadLetter(cell.path, message, "stopped"))
    cell.stash = None
    cell.inbox.clear()
    cell.close_lane()
    terminated = Terminated(cell.ref, cell.cause or cell.start_error)
    for watcher in tuple(cell.watchers):
        watcher.inbox.signal(Notice(terminated, cell))
    # A failed start is the spawner's business: it is raised there.
    cell.parent.child_ended(cell, cell.cause)
    cell.release_spawner()
    cell.release_mourners()
