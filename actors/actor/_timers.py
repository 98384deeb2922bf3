"""Keyed timers of one actor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from actors._checks import negative
from actors.mailbox import STALE, Due

if TYPE_CHECKING:
    from actors.loop import TimerHandle
    from actors.mailbox import Inbox

M = TypeVar("M")


@final
class Timers(Generic[M]):
    """Messages to the actor itself, after a delay.

    A replaced or cancelled timer is never delivered, not even when it has already fired. Due
    messages arrive in the urgent lane, whatever the mailbox's depth. All timers end with the
    incarnation that set them.
    """

    __slots__ = ("_active", "_inbox")

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._active: dict[str, _Timer] = {}

    def once(self, key: str, delay: float, message: M, /) -> None:
        """Receive `message` in `delay` seconds, in place of the previous timer of `key`."""
        self._set(key, delay, message, period=None)

    def every(self, key: str, period: float, message: M, /) -> None:
        """Receive `message` every `period` seconds, counted from its last delivery: no bursts."""
        if period == 0:
            raise ValueError(f"period of timer {key!r} must be positive")
        self._set(key, period, message, period=period)

    def cancel(self, key: str, /) -> None:
        """End the timer of `key`; does nothing when there is none."""
        timer = self._active.pop(key, None)
        if timer is not None:
            timer.handle.cancel()

    def cancel_all(self) -> None:
        """End all timers."""
        for key in tuple(self._active):
            self.cancel(key)

    def __contains__(self, key: str) -> bool:
        """Return whether a timer of `key` is still to be delivered."""
        return key in self._active

    def _set(self, key: str, delay: float, message: Any, *, period: float | None) -> None:
        if negative(f"delay of timer {key!r}", delay):
            raise ValueError(f"delay of timer {key!r} must not be negative, is {delay}")
        self.cancel(key)
        self._active[key] = timer = _Timer(self._active, key, message, self._inbox, period)
        timer.arm(delay)


class _Timer(Due):
    __slots__ = ("_active", "_inbox", "_key", "_message", "_period", "handle")

    handle: TimerHandle

    def __init__(
        self,
        active: dict[str, _Timer],
        key: str,
        message: object,
        inbox: Inbox,
        period: float | None,
    ) -> None:
        self._active = active
        self._key = key
        self._message = message
        self._inbox = inbox
        self._period = period

    def arm(self, delay: float) -> None:
        # Do not use `tell`: a full mailbox must not lose the message, and a timer cannot wait for
        # room.
        self.handle = self._inbox.core.clock.call_later(delay, self._inbox.overtake, self)

    def open(self) -> Any:
        if self._active.get(self._key) is not self:
            return STALE
        if self._period is None:
            del self._active[self._key]
        else:
            self.arm(self._period)
        return self._message
