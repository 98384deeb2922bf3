"""Both sides of an inner join of two streams at once: batches of either, ordered by time."""

from __future__ import annotations

from bisect import bisect_left
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, final

from ks_actors.processors.joins._join_time import JoinTime
from ks_actors.processors.stateless import failed
from ks_actors.records import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.processors.api import JoinWindowsForOperators, NodeContext
    from ks_actors.processors.joins._stream_join import StreamJoinSide

FAR = 4
"""The most pairs within a batch that are compared one by one, as a multiple of its records."""

_rank: Any = itemgetter(0)
_rank_and_start: Any = itemgetter(0, 1)


Hit: TypeAlias = tuple[int, int, Any, Any, Any, int]
"""A pair of joined records: the later in the order, and the other.

It has the later record's rank, the other's timestamp, both values, and the later record's key and
timestamp.
"""


class RankedBatch(NamedTuple):
    """Records of one side, and the rank of each record among the records of both sides."""

    batch: Batch
    ranks: list[int]


@final
class JoinPair:
    """Join batches of both sides as if their records came one by one, in the order of their ranks.

    The stores are searched for all records first, then the records in the same batches are joined,
    and then all are put. Results are forwarded together, with ranks as offsets. The record form
    handles rare cases: `process` then returns False, and has done nothing. Records must be no
    further apart than `run_ms`.
    """

    def __init__(
        self,
        left: StreamJoinSide,
        left_context: NodeContext,
        right: StreamJoinSide,
        right_context: NodeContext,
    ) -> None:
        self._contexts: dict[bool, NodeContext] = {True: left_context, False: right_context}
        self._stores: dict[bool, JoinWindowsForOperators] = {
            True: right_context.store(right.other),
            False: left_context.store(left.other),
        }
        self._forward = left_context.forward_batch
        self._joiner = left.joiner
        self._keyed: bool = left.keyed
        self._before: int = left.before_ms
        self._after: int = left.after_ms
        self.run_ms: int = min(store.run_ms for store in self._stores.values())
        self._time: JoinTime | None = (
            None if left_context.kafka_streams_faults else JoinTime.of(left_context, left.time)
        )
        self._late_ms: dict[bool, int] = {True: left.late_ms, False: right.late_ms}

    def process(self, left: RankedBatch, right: RankedBatch, *, ascending: bool) -> bool:
        """Join the batches; return whether that was done.

        `ascending` says that the records of both come in the order of time.
        """
        sides = {True: left, False: right}
        if any(None in side.batch.keys or None in side.batch.values for side in sides.values()):
            return False
        latest = max(max(side.batch.timestamps, default=-1) for side in sides.values())
        if self._any_late(sides, latest, ascending=ascending):
            return False
        try:
            indexes = {
                of_left: self._stores[of_left].indexes(side.batch.keys)
                for of_left, side in sides.items()
            }
        except Exception:  # noqa: BLE001 - any serde error: the record form finds the bad record
            return False
        kept: dict[bool, list[Any]] = {}
        for of_left, side in sides.items():
            taken = self._stores[of_left].takes(
                indexes[of_left], side.batch.timestamps, side.batch.values
            )
            if taken is None:
                return False
            kept[of_left] = taken
        within = self._within(left, right, indexes, kept)
        if within is None:
            return False
        hits = [
            *self._met(left, right, indexes[True], of_left=True),
            *self._met(right, left, indexes[False], of_left=False),
        ]
        hits.sort(key=_rank)
        if within:
            hits += within
            hits.sort(key=_rank_and_start)
        for of_left, side in sides.items():
            if indexes[of_left]:
                self._stores[of_left].put_run(
                    indexes[of_left], side.batch.timestamps, kept[of_left]
                )
        if self._time is not None and latest > self._time.time:
            self._time.time = latest
        if hits:
            self._join(hits, left, right)
        return True

    def _any_late(self, sides: dict[bool, RankedBatch], latest: int, *, ascending: bool) -> bool:
        """Return whether a record may be late, so that the record form has to decide."""
        if self._time is None:
            return False
        now = self._time.time if ascending else max(self._time.time, latest)
        return any(
            min(side.batch.timestamps) + self._late_ms[of_left] < now
            for of_left, side in sides.items()
            if side.ranks
        )

    def _met(
        self, side: RankedBatch, opposite: RankedBatch, indexes: list[Any], *, of_left: bool
    ) -> list[Hit]:
        """Return the hits of one side's records in the store of the other."""
        if not indexes:
            return []
        keys, values, times = side.batch.keys, side.batch.values, side.batch.timestamps
        ranks, store = side.ranks, self._stores[not of_left]
        before, after = (self._before, self._after) if of_left else (self._after, self._before)
        met = store.meet(indexes, times, before, after, self._limits(side, opposite, store, before))
        if of_left:
            return [
                (ranks[at], start, values[at], other, keys[at], times[at])
                for at, start, other in met
            ]
        return [
            (ranks[at], start, other, values[at], keys[at], times[at]) for at, start, other in met
        ]

    def _limits(
        self, side: RankedBatch, opposite: RankedBatch, store: JoinWindowsForOperators, before: int
    ) -> list[int] | None:
        """Return for each record the expiry limit of the other side's store at its turn.

        Returns None when no expired row is near enough.
        """
        other_times = opposite.batch.timestamps
        if min(side.batch.timestamps) - before > store.limit_after(max(other_times, default=-1)):
            return None
        limits, at, latest = [], 0, -1
        for rank in side.ranks:
            while at < len(other_times) and opposite.ranks[at] < rank:
                latest = max(latest, other_times[at])
                at += 1
            limits.append(store.limit_after(latest))
        return limits

    def _within(
        self,
        left: RankedBatch,
        right: RankedBatch,
        indexes: dict[bool, list[Any]],
        kept: dict[bool, list[Any]],
    ) -> list[Hit] | None:
        """Return the hits among the records themselves, with values from `kept`.

        Returns None when there are too many pairs to compare one by one.
        """
        common = set(indexes[True]).intersection(indexes[False])
        if not common:
            return []
        of_left, of_right = _places(indexes[True], common), _places(indexes[False], common)
        if sum(len(of_left[key]) * len(of_right[key]) for key in common) > FAR * (
            len(left.ranks) + len(right.ranks)
        ):
            return None
        hits: list[Hit] = []
        left_limits = self._limits(left, right, self._stores[False], self._before)
        right_limits = self._limits(right, left, self._stores[True], self._after)
        read_left, read_right = self._stores[True].read, self._stores[False].read
        for key in common:
            for row in of_left[key]:
                time, rank = left.batch.timestamps[row], left.ranks[row]
                for other in of_right[key]:
                    other_time, other_rank = right.batch.timestamps[other], right.ranks[other]
                    # The later record in the order finds the earlier record in its store.
                    if rank > other_rank:
                        near = (
                            max(0, time - self._before) <= other_time <= max(0, time + self._after)
                        )
                        if near and (left_limits is None or other_time > left_limits[row]):
                            met = read_right(kept[False][other])
                            hits.append(
                                (
                                    rank,
                                    other_time,
                                    left.batch.values[row],
                                    met,
                                    left.batch.keys[row],
                                    time,
                                )
                            )
                    else:
                        near = (
                            max(0, other_time - self._after)
                            <= time
                            <= max(0, other_time + self._before)
                        )
                        if near and (right_limits is None or time > right_limits[other]):
                            met = read_left(kept[True][row])
                            hits.append(
                                (
                                    other_rank,
                                    time,
                                    met,
                                    right.batch.values[other],
                                    right.batch.keys[other],
                                    other_time,
                                )
                            )
        return hits

    def _join(self, hits: Sequence[Hit], left: RankedBatch, right: RankedBatch) -> None:
        """Make the results and forward them.

        When the joiner raises, forward the results before that record, then ask the handler about
        it.
        """
        joiner, keyed = self._joiner, self._keyed
        keys: list[Any] = []
        values: list[Any] = []
        timestamps: list[int] = []
        ranks: list[int] = []
        rest, rank, bad = iter(hits), -1, -1
        while True:
            try:
                for rank, start, left_value, right_value, key, timestamp in rest:
                    # The handler has decided about this record: skip its other hits.
                    if rank == bad:
                        continue
                    values.append(
                        joiner(key, left_value, right_value)
                        if keyed
                        else joiner(left_value, right_value)
                    )
                    keys.append(key)
                    # `max` takes five times as long.
                    timestamps.append(timestamp if timestamp > start else start)  # noqa: FURB136 - `max` takes five times as long
                    ranks.append(rank)
                break
            except BaseException as error:  # noqa: BLE001 - whatever a user's code raises
                self._hand_on(keys, values, timestamps, ranks, left, right)
                keys, values, timestamps, ranks = [], [], [], []
                self._fail(rank, error, left, right)
                bad = rank
        self._hand_on(keys, values, timestamps, ranks, left, right)

    def _hand_on(
        self,
        keys: list[Any],
        values: list[Any],
        timestamps: list[int],
        ranks: list[int],
        left: RankedBatch,
        right: RankedBatch,
    ) -> None:
        if not values:
            return
        headers: list[Any] | None = None
        if left.batch.headers is not None or right.batch.headers is not None:
            by_rank: dict[int, Any] = {}
            for side in (left, right):
                by_rank.update(zip(side.ranks, side.batch.headers or (), strict=False))
            headers = [by_rank.get(rank, ()) for rank in ranks]
        self._forward(Batch(keys, values, timestamps, headers, ranks))

    def _fail(self, rank: int, error: BaseException, left: RankedBatch, right: RankedBatch) -> None:
        at = bisect_left(left.ranks, rank)
        of_left = at < len(left.ranks) and left.ranks[at] == rank
        side = left if of_left else right
        if not of_left:
            at = bisect_left(right.ranks, rank)
        batch = Batch(
            side.batch.keys,
            side.batch.values,
            side.batch.timestamps,
            side.batch.headers,
            side.ranks,
        )
        failed(self._contexts[of_left], batch, at, error)


def _places(indexes: list[Any], wanted: set[Any]) -> dict[Any, list[int]]:
    places: dict[Any, list[int]] = {}
    for at, index in enumerate(indexes):
        if index in wanted:
            places.setdefault(index, []).append(at)
    return places
