"""A question and its answer."""

from __future__ import annotations

from asyncio import Future
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, cast

from actors._errors import AskTimeout, NoReply, SelfDeadlock

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from actors._deadlines import Expiring
    from actors._inbox import Inbox

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Ask(Protocol[R_co]):
    """An answer to come. The request is sent already; awaiting only waits, so several may be under way at once."""

    def __await__(self) -> Generator[Any, None, R_co]:
        """Return the answer, or raise what `Reply.fail` was given, ActorStopped, NoReply, MailboxFull, AskTimeout or SelfDeadlock.

        The time runs from here on. Cancelling drops the answer and never waits for the callee. Raises RuntimeError when somebody else awaits it
        already, or when an earlier wait was cancelled.
        """
        ...

    def within(self, seconds: float, /) -> Self:
        """Wait at most `seconds` (inf: for ever) instead of the system's `ask_timeout`; call it before awaiting. Returns the ask itself."""
        ...


class PendingAsk(Generic[R]):
    """The asker's half. It does not know the reply's half, so that a reply which nobody holds any more is noticed at once."""

    __slots__ = ("_deadlines", "_error", "_inbox", "_seconds", "_siblings", "_value", "_waiter", "open")

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._seconds = inbox.kernel.ask_timeout
        self.open: bool = True
        self._waiter: Future[None] | None = None
        self._deadlines: dict[Expiring, float] | None = None
        self._error: Exception | None = None
        asks = inbox.asks
        if asks is None:
            asks = inbox.asks = {}
        asks[self] = None
        self._siblings = asks

    def within(self, seconds: float, /) -> Self:
        """Wait at most `seconds`."""
        if not seconds > 0:
            raise ValueError(f"an ask cannot be answered within {seconds} s; the time must be positive")
        self._seconds = seconds
        return self

    def __await__(self) -> Generator[Any, None, R]:
        if self.open:
            inbox = self._inbox
            if inbox.owner.is_current():
                raise SelfDeadlock(inbox.owner.path, "ask")
            if self._waiter is not None:
                raise RuntimeError(f"this ask of {inbox.owner.path} is awaited already; await it once and share the answer")
            kernel = inbox.kernel
            # Not loop.create_future(), which on asyncio is a call in Python around this one.
            waiter: Future[None] = Future(loop=kernel.loop)
            self._waiter = waiter
            self._deadlines = kernel.deadlines.add(self, self._seconds)
            try:
                yield from waiter
            finally:
                if self.open:
                    self._error = RuntimeError(f"this ask of {inbox.owner.path} was cancelled while it was awaited; ask again")
                    self._end()
        if self._error is not None:
            try:
                raise self._error
            finally:
                # The traceback holds this frame: without the name in it, the error is no cycle for the garbage collector to find.
                del self
        return self._value  # type: ignore[no-any-return]  # an untyped slot: it is unset until settled, and R cannot say so

    @property
    def path(self) -> str:
        """Who was asked."""
        return self._inbox.owner.path

    def settle(self, value: Any, error: Exception | None) -> None:
        """Keep the answer or the error and let the asker go on; from any thread, once."""
        if not self.open:
            return
        kernel = self._inbox.kernel
        if get_ident() != kernel.thread:
            kernel.doorbell.ring(partial(self.settle, value, error))
            return
        self._value = value
        self._error = error
        self._end()
        waiter = self._waiter
        if waiter is not None:
            kernel.dispatch.resume(waiter)

    def expire(self) -> None:
        """Give up: the time is over."""
        owner = self._inbox.owner
        self.settle(None, AskTimeout(owner.path, self._seconds, owner.doing()))

    def _end(self) -> None:
        self.open = False
        self._siblings.pop(self, None)
        if self._deadlines is not None:
            self._deadlines.pop(self, None)


class PendingReply(Generic[R]):
    """The half that travels in the request. It lets go of the ask once it is given.

    An ask holds the error that it failed with, the error's traceback holds the request: without this they would be a cycle.
    """

    __slots__ = ("_ask",)

    def __init__(self, ask: PendingAsk[R]) -> None:
        self._ask: PendingAsk[R] | None = ask

    def tell(self, value: R, /) -> None:
        """Answer with `value`."""
        ask = self._ask
        if ask is not None:
            self._ask = None
            ask.settle(value, None)

    def fail(self, error: Exception, /) -> None:
        """Make the ask raise `error`."""
        ask = self._ask
        if ask is not None:
            self._ask = None
            ask.settle(None, error)

    def wanted(self) -> bool:
        """Whether the asker still waits."""
        ask = self._ask
        return ask is not None and ask.open

    def __del__(self) -> None:
        ask = self._ask
        if ask is not None and ask.open:
            ask.settle(None, NoReply(ask.path))

    def __repr__(self) -> str:
        return "<Reply, given>" if self._ask is None else f"<Reply of {self._ask.path}>"


def replies_in(message: object) -> Iterator[PendingReply[Any]]:
    """Yield the replies that `message` carries: the fields of a Struct, a dataclass or a plain object, the items of a tuple."""
    # By its type alone: a message may answer every question with an exception.
    fields: Iterable[Any] = (_field(message, name) for name in _fields(type(message), message))
    values: Iterable[Any] = cast("tuple[Any, ...]", message) if issubclass(type(message), tuple) else fields
    for value in values:
        if type(value) is PendingReply:  # isinstance would ask the value, which may be a dead proxy
            yield value


def _fields(kind: type[object], message: object) -> Iterator[str]:
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
    yield from getattr(kind, "__struct_fields__", ())
    yield from _field(message, "__dict__") or ()


def _field(message: object, name: str) -> Any:
    try:
        return getattr(message, name, None)
    except Exception:
        # A descriptor of the message's own, or a dead proxy. Whoever drops a message must not suffer for what it is.
        return None


def fail_replies(message: object, error: Exception) -> None:
    """Make every ask whose reply is in `message` raise `error`."""
    for reply in replies_in(message):
        reply.fail(error)
