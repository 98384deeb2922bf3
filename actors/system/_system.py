"""A system of actors with the lifetime of a block."""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING, Any, Self, TypeVar

from actors._checks import check_executor, plain_function, valid_name
from actors._errors import ActorFailed, NotAChild, SelfDeadlock, SystemClosed
from actors.actor import Cell
from actors.events import EVENTS, EventLog, EventStream, StallDetector
from actors.loop import Cancellations, LoopDispatch, Tasks, ThreadLane
from actors.messages import Terminated, cell_of
from actors.supervision import Family
from actors.system._core import SystemCore
from actors.system._host import Host
from actors.system._tree import ActorInfo, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor
    from types import TracebackType

    from actors.actor import Spec
    from actors.messages import Ref

M = TypeVar("M")
E = TypeVar("E")


class System:
    """Own actors for the duration of an `async with` block.

    `name` begins every path. `executor` runs the blocking jobs of actors without their own thread
    (default: the system's daemon threads, started on demand). `ask_timeout` is in seconds. A loop
    blocked for `stall_after` seconds publishes a `Stalled` event; None turns detection off. If a
    stall is in none of your code and shorter than `least_stall()` seconds, it is logged at DEBUG in
    place of WARNING (default: never).

    Leaving the block stops all actors, in reverse start order, children before parents, each within
    its own deadline. Cancelling during that makes the stop hard. When a top-level actor fails for
    good, the block's body is cancelled. The block then raises an ExceptionGroup of `ActorFailed`,
    with the body's own error if it had one. Nothing is left afterwards: no task, no timer, no
    thread but those of abandoned jobs.
    """

    def __init__(
        self,
        name: str,
        *,
        executor: Executor | None = None,
        ask_timeout: float = 5.0,
        stall_after: float | None = 0.05,
        least_stall: Callable[[], float] = float,
    ) -> None:
        if not valid_name(name):
            raise ValueError(f"a system's name must be a non-empty string without '/', is {name!r}")
        if not ask_timeout > 0 or (stall_after is not None and not stall_after > 0):
            raise ValueError(
                f"ask_timeout ({ask_timeout}) and stall_after ({stall_after}) are seconds "
                "and must be positive"
            )
        check_executor(executor, (None,))
        self._name = name
        self._ask_timeout = ask_timeout
        self._stall_after = stall_after
        self._least_stall = least_stall
        self._executor = executor
        self._pool: ThreadLane | None = None
        self._events = EventStream()
        self._top = _Top(f"/{name}", self._escalate)
        self._family = self._top.family
        self._failures: list[Exception] = []
        self._core: SystemCore | None = None
        self._host: Host | None = None
        self._stall: StallDetector | None = None
        self._log: EventLog

    # --- the block --------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._host is not None:
            raise RuntimeError(
                f"actor system {self._name!r} has already been entered; make a new one"
            )
        self._host = host = Host()
        loop = asyncio.get_running_loop()
        self._core = self._make_kernel(loop, Tasks(loop, host.interrupt))
        self._log = EventLog(self._events, self._core.clock, self._least_stall)
        if self._stall_after is not None:
            self._stall = StallDetector(self._core, self._cells, self._stall_after)
        return self

    def _make_kernel(self, loop: asyncio.AbstractEventLoop, tasks: Tasks) -> SystemCore:
        return SystemCore(
            tasks=tasks,
            clock=loop,
            dispatch=LoopDispatch(),
            events=self._events,
            random=random.Random(),  # noqa: S311 - jitter, not a secret
            ask_timeout=self._ask_timeout,
            executor=self._shared_executor,
            escalate=self._escalate,
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        host, core = self._opened()
        own = host.leave(error)
        interrupted = isinstance(error, asyncio.CancelledError) and not own
        cancellations = Cancellations()
        if isinstance(error, asyncio.CancelledError):
            cancellations.is_new(error)
        try:
            await self._family.stop_all(cancellations)
        except asyncio.CancelledError:
            interrupted = True
        try:
            await core.tasks.join(cancellations)
        except asyncio.CancelledError:
            interrupted = True
        finally:
            self._release(core)
        if interrupted:
            # The failures have been logged; the canceller must see its cancellation.
            raise asyncio.CancelledError
        self._raise_failures(error, own=own)

    def _raise_failures(self, error: BaseException | None, *, own: bool) -> None:
        if not self._failures or not (error is None or own or isinstance(error, Exception)):
            # Nothing failed, or the process is about to end: the body's own error propagates.
            return
        body = [error] if isinstance(error, Exception) else []
        raise ExceptionGroup(f"actor system {self._name!r} failed", [*self._failures, *body])

    def _release(self, core: SystemCore) -> None:
        core.deadlines.close()
        self._log.close()
        if self._stall is not None:
            self._stall.close()
        if self._pool is not None:
            self._pool.retire()
        core.doorbell.answer()
        core.doorbell.close()

    # --- for users --------------------------------------------------------------------------------

    async def spawn(self, spec: Spec[M], name: str, /) -> Ref[M]:
        """Start a top-level actor and return its ref once it has handled Started.

        Raises StartFailed when the factory or Started raised (nothing of the actor is left),
        NameTaken, ValueError for a name that is empty or has a slash, and SystemClosed outside the
        block. Cancelling kills the half-started actor.
        """
        host, core = self._opened()
        if host.leaving:
            raise SystemClosed(self._name)
        return await self._family.spawn(core, spec, name)

    async def stop(self, ref: Ref[Any], /) -> None:
        """Stop an actor softly (after its current message, within `stop_within`); await its end.

        Raises SelfDeadlock when that actor, or an actor below it, would wait here; NotAChild for an
        actor of another system.
        """
        cell = self._member(ref, "System.stop")
        cell.request_stop("stop")
        await cell.ended()

    async def kill(self, ref: Ref[Any], /) -> None:
        """Stop an actor hard (its current message is cancelled) and wait for its end.

        Raises the errors of `stop`.
        """
        cell = self._member(ref, "System.kill")
        cell.kill()
        await cell.ended()

    async def terminated(self, ref: Ref[Any], /) -> Terminated:
        """Wait until an actor has ended, and return its Terminated; does not stop it.

        Raises the errors of `stop`.
        """
        cell = self._member(ref, "System.terminated")
        await cell.ended()
        return Terminated(cell.ref, cell.cause or cell.start_error)

    def subscribe(self, event: type[E], handler: Callable[[E], None], /) -> Callable[[], None]:
        """Call `handler` with each Undelivered, Failed, Restarted, Stalled or Abandoned.

        Return a function that unsubscribes. Handlers run on the loop's thread, at once: they must
        be quick. Their errors are logged. Raises TypeError for other events and handlers.
        """
        if event not in EVENTS:
            names = ", ".join(each.__name__ for each in EVENTS)
            raise TypeError(
                f"subscribe of system {self._name!r} takes one of the events {names}, but got "
                f"{event!r}; an actor hears of another one's end by `ctx.watch`"
            )
        if not plain_function(handler):
            raise TypeError(
                f"subscribe of system {self._name!r} takes a type of events and a function that is "
                f"not async, but got {handler!r}; in the function, tell an actor or start a task"
            )
        return self._events.subscribe(event, handler)

    def tree(self) -> list[ActorInfo]:
        """Return all living actors, parents before children, without sending a message."""
        return list(walk(self._family))

    # --- for the framework ------------------------------------------------------------------------

    def _escalate(self, error: Exception) -> None:
        host, _ = self._opened()
        self._failures.append(error)
        host.interrupt()

    def _opened(self) -> tuple[Host, SystemCore]:
        if self._host is None or self._core is None:
            raise SystemClosed(self._name)
        return self._host, self._core

    def _member(self, ref: Ref[Any], verb: str) -> Cell:
        cell = cell_of(ref)
        if cell.core is not self._core:
            raise NotAChild(self._top.path, cell.path)
        if any(member.is_current() for member in _with_all_below(cell)):
            raise SelfDeadlock(cell.path, verb)
        return cell

    def _cells(self) -> list[Cell]:
        return [cell for top in self._family for cell in _with_all_below(top)]

    def _shared_executor(self) -> Executor:
        if self._executor is not None:
            return self._executor
        if self._pool is None:
            # The size of asyncio's own default pool.
            self._pool = ThreadLane(self._name, min(32, (os.cpu_count() or 1) + 4))
        return self._pool


class _Top:
    """The parent of top-level actors: their failures are the system's."""

    def __init__(self, path: str, escalate: Callable[[Exception], None]) -> None:
        self.path: str = path
        self.family: Family = Family(self, Cell)
        self._escalate = escalate

    def child_ended(self, child: Cell, cause: Exception | None) -> None:
        """Remove a top-level actor, and report its failure."""
        self.family.remove(child)
        if cause is not None:
            self._escalate(ActorFailed(child.path, [cause]))


def _with_all_below(cell: Cell) -> Iterator[Cell]:
    yield cell
    for child in cell.offspring():
        yield from _with_all_below(child)
