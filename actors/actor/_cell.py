"""The cell of an actor: its task, its turns, and its life from Started to Stopping.

The path of a message: `Ref.tell` appends it to the inbox and wakes the task, `run` resumes, and
`_turn` takes messages one by one and calls `receive`. An ask of an idle actor goes a shorter way:
`Ref.ask` calls `handle_now`, which calls `receive` at once.
"""

from __future__ import annotations

import asyncio
import inspect
from time import perf_counter
from typing import TYPE_CHECKING, Any

from actors._errors import ActorStopped, StartFailed, StrayCancellation
from actors.actor._actor import Actor
from actors.actor._at_once import drop_begun, go_on, handle_now
from actors.actor._blocking import BlockingLane
from actors.actor._context import Context
from actors.actor._incarnation import Incarnation
from actors.actor._spec import check_spec
from actors.events import Failed
from actors.loop import TURN
from actors.mailbox import NOTHING, STALE, Due, Inbox, Notice, StopRequest
from actors.messages import Pressure, Ref, Started, Terminated
from actors.supervision import Family, Mortal, State, bury, failed, finish, move

if TYPE_CHECKING:
    from actors.actor._at_once import Begun
    from actors.actor._spec import Spec
    from actors.messages import StopReason
    from actors.supervision import Parent, RestartBudget
    from actors.system import SystemCore


class Cell(Mortal):
    """The framework's side of one actor. A restart replaces the incarnation, not ref and mailbox.

    Parts that most actors never need (children, watchers, a thread …) are created on first use, so
    that an idle actor stays below 5 kB.
    """

    __slots__ = (
        "_children",
        "_lane",
        "_quota",
        "_starting",
        "_watchers",
        "begun",
        "budget",
        "busy",
        "current",
        "failure",
        "has_started",
        "incarnation",
        "name",
        "parent",
        "path",
        "processed",
        "ref",
        "restarts",
        "since",
        "start_error",
        "stash",
    )

    inbox: Inbox
    reason: StopReason
    state: State
    task: asyncio.Task[Any]

    def __init__(self, core: SystemCore, spec: Spec[Any], parent: Parent, name: str) -> None:
        self.path: str = f"{parent.path}/{name}"
        check_spec(spec, self.path)
        super().__init__(core, spec)
        self.parent: Parent = parent
        self.name: str = name
        self.inbox = Inbox(core, spec.mailbox, self)
        self.ref: Ref[Any] = Ref(self.inbox)
        self.incarnation: Incarnation | None = None
        # current work, for the live view
        self.current: Any = None
        self.failure: Exception | None = None
        self.since: float = 0.0
        self.processed: int = 0
        self.busy: float = 0.0
        self.restarts: int = 0
        self.has_started: bool = False
        # how it ends
        self.start_error: Exception | None = None
        self.budget: RestartBudget | None = None
        self.stash: list[Any] | None = None
        # Start with a low quota: it is not known yet how long a message takes.
        self._quota = min(4, spec.mailbox.batch, core.dispatch.longest_turn)
        self.begun: Begun | None = None
        self._starting: asyncio.Future[None] | None = None
        self._children: Family | None = None
        self._watchers: dict[Cell, None] | None = None
        self._lane: BlockingLane | None = None

    @property
    def children(self) -> Family:
        """The living children of this actor."""
        if self._children is None:
            self._children = Family(self, Cell)
        return self._children

    @property
    def lane(self) -> BlockingLane:
        """The runner of the actor's blocking jobs."""
        if self._lane is None:
            self._lane = BlockingLane(self.core, self.path, self.spec.executor)
        return self._lane

    def close_lane(self) -> None:
        """End the actor's own thread, if there is one."""
        if self._lane is not None:
            self._lane.close()

    # --- start ------------------------------------------------------------------------------------

    def create(self, number: int) -> Incarnation:
        """Create the actor of incarnation `number`; raises the factory's errors."""
        try:
            actor = self.spec.factory()
        except AttributeError as error:
            if error.name == "ctx" and isinstance(error.obj, Actor):
                error.add_note("ctx is available from Started on, not yet in __init__")
            raise
        if not isinstance(actor, Actor):
            raise TypeError(
                f"the factory of {self.path} returned {actor!r}; it must return a new Actor"
            )
        if getattr(actor, "ctx", None) is not None:
            raise TypeError(
                f"the factory of {self.path} returned {actor!r}, which is or was in use as "
                f"{actor.ctx.path}; it must return a new Actor each time"
            )
        self.incarnation = life = Incarnation(number, actor, self.inbox)
        actor.ctx = Context(self, life)
        return life

    def launch(self, life: Incarnation) -> None:
        """Start the task."""
        if life.hears:
            # An actor without a hook for signals cannot fail at Started: its spawner need not wait.
            self._starting = self.core.loop.create_future()
        self.task = self.core.tasks.start(self.run(life), self.path, self)

    def task_ended(self) -> None:
        """Bury an actor that never ran.

        A task that is cancelled before its first step runs no code, not even its `finally`.
        """
        if self.state is not State.STOPPED:
            bury(self)

    async def started(self) -> None:
        """Wait until Started is handled.

        Raise StartFailed if handling it raised, ActorStopped if the actor was stopped first. In
        both cases nothing of the actor is left.
        """
        if self._starting is None:
            return
        try:
            await self._starting
        except asyncio.CancelledError:
            self.kill()
            raise
        finally:
            self._starting = None
        if self.start_error is not None:
            raise StartFailed(self.path) from self.start_error
        if self.state is State.STOPPED and not self.has_started:
            raise ActorStopped(self.path)

    # --- the life ---------------------------------------------------------------------------------

    async def run(self, life: Incarnation) -> None:
        """Run the actor: start, take turns until the last one, finish.

        Any exception that escapes is a bug of the framework.
        """
        # `launch` sets it, too, but eager tasks get here first.
        self.task = asyncio.current_task()  # type: ignore[assignment]  # it runs in a task
        inbox = self.inbox
        try:
            # In a seeded test the first step, too, waits until the seed chooses this actor.
            if self.core.dispatch.permutes:
                await self.core.dispatch.pause()
            alive = await self._start(life)
            while alive:
                waiter = inbox.park()
                if waiter is not None:
                    await waiter
                alive = await (self._turn() if self.begun is None else go_on(self))
        except asyncio.CancelledError:
            # No stop was requested: the whole system's tasks are being cancelled.
            if not self.stop_asked:
                self.reason = "shutdown"
        finally:
            self.absorb_kills()
            drop_begun(self)
            await finish(self)
        if self.task.cancelling():
            # The cancellation came from outside the framework, so pass it on.
            raise asyncio.CancelledError

    async def _start(self, life: Incarnation) -> bool:
        try:
            if life.hears:
                await life.hear(Started(0))
        except (Exception, asyncio.CancelledError) as raised:
            self.start_error = error = self.own(raised)
            self.core.publish(Failed(self.path, error, 0, None, "start"))
            return False
        self.run_as(life)
        self.release_spawner()
        return True

    def run_as(self, life: Incarnation) -> None:
        """Mark the actor as running, after the incarnation has handled Started."""
        life.started = True
        self.has_started = True
        self.state = move(self.state, State.RUNNING, self.path)

    async def _turn(self) -> bool:
        """Handle queued messages, up to the quota, then yield. Return whether to go on."""
        inbox = self.inbox
        user = inbox.user
        receive = self._handler()
        self.since = began = perf_counter()
        handled = 0
        message: Any = None
        hook: Any = None
        for _ in range(self._quota):
            if inbox.ahead:
                receive = None  # do not keep an incarnation alive that may end here
                if not await self._take_ahead():
                    return False
                receive = self._handler()
            elif user:
                self.current = message = user.popleft()
                handled += 1
                try:
                    hook = receive(message)
                    if hook is not None:
                        await hook
                except (Exception, asyncio.CancelledError) as error:
                    self.failure = self.own(self.explained(error, hook))
                    break
            else:
                break
        self._account(perf_counter() - began, handled)
        receive = hook = None
        if self.failure is not None:
            return await failed(self, message)
        # Drop the last message during the sleep: it may hold a reply that can no longer be given.
        self.current = message = None
        if user or inbox.ahead:
            await self.core.dispatch.pause()
        return True

    handle_now = handle_now

    def _handler(self) -> Any:
        return None if self.incarnation is None else self.incarnation.receive

    def _account(self, elapsed: float, handled: int) -> None:
        self.processed += handled
        self.busy += elapsed
        # Reading the clock per message would cost 10 %, so the quota follows the last turns' time.
        if elapsed > TURN:
            self._quota = max(1, self._quota >> 1)
        elif handled == self._quota and elapsed < TURN / 4:
            self._quota = min(
                self._quota * 2, self.spec.mailbox.batch, self.core.dispatch.longest_turn
            )
        if self.inbox.strained:
            self.inbox.relieve()

    async def _take_ahead(self) -> bool:
        """Handle one entry of the system or urgent lane. Return whether to go on."""
        entry = self.inbox.next_ahead()
        if entry is NOTHING:
            return True
        kind = type(entry)
        if kind is StopRequest:
            return False
        self.current = entry.signal if kind is Notice else None if issubclass(kind, Due) else entry
        hook: Any = None
        try:
            hook = self._handle_ahead(entry)
            if hook is not None:
                await hook
        except (Exception, asyncio.CancelledError) as error:
            self.failure = self.own(self.explained(error, hook))
        hook = None
        message, self.current = self.current, None
        return True if self.failure is None else await failed(self, message)

    def _handle_ahead(self, entry: Any) -> Any:
        life: Incarnation = self.incarnation  # type: ignore[assignment]
        kind = type(entry)  # not isinstance, which may call code of the user's message
        if kind is Notice:
            return self._heed(entry, life)
        if issubclass(kind, Due):
            entry = entry.open()
            if entry is STALE:
                return None
            self.current = entry
        self.processed += 1
        receive: Any = life.receive
        return receive(entry)

    async def _heed(self, notice: Notice, life: Incarnation) -> None:
        watching = life.watching
        if watching is not None and notice.source in watching:
            # An actor ends once, so the watch is over; pressure comes and goes.
            if isinstance(notice.signal, Terminated):
                watching.discard(notice.source)
        elif not notice.child:
            return  # unwatched in the meantime
        await life.hear(notice.signal)

    def explained(self, error: BaseException, hook: Any) -> BaseException:
        """Return an error with an explanation if `receive` returned a value that cannot be awaited.

        Only a failed await calls this, so that messages do not pay for it. A hook of an earlier
        message is None or was awaited, and is not blamed.
        """
        if hook is None or inspect.isawaitable(hook):
            return error
        return TypeError(
            f"receive of {self.path} returned a value ({type(hook).__qualname__}), which nobody "
            "takes; return None, and answer an ask by message.reply.tell(...)"
        )

    def own(self, error: BaseException) -> Exception:
        """Return a handler's failure; re-raise a CancelledError that is meant for this task."""
        if isinstance(error, Exception):
            return error
        if self.task.cancelling():
            raise error
        stray = StrayCancellation(self.path)
        stray.__cause__ = error
        return stray

    def release_spawner(self) -> None:
        """Wake the caller that waits for Started."""
        if self._starting is not None:
            self.core.dispatch.resume(self._starting)

    # --- calls from other actors ------------------------------------------------------------------

    def child_ended(self, child: Cell, cause: Exception | None) -> None:
        """Remove a child; signal its failure to this actor even without a watch."""
        self.children.remove(child)
        if cause is not None and not child.is_watched_by(self):
            self.inbox.signal(Notice(Terminated(child.ref, cause), child, child=True))

    def is_watched_by(self, watcher: Cell) -> bool:
        """Return whether `watcher` watches this actor."""
        return self._watchers is not None and watcher in self._watchers

    def add_watcher(self, watcher: Cell) -> None:
        """Notify `watcher` of the end and of pressure, now or later."""
        if self.state is State.STOPPED:
            # A late watch must not wait for an end that has already happened.
            watcher.inbox.signal(Notice(Terminated(self.ref, self.cause or self.start_error), self))
            return
        if self._watchers is None:
            self._watchers = {}
        self._watchers[watcher] = None
        if self.inbox.pressed:
            watcher.inbox.signal(Notice(Pressure(self.ref, high=True), self))

    def forget_watcher(self, watcher: Cell) -> None:
        """Stop notifying `watcher`."""
        if self._watchers is not None:
            self._watchers.pop(watcher, None)

    def forget_watchers(self) -> tuple[Cell, ...]:
        """Return the watchers and remove them: a ref to a dead actor must not keep others alive."""
        watchers = tuple(self._watchers or ())
        self._watchers = None
        return watchers

    def offspring(self) -> tuple[Cell, ...]:
        """Return the living children, oldest first; from any thread."""
        family = self._children
        return () if family is None else tuple(family)

    def tell_pressure(self, high: bool) -> None:
        """Notify the watchers that a watermark was crossed."""
        for watcher in tuple(self._watchers or ()):
            watcher.inbox.signal(Notice(Pressure(self.ref, high), self))

    def is_current(self) -> bool:
        """Return whether the running task is this actor's."""
        return asyncio.current_task(self.core.loop) is self.task

    def doing(self) -> str:
        """Describe the actor's current work by message type only, never by content."""
        queued = f"{self.inbox.depth()} messages queued"
        current = self.current
        if current is None:
            return f"the actor is {self.state.value} and idle, {queued}"
        return (
            f"the actor has been handling {type(current).__qualname__} for "
            f"{perf_counter() - self.since:.3f} s, {queued}"
        )
