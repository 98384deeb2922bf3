"""The reader of versioned stores."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from ks_actors.records import VersionedRecord
from ks_actors.state.core import Reader, instant
from ks_actors.state.versioned._codec import TOMBSTONE
from ks_actors.state.versioned._store import VersionedKeyValueStore

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import datetime

    from ks_actors.state.core import Row, Rows


class VersionedReader(Reader[VersionedKeyValueStore[Any, Any]]):
    """A reader of a versioned store.

    It reads all versions of a key in one go, so commits need not note replaced values for it.
    """

    def _record(
        self, index: Any, times: list[int], place: int, *, committed: bool
    ) -> VersionedRecord[Any] | None:
        store, handle = self.store, (index, times[place])
        entry = store.shown(handle, store.view(committed=committed)(handle))
        if entry is None or entry[0] is TOMBSTONE:
            return None
        return VersionedRecord(
            entry[0], entry[1], times[place + 1] if place + 1 < len(times) else None
        )

    def get(
        self, key: Any, as_of: int | datetime | None, *, committed: bool
    ) -> VersionedRecord[Any] | None:
        """Return the latest version of a key, or the version valid at `as_of`."""
        as_of = instant(self.store.name, as_of)
        index = self._index(key)
        times = self.store.found(index, committed=committed)
        place = len(times) if as_of is None else bisect_right(times, as_of)
        if place == 0 or (
            place < len(times)
            and as_of is not None
            and as_of < self.store.limit(committed=committed)
        ):
            return None
        return self._record(index, times, place - 1, committed=committed)

    def versions(
        self,
        key: Any,
        time_from: int | datetime | None,
        time_to: int | datetime | None,
        *,
        committed: bool,
        reverse: bool,
    ) -> list[VersionedRecord[Any]]:
        """Return the versions of a key that were valid at some time from `time_from` to `time_to`.

        Both ends are included; None means no bound. The earliest version comes first, with
        `reverse` the latest.
        """
        time_from, time_to = instant(self.store.name, time_from), instant(self.store.name, time_to)
        index = self._index(key)
        times = self.store.found(index, committed=committed)
        limit = self.store.limit(committed=committed)
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
        return self._started(layers, iter(()), self._all(self.store.in_memory(), layers))

    def _all(self, handles: list[Any], layers: list[dict[Any, Any]]) -> Generator[Row, None, None]:
        for handle in handles:
            entry = self.store.shown(handle, self.store.read_as_of(handle, layers))
            if entry is not None:
                yield None, handle, entry
