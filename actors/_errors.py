"""The errors of the framework.

ActorsError
├── ActorStopped       ask, put: the actor ended, or ended before its reply  → give up or ask again
├── AskTimeout         ask: no reply in time (also a TimeoutError)           → retry if idempotent
├── NoReply            ask: the reply was dropped unanswered                 → fix the callee
├── MailboxFull        ask: request refused; fail_system: the system ends    → slow down, use put
├── SelfDeadlock       ask, put: an actor would wait for itself              → use tell, or ctx.pipe
├── StashFull          stash: more messages than the mailbox allows          → handle or drop some
├── StartFailed        spawn: factory or Started raised, nothing is left     → fix the cause, retry
├── NameTaken          spawn: a living sibling has this name                 → choose another
├── NotAChild          stop, kill: only a parent or the system stops actors  → tell it to stop
├── StrayCancellation  a handler awaited something that was cancelled        → catch CancelledError
└── SystemClosed       spawn: the system is not open                         → spawn in `async with`

ActorFailed is an ExceptionGroup: the error that ended an actor. Groups nest as the actors do, so
`except*` finds the root cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, final

if TYPE_CHECKING:
    from collections.abc import Sequence


class ActorsError(Exception):
    """Base of all errors that the framework raises. They can be pickled for other processes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), self.args), self.__dict__


def _remake(kind: type[ActorsError], args: tuple[Any, ...]) -> ActorsError:
    # Bypass __init__, which builds the text from its arguments.
    error = kind.__new__(kind)
    error.args = args
    return error


@final
class ActorStopped(ActorsError):
    """Raised to callers that wait for an actor that has ended, or that ends before it replies."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"actor {path} has stopped")


@final
class AskTimeout(ActorsError, TimeoutError):
    """Raised by an ask without a reply in time; a late reply is dropped.

    The message describes the callee's work at that moment.
    """

    def __init__(self, path: str, seconds: float, doing: str) -> None:
        self.path = path
        self.seconds = seconds
        super().__init__(f"no answer from {path} within {seconds:g} s; {doing}")


@final
class NoReply(ActorsError):
    """Raised by an ask as soon as its reply is dropped unanswered, before any timeout."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path} dropped the reply of this ask unanswered; call reply.tell or reply.fail on "
            "every path of its handler"
        )


@final
class MailboxFull(ActorsError):
    """Raised when a message is refused because the user lane is at its capacity (in messages)."""

    def __init__(self, path: str, capacity: int) -> None:
        self.path = path
        self.capacity = capacity
        super().__init__(
            f"mailbox of {path} is full ({capacity} messages); use put to wait for room, or raise "
            "Mailbox(capacity=...)"
        )


@final
class SelfDeadlock(ActorsError):
    """Raised when an actor awaits its own reply, or room in its own full mailbox."""

    def __init__(self, path: str, verb: str) -> None:
        self.path = path
        super().__init__(
            f"{path} would wait for itself in {verb}; use tell, or ctx.pipe to go on when "
            "the answer is there"
        )


@final
class StashFull(ActorsError):
    """Raised by `Context.stash` when its limit (in messages) is reached."""

    def __init__(self, path: str, limit: int) -> None:
        self.path = path
        self.limit = limit
        super().__init__(
            f"stash of {path} is full ({limit} messages); unstash earlier, or raise "
            "Mailbox(stash=...)"
        )


@final
class StartFailed(ActorsError):
    """Raised to the spawner when the factory or Started raised; the reason is its `__cause__`."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"actor {path} failed to start; nothing of it is left, see the cause")


@final
class NameTaken(ActorsError):
    """Raised by spawn when a sibling that has not ended yet has the same name."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"an actor at {path} exists; wait for its end, or choose another name")


@final
class NotAChild(ActorsError):
    """Raised when an actor or a system tries to stop an actor that is not its own."""

    def __init__(self, path: str, other: str) -> None:
        self.path = path
        self.other = other
        super().__init__(
            f"{other} is not below {path}; send it a message that makes it stop itself"
        )


@final
class StrayCancellation(ActorsError):
    """Raised into supervision when a handler raised a CancelledError without a cancelled actor."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"a handler of {path} awaited something that was cancelled; catch CancelledError "
            "around that await"
        )


@final
class SystemClosed(ActorsError):
    """Raised by spawn before the system's `async with` block, or while the block is exited."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"actor system {name!r} is not open; spawn inside its `async with` block")


class ActorFailed(ExceptionGroup[Exception]):
    """The failure of an actor with its path and error, nested as the actors are.

    So `except* ValueError` finds the root cause. Raised to the caller of a system's block (inside
    one ExceptionGroup), and into a watcher that left a Terminated with a cause unhandled.
    """

    path: str

    def __new__(cls, path: str, causes: Sequence[Exception]) -> Self:
        group = super().__new__(cls, f"actor {path} failed", causes)
        group.path = path
        return group

    # The base class is generic over its members.
    def derive(self, excs: Sequence[Exception], /) -> ActorFailed:  # type: ignore[override]
        """Return a group with other exceptions, so that `except*` and `split` keep the path."""
        return ActorFailed(self.path, excs)
