"""The ref of an actor, its only handle for others."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, final

from actors.events import Undelivered
from actors.messages._ask import Ask, PendingAsk, PendingReply, fail_replies
from actors.messages._misasked import explained

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.actor import Cell
    from actors.mailbox import Inbox
    from actors.messages._message import Reply

M_contra = TypeVar("M_contra", contravariant=True)
T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class Ref(Generic[M_contra]):
    """Send messages of type `M_contra` to one actor, alive or not; survives its restarts.

    Only `spawn` makes refs. Messages of one sender to one actor arrive in the order of the tells. A
    ref for more kinds of messages serves as a ref for fewer (`Ref[A | B]` is a `Ref[A]`). Refs to
    the same actor are equal, including adapted refs.
    """

    __slots__ = ("_inbox",)

    def __init__(self, inbox: Inbox, /) -> None:
        self._inbox = inbox

    @property
    def path(self) -> str:
        """The actor's path: /system/parent/name."""
        return self._inbox.owner.path

    def tell(self, message: M_contra, /) -> None:
        """Send `message` and go on. Never blocks, never raises; any thread may call it.

        A full mailbox follows its overflow policy; a stopped actor's messages are undelivered. In
        both cases an ask in the message fails at once.
        """
        inbox = self._inbox
        user = inbox.user
        if len(user) < inbox.room:
            user.append(message)
            if inbox.waiter is not None:
                inbox.wake()
        else:
            inbox.tell(message)

    def offer(self, message: M_contra, /) -> bool:
        """Send `message` if there is room; from any thread.

        Return False when the mailbox is full or the actor has stopped.
        """
        return self._inbox.offer(message)

    async def put(self, message: M_contra, /) -> None:
        """Send `message`, waiting for room: this is backpressure. First come, first served.

        Cancelling the wait leaves nothing behind, unless the message is already being handled.
        Raises ActorStopped, and SelfDeadlock when an actor would wait for itself. Never put against
        the flow: two actors that put to each other can deadlock.
        """
        await self._inbox.put(message)

    def ask(
        self,
        request: Callable[Concatenate[Reply[R], P], M_contra],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Ask[R]:
        """Send `request(reply, *args, **kwargs)` now, and return an awaitable of the reply.

        `request` is usually a message class with a `Reply[R]` as its first field. Call from the
        event loop's thread.
        """
        pending: PendingAsk[R] = PendingAsk(self._inbox)
        try:
            message = request(PendingReply(pending), *args, **kwargs)
        except TypeError as error:
            # If the request was called and failed inside, its frames are below this frame.
            called = error.__traceback__ is not None and error.__traceback__.tb_next is not None
            if called:
                raise
            raise explained(error, self.path, request) from error
        inbox = self._inbox
        if (
            inbox.waiter is None
            or type(self) is _Adapted  # its `tell` adapts the message first
            or not inbox.owner.handle_now(message)
        ):
            self.tell(message)
        return pending

    def narrow(self, adapt: Callable[[T], M_contra], /) -> Ref[T]:
        """Return a ref that takes `T` and sends `adapt(message)`; `adapt` runs at the sender.

        `adapt` must be quick. When it raises, `tell` leaves the message undelivered, and `put`
        raises.
        """
        return _Adapted(self, adapt)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other._inbox is self._inbox

    def __hash__(self) -> int:
        return hash(id(self._inbox))

    def __repr__(self) -> str:
        return f"<Ref {self.path}>"


def cell_of(ref: Ref[Any]) -> Cell:
    """Return the cell of the actor behind `ref`; raise TypeError for anything else."""
    if not isinstance(ref, Ref):
        raise TypeError(_no_ref(ref))
    return ref._inbox.owner  # type: ignore[return-value]  # noqa: SLF001 - the owner is a cell


def _no_ref(it: object) -> str:
    if inspect.iscoroutine(it):
        return "expected a Ref, but got a coroutine; await spawn, which returns the ref"
    return (
        f"expected a Ref, but got an object of {type(it).__qualname__}; give what spawn returned, "
        "or the actor's own ctx.self_ref"
    )


@final
class _Adapted(Ref[T]):
    __slots__ = ("_adapt", "_to")

    def __init__(self, to: Ref[Any], adapt: Callable[[T], Any]) -> None:
        super().__init__(to._inbox)  # noqa: SLF001 - of the same class
        self._to = to
        self._adapt = adapt

    def tell(self, message: T, /) -> None:
        self._try(message, self._to.tell)

    def offer(self, message: T, /) -> bool:
        return self._try(message, self._to.offer) is True

    async def put(self, message: T, /) -> None:
        await self._to.put(self._adapt(message))

    def _try(self, message: T, send: Callable[[Any], bool | None]) -> bool | None:
        try:
            adapted = self._adapt(message)
        except Exception as error:
            fail_replies(message, error)
            self._inbox.core.publish(Undelivered(self.path, message, "adapter", error))
            return False
        return send(adapted)
