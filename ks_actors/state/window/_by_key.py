"""The data of a window store: single windows, and time ranges of one key."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ks_actors._errors import SerializationError
from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.state.core import BY_KEY_AND_START, MISSING, pack_time
from ks_actors.state.timed import SEGMENT, SUFFIX, TimedKeyIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ks_actors.records import Batch
    from ks_actors.state.core import Codec, Entry
    from ks_actors.state.disk import Engine
    from ks_actors.topology import StoreSpec

K = TypeVar("K")
_FEW = 8


class Windows(TimedKeyIndex, Generic[K]):
    """Entries by key and window start (ms).

    `get_entry`, `put_entry` and `fetch_entries` are for operators. Expiry is that of Kafka Streams:
    windows that start at or before the latest put start minus the retention are invisible. A put
    that old is dropped and counted as late. In a segmented store (type rocksdb) it is counted only
    when its whole segment has expired; otherwise it is neither counted nor visible.
    """

    def __init__(
        self,
        codec: Codec,
        engine: Engine | None,
        prefix: bytes,
        record_time: Callable[[], int],
        spec: StoreSpec,
        expired: Callable[[int], None],
    ) -> None:
        super().__init__(codec, engine, prefix, record_time, spec, expired)
        self.window_size_ms: int = spec.window_size_ms
        self._kernel_keys: bool = HAS_KERNEL and codec.plain_keys

    # One window.

    def get_entry(self, key: K, start: int) -> Entry | None:
        """Return the entry of one window."""
        index: Any = key if self._faithful else self._codec.key(key)
        track = self._tracks.get(index)
        if self._simple:
            value = MISSING if track is None else track.get(start, MISSING)
            if type(value) is tuple and start > self._limit:
                return value
            if value is MISSING and start >= self._low:
                return None  # all windows that recent are in memory
        return self._other_entry(index, start)

    def _other_entry(self, index: Any, start: int) -> Entry | None:
        if start <= self._limit:
            return None
        value = self._now((index, start))
        if value is MISSING:
            if start >= self._low or self.engine is None or index in self._loaded:
                return None
            raw = self.engine.get(self._engine_key((index, start)))
            if raw is None:
                return None
            value = self._codec.from_engine(raw)
            self._set(index, start, value)
        return self._entry_of(index, start, value)

    def put_entry(self, key: K, start: int, entry: Entry | None) -> None:
        """Set the entry of one window; None deletes it.

        Raises SerializationError, with nothing changed, when it cannot be written.
        """
        kept = entry
        if entry is not None:
            value = entry[0]
            if type(value) is not int or not self._least <= value < self.bound:
                kept = self._as_kept(key, entry)
        if start > self._observed:
            self._observed = start
            self._limit = start - self._retention
        if start <= self._limit:
            self._late(start)
            return
        index: Any = key if self._faithful else self._codec.key(key)
        track = self._tracks.get(index)
        if track is None:
            self._codec.check_key(index)
            track = self._track(index)
        handle = (index, start)
        if handle not in self._dirty:
            old = self._dirty[handle] = track.get(start, MISSING)
            if old is MISSING:
                self._added(index, start)
            if self._sized_keys:
                self._size += len(index)
        elif self._sized:
            self._uncount(track[start])
        track[start] = kept
        if kept is None:
            self._deleted[handle] = self._time()
        elif self._sized:
            self._count(kept)

    @property
    def counts(self) -> bool:
        """Whether `count_up` is supported."""
        return False

    # Time ranges of one key.

    def fetch_entries(self, key: K, time_from: int, time_to: int) -> list[tuple[int, Entry]]:
        """Return start and entry of the windows of `key` in a time range, in time order.

        They start from `time_from` to `time_to`, both included.
        """
        index: Any = key if self._faithful else self._codec.key(key)
        first = max(time_from, self._limit + 1)
        if time_to < first:
            return []
        if first < self._low and self.engine is not None and index not in self._loaded:
            self._load(self.engine, index)
        track = self._tracks.get(index)
        if not track:
            return []
        low, high = first, time_to + 1
        if len(track) <= _FEW:
            slots = [slot for slot in track if low <= slot < high]
            slots.sort()
        else:
            order = self._orders.get(index)
            if order is None or len(order) != len(track):
                order = self._arrange(index, track)
            slots = order[bisect_left(order, low) : bisect_left(order, high)]
        simple = not self._mutable
        found = []
        for slot in slots:
            entry = track[slot]
            if type(entry) is not tuple or not simple:
                entry = self._entry_of(index, slot, entry)
                if entry is None:
                    continue
            found.append((slot, entry))
        return found

    def _load(self, engine: Engine, index: Any) -> None:
        """Load the windows of a key that may be on disk only."""
        encoded = self._codec.index_bytes(index)
        # Load from the committed limit: queries of committed state see windows that have expired
        # since.
        first = max(0, self._committed - self._retention + 1)
        for segment in range(first // self.segment_ms, (self._low - 1) // self.segment_ms + 1):
            base = self.prefix + SEGMENT.pack(segment) + encoded
            since = max(first, segment * self.segment_ms)
            until = min(self._low, (segment + 1) * self.segment_ms)
            for name, data in engine.scan(
                base + SUFFIX.pack(since, 0), base + SUFFIX.pack(until, 0)
            ):
                # otherwise the row belongs to a longer key
                if len(name) == len(base) + SUFFIX.size:
                    self._found(index, SUFFIX.unpack_from(name, len(base))[0], data)
        self._loaded.add(index)

    def _found(self, index: Any, start: int, data: bytes) -> None:
        """Load a window from disk, unless memory has a newer entry."""
        if self._now((index, start)) is MISSING:
            self._set(index, start, self._codec.from_engine(data))

    # The hooks of Transactional, and the changelog.

    def _log_keys(self, handles: list[tuple[Any, int]]) -> list[bytes]:
        if self._kernel_keys:
            indexes, slots = map(list, zip(*handles, strict=True))
            with suppress(TypeError):  # a subclass of str or bytes
                return _kernel.window_keys(indexes, slots, None)
        pack, encode = SUFFIX.pack, self._codec.index_bytes
        return [encode(index) + pack(slot, 0) for index, slot in handles]

    def _entries(self) -> tuple[dict[Any, Any], int] | None:
        return self._tracks, BY_KEY_AND_START

    def _log_key(self, handle: tuple[Any, int]) -> bytes:
        index, slot = handle
        return self._codec.index_bytes(index) + SUFFIX.pack(slot, 0)

    def _engine_key(self, handle: tuple[Any, int]) -> bytes:
        return self.prefix + SEGMENT.pack(handle[1] // self.segment_ms) + self._log_key(handle)

    def restore(self, batch: Batch) -> None:
        """Apply records of the changelog as committed; the last one of a window counts."""
        index_key, in_memory = self._codec.index_key, self.engine is None
        parts = [SUFFIX.unpack_from(key, len(key) - SUFFIX.size) for key in batch.keys]
        observed = max((start for start, _ in parts), default=-1)
        if observed > self._observed:
            self._observed = observed
            self._limit = observed - self._retention
        self._committed = max(self._committed, self._observed)
        for key, (start, sequence), value, time in zip(
            batch.keys, parts, batch.values, batch.timestamps, strict=True
        ):
            self._sequence = max(self._sequence, sequence)
            if start <= self._limit:
                continue
            index = index_key(key[: -SUFFIX.size])
            if in_memory and value is None:
                self._take_out(index, start)
                continue
            self._set(index, start, None if value is None else pack_time(time) + value)
            if not in_memory:
                self._group().add((index, start))
        self._expire()

    def _set(self, index: Any, start: int, value: Any) -> None:
        track = self._track(index)
        if start not in track:
            self._added(index, start)
        track[start] = value

    # All keys.

    def starts_of(self, index: Any) -> list[int]:
        """Return the starts of a key's windows in memory, sorted. For queries."""
        return sorted(self._tracks.get(index, ()))

    def handles(self) -> Iterator[tuple[Any, int]]:
        """Iterate over key and start of all windows in memory, which may change meanwhile.

        For queries.
        """
        for index in list(self._tracks):
            yield from [(index, start) for start in self._tracks.get(index, ())]

    def _fetched(
        self, time_from: int, time_to: int, *, by_time: bool
    ) -> list[tuple[bytes, int, int, Entry]]:
        """Return key bytes, start, sequence number and entry of each window, in order."""
        first = max(time_from, self._limit + 1)
        if time_to < first:
            return []
        if first < self._low and self.engine is not None:
            self._load_all(self.engine, first, min(time_to, self._low - 1))
        encode = self._codec.index_bytes
        found = []
        for index, start in list(self._slots(first, time_to)):
            value = self._now((index, start))
            if value is not MISSING:
                entry = self._entry_of(index, start, value)
                if entry is not None:
                    found.append((encode(index), start, 0, entry))
        if by_time:
            found.sort(key=lambda row: (row[1], row[0], row[2]))
        else:
            segment = self.segment_ms
            found.sort(key=lambda row: (row[1] // segment, row[0] + SUFFIX.pack(row[1], row[2])))
        return found

    def closed_entries(
        self, time_from: int, time_to: int
    ) -> list[tuple[Any, int, Entry | SerializationError]]:
        """Return `fetch_all_entries`, with a SerializationError in place of an unreadable entry.

        For operators. An unreadable key is None.
        """
        encode, found = self._codec.index_bytes, []
        for index, start in list(self._slots(max(time_from, self._limit + 1), time_to)):
            value = self._now((index, start))
            if value is MISSING or value is None:
                continue
            key: Any = None
            try:
                key = self._codec.object_key(encode(index))
                entry: Any = self._entry_of(index, start, value)
            except SerializationError as error:
                entry = error
            found.append((start, encode(index), key, entry))
        found.sort(key=lambda row: row[:2])
        return [(key, start, entry) for start, _, key, entry in found]

    def _slots(self, first: int, last: int) -> Iterator[tuple[Any, int]]:
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
        """Load the windows of all keys that may be on disk only."""
        due, self._due = self._due, 0  # keep sweeps from evicting the windows loaded here
        cut = len(self.prefix) + SEGMENT.size
        for segment in range(first // self.segment_ms, last // self.segment_ms + 1):
            base = self.prefix + SEGMENT.pack(segment)
            for name, data in engine.scan(base, self.prefix + SEGMENT.pack(segment + 1)):
                start = SUFFIX.unpack_from(name, len(name) - SUFFIX.size)[0]
                index = self._codec.index_key(name[cut : -SUFFIX.size])
                if first <= start <= last and index not in self._loaded:
                    self._found(index, start, data)
        self._due = due
