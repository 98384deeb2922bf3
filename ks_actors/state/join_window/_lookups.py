"""Puts and lookups in a window store with duplicates: single rows, batches and ranges."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.state.core import pack_time
from ks_actors.state.join_window._packed_segment import PackedSegment
from ks_actors.state.join_window._rows_by_time import JoinWindowRows
from ks_actors.state.join_window._segment import Raw
from ks_actors.state.timed import SEQUENCE_BITS, SEQUENCE_MASK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ks_actors.state.core import Entry, StoreParts
    from ks_actors.state.join_window._packed_segment import AnySegment
    from ks_actors.state.timed import Found

K = TypeVar("K")
SIZED: Final = frozenset((str, bytes, Raw))
Met = tuple[int, int, Any]
"""The index of the probing record, then the start and value of the matching row."""


class JoinWindowLookups(JoinWindowRows, Generic[K]):
    """Entries by key and start (ms), one for each put. Expiry is that of `WindowsByKey`."""

    def __init__(self, parts: StoreParts) -> None:
        super().__init__(parts)
        self._faithful: bool = parts.codec.faithful
        self._text: type | None = parts.codec.text_type

    @property
    def observed(self) -> int:
        """The latest put start, -1 before the first."""
        return self._observed

    def put_entry(self, key: K, start: int, entry: Entry | None) -> None:
        """Add an entry.

        None is ignored in a segmented store; in memory it only advances time and adds a changelog
        record. Raises SerializationError, with nothing changed, when the entry cannot be written.
        """
        if entry is None and self.segmented:
            return
        value, time = (
            (None, self._time()) if entry is None else (self.kept(key, entry[0]), entry[1])
        )
        if start > self._observed:
            self._observed = start
            self._limit = start - self._retention
        if start <= self._limit:
            self._late(start)
            return
        index: Any = key if self._faithful else self.codec.key(key)
        if not self._packed:
            self.codec.check_key(index)
        number = start // self._span
        segment = self._segment(number)
        if self._gone:
            self.release(2)  # growth pays for eviction: each new row frees two others
        sequence = (self._sequence + 1) & SEQUENCE_MASK
        self._add(segment, (index, start, sequence, value, time))
        self._touched[number] = segment
        self._sequence = sequence
        self._rows += 1
        self._resident += 1
        if value is not None and type(value) in SIZED:
            self._size += len(value)

    def kept(self, key: K, value: Any) -> Any:
        """Return a value in the form in which the store keeps it.

        Immutable values are kept as their serde reads them, mutable ones as bytes. Raises
        SerializationError.
        """
        if type(value) is Raw:
            return value
        if self.mutable:
            return Raw(self.codec.content(key, value))
        if type(value) is self._text and (
            type(value) is bytes or (type(value) is str and value.isascii())
        ):
            return value
        return self.codec.admit(key, value)

    def get_entry(self, key: K, start: int) -> Entry | None:
        """Return the entry of the latest put if that put was for this window, else None."""
        latest = self.latest_slot(start)
        return next(
            (entry for slot, entry in self._slots(key, start, start) if slot == latest), None
        )

    def latest_slot(self, start: int) -> int:
        """Return the slot of the latest put, if that put was for this window."""
        return start << SEQUENCE_BITS | self._sequence

    def fetch_entries(self, key: K, time_from: int, time_to: int) -> list[tuple[int, Entry]]:
        """Return start and entry of the rows of `key` in a time range.

        The rows start from `time_from` to `time_to`, both included. They are in time order; rows of
        the same time are in the order of puts.
        """
        first = max(time_from, self._limit + 1)
        if time_to < first:
            return []
        segments = self._segments
        if first < self.resident_from and self.engine is not None:
            return [
                (slot >> SEQUENCE_BITS, entry)
                for slot, entry in self._slots(key, time_from, time_to)
            ]
        index: Any = key if self._faithful else self.codec.key(key)
        found: list[tuple[int, Entry]] = []
        for segment in self._within(first, time_to) if len(segments) > 1 else segments.values():
            if type(segment) is PackedSegment:
                found += segment.entries(index, first, time_to)
                continue
            places = segment.index.get(index)
            if places is None:
                continue
            starts = segment.starts
            values = segment.values
            if type(places) is int:
                if first <= starts[places] <= time_to and values[places] is not None:
                    found.append((starts[places], self._entry_at(segment, places)))
            else:
                there = (
                    place
                    for place in segment.places(index, first, time_to)
                    if values[place] is not None
                )
                found += [(starts[place], self._entry_at(segment, place)) for place in there]
        return found

    def _within(self, first: int, last: int) -> list[AnySegment]:
        """Return the segments that overlap with a time range, in order."""
        low, high, segments = first // self._span, last // self._span, self._segments
        if high - low < len(segments):
            return [
                segment
                for number in range(low, high + 1)
                if (segment := segments.get(number)) is not None
            ]
        return [segments[number] for number in sorted(segments) if low <= number <= high]

    def _slots(self, key: K, time_from: int, time_to: int) -> list[tuple[int, Entry]]:
        """Return slot and entry of the rows in memory and on disk."""
        index: Any = key if self._faithful else self.codec.key(key)
        first = max(time_from, self._limit + 1)
        if time_to < first:
            return []
        found: dict[int, Entry] = {}
        if first < self.resident_from and self.engine is not None:
            for slot, raw in self._cold_of(index):
                if first <= slot >> SEQUENCE_BITS <= time_to:
                    found[slot] = self.codec.entry(raw)
        for slot, value in self.rows_of(index, first, time_to, committed=False).items():
            entry = self.shown((index, slot), value)
            if entry is None:
                found.pop(slot, None)  # it was deleted
            else:
                found[slot] = entry
        return sorted(found.items(), key=_slot)

    def entries_between(self, first: int, last: int) -> list[Found]:
        """Return key bytes, slot and entry of all visible rows with times in a range, in no order.

        The range is from `first` to `last`, both included.
        """
        first = max(first, self._limit + 1)
        codec, stop = self.codec, min(last + 1, self.resident_from)
        encode = codec.index_bytes
        found = {
            (encoded, slot): codec.entry(codec.from_engine(data))
            for _, encoded, slot, data in self.stored(max(first, 0), stop)
        }
        for segment in self.columns(first, last, committed=False) if first <= last else ():
            for index, start, sequence, value, time in zip(*segment, strict=True):
                if first <= start <= last:
                    row = encode(index), start << SEQUENCE_BITS | sequence
                    entry = self.shown(row, (value, time))
                    if entry is None:
                        found.pop(row, None)  # it was deleted
                    else:
                        found[row] = entry
        return [(encoded, slot, entry) for (encoded, slot), entry in found.items()]

    # Rows in memory, for queries.

    def rows_of(self, index: Any, first: int, last: int, *, committed: bool) -> dict[int, Any]:
        """Return value and time of a key's rows in memory by slot.

        The rows have times from `first` to `last`, both included.
        """
        found = {}
        for segment in self._within(first, last):
            end = segment.committed if committed else len(segment)
            starts, sequences = segment.starts, segment.sequences
            for place in segment.places(index, first, last):
                if place < end:
                    slot = starts[place] << SEQUENCE_BITS | sequences[place]
                    found[slot] = segment.values[place], segment.times[place]
        return found

    def shown(self, _: tuple[Any, int], value: Any) -> Entry | None:
        """Return the entry of `value` (content and time, or bytes); mutable content is copied."""
        if type(value) is bytes:
            return self.codec.entry(value)
        content, time = value
        if content is None:
            return None
        if type(content) is not Raw:
            return (content, time)
        return self.codec.entry(pack_time(time) + content)

    def columns(self, first: int, last: int, *, committed: bool) -> list[tuple[Iterable[Any], ...]]:
        """Return keys, starts, sequence numbers, values and times of the rows in memory.

        The columns have all rows of the segments with times from `first` to `last`, and may be read
        later.
        """
        return [
            segment.columns(segment.committed if committed else len(segment))
            for segment in self._within(first, last)
        ]

    # Many rows at once, for batch operators. Parameters called `indexes` are dict keys: the keys
    # themselves or their bytes. The loops run in C as long as nothing is found.

    @property
    def run_ms(self) -> int:
        """The largest allowed distance (ms) between row starts in one batch.

        Within this distance, no row expires another row.
        """
        return max(0, self._retention - 1)

    def indexes(self, keys: list[K]) -> list[Any]:
        """Return the dict keys of keys; raises any error of the key serde."""
        return keys if self._faithful else list(map(self.codec.key, keys))

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
        codec = self.codec
        try:
            if codec.faithful:
                codec.keys(indexes)
            if self.mutable:
                return list(map(Raw, codec.values(values)))
        except Exception:  # noqa: BLE001 - the record form finds the bad row
            return None
        return values if all(map(codec.as_read, values)) else None

    def read(self, kept: Any) -> Any:
        """Return a row's value, given in the form of `takes`; a mutable value is a new object."""
        return self.codec.read_value(kept) if type(kept) is Raw else kept

    def limit_after(self, last: int) -> int:
        """Return the latest expired start after a put of a row that starts at `last`."""
        return max(self._observed, last) - self._retention

    def put_run(self, indexes: list[Any], starts: list[int], values: list[Any]) -> None:
        """Put rows with their starts as times.

        No value is None; the values are in the form that `takes` returned.
        """
        last, first, count = max(starts), min(starts), len(starts)
        if last > self._observed:
            self._observed = last
            self._limit = last - self._retention
        sequences = range(self._sequence + 1, self._sequence + 1 + count)
        self._sequence += count
        self._rows += count
        self._resident += count
        if self.codec.text or self.mutable:
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
        """Return as matches the rows of each key in a window around that key's time.

        A window is from `before` ms before to `after` ms after the time; starts below 0 do not
        count. The matches of each probe are in time order; the times themselves are in no order.
        `limits` has each probe's latest expired start; it is None if no expired row is that near.
        """
        met: list[Met] = []
        add = met.append
        simple = not self.mutable
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


def _slot(row: tuple[int, Entry]) -> int:
    return row[0]
