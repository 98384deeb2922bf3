"""The end of an actor: children, Stopping, queued messages, then the watchers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from actors._errors import ActorFailed, ActorStopped
from actors.events import Failed, Undelivered
from actors.mailbox import Notice
from actors.messages import Stopping, Terminated, fail_replies
from actors.supervision._lifecycle import State, move

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from actors.actor import Cell, Incarnation
    from actors.messages import Signal, StopReason


async def finish(cell: Cell) -> None:
    """End the actor in all circumstances; only its ref and its cause of death remain."""
    life = cell.incarnation
    try:
        cell.disarm()
        # Close the inbox first: senders learn at once that nothing will be handled any more.
        cell.inbox.close()
        cell.state = move(cell.state, State.STOPPING, cell.path)
        if life is not None:
            life.retire(cell)
        if cell.offspring():
            await _unless_cancelled(cell, cell.children.stop_all())
        # The failures of children that ended by now are still queued.
        for notice in cell.inbox.take_notices():
            if notice.child:
                await _unless_cancelled(cell, _hear_of_child(cell, life, notice.signal))
        if life is not None:
            if life.hears:
                await _unless_cancelled(cell, farewell(cell, cell.reason))
            await _unless_cancelled(cell, life.ended(cell, cell.spec.stop_within))
    finally:
        bury(cell)


async def _unless_cancelled(cell: Cell, step: Awaitable[None]) -> None:
    """Await one step of the end. A cancellation ends only this step: later steps still run."""
    try:
        await step
    except asyncio.CancelledError:
        return
    finally:
        cell.absorb_kills()


async def _hear_of_child(cell: Cell, life: Incarnation | None, signal: Signal) -> None:
    """Let the actor handle a child's late failure.

    If the actor cannot, or is interrupted, the failure becomes its own, as no failure may be lost.
    """
    dealt_with = False
    try:
        if life is not None and life.started:
            await _hear_last(cell, life, signal)
            dealt_with = True
    finally:
        if (
            not dealt_with
            and cell.has_started
            and cell.cause is None
            and isinstance(signal, Terminated)
            and signal.cause is not None
        ):
            cell.cause = ActorFailed(signal.ref.path, [signal.cause])


async def farewell(cell: Cell, reason: StopReason) -> None:
    """Let the incarnation handle Stopping, if it has started and has not handled it yet.

    A failure here becomes the cause of death if there is no other.
    """
    life = cell.incarnation
    if life is not None and life.started:
        # Set this before the await: if that is cancelled, `finish` must not send a second Stopping.
        life.started = False
        await _hear_last(cell, life, Stopping(reason))


async def _hear_last(cell: Cell, life: Incarnation, signal: Signal) -> None:
    if not life.hears and isinstance(signal, Stopping):
        return
    limit = Limit(cell, cell.spec.stop_within)
    try:
        await life.hear(signal)
    except (Exception, asyncio.CancelledError) as raised:
        error: Exception = limit.error(signal) if limit.passed else cell.own(raised)
        cell.core.publish(Failed(cell.path, error, life.number, None, "stop"))
        if cell.cause is None and not (isinstance(signal, Stopping) and signal.reason == "restart"):
            cell.cause = error
    finally:
        limit.lift()


class Limit:
    """Cancel the cell's await when it takes longer than `seconds`, repeatedly.

    `lift` takes the cancellations back.
    """

    __slots__ = ("_cell", "_deadlines", "_seconds", "passed")

    def __init__(self, cell: Cell, seconds: float) -> None:
        self._cell = cell
        self._seconds = seconds
        self.passed: int = 0
        self._deadlines = cell.core.deadlines.add(self, seconds)

    def expire(self) -> None:
        """Cancel the task, and set the next deadline."""
        self.passed += 1
        self._cell.task.cancel()
        self._deadlines = self._cell.core.deadlines.add(self, max(self._seconds, 0.1))

    def lift(self) -> None:
        """Stop cancelling, and take the cancellations back."""
        self._deadlines.pop(self, None)
        for _ in range(self.passed):
            self._cell.task.uncancel()

    def error(self, signal: Signal) -> TimeoutError:
        """Return the timeout error for the signal."""
        return TimeoutError(
            f"{type(signal).__name__} of {self._cell.path} was not handled within "
            f"{self._seconds:g} s (stop_within)"
        )


def bury(cell: Cell) -> None:
    """Discard the actor: drop its messages, fail all asks, notify parent and watchers."""
    cell.disarm()
    # The actor's task was cancelled before the first step, and never reached `finish`.
    if cell.state is State.STARTING:
        cell.state = move(cell.state, State.STOPPING, cell.path)
    cell.state = move(cell.state, State.STOPPED, cell.path)
    # Whatever fails here, callers that wait for the end must be released.
    try:
        _clear_away(cell)
    finally:
        _tell_the_news(cell)
        cell.release_spawner()
        cell.release_mourners()


def _clear_away(cell: Cell) -> None:
    life = cell.incarnation
    cell.incarnation = cell.current = None
    for message in cell.stash or ():
        fail_replies(message, ActorStopped(cell.path))
        cell.core.publish(Undelivered(cell.path, message, "stopped"))
    cell.stash = None
    cell.inbox.close()
    cell.inbox.clear()
    if life is not None:
        life.let_go()
    cell.close_lane()


def _tell_the_news(cell: Cell) -> None:
    # A failed start is raised at the spawner. The parent gets any other failure, even unwatched.
    cell.parent.child_ended(cell, cell.cause)
    watchers = cell.forget_watchers()
    if not watchers:
        return
    terminated = Terminated(cell.ref, cell.cause or cell.start_error)
    for watcher in watchers:
        watcher.inbox.signal(
            Notice(terminated, cell, child=watcher is cell.parent and cell.cause is not None)
        )
