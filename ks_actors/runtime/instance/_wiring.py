"""The actors of an instance and the order of their start and end."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from actors import Spec
from ks_actors._errors import StateError
from ks_actors.assignment import MemberTraits
from ks_actors.config import ClientIds, ProcessingGuarantee
from ks_actors.lifecycle import Closing, admitted, component_log, name_client, shielded, try_step
from ks_actors.log import (
    IsolationLevel,
    Lease,
    NewMember,
)
from ks_actors.records import warm_up
from ks_actors.runtime import messages as m
from ks_actors.runtime.commit import COMMITTER_MAILBOX, Committer, Twins
from ks_actors.runtime.fetching import POLLER_MAILBOX, FetchFigures, Poller, StartPolicy
from ks_actors.runtime.globals import GLOBAL_MAILBOX, AwaitFilled, GlobalStores, GlobalTables
from ks_actors.runtime.instance._last_commit import LastCommit
from ks_actors.runtime.membership import (
    MEMBER_MAILBOX,
    AssignmentCheck,
    GroupView,
    Member,
    RebalanceFigures,
    end_transactions_of,
    group_assignor,
    left_out,
    nothing_to_end,
    pattern_watch,
    topic_watch,
)
from ks_actors.runtime.output import COLLECTOR_MAILBOX, Collector, DeadLetterWriter, RejectedRecords
from ks_actors.runtime.processing import TASK_MANAGER_MAILBOX, Purger, TaskManager, Worker
from ks_actors.runtime.shared import (
    AwaitedSerdes,
    StateDirectory,
    check_cluster,
    topics_prepared,
)
from ks_actors.runtime.stores import (
    RESTORER_MAILBOX,
    STATE_MANAGER_MAILBOX,
    Limits,
    Restorer,
    StateManager,
    TaskDirectories,
    restore_fetcher,
)
from ks_actors.runtime.watch import Coverage, PartitionStates, Upstream, Watch
from ks_actors.state import SharedResources, attach
from ks_actors.system import Later
from ks_actors.task import RecordContextHolder, make_stores
from ks_actors.task.calls import needs_thread, whole_commits

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors import Context, Ref
    from ks_actors.log import Log, Membership, PatientLog, TransactionalProducer
    from ks_actors.records import TaskId
    from ks_actors.runtime.instance._workers import Workers
    from ks_actors.runtime.shared import Metrics
    from ks_actors.runtime.stores import Progress
    from ks_actors.state import TaskStores
    from ks_actors.task import StoreRegistry, TaskParts

if TYPE_CHECKING:
    from ks_actors import snapshots as files
    from ks_actors.runtime import snapshots
else:
    files = Later("ks_actors.snapshots")
    snapshots = Later("ks_actors.runtime.snapshots")

_FIRST_EPOCH = 1
# Tasks and stores close without the log, so its short limit does not apply to them.
LEAST_STOP_S = 10.0
_AFTER_FAILURE = 1.0
_log = component_log(__name__)


class Wiring:
    """The actors of an instance, spawned as its children.

    Each actor starts after the actors that it uses. The order in which they end loses no records.
    """

    def __init__(
        self,
        parts: TaskParts,
        registry: StoreRegistry,
        log: PatientLog,
        metrics: Metrics,
        *,
        progress: Progress,
        priority: Callable[[TaskId], int] | None,
        workers: Workers,
        closing: Closing | None = None,
        endpoint: Callable[[], str] = str,
    ) -> None:
        self._endpoint = endpoint
        self._parts = parts = replace(parts, batch_bytes=log.bytes_per_write)
        self._topics = topics = parts.topics
        self.registry: StoreRegistry = registry
        self.wall_time: Callable[[], int] = parts.clocks.wall_time
        metrics.history.wall_time = self.wall_time
        self.closing: Closing = Closing() if closing is None else closing
        self.partition_states: PartitionStates | None = None
        self._config = config = parts.config
        self._log = log
        self._metrics = metrics
        self._workers = workers
        self._progress = progress
        self._priority = priority
        self._serdes = AwaitedSerdes(self._topics)
        self._directory = StateDirectory(config.state_dir / config.application_id)
        # It also tells the age of heartbeats; a transactional producer writes without a lease.
        self.member_lease: Lease = Lease()
        self._shared: SharedResources | None = None
        specs = parts.stores.by_subtopology
        self._task_directories = TaskDirectories(
            self._directory.path, self.wall_time, lambda task: specs.get(task.subtopology)
        )
        self._rejected = RejectedRecords(config, parts.telemetry.answers, metrics)
        # Never 0, even if poll_ms is: an app without records would fetch in a tight loop.
        self._poll_ms: int = max(1, config.poll_ms)
        self._started: list[Ref[Any]] = []
        self._context: Context[Any] | None = None
        self._task_manager: TaskManager
        self._committer: Committer
        self._changelog_reader: Restorer
        self._state_manager: StateManager | None = None
        self._global_stores: GlobalStores | None = None
        self.snapshots: Ref[m.SnapshotsMessage] | None = None
        self.removed: dict[Ref[Any], str] = {}
        self._ids: ClientIds
        self.manager: Ref[m.TaskManagerMessage]
        self.collector: Ref[m.CollectorMessage]
        self.committer: Ref[m.CommitterMessage]
        self._state: Ref[m.StateManagerMessage]
        self._restorer: Ref[m.RestorerMessage]
        self._membership: Membership
        self._poller: Ref[m.PollerMessage]
        self._member: Ref[m.MemberMessage] | None = None
        # In seconds. A commit waits for several steps one after the other, and for some steps twice
        # if it fails.
        self.timeout_s: float = 4 * max(1, config.task_timeout_ms) / 1000
        self.blocking: bool = any(map(needs_thread, topics.topology.nodes.values()))

    # --- start ------------------------------------------------------------------------------------

    async def start(self, context: Context[Any]) -> None:
        """Spawn all actors but the workers, and join the group.

        May be cancelled; `close` and `release` then end the actors that have started.
        """
        self._context = context
        cluster = self._log.cluster_id
        # Check this before anything is created in a cluster that the state does not belong to.
        await shielded(context.blocking(partial(check_cluster, self._directory.path, cluster)))
        await self._serdes.prepare()
        async with topics_prepared(self._log, self._topics) as counts:
            self._topics.know_topics(counts)
            if max(counts.values(), default=1) > 1:
                # Load numpy now, not amid the first records: that takes a tenth of a second.
                await shielded(context.blocking(warm_up))
            process_id = await shielded(context.blocking(partial(self._directory.open, cluster)))
            self._metrics.process_id = process_id
            self._name_clients(process_id)
            self._shared = SharedResources.within(
                self._config.statestore_memory_max_bytes,
                statistics=self._config.metrics_recording_level != "INFO",
            )
            await shielded(context.blocking(partial(self._find_state, self._shared)))
            await self._start_collector(context, process_id)
            await self._start_state(context)
        await self._spawn(context, topic_watch(self._log, self._topics), "topic-watch")
        if self._topics.topology.global_topics:
            await self._start_globals(context)
        await self._start_committer(context)
        await self._start_member(context, process_id, await self._start_poller(context))

    def _find_state(self, shared: SharedResources) -> None:
        """Open the database of all tasks, if any, and look at their directories. Blocks."""
        config, specs = self._config, self._parts.stores.of_all_tasks()
        attach(shared, self._directory.path, specs, layout=config.state_layout)
        self._task_directories.remember(shared, config.state_cleanup_dir_max_age_ms)

    def _name_clients(self, process_id: str) -> None:
        self._ids = ClientIds.of(self._config, process_id)
        name_client(self._ids.name)
        self._log.take_client_id(self._ids.admin)

    @property
    def bare_log(self) -> Log:
        """The log without retries."""
        return self._log.bare

    async def _start_collector(self, context: Context[Any], process_id: str) -> None:
        config, log = self._config, self._log
        # Keep the id after a crash: it fences the earlier instance and aborts its transaction.
        renew = partial(self._transactional_producer, process_id)
        topics = self._topics.transaction_scope().topics
        # Before the stores open: they restore committed changelogs, and `renew` ends the
        # transaction that an earlier instance may have left open.
        producer = (
            await renew()
            if self._transactional
            else await log.producer(
                client_id=self._ids.producer, lease=self.member_lease, topics=topics
            )
        )
        collector = Collector(
            producer,
            log,
            epoch=_FIRST_EPOCH,
            manager=lambda: self.manager,
            committer=lambda: self.committer,
            refused=self._rejected.refused,
            sizes=self._topics.partitions,
            metrics=self._metrics,
            renew=renew if self._transactional else None,
            lease=self.member_lease,
            timeout_s=config.task_timeout_ms / 1000,
            linger=config.linger_ms / 1000,
        )
        spec = Spec(lambda: collector, mailbox=COLLECTOR_MAILBOX)
        self.collector = await self._spawn(context, spec, "collector")
        self.member_lease.lost = partial(self.collector.tell, m.Abandon())

    async def _transactional_producer(self, process_id: str) -> TransactionalProducer:
        name, scope, timeout_ms = (
            self._transactional_id(process_id),
            self._topics.transaction_scope(),
            self._config.transaction_timeout_ms,
        )
        return await self._log.transactional_producer(
            name, client_id=self._ids.producer, timeout_ms=timeout_ms, scope=scope
        )

    def _transactional_id(self, process_id: str) -> str:
        return f"{self._config.application_id}-{process_id}-1"

    async def _start_state(self, context: Context[Any]) -> None:
        topics, config = self._topics, self._config
        repartitions = [topics.topic(name) for name in topics.topology.internal_topics]
        manager = self._task_manager = TaskManager(
            self._parts,
            self.registry,
            instance=context.self_ref,
            poller=lambda: self._poller,
            member=self._the_member,
            committer=lambda: self.committer,
            purger=Purger(
                repartitions, config.repartition_purge_interval_ms, self._log.delete_read
            ),
            metrics=self._metrics,
            priority=self._priority,
        )
        self.manager = await self._spawn(
            context, Spec(lambda: manager, mailbox=TASK_MANAGER_MAILBOX), "task-manager"
        )
        state = self._state_manager = StateManager(
            make=self._make_stores,
            changelog=topics.changelog,
            restorer=lambda: self._restorer,
            manager=self.manager,
            collector=self.collector,
            instance=context.self_ref,
            progress=self._progress,
            task_directories=self._task_directories,
            cleanup_seconds=config.state_cleanup_delay_ms / 1000,
            store_registry=self.registry,
            work_time=self._parts.clocks.work_time,
            pausing=lambda: self._metrics.pausing,
            exact=self._transactional,
            batch_bytes=self._log.bytes_per_write,
            source=None
            if config.snapshot_uri is None
            else snapshots.SnapshotSource(**self._snapshot_parts(), log=self._log),
        )
        self._metrics.standbys = lambda: len(state.standby_stores())
        self._state = await self._spawn(
            context, Spec(lambda: state, mailbox=STATE_MANAGER_MAILBOX), "state-manager"
        )
        fetcher = self._serdes.fetcher(
            restore_fetcher(
                self._log, self._ids.restore_consumer, topics.reused_topics, self._isolation
            )
        )
        limits = Limits(topics.reused_topics, lambda: self._membership, config.commit_interval_ms)
        restorer = self._changelog_reader = Restorer(
            self._log,
            fetcher,
            self._state,
            limits,
            poll_ms=self._poll_ms,
            exact=self._transactional,
        )
        self._metrics.history.rebalances.restored = restorer.totals
        self._restorer = await self._spawn(
            context, Spec(lambda: restorer, mailbox=RESTORER_MAILBOX), "restorer"
        )
        if config.snapshot_uri is not None:
            # Raise for a bad URI now.
            await context.blocking(partial(files.Place.of, config.snapshot_uri))
            actor = snapshots.Snapshots(
                **self._snapshot_parts(), registry=self.registry, state=self._state
            )
            self.snapshots = await self._spawn(
                context, Spec(lambda: actor, mailbox=snapshots.SNAPSHOTS_MAILBOX), "snapshots"
            )

    def _snapshot_parts(self) -> dict[str, Any]:
        return {
            "topics": self._topics,
            "stores": self._parts.stores,
            "wall_time": self.wall_time,
            "shared": self._shared,
            "directory": self._directory.path,
            "metrics": self._metrics,
        }

    async def _start_globals(self, context: Context[Any]) -> None:
        assert self._shared is not None
        stores = GlobalStores(self._topics, self._parts.stores, self._directory.path, self._shared)
        self._global_stores = stores
        await stores.fetch_offsets(self._log, self._isolation)
        # Shield this: once opened, the stores need an owner.
        ref = await shielded(self._open_globals(context, stores))
        # Without a limit: a large table takes its time, and processing with half of it gives wrong
        # results.
        await ref.ask(AwaitFilled).within(inf)

    async def _open_globals(self, context: Context[Any], stores: GlobalStores) -> Ref[Any]:
        await context.blocking(stores.open)
        fetcher = self._serdes.fetcher(
            self._log.fetcher(client_id=self._ids.global_consumer, isolation=self._isolation)
        )
        tables = GlobalTables(
            self._parts,
            self.registry,
            stores,
            fetcher,
            self.letters(),
            poll_ms=self._poll_ms,
            instance=context.self_ref,
            metrics=self._metrics,
        )
        return await self._spawn(
            context, Spec(lambda: tables, mailbox=GLOBAL_MAILBOX), "global-tables"
        )

    async def _start_committer(self, context: Context[Any]) -> None:
        config = self._config
        committer = self._committer = Committer(
            transactional=self._transactional,
            interval_ms=config.commit_interval_ms,
            drain_ms=config.max_drain_ms,
            timeout_ms=config.task_timeout_ms,
            epoch=_FIRST_EPOCH,
            instance=context.self_ref,
            manager=self.manager,
            state=self._state,
            collector=self.collector,
            member=self._the_member,
            twins=Twins(self._directory.forget_process_id),
            matched=self._topics.matched_of,
            metrics=self._metrics,
            whole=whole_commits(self._topics.topology),
        )
        spec = Spec(lambda: committer, mailbox=COMMITTER_MAILBOX)
        self.committer = await self._spawn(context, spec, "committer")

    async def _start_poller(self, context: Context[Any]) -> Poller:
        topics, log = self._topics, self._log
        # Use the log without retries: the wait for windows itself warns that the log does not
        # answer.
        bare = self.bare_log
        poller = Poller(
            log,
            self._serdes.fetcher(
                log.fetcher(client_id=self._ids.consumer, isolation=self._isolation)
            ),
            poll_ms=self._poll_ms,
            isolation=self._isolation,
            start=StartPolicy(log, topics, self.wall_time),
            matched=topics.matched_of,
            instance=context.self_ref,
            manager=self.manager,
            member=self._the_member,
            upstream=Upstream(
                bare, topics, Coverage(bare, topics, self.wall_time, self._isolation, tuple)
            ),
            figures=FetchFigures(self._metrics.registry.window),
        )
        spec = Spec(lambda: poller, mailbox=POLLER_MAILBOX)
        self._poller = await self._spawn(context, spec, "poller")
        return poller

    async def _start_member(self, context: Context[Any], process_id: str, poller: Poller) -> None:
        topics, config, log = self._topics, self._config, self._log
        specs = self._parts.stores.by_subtopology
        stateful = [number for number, each in specs.items() if any(spec.logging for spec in each)]
        fitting = AssignmentCheck.of(topics, stateful)
        traits = MemberTraits(
            endpoint=self._endpoint(), tags=config.client_tags, grouping=topics.grouping.name
        )
        poll_ms, others = config.max_poll_interval_ms, left_out(topics)
        assignor = group_assignor(self._parts, fitting.topology)
        basis = None if config.group_instance_id is None else assignor.basis
        group = GroupView(process_id, poll_ms, fitting, traits, others, basis)
        await admitted("join")
        membership = self._membership = await log.join(
            config.application_id,
            NewMember(
                client_id=self._ids.consumer,
                instance_id=config.group_instance_id,
                # The lock on the directory proves that the old member of this process id is dead. A
                # static member keeps its place in the group.
                takes_over=config.group_instance_id is None,
                transactional_id=self._transactional_id(process_id)
                if self._transactional
                else None,
                transaction_scope=topics.transaction_scope(),
                stuck=self._metrics.stuck_seconds,
                topics=topics.source_topics,
                user_data=group.user_data((), offsets=self._task_directories.offsets),
                assignor=assignor,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.max_poll_interval_ms,
                lease=self.member_lease,
            ),
        )
        member = Member(
            log,
            membership,
            group,
            start=StartPolicy(log, topics, self.wall_time),
            end_transactions=partial(end_transactions_of, self._transactional_producer)
            if self._transactional
            else nothing_to_end,
            instance=context.self_ref,
            poller=self._poller,
            manager=self.manager,
            state=self._state,
            committer=self.committer,
            collector=self.collector,
            figures=RebalanceFigures.of(self._metrics, context.time()),
        )
        assert self._state_manager is not None
        # Before the member is spawned: it may begin tasks before the spawning code resumes.
        self.partition_states = PartitionStates(
            self._metrics,
            self._workers,
            self._task_manager,
            poller,
            member,
            self._committer,
            self._state_manager,
            self._changelog_reader,
        )
        await shielded(self._spawn_member(context, member))
        if watch := pattern_watch(
            log, topics, member=self._the_member(), instance=context.self_ref
        ):
            await self._spawn(context, watch, "pattern-watch")

    async def _spawn_member(self, context: Context[Any], member: Member) -> None:
        spec = Spec(lambda: member, mailbox=MEMBER_MAILBOX)
        self._member = await self._spawn(context, spec, "member")

    async def _spawn(self, context: Context[Any], spec: Spec[Any], name: str) -> Ref[Any]:
        # The actor owns its resources, so finish spawning it even when cancelled.
        ref = await shielded(context.spawn(spec, name))
        self._started.append(ref)
        return ref

    # --- parts for the actors ---------------------------------------------------------------------

    @property
    def _transactional(self) -> bool:
        return self._config.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2

    @property
    def _isolation(self) -> IsolationLevel:
        return (
            IsolationLevel.READ_COMMITTED
            if self._transactional
            else IsolationLevel.READ_UNCOMMITTED
        )

    def _the_member(self) -> Ref[m.MemberMessage]:
        assert self.partition_states is not None
        return self.partition_states.member.ctx.self_ref

    def _make_stores(self, task: TaskId) -> tuple[TaskStores | None, RecordContextHolder]:
        current = RecordContextHolder()

        def expired(count: int) -> None:
            found = self._metrics.tasks.get(task)
            if found is not None:
                found.dropped += count

        specs = self._parts.stores.of_task(task)
        changelogs = {spec.name: self._topics.changelog(spec.name) for spec in specs}
        stores = make_stores(
            str(task),
            specs,
            directory=self._directory.path,
            shared=self._shared,
            current=current,
            expired=expired,
            topics=changelogs,
            exact=self._transactional,
            # A user's assignor may want standbys, whatever the setting is.
            vectors=self._config.num_standby_replicas > 0 or self._parts.assignor is not None,
            topic_ids=self._topics.topic_ids_of(task, changelogs.values()),
        )
        return stores, current

    def watch(self, runs: Callable[[], bool]) -> Watch:
        """Return the watchdog of the actors, which checks the tasks while the instance `runs`."""
        assert self.partition_states is not None
        parts, topics, answers = self.partition_states, self._topics, self._parts.telemetry.answers
        return Watch(
            parts, topics, self._parts.clocks, answers, self.bare_log, self._isolation, runs
        )

    def worker(self, name: str) -> Worker:
        """Return a new worker."""
        clocks, window = self._parts.clocks, self._parts.telemetry.window
        return Worker(
            name, self.manager, self.collector, self.letters, self._config, clocks, window
        )

    def letters(self) -> DeadLetterWriter:
        """Return a writer of dead letters that belong to no commit."""
        parts = self._config, self._topics.partitions, self._rejected, self._log
        return DeadLetterWriter(*parts, self._metrics, self.closing)

    @property
    def restorable(self) -> bool:
        """Whether data on disk is damaged, and opening the tasks again restores all of it.

        Global stores are opened only at the start.
        """
        return (
            self._state_manager is not None
            and self._state_manager.damaged
            and not (self._global_stores is not None and self._global_stores.stores.damaged)
        )

    def rejoin(self, error: Exception) -> None:
        """Give up all tasks and rejoin the group."""
        self._the_member().tell(m.Rejoin(error))

    # --- end --------------------------------------------------------------------------------------

    async def close(self, *, clean: bool, leave: bool) -> None:
        """End all actors; when `clean`, commit first. A static member leaves only if `leave`.

        Give up requests that the log does not answer in time, with a warning. Raises the first
        error after the remaining actors are closed.
        """
        self.closing.begin(self._config.close_timeout_ms / 1000)
        errors: list[Exception] = []
        # Without a member no task has begun, so there is nothing to commit.
        if self._member is not None:
            await self._end_processing(self._member, errors, clean=clean, leave=leave)
        context = self._context
        if context is not None:
            for ref in (*context.children,):
                if ref not in self._started:
                    context.kill(ref)
            # In reverse: each actor may still use the actors that started before it.
            for ref in reversed(self._started):
                context.stop(ref)
        if errors:
            raise errors[0]

    async def _end_processing(
        self, member: Ref[m.MemberMessage], errors: list[Exception], *, clean: bool, leave: bool
    ) -> None:
        timeout_s = self.timeout_s
        self.manager.tell(m.PauseProcessing(True))
        last = self._last_commit()
        given_up = clean and await last.given_up(member, errors)
        # From here on, send no requests: their receivers may have stopped.
        await try_step(member.ask(m.StopFollowing).within(timeout_s), errors)
        if clean and not given_up:
            # A failed commit may have left a step that never ends.
            await try_step(
                last.in_time(
                    self.committer.ask(m.EndCommits).within(_AFTER_FAILURE if errors else timeout_s)
                ),
                errors,
            )
        if not clean or errors or given_up or last.workers_missing:
            self._drop_workers()
        # Tasks first, then their stores, then the group: the next owner must find the state closed.
        local_s = max(LEAST_STOP_S, timeout_s)
        await try_step(self.manager.ask(m.Close, None).within(local_s), errors)
        await try_step(self._state.ask(m.CloseStores, None, clean=clean).within(local_s), errors)
        await try_step(member.ask(m.LeaveGroup, for_good=leave).within(timeout_s), errors)

    def _last_commit(self) -> LastCommit:
        suspending = max(LEAST_STOP_S, self._config.task_timeout_ms / 1000)
        times = {"suspending": suspending, "committing": self.timeout_s}
        return LastCommit(
            self.closing,
            self._metrics,
            self.manager,
            self.committer,
            exact=self._transactional,
            **times,
        )

    def _drop_workers(self) -> None:
        """Kill all busy workers and the committer: their work is no longer needed."""
        context, parts = self._context, self.partition_states
        assert context is not None
        assert parts is not None
        context.kill(self.committer)
        # This includes dead workers that the task manager does not know of yet.
        for ref in dict.fromkeys((*context.children, *parts.manager.status().leased.values())):
            if ref not in self._started:
                context.kill(ref)
                self.manager.tell(m.WorkerLost(ref))

    async def release(self) -> None:
        """Release stores, shared resources and the directory after all actors have ended."""
        if self._state_manager is not None and self._context is not None:
            await self._state_manager.let_go(self._context.blocking)
        shared, self._shared = self._shared, None
        if shared is not None and self._context is not None:
            try:
                await self._context.blocking(shared.close)
            except StateError as error:  # the last task that closed has reported such an error
                _log.warning("could not close stores: %s", error)
        self._directory.close()
