"""The root actor of an app."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from actors import HANDLED, Actor, ActorsError, Handled, Mailbox, Signal, Spec, Stopping, Terminated
from ks_actors._errors import (
    ConfigError,
    FencedInstanceId,
    KsActorsError,
    LogClosed,
    NotRunning,
    StateError,
    StreamsError,
    TaskCorrupted,
    TopologyError,
)
from ks_actors.history import Done
from ks_actors.lifecycle import as_exception, component_log, enter_user_code, shielded
from ks_actors.runtime import messages as m
from ks_actors.runtime.commit import TasksBroken
from ks_actors.runtime.messages import InstanceMessage
from ks_actors.runtime.metrics import SAMPLER_MAILBOX, Sampler
from ks_actors.runtime.processing import WORKER_MAILBOX
from ks_actors.runtime.shared import (
    INSTANCE_TRANSITIONS,
    InstanceState,
    UncaughtResponse,
    WorkerState,
)
from ks_actors.runtime.watch import WATCH_MAILBOX, wait_of_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from actors import Ask, Ref, Reply
    from ks_actors.config import StreamsConfig
    from ks_actors.log import Lease
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.instance._wiring import Wiring
    from ks_actors.runtime.instance._workers import Workers
    from ks_actors.runtime.shared import Metrics, UncaughtHandler
    from ks_actors.runtime.watch import PartitionStates, Wait, Watch
    from ks_actors.snapshots import SnapshotManifest

# A TasksChanged sent before a worker failed must be handled first: the start has ended by then.
INSTANCE_MAILBOX = Mailbox(capacity=10_000, overflow="fail_system", urgent=(m.TasksChanged,))
# The most restores of damaged state without a commit in between. The same damage may be found
# twice.
_RESTORES = 4
_FINAL = (LogClosed, FencedInstanceId, TopologyError)
_log = component_log(__name__)


class Instance(Actor[InstanceMessage]):
    """The root actor: it starts, supervises and stops all others, and keeps the app's state.

    `on_state` is called with the new and the old state. When a worker dies, or an error concerns
    all tasks, it rolls back to the last commit. Then the uncaught handler decides how to go on.
    """

    def __init__(
        self,
        wiring: Wiring,
        config: StreamsConfig,
        workers: Workers,
        metrics: Metrics,
        *,
        uncaught: UncaughtHandler,
        on_state: Callable[[InstanceState, InstanceState], None],
    ) -> None:
        self._wiring = wiring
        self._config = config
        self._workers = workers
        self._metrics = metrics
        self._uncaught = uncaught
        self._on_state = on_state
        self._life = INSTANCE_TRANSITIONS.start(InstanceState.CREATED)
        self.error: Exception | None = None
        self._started: Reply[None] | None = None
        self._preparing: asyncio.Future[None] | None = None
        self._given_up: Exception | None = None
        self._removing: dict[str, Reply[str | None]] = {}
        self._assigned_once: bool = False
        self.prepared: bool = False
        """Whether all parts have been started."""
        self.watch: Watch | None = None
        """The watchdog; None until it is started."""
        # The errors of dead workers about which the handler has not decided yet.
        self._undecided: list[Exception] = []
        # The number of commits at the last restore of damaged state, and the restores that are
        # still allowed before the next commit.
        self._restored_at: int = -1
        self._restores_left: int = 0

    @property
    def state(self) -> InstanceState:
        """The state of the instance."""
        return self._life.state

    @property
    def parts(self) -> PartitionStates | None:
        """The actors and tasks, to be read; None until all actors but the workers are made."""
        return self._wiring.partition_states

    def commit(self, reason: str) -> Ask[None]:
        """Ask for a commit of all tasks; callable from any task of the loop.

        Raises NotRunning while the app is still starting.
        """
        if not self.prepared:
            raise NotRunning("the app is still starting; it cannot commit yet")
        return self._wiring.committer.ask(m.Commit, reason).within(self._wiring.timeout_s)

    def snapshot(self) -> Ask[SnapshotManifest]:
        """Ask for a snapshot; callable from any task of the loop.

        Raises NotRunning while the app is still starting, ConfigError without `snapshot_uri`.
        """
        if not self.prepared:
            raise NotRunning("the app is still starting; it cannot take a snapshot yet")
        if self._wiring.snapshots is None:
            raise ConfigError("the app has no place for snapshots: set snapshot_uri")
        return self._wiring.snapshots.ask(m.TakeSnapshot).within(
            self._wiring.timeout_s + 3 * self._config.snapshot_timeout_ms / 1000
        )

    @property
    def removes_in_vain(self) -> bool:
        """Whether a worker is ending and the caller no longer waits for that."""
        return any(not reply.wanted() for reply in self._removing.values())

    def waiting(self) -> tuple[Wait, ...]:
        """Return the wait of each task; callable from any task of the loop. Empty after the end."""
        found = () if self.watch is None or not self._running() else self.watch.waiting()
        if found or self.state not in {InstanceState.CREATED, InstanceState.REBALANCING}:
            return found
        return (wait_of_instance(self._wiring.bare_log, self._wiring.wall_time()),)

    def wall_time(self) -> int:
        """Return the time of the app's wall clock in ms."""
        return self._wiring.wall_time()

    @property
    def lease(self) -> Lease:
        """The lease of the group member, which heartbeats extend."""
        return self._wiring.member_lease

    @property
    def known_ends(self) -> Mapping[TopicPartition, int]:
        """The end offsets that were looked up where no fetch has returned them."""
        return {} if self.watch is None else self.watch.ends

    def give_up_start(self, why: Exception) -> None:
        """Fail the start that is under way or yet to come; callable from any task of the loop.

        Cancels any wait of the start. The caller then stops the instance.
        """
        self._given_up = why
        if self._preparing is not None:
            self._preparing.cancel()
        else:
            self._fail_start(why)

    # --- messages ---------------------------------------------------------------------------------

    async def receive(self, message: InstanceMessage) -> None:
        """Start, stop, and add or remove workers."""
        match message:
            case m.Start():
                await self._start(message.reply)
            case m.StopInstance():
                await self._stop(message)
            case m.InstanceStopped():
                self._answer_stop(message.reply)
            case m.PauseAll() | m.ResumeAll():
                self._pause(message)
            case m.AddWorker():
                await self._add_worker(message.reply)
            case m.RemoveWorker():
                self._stop_worker(message.reply)
            case m.TasksChanged():
                self._note_tasks(message)
            case m.Fatal():
                if self._restores(message.error):
                    self._wiring.rejoin(message.error)
                else:
                    self._decide(message.error, worker=None, rolled_back=message.rolled_back)
            case m.HandlerDecided():
                await self._carry_out(message)
            case _:
                assert_never(message)

    async def signal(self, signal: Signal) -> Handled | None:
        """Handle workers that end; release all resources at the end."""
        if isinstance(signal, Terminated):
            name = self._workers.name_of(signal.ref)
            if self._closed and isinstance(signal.cause, StreamsError | StateError):
                # The last commit has left out its tasks; the caller of close has to know.
                _log.error("%s died while the app closed: %s", signal.ref.path, signal.cause)
                self._note_late(signal.cause)
            elif name is None and signal.ref not in self._wiring.removed:
                if signal.cause is not None:
                    await self._end_in_error(signal.cause)
            elif signal.cause is None:
                self._worker_left(signal.ref, name)
            else:
                await self._worker_died(signal.ref, name, signal.cause)
        elif isinstance(signal, Stopping):
            await self._wiring.release()
        return HANDLED

    # --- lifecycle --------------------------------------------------------------------------------

    @property
    def _closed(self) -> bool:
        return self.state in {InstanceState.PENDING_SHUTDOWN, InstanceState.NOT_RUNNING}

    def _running(self) -> bool:
        return self.state in {InstanceState.RUNNING, InstanceState.REBALANCING}

    def _to(self, state: InstanceState) -> None:
        if self.state is not state:
            old = self._life.to(state)
            _log.info(
                "%s: %s, was %s",
                self._config.client_id,
                state.name,
                old.name,
                extra={"state": state.name},
            )
            self._on_state(state, old)

    def gone(self) -> None:
        """If the actor ended in no end state, enter an end state: its close was cancelled twice."""
        if self.state is InstanceState.PENDING_ERROR:
            self._to(InstanceState.ERROR)
        elif self.state not in {InstanceState.NOT_RUNNING, InstanceState.ERROR}:
            if self.state is not InstanceState.PENDING_SHUTDOWN:
                self._to(InstanceState.PENDING_SHUTDOWN)
            self._to(InstanceState.NOT_RUNNING)

    async def _start(self, reply: Reply[None]) -> None:
        self._started = reply
        # `give_up_start` may have been called before this message arrived.
        if self._given_up is None:
            self._to(InstanceState.REBALANCING)
            try:
                await self._until_given_up(self._prepare())
            except (KsActorsError, ActorsError, OSError) as error:
                await self._end_in_error(error)
        if self._given_up is not None:
            self._fail_start(self._given_up)

    async def _until_given_up(self, work: Coroutine[Any, Any, None]) -> None:
        self._preparing = asyncio.ensure_future(work)
        try:
            await self._preparing
        except asyncio.CancelledError:
            if self._given_up is None:
                raise
        finally:
            self._preparing = None

    async def _prepare(self) -> None:
        await self._wiring.start(self.ctx)
        self.prepared = True
        await self._start_watch()
        for _ in range(self._config.num_stream_threads):
            # A spawned worker may get a task at once, so register it even when cancelled.
            await shielded(self._start_worker())

    async def _start_watch(self) -> None:
        watch = self._wiring.watch(self._running)
        await shielded(self.ctx.spawn(Spec(lambda: watch, mailbox=WATCH_MAILBOX), "watch"))
        self.watch = watch
        sampler = Sampler(self._metrics, self._wiring.registry)
        await shielded(self.ctx.spawn(Spec(lambda: sampler, mailbox=SAMPLER_MAILBOX), "sampler"))

    def _fail_start(self, error: Exception) -> None:
        if self._started is not None:
            self._started.fail(error)
            self._started = None

    def _note_tasks(self, message: m.TasksChanged) -> None:
        if not self._running():
            return
        self._workers.follow(message.stage)
        if message.stage is not WorkerState.RUNNING:
            self._to(InstanceState.REBALANCING)
        else:
            self._to(InstanceState.RUNNING)
            if self._started is not None:
                self._started.tell(None)
                self._started = None

    async def _stop(self, stop: m.StopInstance) -> None:
        if self._running() or self.state is InstanceState.CREATED:
            self._workers.shut_down()
            self._to(InstanceState.PENDING_SHUTDOWN)
            try:
                await self._wiring.close(clean=True, leave=stop.leave)
            except Exception as error:  # noqa: BLE001 - the closer is told; the rest still closes
                self.error = error
            # Their handler, which ends with this actor, may never decide.
            for undecided in self._undecided:
                self._note_late(undecided)
            self._forget_workers()
            self._to(InstanceState.NOT_RUNNING)
        self.ctx.self_ref.tell(m.InstanceStopped(stop.reply))

    def _answer_stop(self, reply: Reply[None]) -> None:
        if self.error is not None and self.state is InstanceState.NOT_RUNNING:
            reply.fail(self.error)
        else:
            reply.tell(None)

    async def _end_in_error(self, error: Exception, *, clean: bool = False) -> None:
        if not self._running():
            return
        self.error = error
        self._note(error, Done.ENDED)
        _log.error("%s ends: %s", self._config.client_id, error)
        self._workers.shut_down()
        # Set the state first, so that failures during the close do not lead to this method again.
        self._to(InstanceState.PENDING_ERROR)
        try:
            # Leave the group, so that another instance takes the tasks over at once.
            await self._wiring.close(clean=clean, leave=True)
        except Exception as worse:  # noqa: BLE001 - the first error is what counts
            _log.error("closing failed, too: %s", worse)
        self._fail_start(error)
        self._forget_workers()
        self._to(InstanceState.ERROR)

    # --- requests: dropped once their caller has given up -----------------------------------------

    def _pause(self, order: m.PauseAll | m.ResumeAll) -> None:
        if not order.reply.wanted():
            return
        if self._running() and self.prepared:
            paused = isinstance(order, m.PauseAll)
            self._wiring.manager.tell(m.PauseProcessing(paused, order.query))
            order.reply.tell(None)
        else:
            order.reply.fail(NotRunning(f"the app is {self.state.name}; this needs it RUNNING"))

    async def _add_worker(self, reply: Reply[str | None]) -> None:
        if not reply.wanted():
            return
        name = await self._start_worker() if self._running() and self.prepared else None
        # The caller gave up during the spawn and would never hear of this worker.
        if name is not None and not reply.wanted():
            self._end_worker(name)
        reply.tell(name)

    # --- workers ----------------------------------------------------------------------------------

    async def _start_worker(self) -> str:
        name = self._workers.next_name()
        worker = self._wiring.worker(name)
        spec = Spec(
            lambda: worker,
            mailbox=WORKER_MAILBOX,
            executor="own" if self._wiring.blocking else "shared",
        )
        ref = await self.ctx.spawn(spec, name)
        self.ctx.watch(ref)
        self._workers.add(name, ref, worker)
        self._workers_changed()
        return name

    def _workers_changed(self) -> None:
        self._metrics.alive_workers = len(self._workers)
        if not self._running():
            return
        # Removed workers, too: a commit has to pause them until they have really stopped.
        self._wiring.committer.tell(m.WorkersChanged((*self._workers.refs, *self._wiring.removed)))

    def _forget_workers(self) -> None:
        """Forget the workers, which have ended or are about to."""
        self._workers.dismiss()
        self._metrics.alive_workers = 0

    def _stop_worker(self, reply: Reply[str | None]) -> None:
        if not reply.wanted():
            return
        name = self._workers.last() if self._running() else None
        if name is None:
            reply.tell(None)
            return
        self._removing[name] = reply
        self._end_worker(name)

    def _end_worker(self, name: str) -> None:
        ref = self._workers.retire(name)
        self._metrics.alive_workers = len(self._workers)
        self._wiring.removed[ref] = name
        # The committer keeps pausing the worker until its end: a slice may still be under way.
        self._wiring.manager.tell(m.RetireWorker(ref))

    def _worker_left(self, ref: Ref[Any], name: str | None) -> None:
        name = self._wiring.removed.pop(ref, name)
        if name is None:
            return
        self._workers.ended(name)
        self._workers_changed()
        reply = self._removing.pop(name, None)
        if reply is not None:
            reply.tell(name)

    async def _worker_died(self, ref: Ref[Any], name: str | None, cause: Exception) -> None:
        self._metrics.failed_workers += 1
        if name is not None:
            self._workers.died(name)
        removed = self._wiring.removed.pop(ref, None)
        if removed is not None:
            self._workers.ended(removed)
        _log.error("worker %s died: %s", name or removed, cause)
        self._workers_changed()
        # Tell the manager before the rollback: it must know which tasks no worker holds any more.
        self._wiring.manager.tell(m.WorkerLost(ref))
        reply = self._removing.pop(removed or "", None)
        if reply is not None:
            reply.tell(removed)
        if not self._running():
            return
        task = cause.task if isinstance(cause, StreamsError) else None
        await self._roll_back(task, cause, name)

    async def _roll_back(self, task: TaskId | None, cause: Exception, name: str | None) -> None:
        try:
            async with self._wiring.closing.timeout_at():
                await self._wiring.committer.ask(
                    m.Rollback, None if task is None else frozenset({task}), cause
                ).within(self._wiring.timeout_s)
        except Exception as worse:  # noqa: BLE001 - then nothing is certain any more
            worse.add_note(f"while rolling back after: {cause}")
            await self._end_in_error(worse)
            return
        if self._restores(cause):
            self._wiring.rejoin(cause)
            if name is not None:
                await self._start_worker()
                self._workers.forget(name)
        else:
            self._decide(cause, worker=name, rolled_back=True)

    def _restores(self, error: Exception) -> bool:
        """Return whether to open tasks again, which restores their damaged state.

        A handler decides only if nothing was committed between several restores, as the disk may be
        at fault.
        """
        if not (self._running() and isinstance(error, TaskCorrupted) and self._wiring.restorable):
            return False
        if self._restored_at != self._metrics.commits:
            self._restored_at, self._restores_left = self._metrics.commits, _RESTORES
        self._restores_left -= 1
        if self._restores_left >= 0:
            self._note(error, Done.RETRIED)
        return self._restores_left >= 0

    def _note(self, error: Exception, done: Done) -> None:
        self._metrics.history.exceptions.note(error, kind="app", done=done)

    # --- uncaught errors --------------------------------------------------------------------------

    def _decide(self, error: Exception, *, worker: str | None, rolled_back: bool) -> None:
        """Ask the handler outside the mailbox: it may itself ask for workers."""
        if self._running():
            if worker is not None:
                self._undecided.append(error)
            self.ctx.pipe(
                self._ask_handler(error),
                partial(_decided, error, worker=worker, rolled_back=rolled_back),
                partial(_undecided, error, worker=worker),
            )
        elif worker is not None:
            self._note_late(error)

    def _note_late(self, error: Exception) -> None:
        """Keep the error of a worker that died while the app closed, for the caller of close.

        Other errors come from the log, which may well be unavailable by now.
        """
        if self._closed and (self.error is None or isinstance(self.error, TasksBroken)):
            self.error = error

    async def _ask_handler(self, error: Exception) -> UncaughtResponse:
        enter_user_code()
        try:
            answer = self._uncaught(error)
            return await answer if inspect.isawaitable(answer) else answer
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as raised:
            # Only an Exception reaches this actor.
            raise as_exception(raised) from raised

    async def _carry_out(self, decided: m.HandlerDecided) -> None:
        if decided.error in self._undecided:
            self._undecided.remove(decided.error)
        if not self._running():
            if decided.response is UncaughtResponse.SHUTDOWN_CLIENT and decided.worker is not None:
                self._note_late(decided.error)
            return
        # Shut down regardless of the handler: the log cannot reopen, and rejoining would fence the
        # other instance. No restart helps a topology that does not fit its topics; commit its
        # finished work.
        response = (
            UncaughtResponse.SHUTDOWN_CLIENT
            if isinstance(decided.error, _FINAL)
            else decided.response
        )
        if response is UncaughtResponse.SHUTDOWN_CLIENT or (
            not decided.rolled_back and response is UncaughtResponse.LOSE_WORKER
        ):
            await self._end_in_error(
                decided.error,
                clean=isinstance(decided.error, TopologyError) and not decided.rolled_back,
            )
        elif not decided.rolled_back:
            self._note(decided.error, Done.RETRIED)
            self._wiring.rejoin(decided.error)
        elif decided.worker is not None and response is UncaughtResponse.REPLACE_WORKER:
            self._note(decided.error, Done.RETRIED)
            await self._start_worker()
        elif decided.worker is not None and len(self._workers) == 0:
            await self._end_in_error(decided.error)
        elif decided.worker is not None:
            self._note(decided.error, Done.RETRIED)
        if decided.worker is not None:
            self._workers.forget(decided.worker)


def _decided(
    error: Exception, response: object, *, worker: str | None, rolled_back: bool
) -> InstanceMessage:
    if not isinstance(response, UncaughtResponse):
        error.add_note(
            f"the uncaught exception handler returned {response!r}: return an UncaughtResponse"
        )
        response = UncaughtResponse.SHUTDOWN_CLIENT
    return m.HandlerDecided(error, response, worker, rolled_back)


def _undecided(error: Exception, raised: Exception, *, worker: str | None) -> InstanceMessage:
    error.add_note(
        f"the uncaught exception handler itself raised {type(raised).__name__}: {raised}"
    )
    return m.HandlerDecided(error, UncaughtResponse.SHUTDOWN_CLIENT, worker, rolled_back=True)
