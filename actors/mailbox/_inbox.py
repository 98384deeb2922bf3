"""The mailbox: three lanes and one waiter."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from actors._errors import ActorFailed, ActorStopped, MailboxFull, SelfDeadlock
from actors.events import Undelivered
from actors.mailbox._control import NOTHING, Due, Notice, StopRequest
from actors.messages import fail_replies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actors.mailbox._mailbox import Mailbox
    from actors.messages import PendingAsk
    from actors.system import SystemCore

Refusal: TypeAlias = Literal["stopped", "full"]


class Owner(Protocol):
    """The mailbox's view of its actor."""

    path: str

    def is_current(self) -> bool:
        """Return whether the running task is the actor's own."""
        ...

    def tell_pressure(self, high: bool, /) -> None:
        """Notify the watchers that a watermark was crossed."""
        ...

    def handle_now(self, message: Any, /) -> bool:
        """Handle `message` at once, if the actor sleeps; return whether it did."""
        ...

    def doing(self) -> str:
        """Describe the actor's current work, for errors."""
        ...


class Inbox:
    """Queue messages for one consumer, from any thread.

    A tell appends to a deque, which is atomic, and wakes the consumer if it sleeps. One comparison
    guards all rare cases (a full or closed mailbox, urgent types, watermarks): below the depth
    `room`, an append is enough.
    """

    __slots__ = (
        "_escalated",
        "_high",
        "_low",
        "_pressed",
        "_putters",
        "_ringing",
        "ahead",
        "asks",
        "closed",
        "core",
        "owner",
        "refused",
        "room",
        "settings",
        "strained",
        "system",
        "urgent",
        "user",
        "waiter",
    )

    def __init__(self, core: SystemCore, settings: Mailbox, owner: Owner) -> None:
        self.core: SystemCore = core
        self.settings: Mailbox = settings
        self.owner: Owner = owner
        self.user: deque[Any] = deque()
        # Lanes that most actors never use are created on first use (an empty deque takes 600
        # bytes), and only on the loop's thread.
        self.urgent: deque[Any] | None = deque() if settings.urgent else None
        self.system: deque[Any] | None = None
        self.ahead: bool = False
        self.waiter: asyncio.Future[None] | None = None
        self.closed: bool = False
        self.refused: int = 0
        # The open asks, which fail when the actor ends, wherever their replies are then. A dict
        # keeps the order of asks, so that a seed repeats its schedule.
        self.asks: dict[PendingAsk[Any], None] | None = None
        self._putters: deque[_Place] | None = None
        # Without watermarks the high watermark is out of reach.
        self._low, self._high = settings.watermarks or (0, settings.capacity + 1)
        self._pressed: bool = False
        self._escalated: bool = False
        self._ringing: bool = False
        self.strained: bool = False
        self.room: int = 0
        self._measure()

    # --- the sender's side ------------------------------------------------------------------------

    def tell(self, message: object) -> None:
        """Queue `message`, or follow the overflow policy."""
        refusal = self.admit(message)
        if refusal is not None:
            self.refuse(message, refusal)

    def admit(self, message: object) -> Refusal | None:
        """Queue `message` and return None, or return the reason to refuse it."""
        if self.closed:
            return "stopped"
        if self.settings.urgent and issubclass(type(message), self.settings.urgent):
            self.overtake(message)
            return None
        user = self.user
        if len(user) >= self.settings.capacity:
            if self.settings.overflow != "drop_oldest":
                return "full"
            self._drop_oldest()
        user.append(message)
        # On another thread this is a guess: the loop's thread compares the depth again.
        if len(user) >= self._high and not self._pressed:
            self._on_loop(self._check_pressure)
        self.wake()
        return None

    def overtake(self, entry: object) -> None:
        """Queue in the urgent lane, whatever its depth."""
        if self.urgent is None:
            self.urgent = deque()
        # The entry comes before the flag: a consumer that sees the flag must find the entry.
        self.urgent.append(entry)
        self.ahead = True
        self.wake()

    def signal(self, entry: object) -> None:
        """Queue in the system lane, whatever its depth, even when closed."""
        if self.system is None:
            self.system = deque()
        self.system.append(entry)
        self.ahead = True
        self.wake()

    def refuse(self, message: object, refusal: Refusal) -> None:
        """Apply the overflow policy to a message that was not admitted."""
        if refusal == "stopped":
            self._drop(message, refusal, ActorStopped(self.owner.path))
            return
        full = MailboxFull(self.owner.path, self.settings.capacity)
        self._drop(message, refusal, full)
        # Escalate only once: the mailbox refuses each message from now on, and the first refusal
        # ends the system.
        if self.settings.overflow == "fail_system" and not self._escalated:
            self._escalated = True
            self.core.doorbell.ring(
                partial(self.core.escalate, ActorFailed(self.owner.path, [full]))
            )

    def offer(self, message: object) -> bool:
        """Queue `message` if there is room, and return whether there was."""
        if self.admit(message) is None:
            return True
        self.refused += 1
        return False

    async def put(self, message: object) -> None:
        """Queue `message`, waiting for room; the longest waiter is served first."""
        if self.closed:
            raise ActorStopped(self.owner.path)
        if self.settings.urgent and issubclass(type(message), self.settings.urgent):
            self.overtake(message)
            return
        # Do not overtake senders that already wait.
        if (
            not self._putters
            and len(self.user) < self.settings.capacity
            and self.admit(message) is None
        ):
            return
        if self.owner.is_current():
            raise SelfDeadlock(self.owner.path, "put to its own full mailbox")
        if self._putters is None:
            self._putters = deque()
        place = _Place(message, self.core.loop.create_future())
        self._putters.append(place)
        self.strained = True
        try:
            await place.waiter
        except asyncio.CancelledError:
            self._take_back(place)
            raise
        if not place.taken:
            raise ActorStopped(self.owner.path)

    def _take_back(self, place: _Place) -> None:
        """Remove the message of a sender that was cancelled just as it got room.

        A message that is already being handled stays.
        """
        user = self.user
        for index in range(len(user) - 1, -1, -1) if place.taken else ():
            if user[index] is place.message:
                del user[index]
                # Pass the room to the next sender; and wake the consumer, which may sleep.
                self.relieve()
                self.wake()
                return

    def wake(self) -> None:
        """Wake the consumer if it sleeps."""
        waiter = self.waiter
        if waiter is None:
            return
        if get_ident() == self.core.thread:
            self.waiter = None
            self.core.dispatch.resume(waiter)
        # One call wakes the consumer for all messages that arrive before the loop runs it.
        elif not self._ringing:
            self._ringing = True
            self.core.doorbell.ring(self._wake_here)

    def _wake_here(self) -> None:
        self._ringing = False
        self.wake()

    # --- the consumer's side ----------------------------------------------------------------------

    def park(self) -> asyncio.Future[None] | None:
        """Return a future to wait for, or None when there is work."""
        if self.user or self.ahead:
            return None
        waiter: Future[None] = Future(loop=self.core.loop)
        self.waiter = waiter
        # Check again, as senders see the waiter only now: another thread may have sent a message.
        if self.user or self.ahead:
            self.waiter = None
            return None
        return waiter

    def next_ahead(self) -> Any:
        """Take the next system or urgent entry, in that order; NOTHING if there is none."""
        self.ahead = False
        # The flag is cleared before the lanes are read: a sender that appends meanwhile sets it
        # again.
        entry = (
            self.system.popleft()
            if self.system
            else self.urgent.popleft()
            if self.urgent
            else NOTHING
        )
        if self.system or self.urgent:
            self.ahead = True
        return entry

    def relieve(self) -> None:
        """Give free room to senders that wait in `put`, and tell watchers that pressure is over."""
        putters = self._putters
        if putters:
            free = self.settings.capacity - len(self.user)
            while putters and free > 0:
                place = putters.popleft()
                if not place.waiter.done():
                    # Move the message here, not when the sender resumes: no other sender can
                    # overtake, and none waits twice.
                    self.user.append(place.message)
                    place.taken = True
                    free -= 1
                    self.core.dispatch.resume(place.waiter)
        self._check_pressure()
        self.strained = self._pressed or bool(putters)

    def put_back(self, messages: Iterable[Any]) -> None:
        """Put messages at the head of the user lane, in order, whatever its depth."""
        # `extendleft` reverses, so these come back in their order.
        self.user.extendleft(reversed(tuple(messages)))
        self._check_pressure()
        self.wake()  # the handler of an ask may run while the task sleeps

    def take_notices(self) -> list[Notice]:
        """Take out all queued signals; only a stop request stays."""
        entries = self.system or ()
        self.system = deque(entry for entry in entries if isinstance(entry, StopRequest))
        return [entry for entry in entries if isinstance(entry, Notice)]

    def close(self) -> None:
        """Refuse all further messages."""
        self.closed = True
        self._measure()

    def clear(self) -> None:
        """Publish all queued messages as undelivered, and fail the senders that wait in `put`."""
        for lane in (self.urgent, self.user):
            while lane:
                entry = lane.popleft()
                # A due timer was not sent by anyone, so it is no lost message.
                if not issubclass(type(entry), Due):
                    self._drop(entry, "stopped", ActorStopped(self.owner.path))
        for place in self._putters or ():
            self.core.dispatch.resume(place.waiter)
        self._putters = self.system = None
        for ask in tuple(self.asks or ()):
            ask.settle(None, ActorStopped(self.owner.path))

    def depth(self) -> int:
        """Count the queued entries of all lanes."""
        return len(self.user) + len(self.urgent or ()) + len(self.system or ())

    @property
    def pressed(self) -> bool:
        """Whether the depth has reached the high watermark and not fallen to the low one since."""
        return self._pressed

    # --- common -----------------------------------------------------------------------------------

    def _drop(
        self, message: object, reason: Literal["stopped", "full", "dropped"], error: Exception
    ) -> None:
        self.refused += 1
        fail_replies(message, error)
        self.core.publish(Undelivered(self.owner.path, message, reason))

    def _drop_oldest(self) -> None:
        try:
            oldest = self.user.popleft()
        except IndexError:
            return  # the consumer was faster than this thread
        self._drop(oldest, "dropped", MailboxFull(self.owner.path, self.settings.capacity))

    def _on_loop(self, call: Callable[[], object]) -> None:
        if get_ident() == self.core.thread:
            call()
        else:
            self.core.doorbell.ring(call)

    def _check_pressure(self) -> None:
        """Notify the watchers when a watermark was crossed.

        Call it on the loop's thread only, so that the signals keep their order.
        """
        depth = len(self.user)
        high = depth > self._low if self._pressed else depth >= self._high
        if high is not self._pressed:
            self._pressed = high
            self.strained = self.strained or high
            self._measure()
            self.owner.tell_pressure(high)

    def _measure(self) -> None:
        if self.closed or self.settings.urgent:
            # No depth is below 0, so each message goes through `admit`.
            self.room = 0
        elif self._pressed:
            self.room = self.settings.capacity
        else:
            # One below the high watermark: the message that reaches it must go through `admit`.
            self.room = min(self.settings.capacity, self._high - 1)


class _Place:
    """A message that waits for room, and its sender's future."""

    __slots__ = ("message", "taken", "waiter")

    def __init__(self, message: object, waiter: asyncio.Future[None]) -> None:
        self.message: object = message
        self.waiter: asyncio.Future[None] = waiter
        self.taken: bool = False
