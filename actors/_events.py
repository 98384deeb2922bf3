"""The event stream: what happens in a system besides messages, for logs, metrics and tests."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

E = TypeVar("E")
_log = logging.getLogger("actors")


class Undelivered(msgspec.Struct, frozen=True):
    """A message that no actor will handle, and why; `error` is set when an adapter of `Ref.narrow` raised."""

    path: str
    message: object
    reason: Literal["stopped", "full", "dropped", "adapter"]
    error: Exception | None = None


DeadLetter = Undelivered
"""The former name of `Undelivered`."""


class Failed(msgspec.Struct, frozen=True):
    """An actor's handler, signal or factory raised; `message` is what it was handling, `decision` what supervision chose."""

    path: str
    error: Exception
    incarnation: int
    message: object
    decision: Literal["stop", "resume", "restart", "start"]


class Restarted(msgspec.Struct, frozen=True):
    """An actor runs again as `incarnation`, after a backoff of `delay` seconds."""

    path: str
    incarnation: int
    delay: float


class Stalled(msgspec.Struct, frozen=True):
    """The event loop stood still for `seconds`; `path` and `message` say who held it, `stack` where (empty path: no actor)."""

    path: str
    message: object
    seconds: float
    stack: str


class Abandoned(msgspec.Struct, frozen=True):
    """A blocking job outlived its actor; its thread goes on, its result will be dropped."""

    path: str
    job: str


class EventStream:
    """Hand each event to the handlers that asked for its type, at once, in the order of subscription."""

    __slots__ = ("_handlers",)

    def __init__(self) -> None:
        self._handlers: dict[type[Any], list[Callable[[Any], None]]] = {}

    def subscribe(self, event: type[E], handler: Callable[[E], None], /) -> Callable[[], None]:
        """Call `handler` with every event of exactly this type; return what ends the subscription."""
        handlers = self._handlers.setdefault(event, [])
        handlers.append(handler)

        def unsubscribe() -> None:
            if handler in handlers:
                handlers.remove(handler)

        return unsubscribe

    def publish(self, event: object) -> None:
        """Call the handlers of the event's type. One that raises is logged: whoever published must not suffer for a listener."""
        for handler in tuple(self._handlers.get(type(event), ())):
            try:
                handler(event)
            except (Exception, asyncio.CancelledError):
                _log.exception("handler %r of the actor event stream failed on %r", handler, event)
