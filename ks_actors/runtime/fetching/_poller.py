"""The actor that fetches input."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, assert_never, final

from actors import Actor, Mailbox, Signal, Stopping
from ks_actors._errors import LogTimeout, OffsetOutOfRange, UnknownTopicOrPartition
from ks_actors.lifecycle import component_log
from ks_actors.metrics import STILL, Timing
from ks_actors.runtime import messages as m
from ks_actors.runtime.fetching._end_lookups import ENDS, EndLookups, OnTheirWay
from ks_actors.runtime.fetching._missing_topics import gone_topics, missing_sources
from ks_actors.runtime.fetching._offset_resets import OffsetResets
from ks_actors.task import passed_over

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from actors import Ref
    from ks_actors.log import Fetched, Fetcher, IsolationLevel, Log
    from ks_actors.metrics import Window
    from ks_actors.records import TopicPartition
    from ks_actors.runtime.fetching._start_policy import StartPolicy

POLLER_MAILBOX = Mailbox(
    capacity=100_000, overflow="fail_system", urgent=(m.BufferHigh, m.BufferLow)
)
# Records of a partition per fetch: limits the time until other partitions get their turn.
_AT_ONCE = 2_000
_log = component_log(__name__)


@final
class FetchFigures:
    """The fetches of one instance; times in ms."""

    def __init__(self, window: Window = STILL) -> None:
        self.fetches: Timing = Timing(window)
        self.records: Timing = Timing(window)
        self._since: float = 0.0

    def begin(self, now: float) -> None:
        """Note the begin of a fetch."""
        self._since = now

    def end(self, fetched: Sequence[Fetched], now: float) -> None:
        """Note the end of a fetch."""
        self.fetches.add((now - self._since) * 1000)
        self.records.add(sum(len(one.batch) for one in fetched))


class Poller(Actor[m.PollerMessage]):
    """Fetch the partitions of the running tasks, and hand their records on.

    One fetch is always under way. FetchTasks adds tasks, and ForgetTasks removes them. After the
    answer to ForgetTasks, no records of the removed tasks are handed on.
    """

    def __init__(
        self,
        log: Log,
        fetcher: Fetcher,
        *,
        poll_ms: int,
        isolation: IsolationLevel,
        start: StartPolicy,
        matched: Callable[[Iterable[TopicPartition]], frozenset[str]],
        instance: Ref[m.InstanceMessage],
        manager: Ref[m.TaskManagerMessage],
        member: Callable[[], Ref[m.MemberMessage]],
        upstream: OnTheirWay,
        figures: FetchFigures | None = None,
    ) -> None:
        self._log = log
        self._fetcher = fetcher
        self._poll_ms: int = poll_ms
        self._isolation = isolation
        self._matched = matched
        self._instance = instance
        self._manager = manager
        self._member = member
        self.figures: FetchFigures = FetchFigures() if figures is None else figures
        self._epoch: int = 0
        # The partitions to fetch, each with the task that reads it.
        self._partitions: dict[TopicPartition, m.TaskReady] = {}
        # Shared with OffsetResets: never replace the set.
        self._stopped: Final[set[TopicPartition]] = set()
        self._resets = OffsetResets(
            fetcher, start, stopped=self._stopped, assigned=lambda: self._partitions
        )
        self._lookups = EndLookups(log, upstream)
        self._fetching = self._closing = False

    @property
    def stopped(self) -> frozenset[TopicPartition]:
        """The partitions that wait for room in the input buffer; callable from any thread."""
        return frozenset(self._stopped)

    @property
    def rests(self) -> bool:
        """Whether fetching is paused for a moment after a rollback."""
        return "fetch" in self.ctx.timers

    async def signal(self, signal: Signal) -> None:
        """Close the fetcher at the end."""
        if isinstance(signal, Stopping):
            await self._fetcher.close()

    def receive(self, message: m.PollerMessage) -> None:
        """Fetch, and hand records on; nothing here waits for the log."""
        match message:
            case m.FetchTasks():
                self._fetch_tasks(message.tasks)
            case m.ForgetTasks():
                self._forget(message)
            case m.SeekAll():
                self._seek(message)
            case m.AskEnds():
                self._lookups.ask(message.partitions, self.ctx)
                self._look_up_ends()
            case m.BufferHigh():
                # A partition may have left since then, and the fetcher refuses unknown partitions.
                high = [one for one in message.partitions if one in self._partitions]
                self._stopped.update(high)
                self._fetcher.pause(high)
            case m.BufferLow():
                self._resume(message.partitions)
            case m.RefetchStalled():
                self._refetch(message.partition, message.position)
            case m.StopFetching():
                self._closing = True
            case _:
                self._go_on(message)
        self._fetch()

    def _go_on(self, message: m.FetchOutcome) -> None:
        match message:
            case m.FetchSucceeded():
                self._take(message)
            case m.FetchFailed():
                self._fetching = self._fetching and message.epoch == ENDS
                self._fetch_failed(message.error)
            case m.EndsKnown():
                self._manager.tell(message)
                if message.asked:
                    self._lookups.end(failed=False)
                    self._look_up_ends()
            case m.EndLookupFailed():
                self._lookups.end(failed=True)
                if isinstance(message.error, LogTimeout):
                    self._look_up_ends()  # idle tasks wait as long as the log is away
                else:
                    self._fetch_failed(message.error)
            case m.PositionKnown():
                # A rebalance may have come during the lookup: then the answer of the lookup is
                # void.
                if (reset := self._resets.end(message.error, message.offset)) is not None:
                    self._manager.tell(m.PositionReset(*reset, self._epoch))
                    self._find_ends((reset.partition,))
            case m.TopicsGone():
                self._drop(message.topics)
            case m.FetchRestOver():
                pass  # the next fetch begins
            case _:
                assert_never(message)

    def _fetch(self) -> None:
        if (
            self._fetching
            or self._closing
            # After a rollback the log may be in trouble, and the next records be rolled back again.
            or self.rests
            # A fetch of only paused partitions would return nothing, and take poll_ms.
            or self._partitions.keys() <= self._held()
        ):
            return
        self._fetching = True
        self.figures.begin(self.ctx.time())
        # Read the epoch when the fetch ends: a seek during the fetch has moved it, too.
        self.ctx.pipe(
            self._fetcher.fetch(max_wait_ms=self._poll_ms, max_records=_AT_ONCE),
            lambda fetched: m.FetchSucceeded(fetched, self._epoch),
            partial(m.FetchFailed, epoch=self._epoch),
        )

    def _take(self, arrived: m.FetchSucceeded) -> None:
        self._fetching = False
        self.figures.end(arrived.fetched, self.ctx.time())
        # Another member may have the tasks that were forgotten since the fetch.
        if fetched := [one for one in arrived.fetched if one.partition in self._partitions]:
            # The manager drops records of an older epoch, which a seek has overtaken.
            self._manager.tell(m.Records(fetched, arrived.epoch))

    def _fetch_tasks(self, tasks: Collection[m.TaskReady]) -> None:
        added = {one: at for task in tasks for one, at in task.positions.items()}
        self._partitions.update({one: task for task in tasks for one in task.positions})
        self._assign(added)
        self._find_ends(added)
        self._look_up_ends()

    def _forget(self, message: m.ForgetTasks) -> None:
        gone = message.tasks
        left = (
            {}
            if gone is None
            else {one: ready for one, ready in self._partitions.items() if ready.task not in gone}
        )
        # Each assignment drops fetches in flight.
        if len(left) < len(self._partitions):
            self._partitions = left
            # A partition that comes back later must not start paused.
            self._stopped.intersection_update(left)
            self._assign({})
        message.reply.tell(None)

    def _drop(self, topics: frozenset[str]) -> None:
        """Continue without deleted topics, until the group assigns without them."""
        gone = {one: at.task for one, at in self._partitions.items() if one.topic in topics}
        for partition in gone:
            del self._partitions[partition]
        self._assign({})
        # The failure may have come from a lookup of ends: repeat it for the other partitions.
        self._find_ends(self._partitions)
        self._look_up_ends()
        self._member().tell(m.PartitionsGone(frozenset(gone.values())))

    def _assign(self, added: Mapping[TopicPartition, int]) -> None:
        """Add partitions to the fetched partitions, whose positions stay."""
        self._fetcher.assign(
            {
                one: added[one] if one in added else self._fetcher.position(one)
                for one in self._partitions
            }
        )

    def _held(self) -> frozenset[TopicPartition]:
        """Return the partitions that are not to be fetched now."""
        return frozenset(self._stopped | self._resets.partitions.keys())

    def _refetch(self, partition: TopicPartition, position: int) -> None:
        """Take a partition out of the fetcher and put it back, unless it has moved since.

        A stall is a fault of the fetcher: the logged state of the fetch helps to find it.
        """
        if partition not in self._partitions or partition in self._held():
            return
        if self._fetcher.position(partition) != position:
            return
        _log.error(
            "%s was not fetched from offset %d on, though the log has more and its broker "
            "answers: its fetch is restarted; please report this with the state of its fetch: %s",
            partition,
            position,
            self._fetcher.describe(partition),
        )
        reader = self._partitions.pop(partition)
        self._assign({})
        self._partitions[partition] = reader
        self._assign({partition: position})

    def _seek(self, message: m.SeekAll) -> None:
        # From here on, records that an earlier fetch still returns are stale.
        self._epoch = message.epoch
        for reset in self._resets.rewind(message.positions, message.resets):
            self._manager.tell(m.PositionReset(*reset, self._epoch))
        self._resume(message.positions)
        self._find_ends(message.positions)
        self.ctx.timers.once("fetch", message.rest, m.FetchRestOver())
        message.reply.tell(None)

    def _find_ends(self, partitions: Iterable[TopicPartition]) -> None:
        """Look up the end offsets of partitions that share a task with other partitions.

        No fetch reports that a partition is empty, and the task waits for all records in the log.
        """
        if wanted := [
            one
            for one in partitions
            if one in self._partitions and len(self._partitions[one].positions) > 1
        ]:
            ends = self._log.end_offsets(wanted, self._isolation)
            self.ctx.pipe(
                ends, partial(m.EndsKnown, epoch=self._epoch), partial(m.FetchFailed, epoch=ENDS)
            )

    def _look_up_ends(self) -> None:
        if not self._closing and (ends := self._lookups.begin(self._partitions)) is not None:
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
                # A partition that is being reset would be read from its old offset.
                if partition in self._partitions and partition not in self._resets.partitions
            ]
        )

    def _fetch_failed(self, error: Exception) -> None:
        if self._closing:
            return
        if isinstance(error, UnknownTopicOrPartition):
            self.ctx.pipe(
                gone_topics(error, self._log, {*self._partitions}, self._matched),
                m.TopicsGone,
                partial(m.FetchFailed, epoch=ENDS),
            )
        # Only the deserialization handler may skip the damaged range, which it gets in the form of
        # records.
        elif passed := passed_over(error, self._fetcher, self._partitions):
            self._manager.tell(m.Records(passed, self._epoch))
        elif not isinstance(error, OffsetOutOfRange):
            self._partitions.clear()
            self._resets.clear()
            self._fetcher.assign({})
            self._instance.tell(m.Fatal(missing_sources(error), rolled_back=False))
        elif (
            error.partition in self._partitions
            and (search := self._resets.begin(error)) is not None
        ):
            self.ctx.pipe(
                search, partial(m.PositionKnown, error), partial(m.FetchFailed, epoch=ENDS)
            )
