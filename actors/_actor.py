"""What users write."""

from __future__ import annotations

from collections.abc import Coroutine
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from actors._context import Context
    from actors._message import Signal

M = TypeVar("M")


class Handled(Enum):
    """The type of `HANDLED`."""

    HANDLED = "handled"


HANDLED: Final = Handled.HANDLED
"""What `Actor.signal` returns to say that it has dealt with the signal."""

Hook: TypeAlias = Coroutine[Any, Any, None] | None
SignalHook: TypeAlias = Handled | Coroutine[Any, Any, Handled | None] | None


class Actor(Generic[M]):
    """Handle messages of type `M`, one at a time.

    Subclass it, give `Spec` a factory for it, and spawn that. State is plain attributes: nobody else touches them. Both handlers may be
    `def` or `async def`; the next message waits until the current one is done, awaits included. `ctx` is there from Started on,
    not yet in `__init__`.
    """

    ctx: Context[M]

    def receive(self, message: M, /) -> Hook:
        """Handle one message. An exception goes to supervision; the message is not handled again."""
        raise NotImplementedError(f"{type(self).__qualname__} must define receive(message)")

    def signal(self, signal: Signal, /) -> SignalHook:
        """Handle one signal: Started, Stopping, Terminated or Pressure.

        Return `HANDLED` for a Terminated with a cause, or the failure of the other becomes yours: it is raised here as ActorFailed.
        Anything else may be left alone. Started and Stopping run in the same task as the messages, so what must be entered and
        left in one task (a cancel scope, a task group) may span them.
        """
        del signal
        return None
