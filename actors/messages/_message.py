"""Messages between actors, and signals from the framework."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from actors.messages._ref import Ref

R_contra = TypeVar("R_contra", contravariant=True)


class Message(msgspec.Struct, frozen=True):
    """Base for messages: immutable, compared by value, cheap to create.

    A subclass repeats `frozen=True` so that type checkers see it. Any other immutable object may be
    sent as well. A request has its `Reply` as its first field, which `Ref.ask` fills.
    """


class Reply(Protocol[R_contra]):
    """The callee's end of an ask: settled at most once, from any thread; later calls are dropped.

    Keep the reply to answer later, or pass the request on for another actor to answer. Dropping the
    reply unanswered fails the ask with `NoReply`.
    """

    def tell(self, value: R_contra, /) -> None:
        """Reply with `value`. Never blocks, never raises."""
        ...

    def fail(self, error: Exception, /) -> None:
        """Make the ask raise `error`. Never blocks, never raises."""
        ...

    def wanted(self) -> bool:
        """Return whether the asker still waits; from any thread.

        False once the asker has a reply, has timed out, or was cancelled.
        """
        ...


class Started(msgspec.Struct, frozen=True):
    """The first signal of an incarnation: `incarnation` is 0 at first, n after the n-th restart."""

    incarnation: int


class Stopping(msgspec.Struct, frozen=True):
    """The last signal of an incarnation, after its children's end; it can still send messages."""

    reason: StopReason


class Terminated(msgspec.Struct, frozen=True):
    """A watched actor, or a child by failure, has ended.

    `cause` is None after a normal stop. The signal comes once per watch.
    """

    ref: Ref[Any]
    cause: Exception | None


class Pressure(msgspec.Struct, frozen=True):
    """A watched mailbox has reached its high watermark (`high`), or fallen to its low watermark."""

    ref: Ref[Any]
    high: bool


StopReason: TypeAlias = Literal["stop", "restart", "failure", "shutdown"]
Signal: TypeAlias = Started | Stopping | Terminated | Pressure
