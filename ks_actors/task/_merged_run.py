"""Merge the records of two partitions into one run, in processing order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from ks_actors.processors.joins import RankedBatch
from ks_actors.task.origins import OriginLeaf

if TYPE_CHECKING:
    from ks_actors.history import EdgeTaps
    from ks_actors.processors.api import RecordMetadata
    from ks_actors.records import Batch
    from ks_actors.task._compiler import Plan
    from ks_actors.task._join_pairs import Pair
    from ks_actors.task._partition_group import PartitionGroup
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.task._record_queue import RecordQueue
    from ks_actors.task.origins import Chunk, Place, RawRecord


class MergedRun:
    """A run of records from two queues, merged by time.

    `order` has the places of the records; places of the second queue come after all places of the
    first. A run has at most `limit` records, and spans at most `longest_ms` where times ascend. As
    a page, the run addresses records by their ranks in the order.
    """

    __slots__ = ("ascending", "batches", "order", "pages", "queues")

    lasting: bool = True

    def __init__(
        self, queues: tuple[RecordQueue, RecordQueue], limit: int, longest_ms: int
    ) -> None:
        first, start, stop = queues[0].upcoming(limit)
        second, other_start, other_stop = queues[1].upcoming(limit)
        times, other_times = first.timestamps[start:stop], second.timestamps[other_start:other_stop]
        # Sort by time if times ascend; otherwise merge the heads, as Kafka Streams does.
        self.ascending: bool = times == sorted(times) and other_times == sorted(other_times)
        merge = _merged if self.ascending else _merged_by_heads
        order, count = merge(times, other_times)
        # Cut before the records are taken from the queues: later records stay there for the next
        # run.
        del order[limit:]
        _cut(order, times[:count] + other_times, longest_ms)
        taken = sum(place < count for place in order)
        self.order: list[int] = (
            order
            if taken == count
            else [place if place < count else place - count + taken for place in order]
        )
        self.queues: tuple[RecordQueue, RecordQueue] = queues
        self.pages: tuple[Chunk, Chunk] = (queues[0].page, queues[1].page)
        self.batches: tuple[Batch, Batch] = (
            queues[0].skip(start + taken) if taken else first.slice(0, 0),
            queues[1].skip(other_start + len(order) - taken)
            if len(order) > taken
            else second.slice(0, 0),
        )

    def sides(self) -> tuple[RankedBatch, RankedBatch]:
        """Return the records of both queues with their ranks."""
        count = len(self.batches[0])
        ranks = [rank for rank, place in enumerate(self.order) if place < count]
        others = [rank for rank, place in enumerate(self.order) if place >= count]
        return RankedBatch(self.batches[0], ranks), RankedBatch(self.batches[1], others)

    def metadata(self, offset: int) -> RecordMetadata:
        """Return the source position of the record with a rank."""
        page, offset = self._find(offset)
        return page.metadata(offset)

    def raw(self, offset: int) -> RawRecord | None:
        """Return the record with a rank as it was fetched."""
        page, offset = self._find(offset)
        return page.raw(offset)

    def logged(self, offset: int) -> bool:
        """Return whether the log has the record with a rank."""
        page, offset = self._find(offset)
        return page.logged(offset)

    def origin(self, offset: int) -> Place:
        """Return the page of the record with a rank, and its offset there."""
        page, offset = self._find(offset)
        return OriginLeaf(page, 0), offset

    def bare(self) -> None:
        """Return None: a run without its records has no ranks."""

    def __len__(self) -> int:
        return sum(map(len, self.pages))

    def _find(self, rank: int) -> tuple[Chunk, int]:
        side, at = self.side(self.order[rank])
        return self.pages[side], self.batches[side].offsets[at]

    def side(self, place: int) -> tuple[int, int]:
        """Return the queue that a place belongs to (0 or 1), and its index in that batch."""
        count = len(self.batches[0])
        return (0, place) if place < count else (1, place - count)


def _merged(first: list[int], second: list[int]) -> tuple[list[int], int]:
    """Merge two lists that ascend, until one of them ends.

    Returns the places in order, and how many come from the first list. On equal values the first
    list goes first.
    """
    # Cut the list that goes further in time, and merge both by one stable sort.
    if first[-1] <= second[-1]:
        second = second[: bisect_left(second, first[-1])]
    else:
        first = first[: bisect_right(first, second[-1])]
    both = first + second
    return sorted(range(len(both)), key=both.__getitem__), len(first)


def _cut(order: list[int], times: list[int], longest_ms: int) -> None:
    """Drop records later than `longest_ms` after the first, where times ascend."""
    last = times[order[0]] + longest_ms
    if times[order[-1]] > last:
        del order[max(1, bisect_right(order, last, key=times.__getitem__)) :]


def _merged_by_heads(first: list[int], second: list[int]) -> tuple[list[int], int]:
    """Merge, by their heads, two lists that do not ascend, until one of them ends."""
    at = other = 0
    of_first: list[bool] = []
    while at < len(first) and other < len(second):
        of_first.append(first[at] <= second[other])
        if of_first[-1]:
            at += 1
        else:
            other += 1
    places = (iter(range(at)), iter(range(at, at + other)))
    return [next(places[not is_first]) for is_first in of_first], at


class MergedTurns:
    """Process records of both streams of a join in merged runs."""

    def __init__(
        self, pair: Pair, plan: Plan, group: PartitionGroup, current: RecordContextHolder
    ) -> None:
        self._pair = pair
        self._entrances = plan.entrances
        self._current = current
        self._sampled: bool = False
        queues = tuple(group.queues.values())
        self._queues: tuple[RecordQueue, RecordQueue] | None = (
            (queues[0], queues[1]) if len(queues) == 2 else None  # noqa: PLR2004 - one of each
        )
        self._left: int = 0 if queues[0].source.name == pair.left else 1

    def sample(self, taps: EdgeTaps | None) -> None:
        """Take no records while there are samples: a merged run passes no edges."""
        self._sampled = taps is not None

    def take(self, limit: int) -> int:
        """Process about `limit` records; return how many.

        Returns 0 unless both queues have decoded records that are ready.
        """
        queues = self._queues
        if self._sampled or queues is None or queues[0].plain is None or queues[1].plain is None:
            return 0
        run = MergedRun(queues, limit, self._pair.join.run_ms)
        current = self._current
        current.page, current.offset, current.headers = run, 0, ()
        before = current.stream_time
        current.stream_time = max(before, *(queue.partition_time for queue in queues))
        sides = run.sides()
        # The join refuses runs with null keys or values, and runs that a serde rejects. If records
        # are then taken one by one, each such record is handled in its turn.
        if not self._pair.join.process(
            sides[self._left], sides[1 - self._left], ascending=run.ascending
        ):
            # The records are processed one by one instead, and each must see the stream time of its
            # own moment.
            current.stream_time = before
            self._one_by_one(run)
        return len(run.order)

    def _one_by_one(self, run: MergedRun) -> None:
        current = self._current
        entrances = [self._entrances[queue.source.name].process for queue in run.queues]
        for place in run.order:
            side, at = run.side(place)
            batch = run.batches[side]
            timestamp = batch.timestamps[at]
            headers = () if batch.headers is None else batch.headers[at]
            current.page, current.offset = run.pages[side], batch.offsets[at]
            current.timestamp, current.headers = timestamp, headers
            current.stream_time = max(current.stream_time, timestamp)
            entrances[side](batch.keys[at], batch.values[at], timestamp, headers)
