"""The app: it runs a topology."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import copy_context
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Self, Unpack

from actors import Spec, System
from ks_actors._errors import NotRunning
from ks_actors._hints import Hinted, refuse
from ks_actors.app._checks import (
    NOT_STARTED,
    check_callbacks,
    check_listeners,
    check_planning,
    check_tracing,
)
from ks_actors.app._members import as_member, begin_as_member, tell_supervisor
from ks_actors.app._orders import ENDS, AppOrders
from ks_actors.app._program import run_program, tell_end_of_program
from ks_actors.app._signals import until_signal
from ks_actors.app._start_log import StartReport, log_start
from ks_actors.app._status import health, members_of, summary, tell_state
from ks_actors.app._topics import AppTopics
from ks_actors.config import config_of, open_patiently
from ks_actors.kernel import tell_if_missing
from ks_actors.lifecycle import (
    Closing,
    LogClient,
    awaited_by_app,
    called_from_within,
    check_timeout,
    component_log,
    leave_user_code,
    shielded,
    steady_time,
    try_step,
    wall_time,
    work_time,
)
from ks_actors.log import patient
from ks_actors.metrics import RecordingLevel
from ks_actors.query import LocalStores
from ks_actors.runtime import messages as m
from ks_actors.runtime.commit import let_calls_end
from ks_actors.runtime.instance import (
    INSTANCE_MAILBOX,
    LEAST_STOP_S,
    Instance,
    Wiring,
    WorkerMetadata,
    Workers,
)
from ks_actors.runtime.metrics import Watched, add_sources
from ks_actors.runtime.shared import InstanceState, Metrics, UncaughtHandler, shut_down
from ks_actors.runtime.stores import Progress, TaskMetrics, task_metrics
from ks_actors.runtime.watch import (
    HealthBounds,
    PartitionStates,
    TaskMetadata,
    longest_outage_ms,
    task_metadata,
    wait_of_instance,
    with_progress,
)
from ks_actors.system import Later
from ks_actors.task import Clocks, StoreRegistry, TaskParts, Telemetry, behind_caches
from ks_actors.topics import TopicAccess
from ks_actors.topology import by_name, enter_services

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta
    from types import TracebackType

    from actors import Ref
    from ks_actors.assignment import PartitionGrouper, TaskAssignor
    from ks_actors.config import SettingsOfApp, StreamsConfig
    from ks_actors.dsl import StreamsBuilder
    from ks_actors.log import GroupMember, Log, PatientLog
    from ks_actors.metrics import MetricValues
    from ks_actors.query import StoreEndpoint
    from ks_actors.records import TaskId
    from ks_actors.runtime.shared import RestoreListener, StandbyUpdateListener
    from ks_actors.runtime.watch import Health, Wait
    from ks_actors.topics import Topics
    from ks_actors.topology import ByTopic, Topology
    from ks_actors.tracing import Tracing

if TYPE_CHECKING:
    from ks_actors import query
else:
    query = Later("ks_actors.query")

_log = component_log(__name__)


class App(AppOrders, TopicAccess, metaclass=Hinted):
    """Run a topology, or that of a StreamsBuilder.

    `async with App(builder, "orders", "localhost:9092") as app:` starts it, and commits and closes
    it at the end. `config` is the application id, with other settings as keywords, or a dict of
    all settings, or a StreamsConfig. A builder builds the topology for the config.

    An app makes no event loop, installs no signal handler and holds no global state. (`main` does
    all of that, for programs that consist of one app.) `log` replaces the config's log, and may be
    its URL; the app neither starts nor closes a log object. `system` is the actor system to run in,
    by default a system of its own.

    Missing `topics` are created before the start, with the given numbers of partitions. Use this
    for source topics in a log that no other program fills. `on_state` is called with
    the new and the old state. `restore_listener` follows the restoration of stores,
    `standby_listener` the updates of standbys. `uncaught_handler`, a plain or coroutine function,
    decides about errors that nothing else handles (default: the app ends in ERROR).

    `task_priority` orders tasks, higher before lower; it is called when a task becomes ready. Tasks
    ready for a second or longer are chosen every other time. `assignor` assigns the group's tasks
    to members, and `grouper` groups partitions into tasks. `services`, such as a SparkBridge, are
    entered before the start and exited after the end, as are those of the topology's functions.
    `tracing`, such as an OtelTracing, records spans (default: none are). An app runs once.

    Raises the error of a failed start. Leaving the block raises the error that ended the app,
    unless the block raises an error itself.
    """

    def __init__(
        self,
        topology: Topology | StreamsBuilder,
        config: StreamsConfig | Mapping[str, Any] | str | None = None,
        bootstrap_servers: str | Sequence[str] | None = None,
        *,
        log: Log | str | None = None,
        topics: ByTopic[int] | None = None,
        system: System | None = None,
        on_state: Callable[[InstanceState, InstanceState], None] | None = None,
        restore_listener: RestoreListener | None = None,
        standby_listener: StandbyUpdateListener | None = None,
        uncaught_handler: UncaughtHandler = shut_down,
        task_priority: Callable[[TaskId], int] | None = None,
        assignor: TaskAssignor | None = None,
        grouper: PartitionGrouper | None = None,
        services: Iterable[AbstractAsyncContextManager[Any]] = (),
        tracing: Tracing | None = None,
        **settings: Unpack[SettingsOfApp],
    ) -> None:
        config = config_of(topology, config, bootstrap_servers, settings, of="App")
        if isinstance(log, str):
            config, log = config.replace(log=log), None
        config = as_member(config)
        super().__init__(topology, config, log, {} if topics is None else by_name(topics), services)
        config = self.config
        check_callbacks(
            on_state=on_state, uncaught_handler=uncaught_handler, task_priority=task_priority
        )
        check_listeners(restore_listener=restore_listener, standby_listener=standby_listener)
        check_tracing(tracing)
        self._planning = check_planning(assignor, grouper)
        self._given_system = system
        self._on_state = on_state
        self._progress = Progress(restore_listener, standby_listener)
        self._uncaught = uncaught_handler
        self._priority = task_priority
        self._tracing = tracing
        self._services = AsyncExitStack()
        self._start_report = StartReport(config.application_id, config.processing_guarantee)
        # Enter these before opening the log, which may take long: callers may ask for health.
        self._early_services: tuple[AbstractAsyncContextManager[Any], ...] = ()
        self._stack: AsyncExitStack | None = None
        self._starting: asyncio.Event | None = None
        self._unwanted: bool = False
        self._leaves: bool = False
        self._bare_log: Log | None = None
        self._log: PatientLog | None = None
        self._closing = Closing()
        self._closer: asyncio.Task[Any] | None = None
        self._closing_apart: asyncio.Task[None] | None = None
        self._instance: Instance | None = None
        self._ref: Ref[m.InstanceMessage] | None = None
        self._task_parts: TaskParts | None = None
        # The log that `waiting` asks, whether started or not.
        self._asked: Log | None = None
        self._metrics = Metrics(RecordingLevel[config.metrics_recording_level])
        self._workers = Workers(
            config.client_id, uncommitted_bytes=config.statestore_uncommitted_max_bytes
        )
        self._log_client = LogClient(config.client_id)
        self._app_topics = AppTopics(self._topology, config, self._closing)
        self._ended = asyncio.Event()
        # Set when nothing is left to close, some time after `_ended`.
        self._gone = asyncio.Event()
        self._registry = StoreRegistry(behind_caches(self._topology, config))
        history, window = self._metrics.history, self._metrics.registry.window
        self._telemetry = Telemetry(window, tracing, history=history)
        self._local = LocalStores(
            self._topology,
            config,
            registry=self._registry,
            topics=lambda: self._shared_parts().topics,
            clocks=lambda: self._shared_parts().clocks,
            state=lambda: self.state,
            check_loop=self._check_loop,
        )
        add_sources(
            self._metrics,
            Watched(
                config,
                self._topology,
                self._workers,
                state=lambda: self.state,
                instance=lambda: self._instance,
                registry=self._registry,
                telemetry=self._telemetry,
                log=lambda: self._bare_log,
            ),
        )

    if not TYPE_CHECKING:
        __enter__ = __exit__ = refuse("is entered by `async with`; app.main() runs it as a program")

    @property
    def _parts(self) -> PartitionStates | None:
        return None if self._instance is None else self._instance.parts

    def _shared_parts(self) -> TaskParts:
        assert self._task_parts is not None
        return self._task_parts

    def __repr__(self) -> str:
        parts = None if self.state in ENDS else self._parts
        tasks = () if parts is None else task_metadata(parts)
        return summary(self.config, self.state, tasks, len(self._workers))

    # --- life -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except Exception:
            if error is None:
                raise

    @asynccontextmanager
    async def lifespan(self, _: object = None, /) -> AsyncIterator[None]:
        """Run while a web service runs, as in `FastAPI(lifespan=app.lifespan)`."""
        async with self:
            yield

    async def start(self) -> None:
        """Start, and return when all tasks run.

        Raises the error that prevents the start, or NotRunning when the app is closed meanwhile;
        then everything is closed again. When cancelled, it commits, leaves the group and closes, as
        `close` does.
        """
        if self._begun:
            raise NotRunning(
                f"app {self.config.application_id} has already been started; make a new one"
            )
        self._check_wanted()
        tell_if_missing()
        self._begun, self._loop = True, asyncio.get_running_loop()
        with self._log_client.named():
            await self._start()

    async def _start(self) -> None:
        self._starting = over = asyncio.Event()
        try:
            async with AsyncExitStack() as stack:
                for service in self._early_services:
                    await stack.enter_async_context(service)
                await stack.enter_async_context(self._reach)
                log = await self._open_in_time(stack)
                log_start(self._topology, self.config, log)
                system = self._given_system
                if system is None:
                    name, least = f"ks-{self.config.application_id}", self._start_report.least_stall
                    system = await stack.enter_async_context(System(name, least_stall=least))
                self._bare_log, self._log = (
                    log,
                    patient(log, self.config.task_timeout_ms, self._closing),
                )
                stack.push_async_callback(self._app_topics.close)
                stack.push_async_exit(self._services)
                ref = self._ref = await system.spawn(
                    self._spec(self._log, system), "app-" + self.config.client_id.replace("/", "-")
                )
                stack.push_async_callback(system.stop, ref)
                await self._begin(self._log, ref)
                self._stack = stack.pop_all()
                self._start_report.note_running(self.tasks(), len(self._workers))
        finally:
            self._starting = None
            over.set()
            self._app_topics.settle()
            if self._stack is None:
                self._note_gone()

    async def _open_in_time(self, stack: AsyncExitStack) -> Log:
        """Open the log on the exit stack; while the app closes, its deadline applies."""
        try:
            async with self._closing.timeout_at():
                return await open_patiently(stack, self.config, self._given_log, self._note_log)
        except TimeoutError as late:
            if not self._closing.begun:
                raise
            raise self._closed_early() from late

    def _note_log(self, log: Log) -> None:
        self._asked = log
        self._metrics.unreachable_ms = partial(longest_outage_ms, log)

    async def _begin(self, log: PatientLog, ref: Ref[m.InstanceMessage]) -> None:
        try:
            self._check_wanted()
            await self._create_topics(log)
            # Open the topics before the services, which may send records.
            self._app_topics.open(log.bare, self._shared_parts().clocks.wall_time)
            self._check_wanted()
            await enter_services(self._services, self._topology, self._given_services)
            self._check_wanted()
            await begin_as_member(self.config, log.bare)
            # Each step has its deadline, but the time to restore stores has no bound.
            await ref.ask(m.Start).within(inf)
            self._check_wanted()
        except BaseException:
            assert self._instance is not None
            self._closing.begin(self.config.close_timeout_ms / 1000)
            self._instance.give_up_start(self._closed_early())
            # Raise the error that ended the start; log errors of closing.
            errors: list[Exception] = []
            await try_step(ref.ask(m.StopInstance, leave=self._leaves).within(inf), errors)
            for error in errors:
                _log.warning("closing the started parts failed: %s", error)
            raise

    def _check_wanted(self) -> None:
        if self._unwanted:
            raise self._closed_early()

    def _closed_early(self) -> NotRunning:
        return NotRunning(
            f"app {self.config.application_id} was closed before it was started; make a new one"
        )

    def _spec(self, log: PatientLog, system: System) -> Spec[m.InstanceMessage]:
        task_parts = self._task_parts = TaskParts.of(
            self._topology,
            self.config,
            clocks=Clocks(wall_time(system), steady_time(system), work_time(system)),
            telemetry=self._telemetry,
            planning=self._planning,
        )
        self._metrics.registry.start(lambda: task_parts.clocks.steady_time() / 1000)
        parts = Wiring(
            task_parts,
            self._registry,
            log,
            self._metrics,
            progress=self._progress,
            priority=self._priority,
            workers=self._workers,
            closing=self._closing,
            endpoint=self._reach.address,
        )
        instance = self._instance = Instance(
            parts,
            self.config,
            self._workers,
            self._metrics,
            uncaught=self._uncaught,
            on_state=self._note_state,
        )
        return Spec(
            lambda: instance,
            mailbox=INSTANCE_MAILBOX,
            stop_within=max(LEAST_STOP_S, self.config.task_timeout_ms / 1000),
        )

    def _note_state(self, new: InstanceState, old: InstanceState) -> None:
        tell_supervisor(new, self.tasks)
        if new in ENDS:
            self._ended.set()
        if self._on_state is not None:
            tell_state(self._on_state, new, old)

    async def close(
        self, *, leave_group: bool = False, timeout_ms: int | timedelta | None = None
    ) -> None:
        """Commit, close all tasks and stores, and leave the group.

        Raises the error that ended the app. Does nothing when the app is closed already.

        All steps together wait for the log for at most `timeout_ms` (default: `close_timeout_ms`).
        Requests without an answer by then are abandoned, and a warning names the tasks that are not
        committed; stores are closed properly all the same. While long calls are in flight, other
        tasks continue for most of that time: the app stays RUNNING until those calls have ended. If
        another call is closing the app, this call waits for the same end, and the earlier deadline
        counts. If you await it in the uncaught handler, or in an async function of the topology, it
        only begins the close, which waits for that code.

        A start in progress, at any stage, or a later start fails with NotRunning. The close waits
        only for a log being opened, within the same limit, and for a service being entered. With a
        `group_instance_id` the app keeps its place in the group, and its tasks, for
        `session_timeout_ms`, unless `leave_group` is true.
        """
        if timeout_ms is not None:
            timeout_ms = check_timeout(timeout_ms)
        if not self._gone.is_set():
            self._check_loop()
        self._closing.begin(
            (self.config.close_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        )
        if not called_from_within(self._log_client):
            with self._log_client.named():
                await self._close(leave_group=leave_group)
            return
        # The close ends this code, or waits for it: cancelling this code must not cancel the close.
        if self._closing_apart is None:
            context = copy_context()
            context.run(leave_user_code)
            self._closing_apart = asyncio.create_task(
                self._close_apart(leave_group=leave_group), context=context
            )
        if not awaited_by_app(self._log_client):
            await self._gone.wait()
            if self.error is not None:
                raise self.error

    async def _close_apart(self, *, leave_group: bool) -> None:
        try:
            await self._close(leave_group=leave_group)
        except Exception as error:  # noqa: BLE001 - nobody awaits this task; the block raises it
            _log.debug("a close that the app's own code began has failed: %s", error)

    async def _close(self, *, leave_group: bool) -> None:
        starting = self._starting
        if self._stack is None:
            # A start in progress, or a later start, reads these fields.
            self._unwanted, self._leaves = True, leave_group
        if starting is not None:
            if self._instance is not None:
                self._instance.give_up_start(self._closed_early())
            await starting.wait()
        stack, self._stack = self._stack, None
        if stack is not None:
            self._closer = asyncio.current_task()
            try:
                async with stack:
                    if self._ref is not None and self.state is not InstanceState.ERROR:
                        # Shield it: the actor ends in any case, and cancelling the request would
                        # leave its last message undelivered.
                        await shielded(self._stop_instance(self._ref, leave=leave_group))
            finally:
                self._note_gone()
        elif starting is None:
            # A service may close the app while the app exits the service.
            if self._gone.is_set() or not self._begun or self._closer is asyncio.current_task():
                return
            await self._gone.wait()
        if self.error is not None:
            raise self.error

    def _note_gone(self) -> None:
        if self._instance is not None:
            self._instance.gone()
        self._ended.set()
        self._gone.set()

    async def _stop_instance(self, ref: Ref[m.InstanceMessage], *, leave: bool) -> None:
        if (parts := self._parts) is not None:
            await let_calls_end(self._metrics.tasks, parts.committer.ctx.self_ref, self._closing)
        await ref.ask(m.StopInstance, leave=leave).within(inf)

    async def run(self) -> None:
        """Run until the app ends, is closed, or this call is cancelled, which closes the app.

        Starts the app if necessary. Raises the error that ended the app. When another task closes
        the app, `run` returns only after the close, so that a program which awaits `run` does not
        end in the middle of closing.
        """
        try:
            if not self._begun:
                await self.start()
            await self._ended.wait()
        except NotRunning:
            # Closed by another task during the start: that is a normal end.
            if not self._unwanted:
                raise
        finally:
            await self.close()
            if self._begun:
                await self._gone.wait()
        if self.error is not None:
            raise self.error

    def main(self, *, processes: int | str | Mapping[str, int] | None = None) -> None:
        """Run the app as a program of its own, until SIGINT or SIGTERM closes it.

        It runs on a new event loop (uvloop's, where that is installed). Closing takes at most
        `close_timeout_ms` when the log is unreachable; a second signal ends the program at once,
        without the last commit. It sets the garbage collector as `tune_gc` does, and raises the
        soft limit of open files to the hard one. Where logging is not configured, a line on stderr
        says that the app runs, with its guarantee and tasks.

        `processes` runs this program's command line in that many processes (`auto`: one for each
        core; `{"fraud": 1, "rest": 3}`: by query), each a member of the group. This process becomes
        their supervisor, without a return.

        Raises the error that ended the app. Its traceback has only the frames of the user's code,
        or none if the log has them; at the log level DEBUG the traceback is whole. Raises
        RuntimeError in a thread, and where an event loop runs already: await `run` there.
        """
        try:
            run_program(self._run_until_signal, self._start_report, processes)
        except Exception as error:
            # Here, as each frame that an error leaves later is in its traceback again.
            tell_end_of_program(error)
            raise

    async def _run_until_signal(self) -> None:
        self._ended, self._gone = asyncio.Event(), asyncio.Event()
        self._app_topics = AppTopics(self._topology, self.config, self._closing)
        await until_signal(self.run(), partial(self._closing.begin, 0.0))

    # --- status -----------------------------------------------------------------------------------

    @property
    def state(self) -> InstanceState:
        """The app's state."""
        state = InstanceState.CREATED if self._instance is None else self._instance.state
        over = self._starting is None and (self._begun or self._unwanted)
        return InstanceState.NOT_RUNNING if over and state is InstanceState.CREATED else state

    @property
    def topology(self) -> Topology:
        """The topology that the app runs."""
        return self._topology

    @property
    def log(self) -> Log:
        """The log of the app. Raises NotRunning before the start."""
        if self._bare_log is None:
            raise NotRunning(NOT_STARTED)
        return self._bare_log

    def _running_log(self) -> Log | None:
        return None if self._stack is None else self._bare_log

    async def _open_topics(self) -> Topics:
        self._check_loop()
        return await self._app_topics.opened(begun=self._begun, error=self.error)

    def metrics(self) -> MetricValues:
        """Return all metrics of this instance, with their tags, as they are now.

        `metrics()["process-total"]` is a value for the whole instance, `metrics().instance()` has
        all such values. Call it on the event loop.
        """
        began = time.perf_counter()
        found = self._metrics.registry.values()
        self._metrics.read_times.add((time.perf_counter() - began) * 1000)
        return found

    def waiting(self) -> tuple[Wait, ...]:
        """Return the wait reasons of this instance's tasks at this moment, by task and partition.

        Empty before the start and after the end. A task with nothing to process has one line, with
        the reason RECORDS. Call it on the event loop; it looks once at each partition.
        """
        if self._instance is not None:
            return self._instance.waiting()
        if self._starting is None:
            return ()
        return (wait_of_instance(self._asked, time.time_ns() // 1_000_000),)

    def health(self, bounds: HealthBounds | None = None) -> Health:
        """Return whether the app is live and ready, and all reasons why not.

        Cheap: one look at each partition, and no request to the log. Call it from any thread; a
        call from outside the event loop also notices a blocked loop. A broker that does not answer
        shows within 5 s. `bounds` are the limits, such as the largest lag (default:
        HealthBounds()).
        """
        task_parts = self._task_parts
        return health(
            self.state,
            self.config,
            self._instance,
            self._asked,
            HealthBounds() if bounds is None else bounds,
            now_ms=None if task_parts is None else task_parts.clocks.steady_time,
        )

    @property
    def member_id(self) -> str | None:
        """The id of this instance among the `members` of its group; None before it has joined."""
        return None if self._parts is None else self._parts.member.status().member_id

    async def members(self) -> tuple[GroupMember, ...]:
        """Return the members of the app's group, of all instances, by client id.

        The partitions of each are known while the group does not rebalance. Empty when the log
        describes no groups. Raises NotRunning before the start, and LogError.
        """
        return await members_of(self.log, self.config.application_id)

    async def task_metrics(self) -> dict[TaskId, TaskMetrics]:
        """Return the metrics of each task with stores on this instance, standbys included.

        Asks RocksDB in a thread. Raises NotRunning.
        """
        self._local.check_running()
        return await task_metrics(self._registry)

    def workers(self) -> tuple[WorkerMetadata, ...]:
        """Return the metadata of each worker that has not ended; none before the start."""
        return self._workers.metadata()

    def tasks(self) -> tuple[TaskMetadata, ...]:
        """Return the metadata of each task on this instance, standbys included, by task.

        The metadata includes positions, restores, calls in flight and waits. Empty before the start
        and after the end. Call it on the event loop.
        """
        parts, instance = self._parts, self._instance
        if parts is None or instance is None or self.state in ENDS:
            return ()
        return with_progress(task_metadata(parts), parts, instance.known_ends, self.waiting())

    # --- its stores -------------------------------------------------------------------------------

    async def serve_stores(
        self, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None
    ) -> StoreEndpoint:
        """Let other processes, such as Spark jobs, read the stores of this instance.

        Returns the endpoint, which serves until the app is closed. It is read only, and requires
        the `token` (default: a new random token that cannot be guessed). Nothing is encrypted, so
        serve other machines only in a network that you trust. Port 0 is any free port. Raises
        NotRunning, and OSError when the address is taken.
        """
        self._running()
        assert self._stack is not None
        changelog = self._shared_parts().topics.changelog
        endpoint = await query.serve(self._local, changelog, host=host, port=port, token=token)
        self._stack.push_async_callback(endpoint.close)
        return endpoint
