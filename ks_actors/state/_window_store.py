"""Window stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ks_actors.state._iterators import StoreIterator
from ks_actors.state._key_value import ValueAndTimestamp
from ks_actors.state._tracks import SEGMENT, SEQUENCE_BITS, SEQUENCE_MASK, SUFFIX
from ks_actors.state._transaction import MISSING
from ks_actors.state._windows import Windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ks_actors.state._codec import Entry
    from ks_actors.state._engine import Engine

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P")
LATEST = (1 << 63) - 1


class WindowBase(Windows[K], Generic[K, P]):
    """Values by key and window start."""

    def _show(self, entry: Entry) -> Any:
        return entry[0]

    def _entry(self, value: Any) -> Entry | None:
        return None if value is None else (value, self._time())

    def put(self, key: K, value: P | None, window_start_ms: int) -> None:
        """Set the value of a key's window; None deletes it. A store with duplicates adds the value, and ignores None.

        A window that starts `retention_ms` or more before the latest one that was put is too old: the put is dropped and counted.
        """
        if key is None:
            raise TypeError(f"store {self.name}: a key cannot be None")
        self.put_entry(key, window_start_ms, self._entry(value))

    @overload
    def fetch(self, key: K, time_from: int) -> P | None: ...
    @overload
    def fetch(self, key: K, time_from: int, time_to: int) -> StoreIterator[tuple[int, P]]: ...
    def fetch(self, key: K, time_from: int, time_to: int | None = None) -> P | StoreIterator[tuple[int, P]] | None:
        """Return the value of the window that starts at `time_from`, or None.

        With `time_to`, iterate over start and value of the windows that start from `time_from` to `time_to`, both included, in time order.
        """
        if key is None:
            raise TypeError(f"store {self.name}: a key cannot be None")
        if time_to is None:
            entry = self.get_entry(key, time_from)
            return None if entry is None else self._show(entry)
        return self._iterate((start, self._show(entry)) for start, entry in self.fetch_entries(key, time_from, time_to))

    def backward_fetch(self, key: K, time_from: int, time_to: int) -> StoreIterator[tuple[int, P]]:
        """Iterate over start and value of the windows that start from `time_from` to `time_to`, both included, the latest first."""
        return self._iterate((start, self._show(entry)) for start, entry in reversed(self.fetch_entries(key, time_from, time_to)))

    def fetch_range(self, low: K | None, high: K | None, time_from: int, time_to: int) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, over the keys whose bytes are from those of `low` to those of `high`, both included, None for no bound."""
        encode = self._codec.key
        first, last = None if low is None else encode(low), None if high is None else encode(high)
        within = (
            found
            for found in self._fetched(time_from, time_to, by_time=not self._segmented)
            if (first is None or found[0] >= first) and (last is None or found[0] <= last)
        )
        return self._shown(within)

    def fetch_all(self, time_from: int, time_to: int) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate over key, start and value of the windows that start from `time_from` to `time_to`, both included.

        The order is that of Kafka Streams: by start, then key bytes in memory, by segment, then key bytes, then start where there are segments.
        """
        return self._shown(self._fetched(time_from, time_to, by_time=not self._segmented))

    def backward_fetch_all(self, time_from: int, time_to: int) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, the other way round."""
        return self._shown(reversed(self._fetched(time_from, time_to, by_time=not self._segmented)))

    def all(self) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, over all there is."""
        return self.fetch_all(0, LATEST)

    def backward_all(self) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, over all there is, the other way round."""
        return self.backward_fetch_all(0, LATEST)

    def fetch_all_entries(self, time_from: int, time_to: int) -> list[tuple[K, int, Entry]]:
        """Return key, start and entry of all windows that start from `time_from` to `time_to`, by start, then key bytes: for operators."""
        key = self._codec.object_key
        return [(key(encoded), start, entry) for encoded, start, _, entry in self._fetched(time_from, time_to, by_time=True)]

    def _iterate(self, rows: Iterable[Any]) -> StoreIterator[Any]:
        return StoreIterator((row for row in rows), self._iterators)

    def _shown(self, rows: Iterable[tuple[bytes, int, int, Entry]]) -> StoreIterator[Any]:
        key = self._codec.object_key
        return self._iterate(((key(encoded), start), self._show(entry)) for encoded, start, _, entry in rows)

    def _fetched(self, time_from: int, time_to: int, *, by_time: bool) -> list[tuple[bytes, int, int, Entry]]:
        """Return key bytes, start, sequence number and entry of each window, in order."""
        first = max(time_from, self._limit + 1)
        if time_to < first:
            return []
        if first < self._low and self.engine is not None:
            self._load_all(self.engine, first, min(time_to, self._low - 1))
        encode, duplicates = self._codec.index_bytes, self._duplicates
        found = []
        for index, slot in list(self._slots(first, time_to)):
            value = self._tracks[index].get(slot, MISSING) if index in self._tracks else MISSING
            if value is not MISSING:
                entry = self._entry_of(index, slot, value)
                if entry is not None:
                    start, sequence = (slot >> SEQUENCE_BITS, slot & SEQUENCE_MASK) if duplicates else (slot, 0)
                    found.append((encode(index), start, sequence, entry))
        if by_time:
            found.sort(key=lambda row: (row[1], row[0], row[2]))
        else:
            segment = self.segment_ms
            found.sort(key=lambda row: (row[1] // segment, row[0] + SUFFIX.pack(row[1], row[2])))
        return found

    def _slots(self, first: int, last: int) -> Iterator[tuple[Any, int]]:
        if self._duplicates:
            for index, track in self._tracks.items():
                yield from ((index, slot) for slot in track if first <= slot >> SEQUENCE_BITS <= last)
            return
        starts = self._starts
        if starts is None:
            starts = self._starts = {}
            for index, track in self._tracks.items():
                for start in track:
                    starts.setdefault(start, {})[index] = None
        gone = self._committed - self._retention
        for start in list(starts):
            if start <= gone:
                del starts[start]
            elif first <= start <= last:
                yield from ((index, start) for index in starts[start])

    def _load_all(self, engine: Engine, first: int, last: int) -> None:
        """Read what may be on disk only, of all keys."""
        due, self._due = self._due, 0  # no sweep may take out again what is read here
        cut = len(self.prefix) + SEGMENT.size
        for segment in range(first // self.segment_ms, last // self.segment_ms + 1):
            base = self.prefix + SEGMENT.pack(segment)
            for name, data in engine.scan(base, self.prefix + SEGMENT.pack(segment + 1)):
                start, sequence = SUFFIX.unpack_from(name, len(name) - SUFFIX.size)
                index = self._codec.index_key(name[cut : -SUFFIX.size])
                if not first <= start <= last or index in self._loaded:
                    continue
                slot = start << SEQUENCE_BITS | sequence if self._duplicates else start
                track = self._track(index)
                if slot not in track:
                    track[slot] = self._codec.from_engine(data)
                    self._added(index, start)
        self._due = due


class WindowStore(WindowBase[K, V], Generic[K, V]):
    """Values by key and window start: what joins of streams live in."""


class TimestampedWindowStore(WindowBase[K, ValueAndTimestamp[V]], Generic[K, V]):
    """Values with their timestamps, by key and window start: what windowed aggregates live in.

    `get_entry`, `put_entry` and `fetch_entries` are the fast way for operators; an entry is a plain tuple of value and timestamp.
    """

    def _show(self, entry: Entry) -> Any:
        return ValueAndTimestamp(entry[0], entry[1])

    def _entry(self, value: Any) -> Entry | None:
        return None if value is None or value[0] is None else (value[0], value[1])
