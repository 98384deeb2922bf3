"""The ask pattern: requests and their replies."""

from __future__ import annotations

from asyncio import Future
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, cast

from actors._checks import negative
from actors._errors import AskTimeout, NoReply, SelfDeadlock

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from actors.loop import Expiring
    from actors.mailbox import Inbox

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Ask(Protocol[R_co]):
    """A pending reply. The request is already sent; awaiting only waits, so asks can overlap."""

    def __await__(self) -> Generator[Any, None, R_co]:
        """Return the reply.

        Raise the error given to `Reply.fail`, or ActorStopped, NoReply, MailboxFull, AskTimeout or
        SelfDeadlock. The timeout counts from this await. Cancelling drops the reply and never waits
        for the callee. Raises RuntimeError when another task already awaits it, or when an earlier
        wait was cancelled.
        """
        ...

    def within(self, seconds: float, /) -> Self:
        """Set the timeout to `seconds` (inf: no timeout), in place of the system's `ask_timeout`.

        Call `within` before awaiting. Returns the ask itself.
        """
        ...


class PendingAsk(Generic[R]):
    """The asker's half of an ask.

    This half does not reference the reply's half, so that the reply is finalized, and the ask
    fails, as soon as the callee drops it.
    """

    __slots__ = (
        "_deadlines",
        "_error",
        "_inbox",
        "_seconds",
        "_siblings",
        "_value",
        "_waiter",
        "open",
    )

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._seconds = inbox.core.ask_timeout
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
        """Set the timeout in seconds."""
        if negative("the time for an answer", seconds) or seconds == 0:
            raise ValueError(
                f"an ask cannot be answered within {seconds} s; the time must be positive"
            )
        self._seconds = seconds
        return self

    def __await__(self) -> Generator[Any, None, R]:
        inbox = self._inbox
        inbox.core.dispatch.asking = False
        if self.open:
            if inbox.owner.is_current():
                raise SelfDeadlock(inbox.owner.path, "ask")
            if self._waiter is not None:
                raise RuntimeError(
                    f"this ask of {inbox.owner.path} is already awaited; await it once and share "
                    "the answer"
                )
            core = inbox.core
            # Not loop.create_future(), which in asyncio is a Python wrapper around this call.
            waiter: Future[None] = Future(loop=core.loop)
            self._waiter = waiter
            self._deadlines = core.deadlines.add(self, self._seconds)
            try:
                yield from waiter
            finally:
                if self.open:
                    self._error = RuntimeError(
                        f"this ask of {inbox.owner.path} was cancelled while it was "
                        "awaited; ask again"
                    )
                    self._end()
        if self._error is not None:
            try:
                raise self._error
            finally:
                # The traceback holds this frame: without the name, the error is in no reference
                # cycle.
                del self
        return self._value  # type: ignore[no-any-return]  # untyped: unset until settled

    @property
    def path(self) -> str:
        """The path of the actor that was asked."""
        return self._inbox.owner.path

    def settle(self, value: Any, error: Exception | None) -> None:
        """Store the reply or the error and wake the asker; from any thread, once."""
        if not self.open:
            return
        core = self._inbox.core
        if get_ident() != core.thread:
            # If two threads answer at once, the first call on the loop's thread wins: only that
            # thread decides.
            core.doorbell.ring(partial(self.settle, value, error))
            return
        self._value = value
        self._error = error
        self._end()
        waiter = self._waiter
        if waiter is not None:
            core.dispatch.resume(waiter)

    def expire(self) -> None:
        """Fail with AskTimeout."""
        owner = self._inbox.owner
        self.settle(None, AskTimeout(owner.path, self._seconds, owner.doing()))

    def _end(self) -> None:
        self.open = False
        self._siblings.pop(self, None)
        if self._deadlines is not None:
            self._deadlines.pop(self, None)


class PendingReply(Generic[R]):
    """The half of an ask that is sent in the request. It releases the ask once answered.

    An ask holds the error that it failed with, and the error's traceback holds the request. Without
    the release these objects would form a cycle.
    """

    __slots__ = ("_ask",)

    def __init__(self, ask: PendingAsk[R]) -> None:
        self._ask: PendingAsk[R] | None = ask

    def tell(self, value: R, /) -> None:
        """Reply with `value`."""
        ask = self._ask
        if ask is not None:
            self._ask = None
            ask.settle(value, None)

    def fail(self, error: Exception, /) -> None:
        """Make the ask raise `error`."""
        ask = self._ask
        if ask is not None:
            self._ask = None
            ask.settle(None, _raisable(error, ask.path))

    def wanted(self) -> bool:
        """Return whether the asker still waits."""
        ask = self._ask
        return ask is not None and ask.open

    def __del__(self) -> None:
        ask = self._ask
        if ask is not None and ask.open:
            ask.settle(None, NoReply(ask.path))

    def __repr__(self) -> str:
        return "<Reply, given>" if self._ask is None else f"<Reply of {self._ask.path}>"


def _raisable(error: Any, path: str) -> Any:
    """Return the error, or a TypeError in place of an object that cannot be raised."""
    if isinstance(error, BaseException | type):
        return error
    return TypeError(
        f"{path} failed this ask with an object of {type(error).__qualname__}, which is no "
        "exception; give reply.fail an exception"
    )


def replies_in(message: object) -> Iterator[PendingReply[Any]]:
    """Yield the replies in `message`.

    Looks at the fields of a Struct, a dataclass or a plain object, and at the items of a tuple.
    """
    # Look only at the type: the message's own attribute lookup may raise anything.
    fields: Iterable[Any] = (_field(message, name) for name in _fields(type(message), message))
    values: Iterable[Any] = (
        cast("tuple[Any, ...]", message) if issubclass(type(message), tuple) else fields
    )
    for value in values:
        if type(value) is PendingReply:  # isinstance would ask the value, which may be a dead proxy
            yield value


def _fields(kind: type[object], message: object) -> Iterator[str]:
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
    # A message may be a class, sent by mistake: its type has only a descriptor of that name.
    fields = getattr(kind, "__struct_fields__", ())
    yield from fields if isinstance(fields, tuple) else ()
    yield from _field(message, "__dict__") or ()


def _field(message: object, name: str) -> Any:
    try:
        return getattr(message, name, None)
    except Exception:
        # The attribute is a faulty descriptor or a dead proxy. Dropping a message must not fail
        # because of its content.
        return None


def fail_replies(message: object, error: Exception) -> None:
    """Make every ask with a reply in `message` raise `error`."""
    for reply in replies_in(message):
        reply.fail(error)
