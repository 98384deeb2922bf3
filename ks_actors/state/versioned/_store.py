"""Versioned key-value stores."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ks_actors.records import PUT_RETURN_CODE_NOT_PUT, VersionedRecord
from ks_actors.state.core import MISSING, NotingReader
from ks_actors.state.versioned._codec import TOMBSTONE
from ks_actors.state.versioned._versions import Versions

if TYPE_CHECKING:
    from collections.abc import Generator

    from ks_actors.state.core import Row, Rows

K = TypeVar("K")
V = TypeVar("V")


class VersionedKeyValueStore(Versions[K], Generic[K, V]):
    """Values by key, each from a time on: what a key was worth can be asked for as of any time within the history retention (KIP-889).

    What is `put` with an older timestamp than the latest is put in its place in the past. The latest value of a key never expires; a version that is
    not the latest can be had until it has been ended for `history_retention_ms` of stream time, which is the latest timestamp that was put.
    """

    def get(self, key: K, as_of: int | None = None) -> VersionedRecord[V] | None:
        """Return the latest value of `key`, or that of the time `as_of` (ms); None when there was none, or it is longer ago than history is kept.

        A value that may be changed in place is a copy, yours to change.
        """
        self._check_key(key)
        if as_of is None:
            latest = self.latest(key)
            return None if latest is None else VersionedRecord(latest[0], latest[1])
        found = self.as_of(key, as_of)
        return None if found is None else VersionedRecord(found[0][0], found[0][1], found[1])

    def put(self, key: K, value: V | None, timestamp: int) -> int:
        """Set what `key` is worth from `timestamp` (ms) on; None deletes it, and so there is no value from then until the next version.

        Return until when that is so: the timestamp of the next version, or PUT_RETURN_CODE_VALID_TO_UNDEFINED when this is the latest one now.
        PUT_RETURN_CODE_NOT_PUT: it is older than the history that is kept; it is dropped, and counted.
        """
        self._check_key(key)
        if timestamp < 0:
            raise ValueError(f"store {self.name}: a version cannot be valid from {timestamp} ms on, give 0 or more")
        return self.put_version(key, value, self._codec.checked_time(timestamp))

    def delete(self, key: K, timestamp: int) -> VersionedRecord[V] | None:
        """Put that `key` has no value from `timestamp` (ms) on; return what it had at that time, or None when that is too long ago."""
        before = self.get(key, timestamp)
        return None if self.put(key, None, timestamp) == PUT_RETURN_CODE_NOT_PUT else before

    def _check_key(self, key: K) -> None:
        if key is None:
            raise TypeError(f"store {self.name}: a key cannot be None")


class VersionedReader(NotingReader[VersionedKeyValueStore[Any, Any]]):
    """Reads a versioned store. All of a key is looked at in one go: so nothing has to be noted for who reads one."""

    def _visible(self, index: Any, *, committed: bool) -> list[int]:
        store = self.store
        times = store.found(index)
        if not committed:
            return times
        dirty, frozen = store._dirty, store._frozen
        return [
            time
            for time in times
            if ((index, time) not in dirty and (index, time) not in frozen) or store._committed_value((index, time)) is not MISSING
        ]

    def _limit(self, *, committed: bool) -> int:
        store = self.store
        return (store._committed if committed else store._observed) - store._retention

    def _record(self, index: Any, times: list[int], place: int, *, committed: bool) -> VersionedRecord[Any] | None:
        handle = (index, times[place])
        entry = self._entry(handle, self._value(handle, committed=committed))
        if entry is None or entry[0] is TOMBSTONE:
            return None
        return VersionedRecord(entry[0], entry[1], times[place + 1] if place + 1 < len(times) else None)

    def get(self, key: Any, as_of: int | None, *, committed: bool) -> VersionedRecord[Any] | None:
        """Return the latest version of a key, or that of a time."""
        index = self._index(key)
        times = self._visible(index, committed=committed)
        place = len(times) if as_of is None else bisect_right(times, as_of)
        if place == 0 or (place < len(times) and as_of is not None and as_of < self._limit(committed=committed)):
            return None
        return self._record(index, times, place - 1, committed=committed)

    def versions(self, key: Any, time_from: int | None, time_to: int | None, *, committed: bool, reverse: bool) -> list[VersionedRecord[Any]]:
        """Return the versions of a key that were valid at some time from `time_from` to `time_to`, both included, by time."""
        index = self._index(key)
        times = self._visible(index, committed=committed)
        limit = self._limit(committed=committed)
        first, last = len(times) - 1 if time_to is not None and time_to < limit else 0, len(times)
        low = limit if time_from is None else max(time_from, limit)
        found = [
            record
            for place in range(max(0, first), last)
            if (time_to is None or times[place] <= time_to) and (place + 1 == last or times[place + 1] > low)
            if (record := self._record(index, times, place, committed=committed)) is not None
        ]
        return found[::-1] if reverse else found

    def all_versions(self) -> Rows:
        """Iterate over all versions that are in memory and committed, tombstones too, in no order, as they are now."""
        layers: list[dict[Any, Any]] = []
        return self._started(layers, iter(()), self._all(list(self.store._view), layers))

    def _all(self, handles: list[Any], layers: list[dict[Any, Any]]) -> Generator[Row, None, None]:
        for handle in handles:
            entry = self._entry(handle, self._at_start(handle, layers, {}))
            if entry is not None:
                yield None, handle, entry
