"""What actors say to each other, and what they hear from the framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

import msgspec

if TYPE_CHECKING:
    from actors._ref import Ref

R_contra = TypeVar("R_contra", contravariant=True)


class Message(msgspec.Struct, frozen=True):
    """Base for messages: immutable, compared by value, cheap to make.

    A subclass repeats `frozen=True` so that type checkers see it. Any other immutable object may be sent as well. A request has its
    `Reply` as its first field, which is what `Ref.ask` fills.
    """


class Reply(Protocol[R_contra]):
    """The asker's end of a request: settled at most once, from any thread; whatever comes later is dropped.

    Keep it to answer later, or pass the request on for another actor to answer. Dropping it unanswered fails the ask with `NoReply`.
    """

    def tell(self, value: R_contra, /) -> None:
        """Answer with `value`. Never blocks, never raises."""
        ...

    def fail(self, error: Exception, /) -> None:
        """Make the ask raise `error`. Never blocks, never raises."""
        ...

    def wanted(self) -> bool:
        """Whether the asker still waits: not once it has an answer, has given up, or was cancelled. May be read from any thread."""
        ...


class Started(msgspec.Struct, frozen=True):
    """The first thing an incarnation hears: `incarnation` is 0 at first, n after the n-th restart."""

    incarnation: int


class Stopping(msgspec.Struct, frozen=True):
    """The last thing an incarnation hears, when its children have ended; it may still tell, not be told."""

    reason: StopReason


class Terminated(msgspec.Struct, frozen=True):
    """A watched actor, or a child by failure, has ended; `cause` is None after a normal stop. Comes once per watch."""

    ref: Ref[Any]
    cause: Exception | None


class Pressure(msgspec.Struct, frozen=True):
    """A watched mailbox has reached its high watermark (`high`), or has fallen to its low one again."""

    ref: Ref[Any]
    high: bool


StopReason: TypeAlias = Literal["stop", "restart", "failure", "shutdown"]
Signal: TypeAlias = Started | Stopping | Terminated | Pressure
