"""Batch puts and lookups of stream-stream joins.

The loops run in C as long as nothing is found.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.state.join_window._lookups import JoinWindowLookups
from ks_actors.state.join_window._packed_segment import PackedSegment
from ks_actors.state.join_window._segment import Raw
from ks_actors.state.timed import SEQUENCE_MASK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ks_actors.state.join_window._packed_segment import AnySegment

K = TypeVar("K")
Met = tuple[int, int, Any]
"""Index of the probing record, row start, row value."""


class JoinWindowBatchLookups(JoinWindowLookups[K], Generic[K]):
    """A window store with duplicates, for batch operators.

    Parameters called `indexes` are dict keys: the keys themselves or their bytes.
    """

    @property
    def run_ms(self) -> int:
        """The largest allowed distance (ms) between row starts in one batch.

        Within it, no row expires another.
        """
        return max(0, self._retention - 1)

    def indexes(self, keys: list[K]) -> list[Any]:
        """Return the dict keys of keys; raises any error of the key serde."""
        return keys if self._faithful else list(map(self._codec.key, keys))

    def takes(self, indexes: list[Any], starts: list[int], values: list[Any]) -> list[Any] | None:
        """Return the values of rows in the form in which the store keeps them.

        Return None when the rows cannot be put as a batch, or their matches may be on disk.
        """
        if not starts:
            return None if self._low and self.engine is not None else []
        if (
            min(starts) <= self.limit_after(max(starts))
            or self._sequence + len(starts) >= SEQUENCE_MASK
            or (self._low and self.engine is not None)
        ):
            return None
        if self._packed:
            return values if _kernel.Rows(0, *self._texts).take(indexes, values) else None
        codec = self._codec
        try:
            if codec.faithful:
                codec.keys(indexes)
            if self._mutable:
                return list(map(Raw, codec.values(values)))
        except Exception:  # noqa: BLE001 - which one cannot be written is found when its turn comes
            return None
        return values if all(map(codec.as_read, values)) else None

    def read(self, kept: Any) -> Any:
        """Return the value of a row that the store `takes`, a new object when it is mutable."""
        return self._codec.read_value(kept) if type(kept) is Raw else kept

    def limit_after(self, last: int) -> int:
        """Return the latest expired start after a put of a row that starts at `last`."""
        return max(self._observed, last) - self._retention

    def put_run(self, indexes: list[Any], starts: list[int], values: list[Any]) -> None:
        """Put rows with their starts as times.

        The values are not None, and as the store `takes` them.
        """
        last, first, count = max(starts), min(starts), len(starts)
        if last > self._observed:
            self._observed = last
            self._limit = last - self._retention
        sequences = range(self._sequence + 1, self._sequence + 1 + count)
        self._sequence += count
        self._rows += count
        self._resident += count
        if self._codec.text or self._mutable:
            self._size += sum(map(len, values))
        if self._gone:
            self.release(2 * count)
        span = self._span
        low, high = first // span, last // span
        if low == high:
            self._open(low).add_all(indexes, starts, sequences, values)
            return
        numbers = [start // span for start in starts]
        for number in sorted(set(numbers)):
            picked = [number == other for other in numbers]
            columns: Iterable[list[Any]] = (
                list(compress(column, picked)) for column in (indexes, starts, sequences, values)
            )
            self._open(number).add_all(*columns)

    def _open(self, number: int) -> AnySegment:
        segment = self._touched[number] = self._segment(number)
        return segment

    def meet(
        self,
        indexes: list[Any],
        times: list[int],
        before: int,
        after: int,
        limits: list[int] | None,
    ) -> list[Met]:
        """Return the rows under each key in a window around its time, as matches.

        A window is from `before` ms before to `after` ms after the time; starts below 0 do not
        count. The matches of each probe are in time order; the times themselves are in no order.
        `limits` are the latest expired starts by probe, None if no expired row is that near.
        """
        met: list[Met] = []
        add = met.append
        simple = not self._mutable
        for segment in self._within(max(0, min(times) - before), max(0, max(times) + after)):
            if type(segment) is PackedSegment:
                segment.rows.meet(indexes, times, before, after, limits, met)
                continue
            starts, values = segment.starts, segment.values
            if limits is None and simple and segment.plain and HAS_KERNEL:
                _kernel.meet(segment.index, starts, values, indexes, times, before, after, met)
                continue
            for at, places in enumerate(map(segment.index.get, indexes)):
                if places is None:
                    continue
                low, high = max(0, times[at] - before), max(0, times[at] + after)
                if type(places) is int:
                    if not low <= starts[places] <= high:
                        continue
                    found: Iterable[int] = (places,)
                else:
                    found = segment.places(indexes[at], low, high)
                for place in found:
                    start = starts[place]
                    if limits is None or start > limits[at]:
                        value = values[place]
                        if value is None:
                            continue  # a deleted row
                        if not simple or type(value) is Raw:
                            value = self._entry_at(segment, place)[0]
                        add((at, start, value))
        return met
