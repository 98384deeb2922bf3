"""Failures: supervision decides, and a restart follows."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

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
    effect = _weigh(cell, decision)
    cell.core.publish(Failed(cell.path, error, number, message, effect.name, effect.reason))
    cell.current = None
    # The error's traceback holds the failed object, and with it replies that can no longer be
    # given. Keep one reference, not one per frame.
    cell.failure = error
    del error
    if isinstance(decision, Resume):
        cell.failure = None
        return True
    if effect.restart is not None:
        return await _restart(cell, effect.restart, effect.delay, number)
    return _give_up(cell)


def _decide(cell: Cell, error: Exception) -> tuple[Decision, Exception]:
    try:
        return _checked(cell, cell.spec.supervise(error)), error
    except Exception as worse:
        # A supervisor that raises means Stop: the actor's state is unknown.
        if worse is not error and worse.__context__ is None:
            worse.__context__ = error
        worse.add_note(f"raised by supervise of {cell.path} while deciding about the error above")
        return Stop(), worse


def _checked(cell: Cell, decision: object) -> Decision:
    """Return the decision; raise TypeError for any other object, which must not count as a Stop."""
    if isinstance(decision, Stop | Resume | Restart):
        return decision
    hint = ""
    if inspect.iscoroutine(decision):
        decision.close()  # it will not run, and needs no warning of its own
        hint = ", not `async def`,"
    raise TypeError(
        f"supervise of {cell.path} returned {decision!r}; it must be a function{hint} that returns "
        "Stop(), Resume() or Restart(...)"
    )


class _Effect(NamedTuple):
    """The effect of a decision, and the reason if it differs from the decision."""

    name: Literal["stop", "resume", "restart"]
    reason: str = ""
    restart: Restart | None = None
    delay: float = 0.0


def _weigh(cell: Cell, decision: Decision, *, starting: bool = False) -> _Effect:
    """Return the effect of `decision`; a restart is taken from the budget."""
    if isinstance(decision, Resume):
        if starting:
            return _Effect("stop", "nothing is there to resume, as the restart failed")
        return _Effect("resume")
    if isinstance(decision, Stop):
        return _Effect("stop")
    if cell.budget is None:
        cell.budget = RestartBudget()
    delay = cell.budget.spend(decision, cell.core.clock.time(), cell.core.random)
    if delay is None:
        return _Effect("stop", _spent(decision))
    if cell.stop_asked:
        # The old incarnation still ends as for a restart, but no new one follows.
        return _Effect("stop", "a stop was requested before the restart", decision, delay)
    return _Effect("restart", "", decision, delay)


def _spent(restart: Restart) -> str:
    if restart.limit == 0:
        return "the limit of restarts is 0"
    many = "restart" if restart.limit == 1 else "restarts"
    verb = "is" if restart.limit == 1 else "are"
    return f"{restart.limit} {many} within {restart.within:g} s {verb} spent"


def _give_up(cell: Cell) -> bool:
    cell.cause, cell.failure = cell.failure, None
    cell.reason = "failure"
    return False


async def _restart(cell: Cell, restart: Restart, delay: float, number: int) -> bool:
    """Replace the incarnation; repeat while the start fails and the budget allows."""
    while True:
        cell.failure = None
        cell.state = move(cell.state, State.RESTARTING, cell.path)
        await _put_away(cell, restart)
        if not await _back_off(cell, delay):
            return False
        cell.state = move(cell.state, State.STARTING, cell.path)
        number += 1
        cell.restarts += 1
        effect = await _start_again(cell, number)
        if effect is None:
            cell.core.publish(Restarted(cell.path, number, delay))
            return True
        if effect.restart is None:
            return _give_up(cell)
        restart, delay = effect.restart, effect.delay


async def _start_again(cell: Cell, number: int) -> _Effect | None:
    """Create and start incarnation `number`.

    Return None, or the effect of its failure, which is then in `cell.failure`.
    """
    try:
        life = cell.create(number)
        await life.hear(Started(number))
    except (Exception, asyncio.CancelledError) as raised:
        decision, error = _decide(cell, cell.own(raised))
        effect = _weigh(cell, decision, starting=True)
        cell.core.publish(Failed(cell.path, error, number, None, effect.name, effect.reason))
        cell.failure = error
        return effect
    cell.run_as(life)
    return None


async def _put_away(cell: Cell, restart: Restart) -> None:
    """End the old incarnation and its resources; put its stashed messages back into the mailbox."""
    life = cell.incarnation
    if life is not None:
        life.retire(cell)
    if not restart.keep_children:
        await cell.children.stop_all()
        # These children were stopped on purpose: the next incarnation must not see their ends as
        # failures.
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
