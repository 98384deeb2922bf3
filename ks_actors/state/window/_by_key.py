"""The data of a window store, by key, then start."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ks_actors.state.core import BY_KEY_AND_START, MISSING
from ks_actors.state.timed import TimedStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.state.core import Entry

K = TypeVar("K")
_FEW = 8


class WindowsByKey(TimedStore, Generic[K]):
    """Entries by key and window start (ms).

    `get_entry`, `put_entry` and `fetch_entries` are for operators.
    """

    # One window.

    def get_entry(self, key: K, start: int) -> Entry | None:
        """Return the entry of one window."""
        index: Any = key if self._faithful else self.codec.key(key)
        track = self._tracks.get(index)
        if self._simple:
            value = MISSING if track is None else track.get(start, MISSING)
            # The usual case, without a call: an entry in memory that has not expired.
            if type(value) is tuple and start > self._limit:
                return value
            if value is MISSING and start >= self._low:
                return None  # all windows that recent are in memory
        return self._other_entry(index, start, start)

    def put_entry(self, key: K, start: int, entry: Entry | None) -> None:
        """Set the entry of one window; None deletes it.

        Raises SerializationError, with nothing changed, when the entry cannot be written.
        """
        kept = entry
        if entry is not None:
            value = entry[0]
            # Most aggregates are ints that the serde accepts, which are checked without a call.
            if type(value) is not int or not self._least <= value < self.bound:
                kept = self._as_kept(key, entry)
        if start > self._observed:
            self._observed = start
            self._limit = start - self._retention
        if start <= self._limit:
            self._late(start)
            return
        index: Any = key if self._faithful else self.codec.key(key)
        track = self._tracks.get(index)
        if track is None:
            self.codec.check_key(index)
            track = self._track(index)
        handle = (index, start)
        # A rollback goes back to the value before the first put: later puts have nothing to note.
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

    # The kernel counts in dicts by window; the dicts of this store are by key.
    count_up: None = None

    @property
    def counts(self) -> bool:
        """Whether `count_up` is supported."""
        return False

    # Time ranges of one key.

    def fetch_entries(self, key: K, time_from: int, time_to: int) -> list[tuple[int, Entry]]:
        """Return start and entry of the windows of `key` in a time range, in time order.

        They start from `time_from` to `time_to`, both included.
        """
        index: Any = key if self._faithful else self.codec.key(key)
        first = max(time_from, self._limit + 1)
        if time_to < first:
            return []
        if first < self._low and self.engine is not None and index not in self._loaded:
            self._load(index)
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
        simple = not self.mutable
        found = []
        for slot in slots:
            entry = track[slot]
            if type(entry) is not tuple or not simple:
                entry = self._entry_of(index, slot, entry)
                if entry is None:
                    continue
            found.append((slot, entry))
        return found

    # The hooks of Transactional.

    def _entries(self) -> tuple[dict[Any, Any], int] | None:
        return self._tracks, BY_KEY_AND_START

    # All keys.

    def _rows_between(self, first: int, last: int) -> Iterator[tuple[Any, int, Any]]:
        starts, tracks = self._starts, self._tracks
        if starts is None:
            starts = self._starts = {}
            for index, track in tracks.items():
                for start in track:
                    starts.setdefault(start, {})[index] = None
        gone = self._committed - self._retention
        for start in list(starts):
            if start <= gone:
                del starts[start]
            elif first <= start <= last:
                for index in starts[start]:
                    # a key stays under a start when its window is taken out
                    if (found := tracks.get(index)) is not None and start in found:
                        yield index, start, found[start]
