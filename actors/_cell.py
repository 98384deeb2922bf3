"""One actor at work: its task, its turns, its life from Started to Stopping.

A message's way: `Ref.tell` appends to the inbox and wakes the task; `run` goes on; `_turn` takes messages one by one and calls `receive`.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any

from actors._blocking import BlockingLane
from actors._context import Context
from actors._control import STALE, Due, Notice, StopRequest
from actors._ending import finish
from actors._errors import StrayCancellation
from actors._events import Failed
from actors._failing import failed
from actors._family import Family
from actors._inbox import Inbox
from actors._incarnation import Incarnation
from actors._lifecycle import State, move
from actors._message import Pressure, Started, Terminated
from actors._ref import Ref

if TYPE_CHECKING:
    from actors._family import Parent
    from actors._kernel import Kernel
    from actors._message import StopReason
    from actors._spec import Spec
    from actors._supervision import RestartBudget

TURN = 0.001
"""Seconds after which an actor is to let others run; the number of messages in a turn is adapted to it."""


class Cell:
    """The framework's side of one actor. Ref and mailbox are kept over restarts, the incarnation is replaced.

    What most actors never need (children, watchers, a thread …) is made on first use: an idle actor is to stay below 5 kB.
    """

    __slots__ = (
        "_children",
        "_deadline",
        "_kills",
        "_lane",
        "_mourners",
        "_quota",
        "_starting",
        "_watchers",
        "budget",
        "busy",
        "cause",
        "current",
        "inbox",
        "incarnation",
        "interrupt",
        "kernel",
        "name",
        "parent",
        "path",
        "processed",
        "reason",
        "ref",
        "restarts",
        "since",
        "spec",
        "start_error",
        "stash",
        "state",
        "stop_asked",
        "task",
    )

    def __init__(self, kernel: Kernel, spec: Spec[Any], parent: Parent, name: str) -> None:
        self.kernel: Kernel = kernel
        self.spec: Spec[Any] = spec
        self.parent: Parent = parent
        self.name: str = name
        self.path: str = f"{parent.path}/{name}"
        self.inbox: Inbox = Inbox(kernel, spec.mailbox, self)
        self.ref: Ref[Any] = Ref(self.inbox)
        self.state: State = State.STARTING
        self.incarnation: Incarnation | None = None
        self.task: asyncio.Task[Any] | None = None
        # what it is doing, for the live view
        self.current: Any = None
        self.since: float = 0.0
        self.processed: int = 0
        self.busy: float = 0.0
        self.restarts: int = 0
        # how it ends
        self.reason: StopReason = "stop"
        self.cause: Exception | None = None
        self.start_error: Exception | None = None
        self.stop_asked: bool = False
        self.interrupt: asyncio.Future[None] | None = None
        self.budget: RestartBudget | None = None
        self.stash: list[Any] | None = None
        self._quota = min(4, spec.mailbox.batch, kernel.dispatch.longest_turn)
        self._kills = 0
        self._deadline: dict[Any, float] | None = None
        self._starting: asyncio.Future[None] | None = None
        self._mourners: list[asyncio.Future[None]] | None = None
        self._children: Family | None = None
        self._watchers: dict[Cell, None] | None = None
        self._lane: BlockingLane | None = None

    @property
    def children(self) -> Family:
        """The actors that this one has spawned and that have not ended."""
        if self._children is None:
            self._children = Family(self, Cell)
        return self._children

    @property
    def watchers(self) -> dict[Cell, None]:
        """Those who are told of its end and of its pressure, in the order in which they asked."""
        if self._watchers is None:
            self._watchers = {}
        return self._watchers

    @property
    def lane(self) -> BlockingLane:
        """The threads for its blocking jobs."""
        if self._lane is None:
            self._lane = BlockingLane(self.kernel, self.path, self.spec.executor)
        return self._lane

    def close_lane(self) -> None:
        """Have its own thread, if it has one, end."""
        if self._lane is not None:
            self._lane.close()

    # --- start ----------------------------------------------------------------------------------------------------------------

    def create(self, number: int) -> Incarnation:
        """Make the actor of incarnation `number`; raises what the factory raises."""
        actor = self.spec.factory()
        self.incarnation = life = Incarnation(number, actor, self.inbox)
        actor.ctx = Context(self, life)
        return life

    def launch(self, life: Incarnation) -> None:
        """Begin to run."""
        if life.hears:
            self._starting = self.kernel.loop.create_future()
        self.kernel.tasks.create_task(self.run(life), name=self.path)

    async def started(self) -> None:
        """Wait until Started is handled. When it raised, raise that; nothing of the actor is left then."""
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
            raise self.start_error

    # --- the life -------------------------------------------------------------------------------------------------------------

    async def run(self, life: Incarnation) -> None:
        """Live: start, take turns until one is the last, finish. No exception but a bug of the framework gets out of here."""
        self.task = task = asyncio.current_task()
        inbox = self.inbox
        try:
            if self.kernel.dispatch.permutes:
                await self.kernel.dispatch.pause()
            alive = await self._start(life)
            while alive:
                waiter = inbox.park()
                if waiter is not None:
                    await waiter
                alive = await self._turn()
        except asyncio.CancelledError:
            if not self.stop_asked:
                self.reason = "shutdown"
            self.absorb_kills()
        finally:
            await finish(self)
        if task is not None and task.cancelling():
            # Somebody other than the framework has cancelled the task, and is to see that it worked.
            raise asyncio.CancelledError

    async def _start(self, life: Incarnation) -> bool:
        try:
            if life.hears:
                await life.hear(Started(0))
        except (Exception, asyncio.CancelledError) as raised:
            self.start_error = error = self.own(raised)
            self.kernel.publish(Failed(self.path, error, 0, None, "start"))
            return False
        self.state = move(self.state, State.RUNNING, self.path)
        self.release_spawner()
        return True

    async def _turn(self) -> bool:
        """Handle what is there, up to the quota, then let others run. Return whether to go on."""
        inbox = self.inbox
        user = inbox.user
        receive = self.incarnation.receive  # type: ignore[union-attr]  # it is there from launch to the end
        self.since = began = perf_counter()
        handled = 0
        message: Any = None
        for _ in range(self._quota):
            if inbox.ahead:
                if not await self._take_ahead():
                    return False
                receive = self.incarnation.receive  # type: ignore[union-attr]  # a failure may have replaced it
            elif user:
                self.current = message = user.popleft()
                handled += 1
                try:
                    hook = receive(message)
                    if hook is not None:
                        await hook
                except (Exception, asyncio.CancelledError) as error:
                    if not await failed(self, message, self.own(error)):
                        return False
                    receive = self.incarnation.receive  # type: ignore[union-attr]
            else:
                break
        # The last message must not live on while the actor sleeps: it may hold a reply that nobody can give any more.
        self.current = message = None
        self.processed += handled
        elapsed = perf_counter() - began
        self.busy += elapsed
        if handled == self._quota or elapsed > TURN:
            self._adapt_quota(elapsed)
        if inbox.strained:
            inbox.relieve()
        if user or inbox.ahead:
            await self.kernel.dispatch.pause()
        return True

    def _adapt_quota(self, elapsed: float) -> None:
        # A clock read per message would cost a tenth of all; so the number of messages follows the time that the last ones took.
        if elapsed > TURN:
            self._quota = max(1, self._quota >> 1)
        elif elapsed < TURN / 4:
            self._quota = min(self._quota * 2, self.spec.mailbox.batch, self.kernel.dispatch.longest_turn)

    async def _take_ahead(self) -> bool:
        """Handle one entry of the lanes before the user lane. Return whether to go on."""
        entry = self.inbox.next_ahead()
        if entry is None:
            return True
        if isinstance(entry, StopRequest):
            return False
        self.current = entry.signal if isinstance(entry, Notice) else entry
        try:
            hook = self._handle_ahead(entry)
            if hook is not None:
                await hook
        except (Exception, asyncio.CancelledError) as error:
            return await failed(self, self.current, self.own(error))
        finally:
            self.current = None
        return True

    def _handle_ahead(self, entry: Any) -> Any:
        life: Incarnation = self.incarnation  # type: ignore[assignment]
        if isinstance(entry, Notice):
            return self._heed(entry, life)
        if isinstance(entry, Due):
            entry = entry.open()
            if entry is STALE:
                return None
            self.current = entry
        self.processed += 1
        return life.receive(entry)

    async def _heed(self, notice: Notice, life: Incarnation) -> None:
        watching = life.watching
        if watching is not None and notice.source in watching:
            if isinstance(notice.signal, Terminated):
                watching.discard(notice.source)
        elif not notice.child:
            return  # unwatched meanwhile
        await life.hear(notice.signal)

    def own(self, error: BaseException) -> Exception:
        """Return the failure that came out of a handler; raise it again when it is a CancelledError meant for this task."""
        if isinstance(error, Exception):
            return error
        if self.task is None or self.task.cancelling():
            raise error
        stray = StrayCancellation(self.path)
        stray.__cause__ = error
        return stray

    # --- stop -----------------------------------------------------------------------------------------------------------------

    def request_stop(self, reason: StopReason, *, by_itself: bool = False) -> None:
        """Ask for the end after the current message; when another asks, a deadline makes sure of it."""
        if not self.stop_asked:
            self.stop_asked = True
            self.reason = reason
            self.inbox.signal(StopRequest())
            if self.interrupt is not None:
                self.kernel.dispatch.resume(self.interrupt)
        if not by_itself and self._deadline is None and self.state is not State.STOPPED:
            self.arm(self.spec.stop_within)

    def kill(self, reason: StopReason = "stop") -> None:
        """Cancel whatever it is doing, and again later should a handler swallow that."""
        if self.state is State.STOPPED or self.task is None:
            return
        if not self.stop_asked:
            self.stop_asked = True
            self.reason = reason
        self._kills += 1
        self.task.cancel()
        self.arm(max(self.spec.stop_within, 0.1))

    def expire(self) -> None:
        """Take notice that the deadline of a stop has passed."""
        self._deadline = None
        self.kill()

    def arm(self, seconds: float) -> None:
        """Kill in `seconds`, unless disarmed."""
        self.disarm()
        self._deadline = self.kernel.deadlines.add(self, seconds)

    def disarm(self) -> None:
        """Call the deadline off."""
        if self._deadline is not None:
            self._deadline.pop(self, None)
            self._deadline = None

    def absorb_kills(self) -> None:
        """Take back the framework's own cancellations, so that what is still to be awaited works as ever."""
        while self._kills:
            self._kills -= 1
            if self.task is not None:
                self.task.uncancel()

    async def ended(self) -> None:
        """Wait until nothing of the actor is left."""
        if self.state is not State.STOPPED:
            if self._mourners is None:
                self._mourners = []
            waiter = self.kernel.loop.create_future()
            self._mourners.append(waiter)
            await waiter

    def release_spawner(self) -> None:
        """Let whoever waits for Started go on."""
        if self._starting is not None:
            self.kernel.dispatch.resume(self._starting)

    def release_mourners(self) -> None:
        """Let whoever waits for the end go on."""
        for waiter in self._mourners or ():
            self.kernel.dispatch.resume(waiter)
        self._mourners = None

    # --- what others ask of it ------------------------------------------------------------------------------------------------

    def child_ended(self, child: Cell, cause: Exception | None) -> None:
        """Let a child go; a failure is news for the parent even if it did not watch."""
        self.children.remove(child)
        if cause is not None and self not in child.watchers:
            self.inbox.signal(Notice(Terminated(child.ref, cause), child, child=True))

    def pressed(self, high: bool) -> None:
        """Tell the watchers that a watermark was crossed."""
        for watcher in tuple(self._watchers or ()):
            watcher.inbox.signal(Notice(Pressure(self.ref, high), self))

    def is_current(self) -> bool:
        """Whether the running task is this actor's."""
        return self.task is not None and asyncio.current_task() is self.task

    def doing(self) -> str:
        """Say what it is at; only types of messages, never their content."""
        queued = f"{self.inbox.depth()} messages queued"
        current = self.current
        if current is None:
            return f"the actor is {self.state.value} and idle, {queued}"
        return f"the actor has been handling {type(current).__qualname__} for {perf_counter() - self.since:.3f} s, {queued}"
