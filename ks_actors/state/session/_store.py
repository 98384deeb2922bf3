"""Session stores."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

from ks_actors._hints import Elsewhere
from ks_actors.records import Window, Windowed
from ks_actors.state.core import (
    AGGREGATION_FORM,
    MISSING,
    AggregationWithHeaders,
    StoreIterator,
    instant,
    within,
)
from ks_actors.state.timed import LATEST, SESSIONS, SHIFT, TimedStore, take_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from ks_actors.state.core import Entry, StoreParts
    from ks_actors.state.timed import Found

K = TypeVar("K")
V = TypeVar("V")
_FEW: Final = 8
Session = tuple[int, int, "Entry"]
"""A session's start and end, both included, and its entry."""


class SessionStore(TimedStore, Generic[K, V]):
    """Aggregates by key and session, for session windows (`SessionStore` of Kafka Streams).

    A session is `Windowed(key, Window(start, end))`, both times in ms and included. It expires when
    a session of any key is put that ends `retention_ms` or more later. Iterators have the order of
    Kafka Streams: in memory by end, key bytes and start (the latest first); with segments by
    segment, key bytes, end and start. Backward iterators reverse this order.

    Expiry is that of Kafka Streams: sessions that end at or before the latest put end minus the
    retention are invisible. A put that old is dropped and counted as late. In a segmented store
    (type rocksdb) such a put is counted only when its whole segment has expired; otherwise it is
    neither counted nor visible.

    Members with `entry` or `entries` in their names are for operators. A slot is end and start in
    one number, so slots sort like Kafka Streams' sessions on disk.
    """

    if not TYPE_CHECKING:
        get = Elsewhere(
            "store.fetch(key) has the sessions of a key, store.fetch_session(key, start, end) one"
        )

    def __init__(self, parts: StoreParts) -> None:
        super().__init__(parts, SESSIONS)
        # The handle with the latest end and the time of its delete, if the delete left no trace in
        # the transaction.
        self._untraced: tuple[tuple[Any, int], int] | None = None

    # For users.

    def put(self, session: Windowed[K], aggregate: V | None) -> None:
        """Set the aggregate of a session; None deletes it.

        The put is dropped and counted as late when the session ends `retention_ms` or more before
        the latest put end.
        """
        key, (start, end) = self._checked(session)
        self.put_entry(key, start, end, self._take(aggregate))

    def remove(self, session: Windowed[K]) -> None:
        """Delete a session; do nothing if it has expired or does not exist."""
        key, (start, end) = self._checked(session)
        self.codec.key_bytes(key)
        self.remove_entry(key, start, end)

    def fetch_session(self, key: K, start: int | datetime, end: int | datetime) -> V | None:
        """Return the aggregate of the session of `key` from `start` to `end`, or None."""
        start, end = instant(self.name, start), instant(self.name, end)
        self._check_key(key)
        entry = self.get_entry(key, start, end)
        if entry is None:  # check the key: a key of the wrong type is never found
            self.codec.key_bytes(key)
        return None if entry is None else self._show(entry)

    def fetch(self, key: K) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate over the sessions of `key` and their aggregates, the earliest first."""
        return self.find_sessions(key, 0, LATEST)

    def backward_fetch(self, key: K) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate over the sessions of `key` and their aggregates, the latest first."""
        return self.backward_find_sessions(key, 0, LATEST)

    def find_sessions(
        self, key: K, earliest_end: int | datetime, latest_start: int | datetime
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate over the sessions of `key` that overlap with a span, the earliest first.

        They end at `earliest_end` or later and start at `latest_start` or earlier.
        """
        return self._of_key(key, earliest_end, latest_start, reverse=False)

    def backward_find_sessions(
        self, key: K, earliest_end: int | datetime, latest_start: int | datetime
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate like `find_sessions`, the latest first."""
        return self._of_key(key, earliest_end, latest_start, reverse=True)

    def fetch_range(self, low: K | None, high: K | None) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate over the sessions of the keys from `low` to `high`, both included.

        Keys are compared by their bytes; None is no bound.
        """
        return self.find_sessions_range(low, high, 0, LATEST)

    def backward_fetch_range(
        self, low: K | None, high: K | None
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate like `fetch_range`, in reverse order."""
        return self.backward_find_sessions_range(low, high, 0, LATEST)

    def find_sessions_range(
        self,
        low: K | None,
        high: K | None,
        earliest_end: int | datetime,
        latest_start: int | datetime,
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate over the overlapping sessions of a range of keys.

        See `find_sessions` for the overlap, and `fetch_range` for the range.
        """
        return self._shown(self._in_range(low, high, earliest_end, latest_start))

    def backward_find_sessions_range(
        self,
        low: K | None,
        high: K | None,
        earliest_end: int | datetime,
        latest_start: int | datetime,
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate like `find_sessions_range`, in reverse order."""
        return self._shown(reversed(self._in_range(low, high, earliest_end, latest_start)))

    def find_ended_sessions(
        self, earliest_end: int | datetime, latest_end: int | datetime
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate over all sessions that end in a time range, sorted by end.

        The range is from `earliest_end` to `latest_end`, both included. Sessions with the same end
        are in the order of Kafka Streams. In memory that is by key bytes, then the latest start
        first; with segments by start, then key bytes.
        """
        earliest_end, latest_end = instant(self.name, earliest_end), instant(self.name, latest_end)
        return self._shown(sorted(self.entries_between(earliest_end, latest_end), key=self._by_end))

    # One session.

    def get_entry(self, key: K, start: int, end: int) -> Entry | None:
        """Return the entry of one session."""
        if end <= self._limit:
            return None
        index: Any = key if self._faithful else self.codec.key(key)
        slot = end << SHIFT | start
        track = self._tracks.get(index)
        value = MISSING if track is None else track.get(slot, MISSING)
        if value is MISSING:
            # Memory has all sessions that end from `_low` on, and all sessions of loaded keys.
            if end >= self._low or self.engine is None or index in self._loaded:
                return None
            raw = self.engine.get(self._engine_key((index, slot)))
            if raw is None:
                return None
            value = self.codec.from_engine(raw)
            self._set(index, slot, value)
        return self._entry_of(index, slot, value)

    def put_entry(self, key: K, start: int, end: int, entry: Entry | None) -> None:
        """Set the entry of one session; None deletes it.

        Raises SerializationError, with nothing changed, when the entry cannot be written.
        """
        kept = None if entry is None else self.prepared(key, entry)
        self._observe(end)
        if end <= self._limit:
            self._late(end)
            return
        index: Any = key if self._faithful else self.codec.key(key)
        handle = (index, end << SHIFT | start)
        if entry is None:
            self._delete(handle, end)
            return
        if end == self._observed:
            self._untraced = None
        slot = handle[1]
        track = self._tracks.get(index)
        if track is None:
            self.codec.check_key(index)
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
        """Delete one session; the delete is never counted as late."""
        if self.segmented:  # a delete advances time only on disk, as in Kafka Streams
            self._observe(end)
        if end > self._limit:
            self._delete(
                (key if self._faithful else self.codec.key(key), end << SHIFT | start), end
            )

    def _delete(self, handle: tuple[Any, int], end: int) -> None:
        """Delete a session.

        A session that only this transaction has put leaves no trace: most are merged into others.
        """
        index, slot = handle
        # A put reads no old value, so the notes do not show whether there is a row on disk.
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

    def find_entries(self, key: K, earliest_end: int, latest_start: int) -> list[Session]:
        """Return the sessions of `key` that overlap with a span, in the store's order.

        They end at `earliest_end` or later and start at `latest_start` or earlier.
        """
        index: Any = key if self._faithful else self.codec.key(key)
        first = max(earliest_end, self._limit + 1)
        if first < self._low and self.engine is not None and index not in self._loaded:
            self._load(index)
        track = self._tracks.get(index)
        if not track:
            return []
        low = first << SHIFT
        # Sorting a few is cheaper than keeping their order up to date at each put.
        if len(track) <= _FEW:
            slots = [slot for slot in track if slot >= low]
            slots.sort()
        else:
            order = self._orders.get(index)
            if order is None:
                order = self._orders[index] = sorted(track)
            slots = order[bisect_left(order, low) :] if order[-1] >= low else []
        simple = not self.mutable
        found: list[Session] = []
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
        # Kafka Streams' stores in memory have the latest start first, where ends are equal.
        if len(found) > 1 and not self.segmented:
            found.sort(key=lambda row: (row[1], -row[0]))
        return found

    # All keys.

    def _rows_between(self, first: int, last: int) -> Iterator[tuple[Any, int, Any]]:
        low, high = first << SHIFT, (last + 1) << SHIFT
        for index, track in self._tracks.items():
            for slot, value in track.items():
                if low <= slot < high:
                    yield index, slot, value

    # The hooks of Transactional, and the changelog.

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

    # The order of sessions.

    def ended_sessions(self, earliest_end: int, latest_end: int) -> list[tuple[K, int, int]]:
        """Return key, start and end of the sessions of `find_ended_sessions`, in its order.

        For operators. The aggregates need not be readable.
        """
        key, encode = self.codec.object_key, self.codec.index_bytes
        found: list[tuple[bytes, int]] = []
        before, encoded = MISSING, b""
        for index, slot, value in self._values_between(earliest_end, latest_end):
            if value is not None:
                if index is not before:
                    before, encoded = index, encode(index)
                found.append((encoded, slot))
        found.sort(key=self._by_end)
        return [(key(encoded), slot & LATEST, slot >> SHIFT) for encoded, slot in found]

    def own_key(self, key: K) -> K:
        """Return a key, copied if it is mutable. For operators."""
        codec = self.codec
        return codec.object_key(codec.key(key)) if codec.mutable_keys else key

    def end_order(self, key: K, start: int, end: int) -> tuple[Any, Any, Any]:
        """Return the sort key of a session in `find_ended_sessions`. For operators."""
        return self._by_end((self.codec.key(key), end << SHIFT | start))

    def _checked(self, session: Windowed[K]) -> Windowed[K]:
        try:
            key, (start, end) = session
        except (TypeError, ValueError):
            raise TypeError(
                f"store {self.name}: a session has a key, a start and an end, got {session!r}: "
                "give Windowed(key, Window(start_ms, end_ms))"
            ) from None
        self._check_key(key)
        self.codec.checked_time(start)
        self.codec.checked_time(end)
        if not 0 <= start <= end:
            raise ValueError(
                f"store {self.name}: a session starts at 0 or later and does not end before it "
                f"starts; this one is {start} to {end} ms"
            )
        return session

    def _check_key(self, key: Any) -> None:
        if key is None:
            raise TypeError(f"store {self.name}: a key cannot be None")

    def _of_key(
        self, key: K, earliest_end: int | datetime, latest_start: int | datetime, *, reverse: bool
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        earliest_end, latest_start = (
            instant(self.name, earliest_end),
            instant(self.name, latest_start),
        )
        self._check_key(key)
        found = self.find_entries(key, earliest_end, latest_start)
        if not found:
            self.codec.key_bytes(key)
        if reverse:
            found.reverse()
        show = self._show
        return StoreIterator(
            ((Windowed(key, Window(start, end)), show(entry)) for start, end, entry in found),
            self._iterators,
        )

    def _in_range(
        self,
        low: K | None,
        high: K | None,
        earliest_end: int | datetime,
        latest_start: int | datetime,
    ) -> list[Found]:
        earliest_end, latest_start = (
            instant(self.name, earliest_end),
            instant(self.name, latest_start),
        )
        bounds, found = self.codec.bounds(low, high), self.entries_between(earliest_end, LATEST)
        return self.in_order(
            [row for row in found if row[1] & LATEST <= latest_start and within(row[0], bounds)]
        )

    def _by_end(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        encoded, slot = row[0], row[1]
        end, start = slot >> SHIFT, slot & LATEST
        return (end, start, encoded) if self.segmented else (end, encoded, -start)

    def _shown(self, rows: Iterable[Found]) -> StoreIterator[tuple[Windowed[K], V]]:
        key, window, show = self.codec.object_key, self.slot_form.window, self._show
        return StoreIterator(
            ((Windowed(key(encoded), window(slot)), show(entry)) for encoded, slot, entry in rows),
            self._iterators,
        )


@final
class SessionStoreWithHeaders(SessionStore[K, AggregationWithHeaders[V]], Generic[K, V]):
    """Aggregates with their headers, by key and session (KIP-1271).

    A delete takes the headers of the current record into the changelog. Entries that operators make
    have no headers.
    """

    form = AGGREGATION_FORM

    def put(self, session: Windowed[K], aggregate: AggregationWithHeaders[V] | None) -> None:
        """Set the aggregate of a session with its headers; None deletes it. See SessionStore."""
        super().put(session, aggregate)
        if aggregate is None or aggregate[0] is None:
            self._note_delete(session)

    def remove(self, session: Windowed[K]) -> None:
        """Delete a session; do nothing if it has expired or does not exist."""
        super().remove(session)
        self._note_delete(session)

    def _note_delete(self, session: Windowed[K]) -> None:
        key, (start, end) = session
        index = key if self.codec.faithful else self.codec.key(key)
        self._note_headers_of_delete((index, end << SHIFT | start))
