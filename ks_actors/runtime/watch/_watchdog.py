"""The watchdog actor: reports records that wait too long, and the reason."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from actors import Actor, Mailbox, Message, Started
from ks_actors.lifecycle import component_log
from ks_actors.log import IsolationLevel
from ks_actors.runtime.messages import RefetchStalled
from ks_actors.runtime.shared import fixed_sinks
from ks_actors.runtime.watch._coverage import Coverage
from ks_actors.runtime.watch._held_back import OpenTransactions
from ks_actors.runtime.watch._reasons import Reasons
from ks_actors.runtime.watch._standstills import StandstillTimes, warnings_due
from ks_actors.runtime.watch._uncovered_queries import UncoveredQueries
from ks_actors.runtime.watch._unreachable import outages_text
from ks_actors.runtime.watch._unread_partitions import UnreadPartitions
from ks_actors.runtime.watch._waits import Wait, WaitReason

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from actors import Signal
    from ks_actors.log import Log
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.watch._held_back import HeldBack
    from ks_actors.runtime.watch._partition_state import PartitionState, PartitionStates
    from ks_actors.runtime.watch._reasons import Reason
    from ks_actors.runtime.watch._standstills import Found
    from ks_actors.task import AppTopics, Clocks

WATCH_MAILBOX = Mailbox(capacity=1_000, overflow="fail_system")
_LOOK_S = 1.0
_COUNTED_S = 60.0
# The most partitions to log with their own line at each check, and the most to name in a summary
# line.
_LINES = 10
_NAMES = 50
# A short wait for one of these reasons is no standstill: the records are on their way.
_FRESH = frozenset({WaitReason.NOT_FETCHED, WaitReason.SCHEDULE, WaitReason.WORKER})
_log = component_log(__name__)


class Look(Message, frozen=True):
    """Look at all partitions (internal)."""


class EndsFound(Message, frozen=True):
    """The end offsets that no fetch has returned (internal).

    `written` are the ends of the same logs with the records of open transactions, where only
    committed records are read.
    """

    ends: Mapping[TopicPartition, int]
    written: Mapping[TopicPartition, int]


class EndsNotFound(Message, frozen=True):
    """The lookup of end offsets failed (internal)."""

    error: Exception


class UnreadFound(Message, frozen=True):
    """The partitions that no member reads, with the number of offsets that wait (internal).

    None while the group reassigns tasks.
    """

    lags: Mapping[TopicPartition, int] | None


class UnreadNotFound(Message, frozen=True):
    """The lookup of the members' partitions failed (internal)."""

    error: Exception


WatchMessage: TypeAlias = Look | EndsFound | EndsNotFound | UnreadFound | UnreadNotFound


class Watch(Actor[WatchMessage]):
    """Check each second for waiting records that no user has paused, and log a warning.

    Warns after `stall_warning_ms`, twice that, four times that, and so on. A check reads the state
    of each partition, and costs nothing per record. For quiet partitions, one request per half of
    `stall_warning_ms` asks the log for end offsets, and a second one where only committed records
    are read. For new partitions the first check asks the log, even with the watchdog turned off, as
    nothing else tells the lag of an empty partition. If the topology reads partitions that no task
    here has, the group is asked as often, because perhaps no member has these partitions. Errors of
    the watchdog are logged and harm nothing else.
    """

    def __init__(
        self,
        partition_states: PartitionStates,
        topics: AppTopics,
        clocks: Clocks,
        answers: Counter[tuple[str, str]],
        log: Log,
        isolation: IsolationLevel,
        runs: Callable[[], bool],
    ) -> None:
        self._partition_states = partition_states
        self._log = log
        self._isolation = isolation
        self._runs = runs
        self._wall_time = clocks.wall_time
        self._new_reasons = partial(Reasons, partition_states, topics, partial(outages_text, log))
        self._reasons = self._new_reasons()  # the reasons as of the last look
        self.coverage: Coverage = Coverage(
            log, topics, clocks.wall_time, isolation, lambda: partition_states.assigned
        )
        self._bound: float = topics.config.stall_warning_ms / 1000
        self._stills = StandstillTimes(partition_states, self._bound)
        self._unread = UnreadPartitions(self._bound)
        self.uncovered: UncoveredQueries = UncoveredQueries(self._bound)
        internal = map(topics.topic, topics.topology.internal_topics)
        self._transactions = OpenTransactions(self._bound, [*internal, *fixed_sinks(topics)])
        self._ends: Mapping[TopicPartition, int] = {}
        # The time of the next request to the log, and whether a request is under way.
        self._ask_at: float = 0.0
        self._asking: bool = False
        # The partitions without a known end that were looked up, so that each is looked up once.
        self._new: frozenset[TopicPartition] = frozenset()
        self._asking_group: bool = False
        self._was_paused: bool = False
        self._paused_queries: frozenset[str] = frozenset()
        self._steady_time = clocks.steady_time
        self.looked_ms: float | None = None
        """The steady time of the last look, in ms; None before the first one."""
        self._answers = answers
        # For each check of the last minute: the time, and the records dropped and processed so far.
        self._counts: deque[tuple[float, int, int]] = deque()
        self.last_minute: tuple[int, int] = 0, 0
        """The records that handlers dropped in the last minute, and the records processed in it."""
        self.stalled: tuple[Wait, ...] = ()
        """The first partitions that had waited for `stall_warning_ms` at the last look."""

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """The end offsets that were looked up where no fetch returned them."""
        return self._ends

    def _count(self, now: float) -> None:
        counts = self._counts
        if not self._runs():
            counts.clear()  # Global tables drop rows at the start, when nothing is processed.
        dropped = sum(
            count for (_, answer), count in tuple(self._answers.items()) if answer == "RESUME"
        )
        processed = self._partition_states.metrics.processed_total
        counts.append((now, dropped, processed))
        while now - counts[0][0] > _COUNTED_S:
            counts.popleft()
        self.last_minute = dropped - counts[0][1], processed - counts[0][2]

    def signal(self, signal: Signal) -> None:
        """Start the timer; turned off, the watchdog sees the loop turn, and asks for ends."""
        if isinstance(signal, Started):
            self._count(self.ctx.time())
            pause = min(_LOOK_S, self._bound / 4) if self._bound > 0 else _LOOK_S
            self.ctx.timers.every("look", pause, Look())

    def receive(self, message: WatchMessage) -> None:
        """Look, and note the answers of the log."""
        match message:
            case Look():
                self.looked_ms = self._steady_time()
                self._count(self.ctx.time())
                try:
                    if self._bound > 0:
                        self._look(self.ctx.time())
                    elif self._runs() and not self._asking:
                        self._ask_for_new(self._partition_states.places(self._ends))
                except Exception:  # noqa: BLE001 - a fault of the watch is no reason to end the app
                    _log.exception("the check for waiting records failed; retrying")
            case EndsFound():
                self._asking = False
                self._ends = message.ends
                self._transactions.note(message.ends, message.written, self.ctx.time())
            case EndsNotFound():
                self._asking = False
                _log.debug(
                    "could not find out the end offsets of the log; retrying: %s",
                    message.error,
                )
            case UnreadFound():
                self._asking_group = False
                if message.lags is not None:
                    self._unread.note(message.lags, self.ctx.time())
            case UnreadNotFound():
                self._asking_group = False
                _log.debug(
                    "could not find out which partitions no member reads; retrying: %s",
                    message.error,
                )
            case _:
                assert_never(message)

    # --- the look ---------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        uncovered = self._partition_states.member.status().uncovered
        self.uncovered.note(uncovered, self._steady_time() / 1000)
        self._reasons = self._new_reasons()
        pauses = self._partition_states.manager.pauses
        paused = pauses.everything or not self._runs()
        # Do not report waits from a time in which processing was paused.
        if paused or self._was_paused:
            self._stills.forget()
            self._unread.forget()
            self._transactions.forget()
        elif over := pauses.queries | self._paused_queries:
            self._stills.forget(lambda task: pauses.query(task) in over)
        self._was_paused, self._paused_queries = paused, pauses.queries
        found = self._stills.update(self._ends, now, look=True)
        waiting = [
            one
            for one in found
            if not paused and one.still.since is not None and not pauses.holds(one.place.task_id)
        ]
        stalled = [
            one
            for one in waiting
            if one.waited(now) >= self._bound and (one.call or not one.still.moves)
        ]
        metrics = self._partition_states.metrics
        unread = self._unread.all(self.coverage.missing)
        held = {} if paused else self._held_back(found)
        held_long = {
            partition: one for partition, one in held.items() if now - one[1].since >= self._bound
        }
        metrics.longest_wait = max(
            (
                *(one.waited(now) for one in waiting),
                *(now - one.since for one in unread.values()),
                *(now - one.since for _, one in held.values()),
            ),
            default=0.0,
        )
        metrics.stalled_partitions = len(stalled) + len(held_long) + self._unread.tell(unread, now)
        waits = [self._wait(one, now) for one in stalled[:_LINES]] + self._held_waits(
            held_long, now
        )
        self.stalled = tuple(waits[:_LINES])
        due = []
        for one in stalled:
            # Records may have waited for long when the wait is first noticed: a single warning
            # covers that time.
            warnings = warnings_due(one.waited(now), self._bound)
            if warnings > one.still.warnings:
                one.still.warnings = warnings
                due.append(one)
        for one in due[:_LINES]:
            self._tell(one, now)
        self._tell_of_others(due[_LINES:])
        self._mend(due)
        self._transactions.tell(held_long, now)
        if self._runs() and not self._asking:
            # Also while the user has paused the app: the lag grows.
            if now < self._ask_at:
                self._ask_for_new(one.place for one in found)
                return
            self._ask_for_ends(found, now)
            if not paused:
                self._ask_group()

    def _tell(self, one: Found, now: float) -> None:
        place = one.place
        reason, text = self._reasons.of(place, one.call)
        have = f"{place.buffered} records are in memory, and " + (
            "the end of the log is not known"
            if place.lag is None
            else f"{place.lag} more offsets are in the log"
        )
        line = "%s of task %s has waited for %.0f s (%s): %s; %s"
        _log.warning(
            line, place.partition, place.task_id, one.waited(now), reason.value, text, have
        )

    def _mend(self, stalled: Sequence[Found]) -> None:
        """Restart fetches that return nothing, though the log answers that it has more.

        Do this as rarely as warnings: a fetch on a slow network may take long, and a restart would
        drop its records.
        """
        for one in stalled:
            place = one.place
            if place.lag and place.position is not None:
                reason, _ = self._reasons.of(place, one.call)
                if reason is WaitReason.NOT_FETCHED:
                    self._partition_states.metrics.stalls_mended += 1
                    self._partition_states.poller.ctx.self_ref.tell(
                        RefetchStalled(place.partition, place.position)
                    )

    def _tell_of_others(self, others: Sequence[Found]) -> None:
        """Log a summary line for the partitions without their own line."""
        if not others:
            return
        names = ", ".join(str(one.place.partition) for one in others[:_NAMES])
        more = ", …" if len(others) > _NAMES else ""
        _log.warning(
            "%d more partitions have waited as long; App.waiting() gives the reasons: %s%s",
            len(others),
            names,
            more,
        )

    def _ask_for_ends(self, found: Sequence[Found], now: float) -> None:
        """Look up end offsets where nothing has arrived for long, or nothing is fetched."""
        self._ask_at = now + self._bound / 2
        stopped = self._partition_states.poller.stopped
        quiet = [
            one.place.partition
            for one in found
            if one.place.partition in stopped
            or (
                not one.place.buffered
                and one.place.position is not None
                and (now - one.still.still >= self._bound / 2 or _no_fetch_has_told(one.place))
            )
        ]
        # Fetches return the end offsets of all other partitions again.
        self._ends = {partition: end for partition, end in self._ends.items() if partition in quiet}
        self._ask(quiet)

    def _ask_for_new(self, places: Iterable[PartitionState]) -> None:
        """Look up unknown end offsets, once for each partition; keep the known end offsets."""
        unknown = frozenset(
            place.partition for place in places if place.position is not None and place.end is None
        )
        new, self._new = unknown - self._new, unknown
        if new:
            self._ask((*self._ends, *new))

    def _ask(self, partitions: Sequence[TopicPartition]) -> None:
        if partitions:
            self._asking = True
            self.ctx.pipe(self._look_up(partitions), lambda found: found, EndsNotFound)

    async def _look_up(self, partitions: Sequence[TopicPartition]) -> EndsFound:
        ends = await self._log.end_offsets(partitions, self._isolation)
        if self._isolation is IsolationLevel.READ_UNCOMMITTED:
            return EndsFound(ends, {})
        written = await self._log.end_offsets(partitions, IsolationLevel.READ_UNCOMMITTED)
        return EndsFound(ends, written)

    def _held_back(self, found: Sequence[Found]) -> dict[TopicPartition, tuple[TaskId, HeldBack]]:
        """Return what open transactions hold back, of partitions where nothing else waits."""
        return {
            place.partition: (place.task_id, held)
            for place in (one.place for one in found if one.still.since is None)
            if not self._partition_states.manager.pauses.holds(place.task_id)
            and (held := self._transactions.of(place.partition, place.position)) is not None
        }

    def _ask_group(self) -> None:
        if not self._asking_group:
            self._asking_group = True
            self.ctx.pipe(self.coverage.unread(), UnreadFound, UnreadNotFound)

    # --- answers to App.waiting -------------------------------------------------------------------

    def waiting(self) -> tuple[Wait, ...]:
        """Return the current waits by task and partition.

        A task that waits only for records has one entry.
        """
        now, self._reasons = self.ctx.time(), self._new_reasons()
        # A watchdog that is turned off does not check: then only calls of this method are compared.
        found = self._stills.update(self._ends, now, look=self._bound <= 0)
        waits = [self._wait(one, now) for one in found if one.still.since is not None]
        if not self._partition_states.manager.pauses.everything:
            waits += self._held_waits(self._held_back(found), now)
        warnings = {wait.task for wait in waits}
        for one in found:
            if one.place.task_id not in warnings:
                warnings.add(one.place.task_id)
                waits.append(self._idle(one, now))
        return (*sorted(waits, key=_order), *self._nobodys(now))

    def _nobodys(self, now: float) -> Iterator[Wait]:
        for partition, one in self._unread.all(self.coverage.missing).items():
            reason = WaitReason.UNREAD, one.text
            yield self._made(None, partition, reason, one.since, now, lag=one.lag)

    def _held_waits(
        self, held: Mapping[TopicPartition, tuple[TaskId, HeldBack]], now: float
    ) -> list[Wait]:
        transaction = WaitReason.TRANSACTION
        return [
            self._made(task, partition, (transaction, one.text), one.since, now, lag=one.lag)
            for partition, (task, one) in held.items()
        ]

    def _wait(self, one: Found, now: float) -> Wait:
        reason = self._reasons.of(one.place, one.call)
        moves = (one.still.moves and not one.call) or (
            reason[0] in _FRESH and one.waited(now) < _LOOK_S
        )
        if moves and reason[0] is not WaitReason.PAUSED:
            reason = WaitReason.PROCESSING, "its records are on their way"
        return self._of_place(one, one.place.partition, reason, now)

    def _idle(self, one: Found, now: float) -> Wait:
        text = "all records that the log is known to have are processed"
        paused = self._partition_states.manager.pauses.text(one.place.task_id)
        reason = (WaitReason.PAUSED, paused) if paused else (WaitReason.RECORDS, text)
        return self._of_place(one, None, reason, now)

    def _of_place(
        self, one: Found, partition: TopicPartition | None, reason: Reason, now: float
    ) -> Wait:
        place, still = one.place, one.still
        since = still.still if still.since is None else still.since
        return self._made(
            place.task_id, partition, reason, since, now, buffered=place.buffered, lag=place.lag
        )

    def _made(
        self,
        task: TaskId | None,
        partition: TopicPartition | None,
        reason: Reason,
        since: float,
        now: float,
        *,
        buffered: int = 0,
        lag: int | None,
    ) -> Wait:
        waited = int((now - since) * 1000)
        return Wait(
            task=task,
            partition=partition,
            reason=reason[0],
            text=reason[1],
            since_ms=self._wall_time() - waited,
            waited_ms=waited,
            buffered=buffered,
            lag=lag,
        )


def _no_fetch_has_told(place: PartitionState) -> bool:
    """Return whether the end of a partition is known only from lookups, or not at all."""
    return place.task is None or place.task.group.queues[place.partition].end_offset is None


def _order(wait: Wait) -> tuple[TaskId, tuple[Any, ...]]:
    assert wait.task is not None
    return wait.task, () if wait.partition is None else tuple(wait.partition)
