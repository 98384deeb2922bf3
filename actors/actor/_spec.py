"""The specification of an actor: its factory and settings."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import TYPE_CHECKING, Generic, Literal, TypeVar, final

from actors.mailbox import Mailbox
from actors.supervision import Supervise, stop_always

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.actor._actor import Actor

M = TypeVar("M")
_MAILBOX = Mailbox()


@final
class Spec(Generic[M]):
    """Describe an actor: `factory` creates it, at first and after each restart.

    `supervise` decides on an exception of the actor. `executor` runs its blocking jobs: "shared" is
    the system's pool; "own" is one thread for this actor only, for jobs with a handle that must
    stay in one thread. Or pass your own executor, which you also shut down. `stop_within` seconds
    after a stop request, the current message is cancelled; the Stopping signal has as long again.
    """

    __slots__ = ("executor", "factory", "mailbox", "stop_within", "supervise")

    def __init__(
        self,
        factory: Callable[[], Actor[M]],
        *,
        supervise: Supervise = stop_always,
        mailbox: Mailbox = _MAILBOX,
        executor: Executor | Literal["shared", "own"] = "shared",
        stop_within: float = 5.0,
    ) -> None:
        if stop_within < 0:
            raise ValueError(f"stop_within must not be negative, is {stop_within}")
        if not (isinstance(executor, Executor) or executor in {"shared", "own"}):
            raise ValueError(f"executor must be 'shared', 'own' or an Executor, is {executor!r}")
        self.factory: Callable[[], Actor[M]] = factory
        self.supervise: Supervise = supervise
        self.mailbox: Mailbox = mailbox
        self.executor: Executor | Literal["shared", "own"] = executor
        self.stop_within: float = stop_within
