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
    """Values by key with their history (KIP-889).

    You can read a key's value as of any time within the history retention. A `put` with a timestamp
    older than the latest goes into its place in the past. The latest value of a key never expires.
    An older version is readable until `history_retention_ms` of stream time after its end. Stream
    time is the latest put timestamp.
    """

    def get(self, key: K, as_of: int | None = None) -> VersionedRecord[V] | None:
        """Return the latest value of `key`, or its value at the time `as_of` (ms).

        Return None if there was none, or if the time is beyond the history retention. A mutable
        value is a copy, yours to change.
        """
        self._check_key(key)
        if as_of is None:
            latest = self.latest(key)
            return None if latest is None else VersionedRecord(latest[0], latest[1])
        found = self.as_of(key, as_of)
        return None if found is None else VersionedRecord(found[0][0], found[0][1], found[1])

    def put(self, key: K, value: V | None, timestamp: int) -> int:
        """Set the value of `key` from `timestamp` (ms) on; None deletes it.

        After a delete there is no value until the next version. Return the end of validity: the
        timestamp of the next version, or PUT_RETURN_CODE_VALID_TO_UNDEFINED if this is the latest
        one. Return PUT_RETURN_CODE_NOT_PUT for a timestamp beyond the history retention; that put
        is dropped and counted.
        """
        self._check_key(key)
        if timestamp < 0:
            raise ValueError(
                f"store {self.name}: a version is valid from {timestamp} ms on: give 0 or more"
            )
        return self.put_version(key, value, self._codec.checked_time(timestamp))

    def delete(self, key: K, timestamp: int) -> VersionedRecord[V] | None:
        """Delete `key` from `timestamp` (ms) on; return its value at that time.

        Return None if that is beyond the history retention.
        """
        before = self.get(key, timestamp)
        return None if self.put(key, None, timestamp) == PUT_RETURN_CODE_NOT_PUT else before

    def _check_key(self, key: K) -> None:
        if key is None:
            raise TypeError(f"store {self.name}: a key cannot be None")


class VersionedReader(NotingReader[VersionedKeyValueStore[Any, Any]]):
    """A reader of a versioned store.

    It reads all versions of a key in one go, so commits need not note anything for it.
    """

    def _visible(self, index: Any, *, committed: bool) -> list[int]:
        store = self.store
        times = store.found(index)
        if not committed:
            return times
        dirty, frozen = store._dirty, store._frozen
        return [
            time
            for time in times
            if ((index, time) not in dirty and (index, time) not in frozen)
            or store._committed_value((index, time)) is not MISSING
        ]

    def _limit(self, *, committed: bool) -> int:
        store = self.store
        return (store._committed if committed else store._observed) - store._retention

    def _record(
        self, index: Any, times: list[int], place: int, *, committed: bool
    ) -> VersionedRecord[Any] | None:
        handle = (index, times[place])
        entry = self._entry(handle, self._value(handle, committed=committed))
        if entry is None or entry[0] is TOMBSTONE:
            return None
        return VersionedRecord(
            entry[0], entry[1], times[place + 1] if place + 1 < len(times) else None
        )

    def get(self, key: Any, as_of: int | None, *, committed: bool) -> VersionedRecord[Any] | None:
        """Return the latest version of a key, or the one valid at `as_of`."""
        index = self._index(key)
        times = self._visible(index, committed=committed)
        place = len(times) if as_of is None else bisect_right(times, as_of)
        if place == 0 or (
            place < len(times) and as_of is not None and as_of < self._limit(committed=committed)
        ):
            return None
        return self._record(index, times, place - 1, committed=committed)

    def versions(
        self,
        key: Any,
        time_from: int | None,
        time_to: int | None,
        *,
        committed: bool,
        reverse: bool,
    ) -> list[VersionedRecord[Any]]:
        """Return the versions of a key that were valid at some time in a range, by time.

        The range is from `time_from` to `time_to`, both included.
        """
        index = self._index(key)
        times = self._visible(index, committed=committed)
        limit = self._limit(committed=committed)
        first, last = len(times) - 1 if time_to is not None and time_to < limit else 0, len(times)
        low = limit if time_from is None else max(time_from, limit)
        found = [
            record
            for place in range(max(0, first), last)
            if (time_to is None or times[place] <= time_to)
            and (place + 1 == last or times[place + 1] > low)
            if (record := self._record(index, times, place, committed=committed)) is not None
        ]
        return found[::-1] if reverse else found

    def all_versions(self) -> Rows:
        """Iterate over all committed versions in memory as of now, in no order.

        Tombstones are included.
        """
        layers: list[dict[Any, Any]] = []
        return self._started(layers, iter(()), self._all(list(self.store._view), layers))

    def _all(self, handles: list[Any], layers: list[dict[Any, Any]]) -> Generator[Row, None, None]:
        for handle in handles:
            entry = self._entry(handle, self._at_start(handle, layers, {}))
            if entry is not None:
                yield None, handle, entry
