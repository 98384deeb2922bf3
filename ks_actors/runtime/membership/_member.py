"""The actor that holds the group membership."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never, final

from actors import Actor, Mailbox, Signal, Started, Stopping
from ks_actors._errors import FencedInstanceId, KsActorsError, LogClosed, StreamsError
from ks_actors.history import History
from ks_actors.lifecycle import RetryBackoff, component_log, warn_if_slow
from ks_actors.log import Assigned, Lost, Revoked
from ks_actors.metrics import STILL, Timing
from ks_actors.runtime import messages as m
from ks_actors.runtime.membership._assignment_check import moved, named
from ks_actors.runtime.membership._departing_tasks import HANDED_OVER, OUTDATED, DepartingTasks
from ks_actors.runtime.membership._group_view import OffsetCommits, answered, fenced_member
from ks_actors.runtime.membership._handover import Handover
from ks_actors.runtime.membership._start_positions import begin_positions
from ks_actors.runtime.shared import WorkerState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from typing import Self

    from actors import Ref, Reply
    from ks_actors.assignment import HostedTasks
    from ks_actors.history import RebalanceHistory
    from ks_actors.log import BaseMembership, Log, MembershipEvent
    from ks_actors.metrics import Window
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.fetching import StartPolicy
    from ks_actors.runtime.membership._group_view import GroupView
    from ks_actors.runtime.shared import Metrics

MEMBER_MAILBOX = Mailbox(capacity=100_000, overflow="fail_system")
# Seconds that a closing app waits for the group's next generation, which mostly comes at once.
_PATIENCE = 1.0
# Seconds in which new tasks are gathered: at least, and for each task that is fetched already. An
# assignment of a fetcher takes some µs per partition.
_TOGETHER_S = 0.01
_EACH_S = 0.0002
# Seconds until the group is asked again for missing topics.
_AGAIN_S = 1.0
_LACKING = "metadata: topics or partitions were missing"
_log = component_log(__name__)


class MemberStatus(NamedTuple):
    """The group membership of an instance at one moment.

    `member_id` is None before the instance has joined its group. Stores of `pending` tasks are
    being opened or restored. `hosts` are all members with their tasks, if any has an endpoint.
    `uncovered` are the queries that no member runs; None while not known.
    """

    member_id: str | None
    generation: int
    tasks: Mapping[TaskId, tuple[TopicPartition, ...]]
    pending: frozenset[TaskId]
    hosts: tuple[HostedTasks, ...] = ()
    uncovered: tuple[str, ...] | None = ()


@final
class RebalanceFigures:
    """The rebalances of one instance; times in ms."""

    def __init__(
        self, window: Window = STILL, began: float = 0.0, history: RebalanceHistory | None = None
    ) -> None:
        self.history: RebalanceHistory = History().rebalances if history is None else history
        self.rebalances: Timing = Timing(window)
        self.lost: int = 0
        self.assigned_at: float | None = None
        """The time (s) of the last assignment."""
        self.assignor_failures: int = 0
        self.assignor_failure: str = ""
        """Why the group keeps its last assignment; empty if the last one was made."""
        self._rebalancing_since: float | None = began
        self.history.begin()

    @classmethod
    def of(cls, metrics: Metrics, began: float) -> Self:
        """Return the figures for an instance's metrics, which begin at a time (s)."""
        return cls(metrics.registry.window, began, metrics.history.rebalances)

    def event(self, event: MembershipEvent, now: float) -> None:
        """Note an event of the group."""
        match event:
            case Revoked():
                self._rebalancing_since = now
                self.history.begin()
            case Lost():
                self._rebalancing_since = now
                self.lost += 1
            case Assigned():
                since = now if self._rebalancing_since is None else self._rebalancing_since
                self.rebalances.add((now - since) * 1000)
                self._rebalancing_since, self.assigned_at = None, now


class Member(Actor[m.MemberMessage]):
    """Hold the group membership, and tell the poller for which tasks to fetch.

    Revoked: commit, then let the group continue; keep the tasks until the new assignment shows
    which of them have moved. Assigned: commit and give up the tasks that have moved, then begin new
    tasks. Lost: drop everything without a commit, and rejoin the group.
    """

    def __init__(
        self,
        log: Log,
        membership: BaseMembership,
        group: GroupView,
        *,
        start: StartPolicy,
        end_transactions: Callable[[frozenset[str]], Awaitable[None]],
        instance: Ref[m.InstanceMessage],
        poller: Ref[m.PollerMessage],
        manager: Ref[m.TaskManagerMessage],
        state: Ref[m.StateManagerMessage],
        committer: Ref[m.CommitterMessage],
        collector: Ref[m.CollectorMessage],
        figures: RebalanceFigures | None = None,
    ) -> None:
        self._log = log
        self._membership = membership
        self._group = group
        self._commits = OffsetCommits(membership)
        self._start = start
        self._end_transactions = end_transactions
        self._instance = instance
        self._poller = poller
        self._state = state
        self._committer = committer
        self.figures: RebalanceFigures = RebalanceFigures() if figures is None else figures
        # Replace this mapping at each change, as statuses refer to it.
        self._tasks: Mapping[TaskId, tuple[TopicPartition, ...]] = {}
        self._standbys: frozenset[TaskId] = frozenset()
        self._pending: set[TaskId] = set()
        self._stage: WorkerState = WorkerState.STARTING
        # The pending tasks that are ready, kept until the poller is told of all of them together.
        self._ready: dict[TaskId, m.TaskReady] = {}
        # Tasks that continue without a partition, as its topic is gone. The next assignment
        # restarts them, though it may name the same partitions: the topic may exist again.
        self._partial: set[TaskId] = set()
        self._work: asyncio.Future[Any] | None = None
        self._events: deque[MembershipEvent] = deque()
        self._rejoin: Exception | None = None
        self._handover = Handover(
            poller=poller,
            manager=manager,
            state=state,
            committer=committer,
            collector=collector,
            seconds=group.rebalance_seconds,
        )
        self._departing = DepartingTasks(
            self._handover, membership, group, here=lambda: self._tasks
        )
        # Set when another process has taken the place in the group: stop serving it.
        self._fenced: FencedInstanceId | None = None
        self._backoff = RetryBackoff()
        self._assignor_backoff = RetryBackoff()
        # `leaving`: nothing new begins, but the member follows the group until the last commit.
        self._leaving = self._closing = self._waiting = self._following = self._ask_again = False

    def status(self) -> MemberStatus:
        """Return the membership and the tasks; callable from any thread."""
        group, view = self._membership.group, self._group
        found = self._tasks, frozenset(self._pending), view.hosts, view.uncovered
        return MemberStatus(group.member_id, group.generation, *found)

    async def signal(self, signal: Signal) -> None:
        """Follow the group from the start; leave it at the end."""
        if isinstance(signal, Started):
            self._go_on()
        elif isinstance(signal, Stopping):
            await self._membership.close()

    def receive(self, message: m.MemberMessage) -> None:
        """Follow the group; nothing here waits for the log, so events are handled at any time."""
        match message:
            case m.CommitOffsets():
                self.ctx.pipe(
                    self._commits.commit(message), m.GroupRequestEnded, m.GroupRequestEnded
                )
            case m.AskGroup():
                message.reply.tell(self._membership.committing)
            case m.TaskReady():
                self._task_ready(message)
            case m.SeekAll():
                # First, as the rollback's positions include the partitions of new tasks.
                self._fetch_new()
                self._poller.tell(message)
            case m.PartitionsGone():
                self._partial |= message.tasks
                self._departing.ask("metadata: partitions are gone")
            case m.ReenterGroup():
                self._departing.ask(message.reason)
            case m.Rejoin():
                self._rejoin = message.cause
                self._go_on()
            case m.AppCloses():
                self._stop_fetching()
                # The coordinator of the last commit may be away: closing must not wait for ever.
                self.ctx.timers.once("closing", _PATIENCE, m.ClosingTimedOut())
            case m.StopFollowing():
                self._stop_following(message.reply)
            case m.LeaveGroup():
                group = self._membership
                leaving = group.leave if message.for_good else group.close
                self.ctx.pipe(
                    answered(message.reply, leaving), m.GroupRequestEnded, m.GroupRequestEnded
                )
            case _:
                self._settle(message)

    def _settle(self, message: m.MemberOutcome) -> None:
        match message:
            case m.MembershipChanged():
                self._waiting = False
                # Queue the event: a handover under way must end before the next event is handled.
                self._events.append(message.event)
                self._go_on()
            case m.MembershipFailed():
                self._membership_failed(message)
            case m.HandoverEnded():
                self._following = False
                self._departing.watch(self.ctx)
                self._go_on()
            case m.TasksGivenUp():
                self._rest(message)
            case m.TasksAtRest():
                self._departing.note_at_rest()
                self._go_on()
            case m.FetchNew():
                self._fetch_new()
            case m.ClosingTimedOut():
                self._commits.stop_waiting()
            case m.GroupRequestEnded():
                if message.error is not None:
                    self._instance.tell(m.Fatal(message.error, rolled_back=False))
            case _:
                assert_never(message)

    def _task_ready(self, ready: m.TaskReady) -> None:
        """Begin to fetch for a task, at once if it is the first or the last of the beginning tasks.

        Gather the tasks in between: each assignment of a fetcher goes through all partitions, and
        drops fetches in flight.
        """
        # A task that is about to be closed and started again is not ready yet.
        if ready.task not in self._tasks or ready.task in self._departing.tasks:
            return
        self._ready[ready.task] = ready
        if self._pending <= self._ready.keys():
            self._fetch_new()
        elif "new" not in self.ctx.timers:
            fetched = len(self._tasks) - len(self._pending)
            self.ctx.timers.once("new", max(_TOGETHER_S, fetched * _EACH_S), m.FetchNew())
            self._fetch_new()

    def _fetch_new(self) -> None:
        ready, self._ready = self._ready, {}
        self._pending.difference_update(ready)
        if here := tuple(one for task, one in ready.items() if task in self._tasks):
            self._look_at_pending()
            self._poller.tell(m.FetchTasks(here))

    # --- the group's events -----------------------------------------------------------------------

    def _go_on(self) -> None:
        """Handle the next event once the previous event is settled."""
        if self._following or self._closing or self._fenced is not None:
            return
        if self._rejoin is not None:
            # Handle the rejoin before group events, which assume that the current tasks can still
            # be committed.
            cause, self._rejoin = self._rejoin, None
            self._do(self._lose_all(cause), m.TasksGivenUp)
        elif self._events:
            self._follow(self._events.popleft())
        elif self._departing.may_go and not self._leaving:
            self._do(self._departing.part(self._standbys))
        elif not self._waiting:
            self._waiting = True
            failed = partial(m.MembershipFailed, waiting=True)
            self.ctx.pipe(self._membership.event(), m.MembershipChanged, failed)

    def _do(
        self,
        work: Coroutine[Any, Any, Any],
        then: Callable[[Any], m.MemberMessage] = lambda _: m.HandoverEnded(),
    ) -> None:
        self._following = True
        self._work = asyncio.ensure_future(work)
        self.ctx.pipe(self._work, then, partial(m.MembershipFailed, waiting=False))

    def _rest(self, given_up: m.TasksGivenUp) -> None:
        """Rejoin the group, after a pause if nothing was committed since the last rejoin.

        Group events that arrive during the pause are handled.
        """
        if given_up.made_progress:
            self._backoff.succeeded()
        # A commit that failed meanwhile was for the tasks just given up: rejoin only once.
        self._rejoin = None
        if self._fenced is not None:
            self._instance.tell(m.Fatal(self._fenced, rolled_back=False))
            return
        if "rest" not in self.ctx.timers:
            self.ctx.timers.once("rest", self._backoff.next(self.ctx.time()), m.ReenterGroup())
        self._following = False
        self._go_on()

    def _membership_failed(self, failed: m.MembershipFailed) -> None:
        self._waiting = self._waiting and not failed.waiting
        self._following = self._following and failed.waiting
        if not self._closing:
            # The group's further errors only follow from the fencing.
            self._instance.tell(m.Fatal(self._fenced or failed.error, rolled_back=False))
            if not isinstance(failed.error, LogClosed):
                self._go_on()

    def _follow(self, event: MembershipEvent) -> None:
        self.figures.event(event, self.ctx.time())
        match event:
            case Revoked():
                self._departing.between = True
                self._do(self._let_rebalance())
            case Assigned():
                # Another member has triggered an assignment, so no rejoin is needed.
                self.ctx.timers.cancel("rest")
                self.ctx.timers.cancel("assign")
                self._departing.between = False
                self._handover.assignments += 1
                for late in self._commits.next_generation():
                    self.ctx.self_ref.tell(late)
                self._committer.tell(m.AllowCommits())
                self._take_over(event)
            case Lost():
                if event.fenced:
                    self._fenced = fenced_member()
                    self.ctx.timers.cancel("rest")
                self._do(
                    self._lose_all(StreamsError("the group membership is lost")), m.TasksGivenUp
                )
            case _:
                assert_never(event)

    async def _let_rebalance(self) -> None:
        if self._tasks:
            self._tell_stage(WorkerState.PARTITIONS_REVOKED)
            _log.info("the group rebalances; tasks %s go on meanwhile", named(self._tasks))
        await self._handover.before_rebalance()
        # From here on the group may begin the next generation, so that a commit may come too late.
        self._commits.let_go()
        self._membership.revoked(self._departing.user_data(), self._group.topics)

    def _take_over(self, event: Assigned) -> None:
        try:
            assigned = self._group.tasks(event.assignment)
        except KsActorsError as error:
            self._instance.tell(m.Fatal(error, rolled_back=False))
            self._go_on()
            return
        gone, new = moved(self._tasks, assigned, self._departing.tasks, self._partial)
        self._partial = set()
        standbys = self._group.standbys
        migrated = self._standbys - standbys - frozenset(assigned) - self._departing.tasks
        # These tasks were lost after they were reported: ask for another assignment, or no member
        # gets them.
        self._ask_again = self._group.asks_again or bool(
            self._group.claimed - {*self._tasks, *self._departing.tasks, *assigned}
        )
        self._note_failure(event)
        self._standbys = standbys
        self._tasks = self._tasks_without(gone) | new
        self._pending = (self._pending - gone) | set(new)
        self._tell_stage(WorkerState.PARTITIONS_ASSIGNED)
        causes = self._departing.take_reasons() + self._group.changes(event.assignment, new)
        self.figures.history.assign(event.group.generation, new, gone, len(standbys), causes)
        self._look_at_pending()
        _log.info(
            "assigned in generation %d: new tasks %s; standbys %s; revoked: %s",
            event.group.generation,
            named(new),
            named(standbys),
            named(gone),
            extra={"generation": event.group.generation},
        )
        self._do(self._change(gone, migrated, new, event, self._handover.assignments))

    def _note_failure(self, event: Assigned) -> None:
        """Note whether the assignor of the group's leader has failed; if so, ask again later."""
        failure, asks = self._group.failure(event.assignment)
        self.figures.assignor_failure = failure
        self.figures.assignor_failures += bool(failure)
        if not failure:
            self._assignor_backoff.succeeded()
            return
        _log.error("the group keeps its last assignment: %s", failure)
        if asks:
            rest = max(_AGAIN_S, self._assignor_backoff.next(self.ctx.time()))
            self.ctx.timers.once("assign", rest, m.ReenterGroup("the assignor failed"))

    async def _change(
        self,
        gone: frozenset[TaskId],
        migrated: frozenset[TaskId],
        new: Mapping[TaskId, tuple[TopicPartition, ...]],
        event: Assigned,
        number: int,
    ) -> None:
        """Give up departed tasks, then begin new tasks, and then standbys."""
        await warn_if_slow(
            "an assignment",
            "transactions of members that have left",
            self._end_transactions(self._group.take_departed(event.assignment)),
        )
        if gone:
            # First, so that the poller gets no new tasks after it was told to forget them.
            self._fetch_new()
            given_up = await self._departing.give_up(gone, self._standbys, number - 1)
            # Tasks that begin again here are for no other member.
            self._ask_again |= not given_up <= new.keys()
        if migrated:
            await self._handover.close(migrated)
        if self._ask_again:
            self._departing.ask(HANDED_OVER)
        if not self._leaving:
            await self._begin(new, number)
            if await self._group.is_outdated(event.assignment, self._log):
                self._departing.ask(OUTDATED)

    async def _begin(self, new: Mapping[TaskId, tuple[TopicPartition, ...]], number: int) -> None:
        self._pending -= self._departing.tasks
        self._tasks = self._tasks_without(self._departing.tasks)
        looking = begin_positions(
            new, self._standbys, self._group, self._membership, self._log, self._start
        )
        positions = await warn_if_slow("an assignment", "committed offsets", looking)
        if self._leaving:
            return
        if lacking := {task for task, of in new.items() if not positions.keys() >= {*of}}:
            # Ask the group again soon: its leader may not know yet.
            self._partial |= lacking
            self.ctx.timers.once("lacking", _AGAIN_S, m.ReenterGroup(_LACKING))
        for task, partitions in new.items():
            if task in self._tasks:
                self._state.tell(
                    m.OpenTask(
                        task,
                        {one: positions[one] for one in partitions if one in positions},
                        number,
                    )
                )
        for task in sorted(self._standbys - self._departing.tasks):
            self._state.tell(m.OpenStandby(task))

    async def _lose_all(self, cause: Exception) -> bool:
        """Drop all tasks as they are: another member has them, or will get them."""
        _log.warning("all tasks are closed without a commit: %s", cause)
        # Fail the commits first: the committer cannot roll back while it waits for an answer.
        self._commits.give_up()
        self._group.forget()
        self.figures.history.lose(self._tasks, cause)
        self._tasks, self._pending = {}, set()
        self._fetch_new()
        self._departing.forget()
        self._tell_stage(WorkerState.PARTITIONS_REVOKED)
        return await self._handover.lose_all(cause)

    def _tasks_without(self, gone: frozenset[TaskId]) -> dict[TaskId, tuple[TopicPartition, ...]]:
        return {task: partitions for task, partitions in self._tasks.items() if task not in gone}

    def _tell_stage(self, stage: WorkerState) -> None:
        self._stage = stage
        self._instance.tell(m.TasksChanged(stage))

    def _look_at_pending(self) -> None:
        """Tell the instance when all tasks of an assignment run.

        Between a revocation and the next assignment, the tasks may have to leave.
        """
        if self._stage is WorkerState.PARTITIONS_ASSIGNED and not self._pending:
            self._tell_stage(WorkerState.RUNNING)
            self.figures.history.run()

    def _stop_following(self, reply: Reply[None]) -> None:
        self._closing = True
        self._stop_fetching()
        self._commits.give_up()
        if self._work is not None:
            self._work.cancel()
        reply.tell(None)

    def _stop_fetching(self) -> None:
        self._leaving = True
        self._poller.tell(m.StopFetching())
