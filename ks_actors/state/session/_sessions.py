"""The data of a session store: single sessions, and those of a key that overlap with a span."""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ks_actors.state.core import MISSING, pack_time
from ks_actors.state.timed import SEGMENT, TimedKeyIndex, take_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.records import Batch
    from ks_actors.state.core import Codec, Entry
    from ks_actors.state.disk import Engine
    from ks_actors.state.timed import Track
    from ks_actors.topology import StoreSpec

K = TypeVar("K")
SHIFT: Final = 63
LATEST: Final = (1 << SHIFT) - 1
ENDS: Final = struct.Struct(">qq")
"""The suffix of a key on disk and in the changelog: the end and start of a session.

It is that of Kafka Streams' SessionKeySchema.
"""
_FEW: Final = 8

Found = tuple[int, int, "Entry"]
"""A session's start and end, both included, and its entry."""


class Sessions(TimedKeyIndex, Generic[K]):
    """Entries by key and session, from `start` to `end` (ms), both included.

    `get_entry`, `put_entry` and `find_entries` are for operators. A slot is end and start in one
    number, so slots sort like Kafka Streams' sessions on disk.

    Expiry is that of Kafka Streams: sessions that end at or before the latest put end minus the
    retention are invisible. A put that old is dropped and counted as late. In a segmented store
    (type rocksdb) it is counted only when its whole segment has expired; otherwise it is neither
    counted nor visible.
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
        # The handle with the latest end if it was deleted without a trace, and the time of the
        # delete.
        self._untraced: tuple[tuple[Any, int], int] | None = None

    # One session.

    def get_entry(self, key: K, start: int, end: int) -> Entry | None:
        """Return the entry of one session."""
        if end <= self._limit:
            return None
        index: Any = key if self._faithful else self._codec.key(key)
        slot = end << SHIFT | start
        track = self._tracks.get(index)
        value = MISSING if track is None else track.get(slot, MISSING)
        if value is MISSING:
            if end >= self._low or self.engine is None or index in self._loaded:
                return None
            raw = self.engine.get(self._engine_key((index, slot)))
            if raw is None:
                return None
            value = self._track(index)[slot] = self._codec.from_engine(raw)
            self._added(index, slot)
        return self._entry_of(index, slot, value)

    def put_entry(self, key: K, start: int, end: int, entry: Entry | None) -> None:
        """Set the entry of one session; None deletes it.

        Raises SerializationError, with nothing changed, when it cannot be written.
        """
        kept = None if entry is None else self.prepared(key, entry)
        self._observe(end)
        if end <= self._limit:
            self._late(end)
            return
        index: Any = key if self._faithful else self._codec.key(key)
        handle = (index, end << SHIFT | start)
        if entry is None:
            self._delete(handle, end)
            return
        if end == self._observed:
            self._untraced = None
        slot = handle[1]
        track = self._tracks.get(index)
        if track is None:
            self._codec.check_key(index)
            track = self._track(index)
        if handle not in self._dirty:
            old = self._dirty[handle] = track.get(slot, MISSING)
            track[slot] = kept
            if old is MISSING:
                self._added(index, slot)
            if self._sized_keys:
                self._size += len(index)
        else:
            if self._sized:
                self._uncount(track[slot])
            track[slot] = kept
        if self._sized:
            self._count(kept)

    def prepared(self, key: K, entry: Any) -> Any:
        """Return an entry in the form that `put_entry` keeps; raises SerializationError."""
        if type(entry) is bytes:
            return entry
        value = entry[0]
        return (
            entry
            if type(value) is int and self._least <= value < self.bound
            else self._as_kept(key, entry)
        )

    def remove_entry(self, key: K, start: int, end: int) -> None:
        """Delete one session; it is never counted as late."""
        if self._segmented:  # as in Kafka Streams' stores on disk; those in memory do not
            self._observe(end)
        if end > self._limit:
            self._delete(
                (key if self._faithful else self._codec.key(key), end << SHIFT | start), end
            )

    def _observe(self, end: int) -> None:
        if end > self._observed:
            self._observed = end
            self._limit = end - self._retention

    def _delete(self, handle: tuple[Any, int], end: int) -> None:
        """Delete a session.

        A session of this transaction alone leaves no trace: most sessions grow into others.
        """
        index, slot = handle
        # Puts without a read leave the notes unaware of rows on disk.
        known = end >= self._low or self.engine is None
        if handle in self._dirty:
            track = self._tracks[index]
            if self._sized:
                self._uncount(track[slot])
            if known and self._dirty[handle] is MISSING:
                del self._dirty[handle]
                self._deleted.pop(handle, None)
                if self._sized_keys:
                    self._size -= len(index)
                self._take_out(index, slot)
                self._leave_no_trace(handle, end)
                return
        else:
            old = self._now(handle)
            if old is MISSING and known:
                self._leave_no_trace(handle, end)
                return
            track = self._track(index)
            self._dirty[handle] = old
            if self._sized_keys:
                self._size += len(index)
            if old is MISSING:
                track[slot] = None
                self._added(index, slot)
        track[slot] = None
        self._deleted[handle] = self._time()

    def _leave_no_trace(self, handle: tuple[Any, int], end: int) -> None:
        if end == self._observed:
            self._untraced = (handle, self._time())

    def freeze(self) -> None:
        """Begin a new transaction.

        The record that advanced the store's time must reach the changelog, if only as a delete.
        Otherwise a restored store would have an older time.
        """
        untraced, self._untraced = self._untraced, None
        if untraced is not None and self._observed > self._committed:
            handle, self._deleted[handle] = untraced
            self._dirty[handle] = MISSING
            self._track(handle[0])[handle[1]] = None
            self._added(*handle)
        super().freeze()

    def drop(self) -> None:
        """Roll back to the last commit."""
        super().drop()
        self._untraced = None

    # Sessions of one key.

    def find_entries(self, key: K, earliest_end: int, latest_start: int) -> list[Found]:
        """Return the sessions of `key` that overlap with a span, in the store's order.

        They end at `earliest_end` or later and start at `latest_start` or earlier.
        """
        index: Any = key if self._faithful else self._codec.key(key)
        first = max(earliest_end, self._limit + 1)
        if first < self._low and self.engine is not None and index not in self._loaded:
            self._load(self.engine, index)
        track = self._tracks.get(index)
        if not track:
            return []
        low = first << SHIFT
        if len(track) <= _FEW:
            slots = [slot for slot in track if slot >= low]
            slots.sort()
        else:
            order = self._orders.get(index)
            if order is None:
                order = self._orders[index] = sorted(track)
            slots = order[bisect_left(order, low) :] if order[-1] >= low else []
        simple = not self._mutable
        found: list[Found] = []
        for slot in slots:
            start = slot & LATEST
            if start > latest_start:
                continue
            entry = track[slot]
            if type(entry) is not tuple or not simple:
                entry = self._entry_of(index, slot, entry)
                if entry is None:
                    continue
            found.append((start, slot >> SHIFT, entry))
        if len(found) > 1 and not self._segmented:
            found.sort(key=lambda row: (row[1], -row[0]))
        return found

    def _load(self, engine: Engine, index: Any) -> None:
        """Load the sessions of a key that may be on disk only."""
        encoded = self._codec.index_bytes(index)
        track = self._track(index)
        # Load from the committed limit: queries of committed state see sessions that have expired
        # since.
        first = max(0, self._committed - self._retention + 1)
        for segment in range(first // self.segment_ms, (self._low - 1) // self.segment_ms + 1):
            base = self.prefix + SEGMENT.pack(segment) + encoded
            since = max(first, segment * self.segment_ms)
            until = min(self._low, (segment + 1) * self.segment_ms)
            for name, data in engine.scan(base + ENDS.pack(since, 0), base + ENDS.pack(until, 0)):
                if len(name) == len(base) + ENDS.size:  # otherwise the row belongs to a longer key
                    end, start = ENDS.unpack_from(name, len(base))
                    self._add_stored(index, track, end << SHIFT | start, data)
        self._loaded.add(index)

    def _add_stored(self, index: Any, track: Track, slot: int, data: bytes) -> None:
        if slot not in track:
            track[slot] = self._codec.from_engine(data)
            self._added(index, slot)

    # All keys.

    def _fetched(
        self, earliest_end: int, latest_start: int, latest_end: int = LATEST
    ) -> list[tuple[bytes, int, int, Entry]]:
        """Return key bytes, start, end and entry of each overlapping session, in no order."""
        found = []
        for index, encoded, slot, value in self._overlapping(
            earliest_end, latest_start, latest_end
        ):
            entry = self._entry_of(index, slot, value)
            if entry is not None:
                found.append((encoded, slot & LATEST, slot >> SHIFT, entry))
        return found

    def _known(
        self, earliest_end: int, latest_start: int, latest_end: int = LATEST
    ) -> list[tuple[bytes, int, int]]:
        """Return key bytes, start and end of each overlapping session, in no order."""
        found = self._overlapping(earliest_end, latest_start, latest_end)
        return [
            (encoded, slot & LATEST, slot >> SHIFT)
            for _, encoded, slot, value in found
            if value is not None
        ]

    def _overlapping(
        self, earliest_end: int, latest_start: int, latest_end: int
    ) -> list[tuple[Any, bytes, int, Any]]:
        """Return dict key, key bytes, slot and value of each overlapping session."""
        first = max(earliest_end, self._limit + 1, 0)
        if first < self._low and self.engine is not None:
            self._load_all(self.engine, first)
        encode, low, high = self._codec.index_bytes, first << SHIFT, (latest_end + 1) << SHIFT
        found = []
        for index, track in list(self._tracks.items()):
            slots = [slot for slot in track if low <= slot < high and slot & LATEST <= latest_start]
            encoded = encode(index) if slots else b""
            found += [(index, encoded, slot, track[slot]) for slot in slots]
        return found

    def _load_all(self, engine: Engine, first: int) -> None:
        """Load the sessions of all keys that may be on disk only."""
        due, self._due = self._due, 0  # keep sweeps from evicting the sessions loaded here
        cut = len(self.prefix) + SEGMENT.size
        for segment in range(first // self.segment_ms, (self._low - 1) // self.segment_ms + 1):
            base = self.prefix + SEGMENT.pack(segment)
            for name, data in engine.scan(base, self.prefix + SEGMENT.pack(segment + 1)):
                end, start = ENDS.unpack_from(name, len(name) - ENDS.size)
                index = self._codec.index_key(name[cut : -ENDS.size])
                if first <= end < self._low and index not in self._loaded:
                    self._add_stored(index, self._track(index), end << SHIFT | start, data)
        self._due = due

    # The hooks of Transactional, and the changelog.

    def _slot_at(self, time: int) -> int:
        """Return the first slot of sessions that end at this time."""
        return time << SHIFT

    def _segments_of(self, handles: list[tuple[Any, int]]) -> list[int]:
        segment_ms = self.segment_ms
        return [(slot >> SHIFT) // segment_ms for _, slot in handles]

    def _added(self, index: Any, slot: int) -> None:
        self._resident += 1
        number = (slot >> SHIFT) // self._span
        if number in self._buckets:
            self._buckets[number].append(index)
        else:
            self._buckets[number] = [index]
        order = self._orders.get(index)
        if order is not None:
            insort(order, slot)

    def _take_out(self, index: Any, slot: int) -> None:
        track = self._tracks.get(index)
        if track is not None and track.pop(slot, MISSING) is not MISSING:
            self._resident -= 1
            order = self._orders.get(index)
            if order is not None:
                del order[bisect_left(order, slot)]

    def _take_out_expired(self, indexes: list[Any], limit: int) -> None:
        self._resident -= take_out(self._tracks, indexes, self._slot_at(limit + 1) - 1)
        if self._orders:
            for index in indexes:
                self._orders.pop(index, None)

    def _log_keys(self, handles: list[tuple[Any, int]]) -> list[bytes]:
        pack, encode = ENDS.pack, self._codec.index_bytes
        return [encode(index) + pack(slot >> SHIFT, slot & LATEST) for index, slot in handles]

    def _engine_key(self, handle: tuple[Any, int]) -> bytes:
        return (
            self.prefix
            + SEGMENT.pack((handle[1] >> SHIFT) // self.segment_ms)
            + self._log_keys([handle])[0]
        )

    def restore(self, batch: Batch) -> None:
        """Apply records of the changelog as committed; the last one of a session counts."""
        index_key, in_memory = self._codec.index_key, self.engine is None
        parts = [ENDS.unpack_from(key, len(key) - ENDS.size) for key in batch.keys]
        self._observe(max((end for end, _ in parts), default=-1))
        self._committed = max(self._committed, self._observed)
        for key, (end, start), value, time in zip(
            batch.keys, parts, batch.values, batch.timestamps, strict=True
        ):
            if end <= self._limit:
                continue
            index, slot = index_key(key[: -ENDS.size]), end << SHIFT | start
            if in_memory and value is None:
                self._take_out(index, slot)
                continue
            track = self._track(index)
            fresh = slot not in track
            track[slot] = None if value is None else pack_time(time) + value
            if fresh:
                self._added(index, slot)
            if not in_memory:
                self._group().add((index, slot))
        self._expire()
