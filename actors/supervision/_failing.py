"""Failures: supervision decides, and a restart follows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

from actors.events import Failed, Restarted
from actors.messages import Started, fail_replies
from actors.supervision._ending import farewell
from actors.supervision._lifecycle import State, move
from actors.supervision._supervision import Restart, RestartBudget, Resume, Stop

if TYPE_CHECKING:
    from actors.actor import Cell
    from actors.supervision._supervision import Decision


async def failed(cell: Cell, message: Any) -> bool:
    """Handle `cell.failure` at `message`, which is lost; its ask fails with the error.

    Return whether the actor goes on.
    """
    decision, error = _decide(cell, cell.failure)  # type: ignore[arg-type]  # set by the caller
    fail_replies(message, error)
    number = 0 if cell.incarnation is None else cell.incarnation.number
    cell.core.publish(Failed(cell.path, error, number, message, _name(decision)))
    cell.current = None
    # The error's traceback holds the failed object, and with it replies that can no longer be
    # given. Keep one reference, not one per frame.
    cell.failure = error
    del error
    if isinstance(decision, Resume):
        cell.failure = None
        return True
    if isinstance(decision, Restart):
        return await _restart(cell, decision, number)
    return _give_up(cell)


def _decide(cell: Cell, error: Exception) -> tuple[Decision, Exception]:
    try:
        return cell.spec.supervise(error), error
    except Exception as worse:
        # A supervisor that raises means Stop: the actor's state is unknown.
        if worse is not error and worse.__context__ is None:
            worse.__context__ = error
        worse.add_note(f"raised by supervise of {cell.path} while deciding about the error above")
        return Stop(), worse


def _name(decision: Decision) -> Literal["stop", "resume", "restart"]:
    if isinstance(decision, Restart):
        return "restart"
    return "resume" if isinstance(decision, Resume) else "stop"


def _give_up(cell: Cell) -> bool:
    cell.cause, cell.failure = cell.failure, None
    cell.reason = "failure"
    return False


async def _restart(cell: Cell, restart: Restart, number: int) -> bool:
    """Replace the incarnation; repeat while the start fails and the budget allows."""
    if cell.budget is None:
        cell.budget = RestartBudget()
    while True:
        delay = cell.budget.spend(restart, cell.core.clock.time(), cell.core.random)
        if delay is None:
            return _give_up(cell)
        cell.failure = None
        cell.state = move(cell.state, State.RESTARTING, cell.path)
        await _put_away(cell, restart)
        if not await _back_off(cell, delay):
            return False
        cell.state = move(cell.state, State.STARTING, cell.path)
        number += 1
        cell.restarts += 1
        decision = await _start_again(cell, number)
        if decision is None:
            cell.core.publish(Restarted(cell.path, number, delay))
            return True
        if not isinstance(decision, Restart):
            # There is no incarnation to resume.
            return _give_up(cell)
        restart = decision


async def _start_again(cell: Cell, number: int) -> Decision | None:
    """Create and start incarnation `number`.

    Return None, or the decision on its failure, which is then in `cell.failure`.
    """
    try:
        life = cell.create(number)
        await life.hear(Started(number))
    except (Exception, asyncio.CancelledError) as raised:
        decision, error = _decide(cell, cell.own(raised))
        cell.core.publish(Failed(cell.path, error, number, None, _name(decision)))
        cell.failure = error
        return decision
    cell.run_as(life)
    return None


async def _put_away(cell: Cell, restart: Restart) -> None:
    """End the old incarnation and its resources; put its stashed messages back into the mailbox."""
    life = cell.incarnation
    if life is not None:
        life.retire(cell)
    if not restart.keep_children:
        await cell.children.stop_all()
        # Their ends were wanted: the next incarnation must not take them for failures.
        cell.inbox.take_notices()
    if life is None:
        return
    await farewell(cell, "restart")
    await life.ended(cell, cell.spec.stop_within)
    life.let_go()
    cell.incarnation = None
    if cell.stash:
        cell.inbox.put_back(cell.stash)
        cell.stash = None


async def _back_off(cell: Cell, delay: float) -> bool:
    """Wait; return False if a stop was requested in the meantime."""
    if delay > 0 and not cell.stop_asked:
        core = cell.core
        cell.interrupt = waiter = core.loop.create_future()
        timer = core.clock.call_later(delay, core.dispatch.resume, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            cell.interrupt = None
    return not cell.stop_asked
