"""The context of an actor: its operations beyond its own state."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, final

from actors._checks import plain_function
from actors._errors import ActorStopped, NotAChild, StashFull
from actors.messages import cell_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.actor._cell import Cell
    from actors.actor._incarnation import Incarnation
    from actors.actor._spec import Spec
    from actors.actor._timers import Timers
    from actors.messages import Ref

M = TypeVar("M")
N = TypeVar("N")
T = TypeVar("T")
P = ParamSpec("P")


@final
class Context(Generic[M]):
    """An actor's interface to the framework, at `self.ctx` from Started on.

    Only the actor's own task may use the context: never pass it to other tasks.
    """

    __slots__ = ("_cell", "_life")

    def __init__(self, cell: Cell, life: Incarnation) -> None:
        self._cell = cell
        self._life = life

    @property
    def self_ref(self) -> Ref[M]:
        """The actor's own ref, to hand out."""
        return self._cell.ref

    @property
    def path(self) -> str:
        """The actor's path: /system/parent/name."""
        return self._cell.path

    @property
    def timers(self) -> Timers[M]:
        """The keyed timers of this incarnation."""
        return self._life.timers

    @property
    def children(self) -> tuple[Ref[Any], ...]:
        """The living children, oldest first."""
        return tuple(child.ref for child in self._cell.children)

    def time(self) -> float:
        """Return the system's time in seconds: the loop's clock, or a test's virtual one."""
        return self._cell.core.clock.time()

    async def spawn(self, spec: Spec[N], name: str, /) -> Ref[N]:
        """Start a child and return its ref once it has handled Started.

        Raises StartFailed when the factory or Started raised (nothing of the child is left), and
        NameTaken. Raises ValueError for a name that is empty or has a slash. Raises ActorStopped
        when this incarnation is ending, or the child was killed while it started. Cancelling kills
        the half-started child; its name is free again when it has ended.
        """
        cell = self._cell
        if self._life.closed:
            raise ActorStopped(cell.path)
        return await cell.children.spawn(cell.core, spec, name)

    def stop(self, child: Ref[Any] | None = None, /) -> None:
        """Stop a child, or this actor, softly: after its current message.

        Messages queued behind that message are undelivered. The actor's children end first,
        youngest first; then the actor gets Stopping. After `stop_within` seconds the actor is
        killed. Raises NotAChild.
        """
        if child is None:
            self._cell.request_stop("stop", by_itself=True)
        else:
            self._own(child).request_stop("stop")

    def kill(self, child: Ref[Any], /) -> None:
        """Stop a child hard: cancel its current message now. It still gets Stopping.

        Raises NotAChild.
        """
        self._own(child).kill()

    def watch(self, ref: Ref[Any], /) -> None:
        """Get Terminated when that actor ends, at once if it has ended.

        Also get Pressure if its mailbox has watermarks. Watching twice is the same as once. A
        restart of this actor forgets its watches.
        """
        other = cell_of(ref)
        if self._life.watching is None:
            self._life.watching = set()
        if other not in self._life.watching:
            self._life.watching.add(other)
            other.add_watcher(self._cell)

    def unwatch(self, ref: Ref[Any], /) -> None:
        """Stop watching that actor; this also drops signals that are already queued."""
        other = cell_of(ref)
        other.forget_watcher(self._cell)
        if self._life.watching is not None:
            self._life.watching.discard(other)

    def stash(self, message: M, /) -> None:
        """Put the message aside until `unstash`; a restart unstashes.

        Raises StashFull at the mailbox's `stash` limit.
        """
        cell = self._cell
        if cell.stash is None:
            cell.stash = []
        if len(cell.stash) >= cell.spec.mailbox.stash:
            raise StashFull(cell.path, cell.spec.mailbox.stash)
        cell.stash.append(message)

    def unstash(self) -> None:
        """Put all stashed messages back at the head of the mailbox, in their order of arrival."""
        cell = self._cell
        if cell.stash:
            cell.inbox.put_back(cell.stash)
            cell.stash = None

    async def blocking(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` in a thread, and return its result or raise its error.

        The next message waits in the meantime. The spec's `executor` runs the job. A thread cannot
        be cancelled: cancelling this wait abandons the job, publishes an `Abandoned` event, and
        drops the result. Use `pipe(ctx.blocking(...), ...)` to go on with other messages.
        """
        if not plain_function(fn):
            raise TypeError(
                f"ctx.blocking of {self.path} takes a function that is not async, and its "
                f"arguments, but got {fn!r}; give the function uncalled, or await async work"
            )
        return await self._cell.lane.run(partial(fn, *args, **kwargs))

    def pipe(
        self, work: Awaitable[T], done: Callable[[T], M], failed: Callable[[Exception], M], /
    ) -> None:
        """Await `work` while handling messages; then receive `done(result)` or `failed(error)`.

        The message arrives in the urgent lane. When this incarnation ends, `work` is cancelled and
        no message arrives.
        """
        if not inspect.isawaitable(work):
            raise TypeError(
                f"ctx.pipe of {self.path} takes an awaitable, but got {work!r}; call the async "
                "function, or wrap another one: ctx.blocking(...)"
            )
        if not (plain_function(done) and plain_function(failed)):
            raise TypeError(
                f"ctx.pipe of {self.path} takes two functions, not async, that make a message of "
                f"the result and of the error, but got {done!r} and {failed!r}"
            )
        self._life.pipes.start(work, done, failed)

    def _own(self, ref: Ref[Any]) -> Cell:
        child = cell_of(ref)
        if child.parent is not self._cell:
            raise NotAChild(self._cell.path, child.path)
        return child
