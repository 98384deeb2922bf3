"""The base class of actors."""

from __future__ import annotations

from collections.abc import Coroutine
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from actors.actor._context import Context
    from actors.messages import Signal

M = TypeVar("M")


class Handled(Enum):
    """The type of `HANDLED`."""

    HANDLED = "handled"


HANDLED: Final = Handled.HANDLED
"""The return value of `Actor.signal` for a signal that the actor has handled."""

Hook: TypeAlias = Coroutine[Any, Any, None] | None
SignalHook: TypeAlias = Handled | Coroutine[Any, Any, Handled | None] | None


class Actor(Generic[M]):
    """Handle messages of type `M`, one at a time.

    Subclass Actor, pass a factory of the subclass to `Spec`, and spawn the spec. State is plain
    attributes, which only the actor touches. Both handlers may be `def` or `async def`; the next
    message waits until the current one is done, awaits included. `ctx` is available from Started
    on, but not in `__init__`.
    """

    ctx: Context[M]

    def receive(self, message: M, /) -> Hook:
        """Handle one message. An exception goes to supervision; the message is not retried."""
        raise NotImplementedError(f"{type(self).__qualname__} must define receive(message)")

    def signal(self, signal: Signal, /) -> SignalHook:
        """Handle one signal: Started, Stopping, Terminated or Pressure.

        Return `HANDLED` for a Terminated with a cause; otherwise the other actor's failure becomes
        yours, raised here as ActorFailed. Every other signal may be ignored. Started and Stopping
        run in the same task as the messages. So a cancel scope or a task group, which one task must
        enter and leave, may span them.
        """
        del signal
        return None
