"""The actor that restores stores."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, assert_never

from actors import Actor, Mailbox, Signal, Started, Stopping
from ks_actors._errors import LogClosed, LogTruncated, OffsetOutOfRange
from ks_actors.lifecycle import RetryBackoff, component_log
from ks_actors.log import IsolationLevel
from ks_actors.runtime import messages as m
from ks_actors.runtime.messages import RestorerMessage
from ks_actors.task import left_out, passed_over
from ks_actors.task.figures import estimated_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from actors import Ref
    from ks_actors.log import Fetched, Fetcher, Log
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.stores._restore_limits import Limits

RESTORER_MAILBOX = Mailbox(capacity=10_000, overflow="fail_system")
# Records of a partition per fetch, and per message. The number is smaller while only standbys are
# read: tasks are then processed, and their commits must not wait long until records are applied.
_AT_ONCE = 10_000
_AT_ONCE_STANDBY = 1_000
# Interval of the check that restoring makes progress.
_PROGRESS_SECONDS = 10.0
# Unacknowledged messages that still allow the next fetch.
_AHEAD = 1
_LACKS = (
    "If the brokers have lost records, the restored state lacks their rows: reset the application "
    "to compute it again"
)
_log = component_log(__name__)


class ChangelogRead(NamedTuple):
    """The progress of a changelog's reading at one moment.

    The reading began at `start`, and `position` is the next offset. For an `active` task, which is
    restored, `end` is where the reading ends. For a standby it is the changelog's end when the
    reading began: no fetch returns the end of an empty changelog. None while it is unknown.
    """

    task: TaskId
    changelog: TopicPartition
    active: bool
    start: int
    position: int
    end: int | None


class Restorer(Actor[RestorerMessage]):
    """The reader of changelogs, which passes their records to the state manager.

    Reading begins at the stores' offsets. Changelogs of tasks to run are read to the ends found at
    the start, or to ends found later if the changelogs have lost records since. Changelogs of
    standbys are followed without end, but only while no other task restores. Records of an open
    transaction of an earlier owner are not visible: restoring waits for its commit or abort.
    """

    def __init__(
        self,
        log: Log,
        fetcher: Fetcher,
        state: Ref[m.StateManagerMessage],
        limits: Limits,
        *,
        poll_ms: int,
        exact: bool = False,
    ) -> None:
        self._log = log
        self._exact: bool = exact
        self._limits = limits
        self._fetcher = fetcher
        self._state = state
        self._poll_ms = poll_ms
        self._orders: dict[TaskId, m.Restore | m.Follow] = {}
        self._missing: dict[TaskId, set[TopicPartition]] = {}
        self._task_of: dict[TopicPartition, TaskId] = {}
        # Next offsets, also of changelogs that are not read at the moment.
        self._positions: dict[TopicPartition, int] = {}
        # End offsets of changelogs of tasks to run.
        self._ends: dict[TopicPartition, int] = {}
        # The end offsets of changelogs when the reading began.
        self._first_ends: dict[TopicPartition, int] = {}
        self._reading: dict[TopicPartition, int] = {}
        self._unknown: dict[TaskId, m.Follow] = {}
        # The orders whose changelogs have not been looked up yet.
        self._new: list[m.Restore | m.Follow] = []
        self._asking: bool = False
        self._unacknowledged: int = 0
        self.records: dict[TaskId, int] = {}
        """The records read for each task since its last order; then all records and batches:"""
        self.all_records: int = 0
        self.batches: int = 0
        self._all_bytes: float = 0.0
        self._backoff = RetryBackoff()
        self._epoch: int = 0
        # Positions of the restoring changelogs at the last progress check.
        self._last_positions: dict[TopicPartition, int] = {}
        self._fetching: bool = False
        self._looking_up: bool = False

    async def signal(self, signal: Signal) -> None:
        """Set the timers for progress and limits at the start; close the fetcher at the end."""
        if isinstance(signal, Started):
            self.ctx.timers.every("progress", _PROGRESS_SECONDS, m.LookAtProgress())
            if self._limits:
                self.ctx.timers.every("limits", self._limits.seconds, m.LookAtLimits())
        elif isinstance(signal, Stopping):
            await self._fetcher.close()

    def receive(  # noqa: C901, PLR0912 - one branch per message
        self, message: RestorerMessage
    ) -> None:
        """Restore until all ends are reached, then follow the standbys' changelogs."""
        match message:
            case m.Restore() | m.Follow():
                self._take_on(message)
            case m.LookUpEnds():
                self._look_up_new()
            case m.ChangelogEnds():
                self._begin(message)
            case m.EndsUnknown():
                self._ends_unknown(message)
            case m.FollowAgain():
                orders, self._unknown = list(self._unknown.values()), {}
                for order in orders:
                    self._look_up((order,))
            case m.FetchSucceeded():
                self._fetching = False
                if message.epoch == self._epoch:
                    self._pass_on(message.fetched)
            case m.FetchFailed():
                self._fetching = False
                if message.epoch == self._epoch and not self._fetch_failed(message.error):
                    return
            case m.RecordsApplied():
                self._unacknowledged -= 1
            case m.LookAtLimits():
                self._check_limits()
            case m.LookAtProgress():
                self._check_progress()
            case m.EndsNow():
                self._lower_ends(message.ends)
            case m.LimitsKnown():
                self._note_limits(message)
            case m.StopRestoring():
                for task in list(self._orders) if message.tasks is None else message.tasks:
                    self._forget(task)
                self._assign()
                message.reply.tell(None)
            case _:
                assert_never(message)
        self._fetch()

    # --- orders -----------------------------------------------------------------------------------

    def _take_on(self, order: m.Restore | m.Follow) -> None:
        task = order.task
        self._orders[task] = order
        self.records[task] = 0
        # The changelogs have changed, so a comparison with the last check would mean nothing.
        self._last_positions = {}
        self._unknown.pop(task, None)
        for changelog in order.changelogs:
            self._task_of[changelog] = task
            # A new order is a new role: the ends of the last order must not end this order.
            self._ends.pop(changelog, None)
            self._first_ends.pop(changelog, None)
        if isinstance(order, m.Restore):
            self._missing[task] = set(order.changelogs)
        else:
            self._missing.pop(task, None)
        if any(changelog in self._positions for changelog in order.changelogs):
            self._assign()
        # Orders come for many tasks at once.
        if not self._new:
            self.ctx.self_ref.tell(m.LookUpEnds())
        self._new.append(order)

    def _look_up(self, orders: Sequence[m.Restore | m.Follow]) -> bool:
        # Meanwhile a task may have left, or have a newer order.
        if orders := [one for one in orders if self._orders.get(one.task) is one]:
            self.ctx.pipe(
                self._offsets_of(orders), lambda found: found, partial(m.EndsUnknown, orders)
            )
        return bool(orders)

    def _looked_up(self, orders: Sequence[m.Restore | m.Follow]) -> list[m.Restore | m.Follow]:
        """Note the answer to a lookup; return the orders that still stand."""
        if isinstance(orders[0], m.Restore):
            self._asking = False
            if self._new:
                self._look_up_new()
        return [order for order in orders if self._orders.get(order.task) is order]

    def _look_up_new(self) -> None:
        """Look up the offsets of all new orders, with few requests for many tasks."""
        # Apart: a changelog of a standby may be missing, and a task to run must not wait for it.
        self._look_up([one for one in self._new if isinstance(one, m.Follow)])
        self._new = [one for one in self._new if isinstance(one, m.Restore)]
        # Gather orders while the log answers: they come for many tasks, one by one.
        if not self._asking:
            orders, self._new = self._new, []
            self._asking = self._look_up(orders)

    async def _offsets_of(self, orders: Sequence[m.Restore | m.Follow]) -> m.ChangelogEnds:
        changelogs = [changelog for order in orders for changelog in order.changelogs]
        # Look up begin offsets first: a cleanup in between then shows as an offset that is out of
        # range.
        begins = await self._log.begin_offsets(changelogs)
        # Include open transactions. The transaction behind the committed offsets may lack its
        # commit marker in some partitions. In these partitions the read-committed end is still
        # before the transaction.
        ends = await self._log.end_offsets(changelogs, IsolationLevel.READ_UNCOMMITTED)
        return m.ChangelogEnds(orders, begins, ends, await self._limits.fetch(changelogs))

    def _begin(self, found: m.ChangelogEnds) -> None:
        orders = [order for order in self._looked_up(found.orders) if self._begin_one(order, found)]
        self._assign()
        for order in orders:
            self._report_restored(order.task)

    def _begin_one(self, order: m.Restore | m.Follow, found: m.ChangelogEnds) -> bool:
        """Begin to read the changelogs of a task; return whether its stores fit them."""
        starts = {
            changelog: self._positions.get(changelog, offset)
            for changelog, offset in order.changelogs.items()
        }
        starts = {one: self._after_marker(at, found.begins[one]) for one, at in starts.items()}
        beyond = {
            one: _misfit(one, at, found.begins[one], found.ends[one])
            for one, at in starts.items()
            # Reads under way have moved on since the request; their fetches detect bad offsets. A
            # store without an offset has nothing to check: it reads from the first record.
            if at is not None
            and one not in self._reading
            and not found.begins[one] <= at <= found.ends[one]
        }
        if beyond:
            self._start_over(order.task, beyond)
            return False
        # Note the limits before the first fetch: a record beyond its limit must never reach a
        # store.
        self._limits.note(
            {one: limit for one, limit in found.limits.items() if one in order.changelogs}
        )
        for changelog, at in starts.items():
            start = self._positions[changelog] = found.begins[changelog] if at is None else at
            self._first_ends[changelog] = found.ends[changelog]
            if isinstance(order, m.Restore):
                end = self._limits.end(changelog, found.ends[changelog])
                # There is nothing to read: a changelog without new records must not wait for a
                # fetch.
                if start >= end:
                    self._reached(changelog)
                else:
                    self._ends[changelog] = end
        return True

    def _ends_unknown(self, found: m.EndsUnknown) -> None:
        orders = self._looked_up(found.orders)
        if not orders:
            return
        if len(orders) < len(found.orders) and not isinstance(found.error, LogClosed):
            # The error may be about the changelog of a task that has gone meanwhile: ask again.
            self._look_up(orders)
            return
        standbys = {order.task: order for order in orders if isinstance(order, m.Follow)}
        # A task to run cannot wait: its handler decides. A standby is not urgent. It retries by
        # itself, because the changelog of another one may be missing.
        if not standbys or isinstance(found.error, LogClosed):
            self._state.tell(m.RestoreFailed(found.error))
        else:
            self._unknown.update(standbys)
            self._rest(found.error)

    def _after_marker(self, at: int | None, begin: int) -> int | None:
        """Return the offset to continue from.

        With exactly-once, a commit marker follows a store's last record: deletion of the marker is
        no loss.
        """
        return begin if self._exact and at == begin - 1 else at

    def _start_over(self, task: TaskId, beyond: Mapping[TopicPartition, str]) -> None:
        """Have the state manager give up stores that do not fit their changelogs."""
        # The order is void from here on: fetches under way must not reach its stores.
        self._forget(task)
        self._assign()
        # The repair is not done here: only the state manager may touch files, and it knows their
        # users.
        self._state.tell(m.StoresCorrupted(task, "; ".join(beyond.values()), beyond))

    def _forget(self, task: TaskId) -> None:
        order = self._orders.pop(task, None)
        self.records.pop(task, None)
        self._missing.pop(task, None)
        self._unknown.pop(task, None)
        for changelog in () if order is None else order.changelogs:
            self._positions.pop(changelog, None)
            self._ends.pop(changelog, None)
            self._first_ends.pop(changelog, None)
            self._task_of.pop(changelog, None)
            self._limits.forget(changelog)

    def roles(self) -> dict[TaskId, bool]:
        """Return the tasks with changelogs to read: True for a restore, False for a standby."""
        return {task: isinstance(order, m.Restore) for task, order in self._orders.items()}

    def totals(self) -> tuple[int, int]:
        """Return the records and the approximate bytes that were read since the start."""
        return self.all_records, round(self._all_bytes)

    def reads(self) -> list[ChangelogRead]:
        """Return the changelogs that are read, by task."""
        found: list[ChangelogRead] = []
        for task, order in self._orders.items():
            active = isinstance(order, m.Restore)
            ends = self._ends if active else self._first_ends
            for one, start in order.changelogs.items():
                if (at := self._positions.get(one)) is not None:
                    found.append(ChangelogRead(task, one, active, start or 0, at, ends.get(one)))
        return found

    def _check_limits(self) -> None:
        """Look up the committed offsets of followed changelogs, one request at a time.

        Without a coordinator an answer takes long.
        """
        followed = [
            changelog
            for order in self._orders.values()
            if isinstance(order, m.Follow)
            for changelog in order.changelogs
        ]
        if not self._looking_up and self._limits.among(followed):
            self._looking_up = True
            self.ctx.pipe(self._limits.fetch(followed), m.LimitsKnown, _no_limits)

    def _note_limits(self, found: m.LimitsKnown) -> None:
        self._looking_up = False
        self._limits.note(
            {
                changelog: limit
                for changelog, limit in found.limits.items()
                if changelog in self._task_of
            }
        )
        self._assign()

    def _check_progress(self) -> None:
        """Log a warning when restoring makes no progress.

        The wait itself is unbounded: a task that went on without the records would compute wrong
        results.
        """
        here = {changelog: self._positions[changelog] for changelog in self._ends}
        if here and here == self._last_positions and self._unacknowledged <= _AHEAD:
            text = "; ".join(
                f"{changelog} of task {self._task_of[changelog]} at {at} of {self._ends[changelog]}"
                for changelog, at in here.items()
            )
            _log.warning(
                "restoring has waited for %g s: the records that follow are not committed yet, or "
                "the log does not answer: %s",
                _PROGRESS_SECONDS,
                text,
            )
            ends = self._log.end_offsets(tuple(here), IsolationLevel.READ_UNCOMMITTED)
            self.ctx.pipe(ends, m.EndsNow, _no_ends_now)
        self._last_positions = here

    def _lower_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Restore no further than changelogs reach: some may have lost records since the start.

        If a store is beyond the end, it has records that the changelog lacks: the next fetch fails.
        """
        for changelog, end in ends.items():
            if (
                changelog in self._ends
                and self._positions[changelog] <= end < self._ends[changelog]
            ):
                self._ends[changelog] = end
                if self._positions[changelog] == end:
                    task = self._task_of[changelog]
                    self._reached(changelog)
                    self._assign()
                    self._report_restored(task)

    # --- records ----------------------------------------------------------------------------------

    def _pass_on(self, fetched: Sequence[Fetched]) -> None:
        # A fetch may return partitions that were taken out of the assignment meanwhile.
        known = [self._limits.within(one) for one in fetched if one.partition in self._reading]
        # Do this even without records: the log answers again, so the next failure starts with a
        # short pause.
        if known:
            self._backoff.succeeded()
            # Send records before TaskRestored below: messages keep their order, so records are
            # applied by then.
            self._give(known)
        reached: list[TaskId] = []
        for one in known:
            self._positions[one.partition] = self._reading[one.partition] = one.next_offset
            end = self._ends.get(one.partition)
            if end is not None and one.next_offset >= end:
                reached.append(self._task_of[one.partition])
                self._reached(one.partition)
        if reached or any(self._limits.reached(one.partition, one.next_offset) for one in known):
            self._assign()
            for task in reached:
                self._report_restored(task)

    def _give(self, fetched: Sequence[Fetched]) -> None:
        most = _AT_ONCE if self._ends else _AT_ONCE_STANDBY
        part: list[Fetched] = []
        records = 0
        for one in fetched:
            part.append(one)
            records += (count := len(one.batch))
            if (task := self._task_of.get(one.partition)) in self.records:
                self.records[task] += count
            self.all_records += count
            self._all_bytes += estimated_bytes(one.batch)
            self.batches += 1
            if records >= most or one is fetched[-1]:
                # Count messages: RecordsApplied acknowledges a message when its records are in the
                # stores. This bounds the memory of records on their way.
                self._unacknowledged += 1
                self._state.tell(m.RestoredRecords(part))
                part, records = [], 0

    def _reached(self, changelog: TopicPartition) -> None:
        self._positions.pop(changelog, None)
        self._ends.pop(changelog, None)
        missing = self._missing.get(self._task_of[changelog])
        if missing is not None:
            missing.discard(changelog)

    def _report_restored(self, task: TaskId) -> None:
        order, missing = self._orders.get(task), self._missing.get(task)
        if order is not None and missing is not None and not missing:
            self._forget(task)
            self._state.tell(m.TaskRestored(task, order.order_id))

    def _assign(self) -> None:
        """Read the changelogs of tasks to run; if there are none, the changelogs of standbys."""
        wanted: Iterable[TopicPartition] = self._ends or [
            changelog
            for changelog, at in self._positions.items()
            if isinstance(self._orders[self._task_of[changelog]], m.Follow)
            and not self._limits.reached(changelog, at)
        ]
        reading = {changelog: self._positions[changelog] for changelog in wanted}
        # Assigning drops fetched records, so do it only when something has changed.
        if reading != self._reading:
            # Fetches from before the change have outdated positions.
            self._epoch += 1
            self._reading = reading
            self._fetcher.assign(reading)

    def _fetch(self) -> None:
        if (
            self._reading
            and not self._fetching
            # A single message ahead keeps the stores busy; more messages would only fill memory.
            and self._unacknowledged <= _AHEAD
            and (self._ends or "rest" not in self.ctx.timers)
        ):
            self._fetching = True
            self.ctx.pipe(
                self._fetch_once(_AT_ONCE if self._ends else _AT_ONCE_STANDBY),
                lambda arrived: arrived,
                partial(m.FetchFailed, epoch=self._epoch),
            )

    async def _fetch_once(self, most: int) -> m.FetchSucceeded:
        fetched = await self._fetcher.fetch(max_wait_ms=self._poll_ms, max_records=most)
        # Use the current epoch: the fetch has read the latest assignment.
        return m.FetchSucceeded(fetched, self._epoch)

    def _fetch_failed(self, error: Exception) -> bool:
        """Return whether to continue reading."""
        if isinstance(error, OffsetOutOfRange) and error.partition in self._reading:
            # Retention may have deleted only the transaction marker. Any other gap means that
            # records are lost.
            at = self._reading[error.partition]
            lost = isinstance(error, LogTruncated)
            if not lost and error.position == at and self._after_marker(at, error.begin) != at:
                self._positions[error.partition] = error.begin
                self._assign()
            elif error.position == at:
                reason = f"{error}. {_LACKS}" if lost else str(error)
                self._start_over(self._task_of[error.partition], {error.partition: reason})
            return True
        # The app decided about unreadable records of its source topics when it processed them.
        if passed := passed_over(error, self._fetcher, self._limits.among(self._reading)):
            self._pass_on([left_out(one) for one in passed])
            return True
        if self._ends or isinstance(error, LogClosed):
            self._state.tell(m.RestoreFailed(error))
            return False
        self._rest(error)
        return True

    def _rest(self, error: Exception) -> None:
        """Delay reading for standbys, which are not urgent while other members run the tasks."""
        if "rest" not in self.ctx.timers:
            rest = self._backoff.next(self.ctx.time())
            _log.warning("standbys are not updated; retrying in %g s: %s", rest, error)
            self.ctx.timers.once("rest", rest, m.FollowAgain())


def _misfit(changelog: TopicPartition, at: int, begin: int, end: int) -> str:
    text = f"{changelog} has offsets {begin} to {end}, the store is at {at}"
    return f"{text}. {_LACKS}" if at > end else text


def _no_limits(error: Exception) -> RestorerMessage:
    _log.warning("could not find out how far standbys may be read; retrying: %s", error)
    return m.LimitsKnown({})


def _no_ends_now(error: Exception) -> RestorerMessage:
    _log.warning("could not look up the ends of changelogs; retrying: %s", error)
    return m.EndsNow({})
