"""The event stream: events of a system besides messages, for logs, metrics and tests."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

E = TypeVar("E")
_log = logging.getLogger("actors")


class Undelivered(msgspec.Struct, frozen=True):
    """A message that no actor will handle, and the reason.

    `error` is set when an adapter of `Ref.narrow` raised.
    """

    path: str
    message: object
    reason: Literal["stopped", "full", "dropped", "adapter"]
    error: Exception | None = None


DeadLetter = Undelivered
"""The former name of `Undelivered`."""


class Failed(msgspec.Struct, frozen=True):
    """An actor's handler, signal or factory raised.

    `message` is the message that the actor was handling. `decision` is the choice of supervision,
    or "stop" if that is impossible; then `reason` is the cause, such as a spent restart budget.
    """

    path: str
    error: Exception
    incarnation: int
    message: object
    decision: Literal["stop", "resume", "restart", "start"]
    reason: str = ""


class Restarted(msgspec.Struct, frozen=True):
    """An actor runs again as `incarnation`, after a backoff of `delay` seconds."""

    path: str
    incarnation: int
    delay: float


class Stalled(msgspec.Struct, frozen=True):
    """The event loop was blocked for `seconds`.

    `path` and `message` name the blocking actor (empty path: no actor). `stack` is the stack of the
    loop's thread, and `place` the innermost frame of your own code, as "function (file:line)"
    (empty: there is none).
    """

    path: str
    message: object
    seconds: float
    stack: str
    place: str = ""


class Abandoned(msgspec.Struct, frozen=True):
    """A blocking job has no waiter any more; its thread goes on, its result will be dropped."""

    path: str
    job: str


EVENTS: Final[tuple[type[Any], ...]] = (Undelivered, Failed, Restarted, Stalled, Abandoned)
"""The types of all events."""


class EventStream:
    """Pass each event to the handlers of its type, at once, in the order of subscription."""

    __slots__ = ("_handlers",)

    def __init__(self) -> None:
        self._handlers: dict[type[Any], list[Callable[[Any], None]]] = {}

    def subscribe(self, event: type[E], handler: Callable[[E], None], /) -> Callable[[], None]:
        """Call `handler` with each event of exactly this type; return an unsubscribe function."""
        handlers = self._handlers.setdefault(event, [])
        handlers.append(handler)

        def unsubscribe() -> None:
            if handler in handlers:
                handlers.remove(handler)

        return unsubscribe

    def publish(self, event: object) -> None:
        """Call the handlers of the event's type.

        A handler's error is logged, as a listener must not break the publisher.
        """
        for handler in tuple(self._handlers.get(type(event), ())):
            try:
                handler(event)
            except (Exception, asyncio.CancelledError):
                # Name only its type: an event may contain a message, with secrets.
                _log.exception(
                    "handler %r of the actor event stream failed on %s of %s",
                    handler,
                    type(event).__qualname__,
                    getattr(event, "path", "") or "no actor",
                )
