"""The data of a window store, by key, then start."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ks_actors.state.core import BY_KEY_AND_START, MISSING
from ks_actors.state.timed import WINDOWS, TimedStore, load
from ks_actors.state.window._ranges import closed_entries, fetched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ks_actors._errors import SerializationError
    from ks_actors.state.core import Codec, Engine, Entry
    from ks_actors.topology import StoreSpec

K = TypeVar("K")
_FEW = 8


class WindowsByKey(TimedStore, Generic[K]):
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
        super().__init__(codec, engine, prefix, record_time, spec, expired, WINDOWS)
        self.window_size_ms: int = spec.window_size_ms

    # One window.

    def get_entry(self, key: K, start: int) -> Entry | None:
        """Return the entry of one window."""
        index: Any = key if self._faithful else self._codec.key(key)
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

        Raises SerializationError, with nothing changed, when it cannot be written.
        """
        kept = entry
        if entry is not None:
            value = entry[0]
            # Most aggregates are ints that the serde takes: these need no check by a call.
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
        # A rollback goes back to the value before the first put: later ones have nothing to note.
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

    # The kernel counts in dicts by window, and here they are by key.
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
        index: Any = key if self._faithful else self._codec.key(key)
        first = max(time_from, self._limit + 1)
        if time_to < first:
            return []
        if first < self._low and self.engine is not None and index not in self._loaded:
            load(self, self.engine, index)
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

    # The hooks of Transactional.

    def _entries(self) -> tuple[dict[Any, Any], int] | None:
        return self._tracks, BY_KEY_AND_START

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
        return fetched(self, self._slots, time_from, time_to, by_time=by_time)

    def closed_entries(
        self, time_from: int, time_to: int
    ) -> list[tuple[Any, int, Entry | SerializationError]]:
        """Return `fetch_all_entries`, with a SerializationError in place of an unreadable entry.

        For operators. An unreadable key is None.
        """
        return closed_entries(self, self._slots, time_from, time_to)

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
