"""Versioned key-value stores: the values of each key over time (KIP-889)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

from ks_actors.records import (
    PUT_RETURN_CODE_NOT_PUT,
    PUT_RETURN_CODE_VALID_TO_UNDEFINED,
    Batch,
    VersionedRecord,
)
from ks_actors.state.core import (
    LOGGED_BYTES,
    MISSING,
    SLICE,
    TIME_BYTES,
    after,
    instant,
    pack_time,
    unpack_time,
)
from ks_actors.state.key_value import Table
from ks_actors.state.timed import FACTS
from ks_actors.state.versioned._codec import TOMBSTONE, is_tombstone
from ks_actors.state.versioned._sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from ks_actors.state.core import Entry, StoreParts
    from ks_actors.state.versioned._codec import VersionCodec

K = TypeVar("K")
V = TypeVar("V")
Handle = tuple[Any, int]

_BUCKETS: Final = 8


@final
class VersionedKeyValueStore(Table[Handle], Generic[K, V]):
    """Values by key with their history (KIP-889).

    You can read a key's value as of any time within the history retention. A `put` with a timestamp
    older than the latest goes into its place in the past. The latest value of a key never expires.
    An older version is readable until `history_retention_ms` of stream time after its end. Stream
    time is the latest put timestamp.

    A version is valid from its time to the next version's time; a delete is a version too. A key's
    track is the sorted times of all its versions. It is complete or absent, and is loaded from the
    engine on first use. Versions restored before that are `loose`.

    Versions that ended a history retention before stream time are invisible. Once they are that old
    in committed stream time, they are removed, without any change in transaction or changelog. A
    `put` that old is dropped and counted as late.
    """

    codec: VersionCodec  # pyright: ignore[reportIncompatibleVariableOverride] - of its spec

    def __init__(self, parts: StoreParts) -> None:
        super().__init__(parts)
        spec, engine = parts.spec, parts.engine
        self._entered = None
        self._retention: int = spec.history_retention_ms
        self._expired: Callable[[int], None] = parts.expired
        self._span: int = max(1, spec.history_retention_ms // _BUCKETS)
        self._observed: int = -1
        self._committed: int = -1  # stream time up to the last commit
        self._frozen_observed: int = -1
        # Stream time as of the changelog; the recalled time may be ahead of it.
        self._read_up_to: int = -1
        self._tracks: dict[Any, list[int]] = {}
        self._loose: dict[Any, list[int]] = {}
        self._touched: deque[Any] = deque()  # keys in the order in which their tracks were made
        self._due: dict[int, set[Any]] = {}  # keys with a version that ends, by the time of its end
        self._sweep: Sweep = Sweep(engine)

    # For users.

    def get(self, key: K, as_of: int | datetime | None = None) -> VersionedRecord[V] | None:
        """Return the latest value of `key`, or its value at the time `as_of` (ms).

        Return None if there was none, or if the time is beyond the history retention. A mutable
        value is a copy, yours to change.
        """
        self._check_key(key)
        if as_of is None:
            latest = self.latest(key)
            return None if latest is None else VersionedRecord(latest[0], latest[1])
        as_of = instant(self.name, as_of)
        found = self.as_of(key, as_of)
        return None if found is None else VersionedRecord(found[0][0], found[0][1], found[1])

    def put(self, key: K, value: V | None, timestamp: int) -> int:
        """Set the value of `key` from `timestamp` (ms) on; None deletes it.

        After a delete there is no value until the next version. Return the end of validity: the
        timestamp of the next version, or PUT_RETURN_CODE_VALID_TO_UNDEFINED if this is the latest
        version. Return PUT_RETURN_CODE_NOT_PUT for a timestamp beyond the history retention; that
        put is dropped and counted.
        """
        self._check_key(key)
        if self.codec.checked_time(timestamp) < 0:
            raise ValueError(
                f"store {self.name}: a version is valid from {timestamp} ms on: give 0 or more"
            )
        return self.put_version(key, value, timestamp)

    def delete(self, key: K, timestamp: int) -> VersionedRecord[V] | None:
        """Delete `key` from `timestamp` (ms) on; return its value at that time.

        Return None if that time is beyond the history retention.
        """
        before = self.get(key, timestamp)
        return None if self.put(key, None, timestamp) == PUT_RETURN_CODE_NOT_PUT else before

    def _check_key(self, key: K) -> None:
        if key is None:
            raise TypeError(f"store {self.name}: a key cannot be None")

    # Reads.

    def _track(self, index: Any) -> list[int]:
        track = self._tracks.get(index)
        if track is not None:
            return track
        times = set(self._loose.pop(index, ()))
        view = self._view
        for time, data in self._stored(index):
            if time not in times:
                times.add(time)
                view[index, time] = data
        track = sorted(times)
        if not track and self.engine is None:
            return track  # an empty track in memory need not be kept
        self._tracks[index] = track
        self._touched.append(index)
        # A version ends when its successor begins; a trailing tombstone ends by itself.
        for _begin, end in pairwise(track):
            self._ends(index, end)
        if track and self._is_tombstone(index, track[-1]):
            self._ends(index, track[-1])
        return track

    def _stored(self, index: Any) -> Iterator[tuple[int, bytes]]:
        if self.engine is None or self.bare:
            return
        low = self.prefix + self.codec.first_bytes(index)
        start = len(low)
        for encoded, data in self.engine.scan(low, after(low)):
            yield unpack_time(encoded, start)[0], data

    # For queries.

    def found(self, index: Any, *, committed: bool) -> list[int]:
        """Return the times of the current or the `committed` versions of a key, in order.

        Versions that only the engine has are not cached.
        """
        times = self._tracks.get(index)
        if times is None:
            loose = self._loose.get(index, ())
            times = sorted({*loose, *(time for time, _ in self._stored(index))})
        if not committed:
            return times
        dirty, frozen = self._dirty, self._frozen
        return [
            time
            for time in times
            if ((index, time) not in dirty and (index, time) not in frozen)
            or self._committed_value((index, time)) is not MISSING
        ]

    def limit(self, *, committed: bool) -> int:
        """Return the earliest time that is within the history retention."""
        return (self._committed if committed else self._observed) - self._retention

    def in_memory(self) -> list[Handle]:
        """Return key and time of all versions in memory."""
        return list(self._view)

    # Reads.

    def _is_tombstone(self, index: Any, time: int) -> bool:
        value = self._view[index, time]
        return is_tombstone(value) if type(value) is bytes else value[0] is TOMBSTONE

    def entry_at(self, index: Any, time: int) -> Entry:
        """Return value and time of an existing version.

        The value may be TOMBSTONE; a mutable one is a new object each time.
        """
        view = self._view
        value = view[index, time]
        if type(value) is bytes:
            value = self.codec.entry(value)
            if (
                not self.mutable
                and (index, time) not in self._dirty
                and (index, time) not in self._frozen
            ):
                view[index, time] = value
        entry: Entry = value
        return entry

    def latest(self, key: K) -> Entry | None:
        """Return the latest value of a key and its time; None if it was deleted."""
        index = self.codec.index(key)
        track = self._tracks.get(index)
        if track is None:
            track = self._track(index)
        if not track:  # check the key: a key of the wrong type is never found
            self.codec.log_key(index)
            return None
        entry = self.entry_at(index, track[-1])
        return None if entry[0] is TOMBSTONE else entry

    def value_bytes(self, key: K) -> bytes | None:
        """Return the bytes of the latest value of a key as they were written. For operators."""
        if self.latest(key) is None:
            return None
        index = self.codec.index(key)
        handle = (index, self._tracks[index][-1])
        return self.codec.value_bytes(self._raw(handle, self._view[handle]))

    def as_of(self, key: K, time: int) -> tuple[Entry, int | None] | None:
        """Return the version of a key that was valid at `time` (ms), and the end of its validity.

        Return None if there was none, or if the time is beyond the history retention.
        """
        index = self.codec.index(key)
        track = self._tracks.get(index)
        if track is None:
            track = self._track(index)
        place = bisect_right(track, time)
        if place < len(track) and time < self._observed - self._retention:
            return None
        if place == 0:
            if not track:
                self.codec.log_key(index)
            return None
        entry = self.entry_at(index, track[place - 1])
        return (
            None if entry[0] is TOMBSTONE else (entry, track[place] if place < len(track) else None)
        )

    # Puts.

    def put_version(self, key: K, value: Any, time: int) -> int:
        """Set the value of a key from `time` on; return the end of its validity.

        That is a time, PUT_RETURN_CODE_VALID_TO_UNDEFINED or PUT_RETURN_CODE_NOT_PUT.
        """
        entry = self._as_kept((key, time), value)
        if time < self._observed - self._retention:
            self._expired(1)
            return PUT_RETURN_CODE_NOT_PUT
        index = self.codec.index(key)
        track = self._tracks.get(index)
        if not track:  # a read has left an empty track
            self.codec.log_key(index)
            track = self._track(index)
        self._observed = max(self._observed, time)
        handle = (index, time)
        place = bisect_left(track, time)
        self._set(handle, entry)
        if not track:
            self._tracks[index] = track
        if place == len(track):
            track.append(time)
        elif track[place] != time:
            track.insert(place, time)
        if place or value is None:
            self._ends(index, time)
        return track[place + 1] if place + 1 < len(track) else PUT_RETURN_CODE_VALID_TO_UNDEFINED

    def _ends(self, index: Any, time: int) -> None:
        bucket = time // self._span
        due = self._due.get(bucket)
        if due is None:
            self._due[bucket] = {index}
        else:
            due.add(index)

    def _as_kept(self, handle: Handle, value: Any) -> Any:
        """Return a version in the form in which the store keeps it.

        Immutable values are kept as their serde reads them, mutable ones as bytes. Raises
        SerializationError.
        """
        if self.mutable:
            return self.codec.written(handle, (TOMBSTONE if value is None else value, handle[1]))
        return (TOMBSTONE if value is None else self.codec.admit(handle, value), handle[1])

    def _set(self, handle: Handle, kept: Any) -> None:
        dirty, view = self._dirty, self._view
        if handle in dirty:
            # Move the version to the end: the changelog has versions in the order of puts.
            old = dirty.pop(handle)
        else:
            old = view.get(handle, MISSING)
            if self._sized_keys:
                self._size += len(handle[0])
        dirty[handle] = old
        view[handle] = kept
        self._weigh(kept if type(kept) is bytes else kept[0])

    # The hooks of Transactional.

    def freeze(self) -> None:
        """Begin a new transaction and freeze the open one for commit."""
        super().freeze()
        self._frozen_observed = self._observed

    def publish(self, *, written: bool) -> int:
        """Mark the frozen transaction as committed; return its number of records."""
        self._committed = max(self._committed, self._frozen_observed)
        return super().publish(written=written)

    def drop(self) -> None:
        """Roll back to the last commit."""
        super().drop()
        self._observed = self._frozen_observed = self._committed

    def _put_back(self, handle: Handle, value: Any) -> None:
        if value is not MISSING:
            self._view[handle] = value
        elif self._view.pop(handle, MISSING) is not MISSING:
            index, time = handle
            track = self._tracks.get(index)
            if (
                track is not None
                and (place := bisect_left(track, time)) < len(track)
                and track[place] == time
            ):
                del track[place]
                if not track and self.engine is None:
                    del self._tracks[index]

    def _entries(self) -> tuple[dict[Any, Any], int] | None:
        return None

    def _log_keys(self, handles: list[Handle]) -> list[bytes]:
        encode = self.codec.log_key
        return [encode(index) for index, _ in handles]

    def _slow_slice(self, handles: list[Handle], keys: list[bytes]) -> Batch:
        contents: list[bytes | None] = []
        timestamps: list[int] = []
        for handle, value in zip(handles, self._frozen_values(handles), strict=True):
            raw = self._raw(handle, value)
            contents.append(None if is_tombstone(raw) else raw[TIME_BYTES:])
            timestamps.append(handle[1])
        return Batch(keys, contents, timestamps)

    def fill(self, batch: Batch) -> None:
        """Apply rows of a snapshot as committed; the rows of each key come together."""
        keys = [key[:-TIME_BYTES] for key in batch.keys]
        times = [time if time >= 0 else -1 - time for time in batch.timestamps]
        self.restore(
            Batch(
                keys,
                [
                    value if time >= 0 else None
                    for value, time in zip(batch.values, batch.timestamps, strict=True)
                ],
                times,
            ),
            whole=True,
        )

    def restore(self, batch: Batch, *, whole: bool = False) -> None:
        """Apply records of the changelog as committed.

        Records that came too late when they were written are skipped, unless the batch is a `whole`
        snapshot.
        """
        index_of, view = self.codec.index_of, self._view
        observed, retention = self._read_up_to, self._retention
        group = None if self.engine is None else self._group()
        size = 0
        for key, value, time in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            if time > observed:
                observed = time
            elif time < observed - retention and not whole:
                continue
            index = index_of(key)
            view[index, time] = pack_time(-1 - time) if value is None else pack_time(time) + value
            track = self._tracks.get(index)
            if track is None:
                self._loose.setdefault(index, []).append(time)
            elif not self._holds(track, time):
                insort(track, time)
                self._ends(index, time)
            if group is not None:
                group.add((index, time))
                size += len(key) + LOGGED_BYTES + (0 if value is None else len(value))
        self._note_unwritten(size)
        self._read_up_to = observed if not whole else max(observed, self._committed)
        self._observed = self._committed = self._frozen_observed = max(self._committed, observed)

    @staticmethod
    def _holds(track: list[int], time: int) -> bool:
        place = bisect_left(track, time)
        return place < len(track) and track[place] == time

    # Eviction and expiry.

    def wants_eviction(self, *, idle: bool) -> bool:
        """Return whether memory needs work: published changes to compact, or expired versions."""
        ended = sum(len(self._due[bucket]) for bucket in self._ended())
        return super().wants_eviction(idle=idle) or ended >= (1 if idle else SLICE)

    def _ended(self) -> list[int]:
        """Return the buckets that hold expired versions only."""
        limit = self._committed - self._retention
        return sorted(bucket for bucket in self._due if (bucket + 1) * self._span <= limit + 1)

    def evict(self) -> Iterator[None]:
        """Remove expired versions; evict the oldest tracks when memory is over its limit."""
        while not self.compact(SLICE):
            yield
        limit = self._committed - self._retention
        for bucket in self._ended():
            indexes = self._due.pop(bucket)
            while indexes:
                while not self.compact(SLICE):
                    yield
                part = [indexes.pop() for _ in range(min(SLICE // 4, len(indexes)))]
                self._remove(part, limit)
                yield
        for rows in self._sweep.steps(self.prefix, self._committed, limit):
            while not self.compact(SLICE):
                yield
            self._remove({self.codec.index_key(row)[0] for row in rows}, limit)
            yield
        yield from self._let_go()

    def _remove(self, indexes: Iterable[Any], limit: int) -> None:
        """Remove the versions of these keys that ended at `limit` or before.

        A version is removed only once its successor is on disk for good.
        """
        tracks = {index: self._track(index) for index in indexes}
        clean = self._clean(
            (index, time) for index, track in tracks.items() for time in track if time <= limit
        )
        gone: list[Handle] = []
        for index, track in tracks.items():
            kept = [
                begin for begin, end in pairwise(track) if end > limit or (index, end) not in clean
            ]
            # The latest version stays, however old: it is the current row.
            kept += track[-1:]
            if len(kept) == 1 and kept[0] <= limit and self._is_tombstone(index, kept[0]):
                kept = [time for time in kept if (index, time) not in clean]
            if (
                kept
                and (len(kept) > 1 or self._is_tombstone(index, kept[0]))
                and kept[min(1, len(kept) - 1)] <= limit
            ):
                # the successor is not yet written: try again later
                self._ends(index, limit + self._span)
            if len(kept) < len(track):
                left = set(kept)
                gone += [(index, time) for time in track if time not in left]
            if kept:
                self._tracks[index] = kept
            else:
                self._tracks.pop(index, None)
        if self.engine is not None and gone:
            self.engine.write(sorted((self._engine_key(handle), None) for handle in gone))
        for handle in gone:
            del self._view[handle]

    def resident_rows(self) -> int:
        """Return the number of versions and keys in memory."""
        return super().resident_rows() + len(self._tracks)

    def _let_go(self) -> Iterator[None]:
        if self.engine is None:
            return
        excess = len(self._view) + len(self._tracks) - self.resident_records
        if excess > 0:
            # slack, so that the limit is not exceeded again at once
            excess += self.resident_records // 8
        todo = [len(self._loose), len(self._touched)]
        while excess > 0 and any(todo):
            while not self.compact(SLICE):
                yield
            source = 0 if todo[0] else 1
            count = min(SLICE // 4, todo[source])
            todo[source] -= count
            excess -= self._let_go_of(
                self._take_loose(count)
                if source == 0
                else [self._touched.popleft() for _ in range(count)],
                loose=source == 0,
            )
            yield

    def _take_loose(self, count: int) -> list[Any]:
        return list(islice(self._loose, count))

    def _let_go_of(self, indexes: list[Any], *, loose: bool) -> int:
        """Evict the keys with all versions in the engine; return the number of freed rows."""
        times: dict[Any, list[int]] = self._loose if loose else self._tracks
        handles = {
            index: [(index, time) for time in set(times[index])]
            for index in indexes
            if index in times
        }
        clean = self._clean(handle for each in handles.values() for handle in each)
        gone = 0
        for index, versions in handles.items():
            if not clean.issuperset(versions):
                if loose:
                    times[index] = times.pop(index)  # to the end
                else:
                    self._touched.append(index)
                continue
            del times[index]
            for handle in versions:
                del self._view[handle]
            gone += len(versions) + (not loose)
        return gone

    def facts(self, *, frozen: bool = False) -> bytes | None:
        """Return stream time, from which expiry follows."""
        return FACTS.pack(self._frozen_observed if frozen else self._committed, 0)

    def recall(self, facts: bytes) -> None:
        """Restore the state that `facts` returned before the close."""
        self._observed, _ = FACTS.unpack(facts)
        self._committed = self._frozen_observed = self._observed
        self._sweep.due_at(self._observed - self._retention, self._observed)

    def close(self) -> None:
        """Release the memory; every later use raises StoreClosed."""
        super().close()
        self._tracks = self._view
        self._loose, self._due = {}, {}
        self._touched.clear()
