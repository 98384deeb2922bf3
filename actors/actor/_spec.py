"""The specification of an actor: its factory and settings."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, final

from actors._checks import check_executor, negative
from actors.mailbox import Mailbox
from actors.supervision import Restart, Resume, Stop, Supervise, stop_always

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from actors.actor._actor import Actor

M = TypeVar("M")
_MAILBOX = Mailbox()


@final
class Spec(Generic[M]):
    """Describe an actor: `factory` creates it, at first and after each restart.

    `supervise` decides on an exception of the actor. `executor` runs its blocking jobs: "shared" is
    the system's pool; "own" is one thread for this actor only, for jobs with a handle that must
    stay in one thread. Or pass your own executor, which you also shut down. `stop_within` seconds
    after a stop request, the current message is cancelled; the Stopping signal then has the same
    time.
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
        _check_factory(factory)
        if supervise is not stop_always:
            _check_supervise(supervise)
        if not isinstance(mailbox, Mailbox):
            raise TypeError(f"mailbox must be a Mailbox(capacity=...), is {mailbox!r}")
        if negative("stop_within", stop_within):
            raise ValueError(f"stop_within must not be negative, is {stop_within}")
        check_executor(executor, ("shared", "own"))
        self.factory: Callable[[], Actor[M]] = factory
        self.supervise: Supervise = supervise
        self.mailbox: Mailbox = mailbox
        self.executor: Executor | Literal["shared", "own"] = executor
        self.stop_within: float = stop_within


def _check_factory(factory: Any) -> None:
    if not callable(factory):
        name = type(factory).__qualname__
        raise TypeError(
            f"Spec takes a factory of actors, not an object of {name}: give the class, "
            f"Spec({name}), or a function, Spec(lambda: {name}(...)): each restart makes a new one"
        )
    if inspect.iscoroutinefunction(factory):
        raise TypeError(
            f"the factory {factory!r} of Spec must not be `async def`; await in `signal`, at "
            "Started"
        )


def _check_supervise(supervise: Any) -> None:
    decisions = (Stop, Resume, Restart)
    if isinstance(supervise, decisions):
        hint = f"lambda error: {supervise!r}"
    elif isinstance(supervise, type) and issubclass(supervise, decisions):
        hint = f"lambda error: {supervise.__name__}()"
    elif inspect.iscoroutinefunction(supervise):
        hint = "a `def`, as it must decide at once"
    elif not callable(supervise):
        hint = "lambda error: Restart()"
    else:
        return
    raise TypeError(
        f"supervise must be a function that takes the error and returns Stop(), Resume() or "
        f"Restart(...), is {supervise!r}; give {hint}"
    )


def check_spec(spec: Any, path: str) -> None:
    """Raise TypeError if `spec`, for the actor at `path`, is not a Spec."""
    if type(spec) is Spec:
        return
    if isinstance(spec, type):
        raise TypeError(f"spawn of {path} takes a Spec, not a class; give Spec({spec.__name__})")
    if callable(spec):
        raise TypeError(f"spawn of {path} takes a Spec, not a function; give Spec(function)")
    name = type(spec).__name__
    raise TypeError(f"spawn of {path} takes a Spec, not {name}; give Spec(A) of an Actor class A")
