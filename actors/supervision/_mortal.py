"""Stopping an actor: request, enforce, wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors.mailbox import StopRequest
from actors.supervision._lifecycle import State

if TYPE_CHECKING:
    import asyncio

    from actors.actor import Spec
    from actors.mailbox import Inbox
    from actors.messages import StopReason
    from actors.system import SystemCore


class Mortal:
    """The part of an actor's cell that deals with its end.

    A soft stop is an entry of the system lane. A hard stop also cancels the task, repeatedly if a
    handler swallows that. The framework takes its own cancellations back, so that later awaits of
    the same task work as usual.
    """

    __slots__ = (
        "_deadline",
        "_kills",
        "_mourners",
        "cause",
        "core",
        "inbox",
        "interrupt",
        "reason",
        "spec",
        "state",
        "stop_asked",
        "task",
    )

    inbox: Inbox
    task: asyncio.Task[Any]

    def __init__(self, core: SystemCore, spec: Spec[Any]) -> None:
        self.core: SystemCore = core
        self.spec: Spec[Any] = spec
        self.state: State = State.STARTING
        self.reason: StopReason = "stop"
        self.cause: Exception | None = None
        self.stop_asked: bool = False
        self.interrupt: asyncio.Future[None] | None = None
        self._kills: int = 0
        self._deadline: dict[Any, float] | None = None
        self._mourners: list[asyncio.Future[None]] | None = None

    def request_stop(self, reason: StopReason, *, by_itself: bool = False) -> None:
        """Request the end after the current message.

        A deadline enforces a request that comes from another actor.
        """
        if self.state is State.STOPPED:
            return
        if not self.stop_asked:
            self.stop_asked = True
            self.reason = reason
            self.inbox.signal(StopRequest())
            if self.interrupt is not None:
                self.core.dispatch.resume(self.interrupt)
        # While it is stopping, children, last handlers and pipes have their own deadlines.
        if not by_itself and self._deadline is None and self.state is not State.STOPPING:
            self.arm(self.spec.stop_within)

    def kill(self, reason: StopReason = "stop") -> None:
        """Cancel the actor's current work and request its end.

        The end comes even if a handler swallows the cancellation.
        """
        if self.state is State.STOPPED:
            return
        # Request the stop before the cancellation: `run` then knows a kill from the end of the
        # system.
        self.request_stop(reason, by_itself=True)
        self._kills += 1
        self.task.cancel()
        # The handler may swallow this cancellation, too. Without a pause between cancellations,
        # they would keep the loop busy.
        self.arm(max(self.spec.stop_within, 0.1))

    def expire(self) -> None:
        """Kill the actor, as the deadline of its stop has passed."""
        self._deadline = None
        self.kill()

    def arm(self, seconds: float) -> None:
        """Kill in `seconds`, unless disarmed."""
        self.disarm()
        self._deadline = self.core.deadlines.add(self, seconds)

    def disarm(self) -> None:
        """Remove the deadline."""
        if self._deadline is not None:
            self._deadline.pop(self, None)
            self._deadline = None

    def absorb_kills(self) -> None:
        """Take back the framework's own cancellations, so that later awaits work as usual."""
        while self._kills:
            self._kills -= 1
            self.task.uncancel()

    async def ended(self) -> None:
        """Wait until nothing of the actor is left."""
        if self.state is not State.STOPPED:
            if self._mourners is None:
                self._mourners = []
            waiter = self.core.loop.create_future()
            self._mourners.append(waiter)
            try:
                await waiter
            finally:
                # Remove a waiter that was cancelled; after the actor's end there is no list.
                if self._mourners is not None:
                    self._mourners.remove(waiter)

    def release_mourners(self) -> None:
        """Wake the callers that wait for the end."""
        for waiter in self._mourners or ():
            self.core.dispatch.resume(waiter)
        self._mourners = None
