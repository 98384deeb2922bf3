"""The data of a window store with windows that all keys share."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.state.core import BY_START_AND_KEY, MISSING, SLICE, Closed
from ks_actors.state.timed import VISITS, TimedStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.state.core import Entry, StoreParts
    from ks_actors.topology import StoreSpec

K = TypeVar("K")
Pane = dict[Any, Any]
"""The values of one window, by key."""

MANY: Final = 10_000
"""With so many concurrent windows, a search for one key's windows takes too long."""


def has_panes(spec: StoreSpec) -> bool:
    """Return whether a window store should be kept window by window."""
    return spec.advance_ms > 0 and spec.retention_ms // spec.advance_ms <= MANY


class WindowsByStart(TimedStore, Generic[K]):
    """Windows with starts shared by all keys (tumbling, hopping): entries by start, then key.

    It does what `WindowsByKey` does, with another layout in memory.

    Most records find their window in the dict of the current window. So a window costs one entry in
    that dict and no dict per key, and an expired window is freed as a whole. To find the windows of
    one key, each window in the time range is searched.
    """

    def __init__(self, parts: StoreParts) -> None:
        super().__init__(parts)
        self._panes: dict[int, Pane] = {}
        self._order: list[int] = []  # the starts of the windows, in order
        self._let_go: deque[Pane] = deque()  # expired windows, freed bit by bit

    def _pane(self, start: int) -> Pane:
        pane = self._panes.get(start)
        if pane is None:
            pane = self._panes[start] = {}
            insort(self._order, start)
        return pane

    # One window.

    def get_entry(self, key: K, start: int) -> Entry | None:
        """Return the entry of one window."""
        index: Any = key if self._faithful else self.codec.key(key)
        pane = self._panes.get(start)
        if self._simple:
            value = MISSING if pane is None else pane.get(index, MISSING)
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
        pane = self._panes.get(start)
        if pane is None:
            pane = self._pane(start)
        handle = (index, start)
        # A rollback goes back to the value before the first put: later puts have nothing to note.
        if handle not in self._dirty:
            old = pane.get(index, MISSING)
            if old is MISSING:
                self.codec.check_key(index)
                self._resident += 1
            self._dirty[handle] = old
            if self._sized_keys:
                self._size += len(index)
        elif self._sized:
            self._uncount(pane[index])
        pane[index] = kept
        if kept is None:
            self._deleted[handle] = self._time()
        elif self._sized:
            self._count(kept)

    @property
    def counts(self) -> bool:
        """Whether `count_up` is supported.

        `count_up` needs the kernel, faithful keys, and immutable values of fixed size.
        """
        return HAS_KERNEL and self._faithful and self._simple and not self._sized

    def count_up(
        self,
        windows: dict[int, Any],
        keys: list[Any],
        timestamps: list[int],
        first: int,
        out: tuple[list[Any], list[Any], list[int], bool],
        clock: tuple[int, int, int],
    ) -> tuple[int, int]:
        """Count each plain record, as one `get_entry` and one `put_entry` would.

        Return the index of the first record that was not counted, and stream time. Windows do not
        overlap; `clock` is stream time, grace and window size. See `count_windows` in
        `_kernel.pyi`.
        """
        if type(self._panes) is not dict:  # a closed store raises on the record-by-record path
            return first, clock[0]
        store = (self._panes, self._dirty, windows, MISSING)
        numbers = (*clock, self._observed, self._retention, self._low)
        stop, now, observed, added, size = _kernel.count_windows(
            store, keys, timestamps, first, out, numbers
        )
        if observed > self._observed:
            self._observed, self._limit = observed, observed - self._retention
        self._resident += added
        if self._sized_keys:
            self._size += size
        if self._due:
            self.sweep(2 * added)  # growth pays for eviction: each new entry sweeps two others
        return stop, now

    # Time ranges.

    def _within(self, first: int, last: int) -> list[int]:
        order = self._order
        if not order:
            self._panes.get(first)  # raises StoreClosed if the store is closed
        return order[bisect_left(order, first) : bisect_left(order, last + 1)]

    def fetch_entries(self, key: K, time_from: int, time_to: int) -> list[tuple[int, Entry]]:
        """Return start and entry of the windows of `key` in a time range, in time order.

        They start from `time_from` to `time_to`, both included.
        """
        panes: dict[int, Pane] = self._panes
        index: Any = key if self._faithful else self.codec.key(key)
        first = max(time_from, self._limit + 1)
        if (
            first < self._low
            and time_to >= first
            and self.engine is not None
            and index not in self._loaded
        ):
            self._load(index)
        found = []
        for start in self._within(first, time_to):
            value = panes[start].get(index)
            entry = None if value is None else self._entry_of(index, start, value)
            if entry is not None:
                found.append((start, entry))
        return found

    def _rows_between(self, first: int, last: int) -> Iterator[tuple[Any, int, Any]]:
        for start in self._within(first, last):
            yield from ((index, start, value) for index, value in self._panes[start].items())

    def slots_of(self, index: Any) -> list[int]:
        """Return the starts of a key's windows in memory. For queries."""
        return [start for start in self._order if index in self._panes[start]]

    def handles(self) -> Iterator[tuple[Any, int]]:
        """Iterate over key and start of all windows in memory, which may change meanwhile.

        For queries.
        """
        for start in list(self._order):
            yield from [(index, start) for index in self._panes.get(start, ())]

    # The hooks of Transactional.

    def _now(self, handle: tuple[Any, int]) -> Any:
        pane = self._panes.get(handle[1])
        return MISSING if pane is None else pane.get(handle[0], MISSING)

    def _set(self, index: Any, slot: int, value: Any) -> None:
        pane = self._pane(slot)
        if index not in pane:
            self._resident += 1
        pane[index] = value

    def _put_back(self, handle: tuple[Any, int], value: Any) -> None:
        if value is MISSING:
            self._take_out(*handle)
        else:
            self._pane(handle[1])[handle[0]] = value

    def _take_out(self, index: Any, slot: int) -> None:
        pane = self._panes.get(slot)
        if pane is not None and pane.pop(index, MISSING) is not MISSING:
            self._resident -= 1

    def _entries(self) -> tuple[dict[Any, Any], int] | None:
        return self._panes, BY_START_AND_KEY

    def _dicts(self) -> tuple[dict[Any, dict[Any, Any]], bool]:
        return self._panes, True

    # Memory and disk.

    def _expire(self) -> None:
        """Remove expired windows from view.

        The open transaction has none of them: such puts are rejected as late.
        """
        super()._expire()
        limit, order = self._committed - self._retention, self._order
        if not order or order[0] > limit or self._looked_at():
            return
        gone = bisect_left(order, limit + 1)
        for start in order[:gone]:
            pane = self._panes.pop(start)
            self._resident -= len(pane)
            self._due += len(pane)
            self._let_go.append(pane)
        del order[:gone]

    def sweep(self, visits: int) -> None:
        """Free some expired windows; freeing all at once would take long."""
        super().sweep(visits)
        gone = self._let_go
        while gone and visits > 0:
            pane = gone[0]
            count = min(visits, len(pane))
            for _ in range(count):
                pane.popitem()
            visits -= max(1, count)
            self._due -= count
            if not pane:
                gone.popleft()

    def evict(self) -> Iterator[None]:
        """Raise the low-water mark when memory is over its limit; evict older windows on disk."""
        if self._resident > self.resident_records:
            oldest = max(self._low, self._committed - self._retention, 0)
            # The older half of the time leaves memory: newer windows are read and put far more
            # often.
            self._low = (oldest + self._committed) // 2 + 1
            self._loaded = set()
        for start in self._within(0, self._low - 1) if self.engine is not None else ():
            indexes = list(self._panes.get(start, ()))
            for first in range(0, len(indexes), VISITS):
                while not self.compact(SLICE):
                    yield
                if self._looked_at():
                    return
                self._evict(start, indexes[first : first + VISITS])
                yield
        while (self._let_go or self._stale) and not self._looked_at():
            self.sweep(SLICE)
            yield

    def _evict(self, start: int, indexes: list[Any]) -> None:
        for index, slot in self._clean([(index, start) for index in indexes]):
            self._take_out(index, slot)
            self._loaded.discard(index)

    def close(self) -> None:
        """Release the memory; every later use raises StoreClosed."""
        super().close()
        self._panes = Closed(self.name)
        self._order = []
        self._let_go.clear()
