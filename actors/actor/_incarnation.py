"""One incarnation of an actor: the user's object, and all that must end with it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from actors._errors import ActorFailed
from actors.actor._actor import HANDLED, Actor
from actors.actor._pipes import Pipes
from actors.actor._timers import Timers
from actors.messages import Terminated

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.actor._cell import Cell
    from actors.mailbox import Inbox
    from actors.messages import Signal


class Incarnation:
    """An incarnation; number 0 is the first, and each restart creates the next.

    Timers, pipes and watches of an old incarnation have no effect.
    """

    __slots__ = (
        "_actor",
        "_inbox",
        "_pipes",
        "_timers",
        "awaits",
        "closed",
        "hears",
        "number",
        "started",
        "watching",
    )

    def __init__(self, number: int, actor: Actor[Any], inbox: Inbox) -> None:
        self.number: int = number
        self.closed: bool = False
        self.started: bool = False
        # Whether `receive` has returned a coroutine: such an actor works in its own task only.
        self.awaits: bool = False
        self._actor: Actor[Any] | None = actor
        # Most actors handle no signals, so spawn need not wait for their Started.
        self.hears: bool = getattr(actor.signal, "__func__", None) is not Actor.signal
        self.watching: set[Cell] | None = None
        self._inbox = inbox
        self._timers: Timers[Any] | None = None
        self._pipes: Pipes | None = None

    @property
    def receive(self) -> Callable[[Any], Any] | None:
        """The actor's handler; None after `let_go`.

        The handler is looked up each turn, as a stored bound method would be one more object per
        actor.
        """
        return None if self._actor is None else self._actor.receive

    @property
    def timers(self) -> Timers[Any]:
        """The incarnation's timers, created on first use."""
        if self._timers is None:
            self._timers = Timers(self._inbox)
        return self._timers

    @property
    def pipes(self) -> Pipes:
        """The incarnation's pipes, created on first use."""
        if self._pipes is None:
            self._pipes = Pipes(self._inbox)
        return self._pipes

    async def hear(self, signal: Signal) -> None:
        """Let the actor handle `signal`; raise an unhandled cause of death as the actor's own."""
        answer: Any = self._actor.signal(signal) if self.hears and self._actor is not None else None
        if answer is not None and answer is not HANDLED:
            if inspect.isawaitable(answer):
                answer = await answer
            if answer is not None and answer is not HANDLED:
                raise TypeError(
                    f"signal of {self._inbox.owner.path} returned {answer!r} for "
                    f"{type(signal).__name__}; it must return HANDLED or None"
                )
        if answer is not HANDLED and isinstance(signal, Terminated) and signal.cause is not None:
            raise ActorFailed(signal.ref.path, [signal.cause])

    def retire(self, watcher: Cell) -> None:
        """End the incarnation's timers, pipes and watches, and take no more children."""
        self.closed = True
        if self._timers is not None:
            self._timers.cancel_all()
        if self._pipes is not None:
            self._pipes.close()
        for watched in self.watching or ():
            watched.forget_watcher(watcher)
        self.watching = None

    async def ended(self, watcher: Cell, stop_within: float) -> None:
        """End the work started in its last handlers, and wait for its pipes to clean up."""
        self.retire(watcher)
        if self._pipes is not None:
            try:
                await self._pipes.ended(stop_within)
            finally:
                # The end of piped work may have set timers.
                if self._timers is not None:
                    self._timers.cancel_all()

    def let_go(self) -> None:
        """Drop the user's object, which is in a reference cycle with its context."""
        self._actor = None
