"""The actor that fetches input and holds the group membership."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, assert_never

from actors import Actor, Mailbox, Signal, Started, Stopping
from ks_actors._errors import (
    FencedInstanceId,
    KsActorsError,
    LogClosed,
    LogTimeout,
    OffsetOutOfRange,
    StreamsError,
    UnknownTopicOrPartition,
)
from ks_actors.lifecycle import RetryBackoff, component_log, warn_if_slow
from ks_actors.log import Assigned, IsolationLevel, Lost, Revoked
from ks_actors.runtime import messages as m
from ks_actors.runtime.input._assignment_check import moved, named
from ks_actors.runtime.input._departing_tasks import DepartingTasks
from ks_actors.runtime.input._end_lookups import ENDS, EndLookups, OnTheirWay
from ks_actors.runtime.input._handover import Handover
from ks_actors.runtime.input._input_figures import InputFigures
from ks_actors.runtime.input._membership import OffsetCommits, answered, fenced_member
from ks_actors.runtime.input._new_tasks import NewTasks
from ks_actors.runtime.input._offset_resets import OffsetResets
from ks_actors.runtime.input._partial_tasks import PartialTasks
from ks_actors.runtime.input._poller_status import PollerStatus
from ks_actors.runtime.input._stalled_fetches import refetch
from ks_actors.runtime.input._start_positions import begin_positions, gone_topics, missing_sources
from ks_actors.runtime.shared import WorkerState
from ks_actors.task import passed_over

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

    from actors import Ref, Reply
    from ks_actors.log import BaseMembership, Fetcher, Log, MembershipEvent
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.input._membership import GroupView
    from ks_actors.runtime.input._start_policy import StartPolicy

POLLER_MAILBOX = Mailbox(
    capacity=100_000, overflow="fail_system", urgent=(m.BufferHigh, m.BufferLow)
)
# Records of a partition per fetch: limits the time until other partitions get their turn.
_AT_ONCE = 2_000
# Seconds that a closing app gives the group to name its next generation, mostly immediate.
_PATIENCE = 1.0
_log = component_log(__name__)


class Poller(Actor[m.PollerMessage]):
    """Fetch the partitions of the running tasks, and hold the group membership.

    One fetch is always under way. Revoked: commit, then let the group go on; keep the tasks until
    the new assignment shows which of them have moved. Assigned: commit and give up the tasks that
    are gone, then begin those that are new. Lost: drop everything without a commit, and rejoin the
    group.
    """

    def __init__(
        self,
        log: Log,
        fetcher: Fetcher,
        membership: BaseMembership,
        group: GroupView,
        *,
        poll_ms: int,
        isolation: IsolationLevel,
        start: StartPolicy,
        end_transactions: Callable[[frozenset[str]], Awaitable[None]],
        instance: Ref[m.InstanceMessage],
        manager: Ref[m.TaskManagerMessage],
        state: Ref[m.StateManagerMessage],
        committer: Ref[m.CommitterMessage],
        upstream: OnTheirWay,
        figures: InputFigures | None = None,
    ) -> None:
        self._log = log
        self._fetcher = fetcher
        self._membership = membership
        self._group = group
        self._commits = OffsetCommits(membership)
        self._poll_ms: int = poll_ms
        self._isolation = isolation
        self._start = start
        self._end_transactions = end_transactions
        self._instance = instance
        self._manager = manager
        self._state = state
        self._committer = committer
        self.figures: InputFigures = InputFigures() if figures is None else figures
        self._epoch: int = 0
        # Replaced at each change, as statuses have it.
        self._tasks: Mapping[TaskId, tuple[TopicPartition, ...]] = {}
        self._standbys: frozenset[TaskId] = frozenset()
        self._pending: set[TaskId] = set()
        self._stage: WorkerState = WorkerState.STARTING
        self._positions: dict[TopicPartition, int] = {}
        self._new_tasks = NewTasks()
        # Shared with OffsetResets: never replace the set.
        self._stopped: Final[set[TopicPartition]] = set()
        self._partial_tasks = PartialTasks(group)
        self._resets = OffsetResets(
            fetcher, start, stopped=self._stopped, assigned=lambda: self._positions
        )
        self._lookups = EndLookups(log, upstream)
        self._work: asyncio.Future[Any] | None = None
        self._events: deque[MembershipEvent] = deque()
        self._rejoin: Exception | None = None
        self._handover = Handover(
            manager=manager, state=state, committer=committer, seconds=group.rebalance_seconds
        )
        self._departing = DepartingTasks(
            self._handover, membership, group, here=lambda: self._tasks
        )
        # Set when another process has taken the place in the group: stop serving it.
        self._fenced: FencedInstanceId | None = None
        self._backoff = RetryBackoff()
        # `leaving`: about to close. Nothing new begins, but the poller follows the group until the
        # last commit.
        self._leaving = self._fetching = self._closing = self._waiting = self._following = (
            self._ask_again
        ) = False

    def status(self) -> PollerStatus:
        """Return the membership and the tasks; callable from any thread."""
        group, stopped = self._membership.group, frozenset(self._stopped)
        pending = frozenset(self._pending)
        return PollerStatus(group.member_id, group.generation, self._tasks, pending, stopped)

    @property
    def rests(self) -> bool:
        """Whether nothing is fetched for a moment, after a rollback."""
        return "fetch" in self.ctx.timers

    async def signal(self, signal: Signal) -> None:
        """Follow the group from the start; leave it at the end."""
        if isinstance(signal, Started):
            self._go_on()
        elif isinstance(signal, Stopping):
            await self._fetcher.close()
            await self._membership.close()

    def receive(  # noqa: C901, PLR0912 - one branch per message
        self, message: m.PollerMessage
    ) -> None:
        """Fetch, and follow the group.

        Nothing here waits for the log, so that group events are handled at any time.
        """
        match message:
            case m.FetchSucceeded():
                self._take(message)
            case m.EndsKnown():
                self._manager.tell(message)
                if message.asked:
                    self._lookups.end(failed=False)
                    self._look_up_ends()
            case m.AskEnds():
                self._lookups.ask(message.partitions, self.ctx)
                self._look_up_ends()
            case m.EndLookupFailed():
                self._lookups.end(failed=True)
                if isinstance(message.error, LogTimeout):
                    self._look_up_ends()  # idle tasks wait as long as the log is away
                elif not self._closing:
                    self._fetch_failed(message.error)
            case m.BufferHigh():
                # A partition may have left since then, and the fetcher refuses unknown ones.
                high = [one for one in message.partitions if one in self._positions]
                self._stopped.update(high)
                self._fetcher.pause(high)
            case m.BufferLow():
                self._resume(message.partitions)
            case m.RefetchStalled():
                refetch(self._fetcher, self._positions, self._held(), message)
            case m.TaskReady():
                # Gathered for a moment: each assignment of partitions drops fetches in flight.
                if self._new_tasks.come(message, self._pending, self.ctx.timers):
                    self._fetch_new()
            case m.SeekAll():
                self._seek(message)
            case m.FetchFailed():
                self._fetching = self._fetching and message.epoch == ENDS
                if not self._closing:
                    self._fetch_failed(message.error)
            case m.PositionKnown():
                # A rebalance may have overtaken the lookup: then its answer is void.
                if (reset := self._resets.end(message.error, message.offset)) is not None:
                    self._manager.tell(m.PositionReset(*reset, self._epoch))
                    self._find_ends((reset.partition,))
            case m.TopicsGone():
                self._partial_tasks.drop(message.topics, self._positions)
                self._assign({})
                # The failure may have come from the lookup of these.
                self._find_ends(self._positions)
                self._look_up_ends()
                self._departing.ask()
            case m.FetchNew() | m.FetchRestOver():
                self._fetch_new()  # a timer has delayed new tasks, or all fetching
            case _:
                self._be_a_member(message)
        self._fetch()

    def _be_a_member(  # noqa: C901, PLR0912 - one branch per message
        self, message: m.GroupMessage
    ) -> None:
        match message:
            case m.CommitOffsets():
                self.ctx.pipe(
                    self._commits.commit(message), m.GroupRequestEnded, m.GroupRequestEnded
                )
            case m.AskGroup():
                message.reply.tell(self._membership.committing)
            case m.MembershipChanged():
                self._waiting = False
                # Queued: a handover under way must end before the next event is handled.
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
            case m.ReenterGroup():
                self._departing.ask()
            case m.Rejoin():
                self._rejoin = message.cause
                self._go_on()
            case m.AppCloses():
                self._leaving = True
                # The coordinator of the last commit may be away: closing must not wait for ever.
                self.ctx.timers.once("closing", _PATIENCE, m.ClosingTimedOut())
            case m.ClosingTimedOut():
                self._commits.stop_waiting()
            case m.StopFollowing():
                self._stop_following(message.reply)
            case m.LeaveGroup():
                self.ctx.pipe(self._leave(message), m.GroupRequestEnded, m.GroupRequestEnded)
            case m.GroupRequestEnded():
                if message.error is not None:
                    self._instance.tell(m.Fatal(message.error, rolled_back=False))
            case _:
                assert_never(message)

    # --- records ----------------------------------------------------------------------------------

    def _fetch(self) -> None:
        if (
            self._fetching
            or self._leaving
            # After a rollback the log may be in trouble, and the next records be rolled back again.
            or self.rests
            # A fetch of only paused partitions would return nothing, and take poll_ms.
            or self._positions.keys() <= self._held()
        ):
            return
        self._fetching = True
        self.figures.fetch_begins(self.ctx.time())
        # Read the epoch when the fetch ends: a seek during the fetch has moved it, too.
        self.ctx.pipe(
            self._fetcher.fetch(max_wait_ms=self._poll_ms, max_records=_AT_ONCE),
            lambda fetched: m.FetchSucceeded(fetched, self._epoch),
            partial(m.FetchFailed, epoch=self._epoch),
        )

    def _take(self, arrived: m.FetchSucceeded) -> None:
        self._fetching = False
        self.figures.fetched(arrived.fetched, self.ctx.time())
        if arrived.fetched:
            # The manager drops records of an older epoch, which a seek has overtaken.
            self._manager.tell(m.Records(arrived.fetched, arrived.epoch))

    def _fetch_new(self) -> None:
        if fresh := self._new_tasks.take(self._tasks, self._pending):
            self._positions.update(fresh)
            self._assign(fresh)
            self._find_ends(fresh)
            self._look_up_ends()
            self._look_at_pending()

    def _assign(self, anew: Mapping[TopicPartition, int]) -> None:
        """Add partitions to those being read, without moving the others."""
        self._fetcher.assign(
            {
                one: anew[one] if one in anew else self._fetcher.position(one)
                for one in self._positions
            }
        )

    def _held(self) -> frozenset[TopicPartition]:
        """Return the partitions that are not to be fetched now."""
        return frozenset(self._stopped | self._resets.partitions.keys())

    def _seek(self, message: m.SeekAll) -> None:
        # New tasks first: their partitions belong to the positions that the rollback names.
        self._fetch_new()
        # From here on, records that an earlier fetch still brings are stale.
        self._epoch = message.epoch
        for reset in self._resets.rewind(message.positions, message.resets):
            self._manager.tell(m.PositionReset(*reset, self._epoch))
        self._resume(message.positions)
        self._find_ends(message.positions)
        self.ctx.timers.once("fetch", message.rest, m.FetchRestOver())
        message.reply.tell(None)

    def _find_ends(self, partitions: Iterable[TopicPartition]) -> None:
        """Look up the end offsets of partitions that share a task with others.

        No fetch reports that a partition is empty, and the task waits for all records in the log.
        """
        if wanted := [
            one
            for one in partitions
            if one in self._positions and self._group.has_several(one, self._tasks)
        ]:
            ends = self._log.end_offsets(wanted, self._isolation)
            self.ctx.pipe(
                ends, partial(m.EndsKnown, epoch=self._epoch), partial(m.FetchFailed, epoch=ENDS)
            )

    def _look_up_ends(self) -> None:
        if not self._leaving and (ends := self._lookups.begin(self._positions)) is not None:
            self.ctx.pipe(
                ends,
                partial(m.EndsKnown, epoch=self._epoch, asked=True),
                m.EndLookupFailed,
            )

    def _resume(self, partitions: Iterable[TopicPartition]) -> None:
        again = self._stopped.intersection(partitions)
        self._stopped.difference_update(again)
        self._fetcher.resume(
            [
                partition
                for partition in again
                # A partition whose offset is being looked up would be read from the old one.
                if partition in self._positions and partition not in self._resets.partitions
            ]
        )

    def _fetch_failed(self, error: Exception) -> None:
        if isinstance(error, UnknownTopicOrPartition):
            self.ctx.pipe(
                gone_topics(error, self._log, {*self._positions}, self._group.matched),
                m.TopicsGone,
                partial(m.FetchFailed, epoch=ENDS),
            )
        # Only the deserialization handler may skip the damaged range: it gets it as records.
        elif passed := passed_over(error, self._fetcher, self._positions):
            self._manager.tell(m.Records(passed, self._epoch))
        elif not isinstance(error, OffsetOutOfRange):
            self._give_up(missing_sources(error))
        elif (
            error.partition in self._positions and (search := self._resets.begin(error)) is not None
        ):
            self.ctx.pipe(
                search, partial(m.PositionKnown, error), partial(m.FetchFailed, epoch=ENDS)
            )

    def _give_up(self, error: Exception) -> None:
        self._positions.clear()
        self._resets.clear()
        self._fetcher.assign({})
        self._instance.tell(m.Fatal(error, rolled_back=False))

    # --- the group --------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Handle the next event once the last one is settled."""
        if self._following or self._closing or self._fenced is not None:
            return
        if self._rejoin is not None:
            # Ahead of group events, which assume that the current tasks can still be committed.
            cause, self._rejoin = self._rejoin, None
            self._do(self._lose_all(cause), m.TasksGivenUp)
        elif self._events:
            self._follow(self._events.popleft())
        elif self._departing.may_go and not self._leaving:
            self._do(self._departing.part(self._standbys))
        elif not self._waiting:
            self._waiting = True
            self.ctx.pipe(
                self._membership.event(),
                m.MembershipChanged,
                partial(m.MembershipFailed, waiting=True),
            )

    def _do(
        self,
        work: Coroutine[Any, Any, Any],
        then: Callable[[Any], m.PollerMessage] = lambda _: m.HandoverEnded(),
    ) -> None:
        self._following = True
        self._work = asyncio.ensure_future(work)
        self.ctx.pipe(self._work, then, partial(m.MembershipFailed, waiting=False))

    def _rest(self, given_up: m.TasksGivenUp) -> None:
        """Rejoin the group, after a rest when nothing was committed since the last time.

        Group events that arrive during the rest are handled.
        """
        if given_up.made_progress:
            self._backoff.succeeded()
        # A commit that failed meanwhile was for the tasks just given up: rejoin only once.
        self._rejoin = None
        if self._fenced is not None:
            self._give_up(self._fenced)
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
        # Only now may the group name the next generation, so only now can a commit come too late.
        self._commits.let_go()
        self._membership.revoked(self._departing.user_data(), self._group.topics)

    def _take_over(self, event: Assigned) -> None:
        try:
            assigned = self._group.tasks(event.assignment)
        except KsActorsError as error:
            self._give_up(error)
            self._go_on()
            return
        gone, new = moved(self._tasks, assigned, self._departing.tasks, self._partial_tasks.take())
        standbys = self._group.standbys(event.assignment)
        migrated = self._standbys - standbys - frozenset(assigned) - self._departing.tasks
        # These tasks were lost after they were reported: ask again, or no member gets them.
        self._ask_again = self._group.asks_again or bool(
            self._group.claimed - {*self._tasks, *self._departing.tasks, *assigned}
        )
        self._standbys = standbys
        self._tasks = self._tasks_without(gone) | new
        self._pending = (self._pending - gone) | set(new)
        self._tell_stage(WorkerState.PARTITIONS_ASSIGNED)
        self._look_at_pending()
        _log.info(
            "assigned in generation %d: new tasks %s; standbys %s; given up: %s",
            event.group.generation,
            named(new),
            named(standbys),
            named(gone),
            extra={"generation": event.group.generation},
        )
        self._do(self._change(gone, migrated, new, event, self._handover.assignments))

    async def _change(
        self,
        gone: frozenset[TaskId],
        migrated: frozenset[TaskId],
        new: Mapping[TaskId, tuple[TopicPartition, ...]],
        event: Assigned,
        number: int,
    ) -> None:
        """Give up departed tasks, then begin the new ones: tasks first, then standbys."""
        await warn_if_slow(
            "an assignment",
            "transactions of members that have left",
            self._end_transactions(self._group.take_departed(event.assignment)),
        )
        if gone:
            # No more fetches while they are committed: the records would be read for nothing.
            self._forget(gone)
            self._ask_again |= await self._departing.give_up(gone, self._standbys, number - 1)
        if migrated:
            await self._handover.close(migrated)
        if self._ask_again:
            self._departing.ask()
        if not self._leaving:
            await self._begin(new, number)

    async def _begin(self, new: Mapping[TaskId, tuple[TopicPartition, ...]], number: int) -> None:
        self._pending -= self._departing.tasks
        self._tasks = self._tasks_without(self._departing.tasks)
        looking = begin_positions(
            new, self._standbys, self._group, self._membership, self._log, self._start
        )
        positions = await warn_if_slow("an assignment", "committed offsets", looking)
        if self._leaving:
            return
        self._partial_tasks.begun(new, positions, self.ctx.timers)
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
        _log.warning("all tasks are given up without a commit: %s", cause)
        # First of all: the committer cannot roll back while it waits for the answer to this commit.
        self._commits.give_up()
        self._group.forget()
        self._forget(frozenset(self._tasks))
        self._tasks, self._pending = {}, set()
        self._departing.forget()
        self._tell_stage(WorkerState.PARTITIONS_REVOKED)
        return await self._handover.lose_all(cause)

    def _forget(self, tasks: frozenset[TaskId]) -> None:
        # New tasks that wait in NewTasks are part of this rollback: their positions may be among
        # these.
        self._fetch_new()
        self._positions = {
            partition: at
            for partition, at in self._positions.items()
            if self._group.task_of(partition) not in tasks
        }
        # A partition that comes back later must not start paused.
        self._stopped.intersection_update(self._positions)
        self._assign({})

    def _tasks_without(self, gone: frozenset[TaskId]) -> dict[TaskId, tuple[TopicPartition, ...]]:
        return {task: partitions for task, partitions in self._tasks.items() if task not in gone}

    def _tell_stage(self, stage: WorkerState) -> None:
        self._stage = stage
        self._instance.tell(m.TasksChanged(stage))

    def _look_at_pending(self) -> None:
        """Tell the instance when all tasks of an assignment run.

        Between a revocation and the next assignment, they may not stay.
        """
        if self._stage is WorkerState.PARTITIONS_ASSIGNED and not self._pending:
            self._tell_stage(WorkerState.RUNNING)

    def _stop_following(self, reply: Reply[None]) -> None:
        self._closing = self._leaving = True
        self._commits.give_up()
        if self._work is not None:
            self._work.cancel()
        reply.tell(None)

    def _leave(self, message: m.LeaveGroup) -> Coroutine[Any, Any, None]:
        self._positions.clear()
        self._fetcher.assign({})
        group = self._membership
        return answered(message.reply, group.leave() if message.for_good else group.close())
