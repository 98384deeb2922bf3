"""What queries see of a store: what is committed, or all there is. Nothing is changed by looking, and nothing handed out is the store's own."""

from __future__ import annotations

import heapq
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from ks_actors.state._engine import after
from ks_actors.state._key_value import KeyValueBase
from ks_actors.state._rows import Row, Rows
from ks_actors.state._tracks import SEGMENT, SEQUENCE_BITS, SEQUENCE_MASK, SUFFIX
from ks_actors.state._transaction import MISSING
from ks_actors.state._window_store import WindowBase

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from ks_actors.state._codec import Entry
    from ks_actors.state._order import Pair
    from ks_actors.state._transaction import Transactional

S = TypeVar("S", bound="Transactional[Any]")
Found = tuple[Any, Any, Any]
"""What windows are in the order of, key and slot, and the value in memory or its bytes."""

MANY: Final = 2000
"""Keys that are put in order in one go, at most."""
STEP: Final = 500
"""Keys that are looked at in one step, about half a millisecond."""
_first: Final = itemgetter(0)


class Reader(Generic[S]):
    """What both kinds of stores have in common."""

    def __init__(self, store: S) -> None:
        self.store: S = store

    @property
    def name(self) -> str:
        """The store's name."""
        return self.store.name

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes of a key, which keys are ordered and partitioned by."""
        if key is None:
            raise TypeError(f"store {self.store.name}: a key cannot be None")
        encoded: bytes = self.store._codec.key(key)
        return encoded

    def _index(self, key: Any) -> Any:
        encoded = self.key_bytes(key)
        return key if self.store._codec.faithful else encoded

    def _value(self, handle: Any, *, committed: bool) -> Any:
        return self.store._committed_value(handle) if committed else self.store._now(handle)

    def _entry(self, handle: Any, value: Any) -> Entry | None:
        """Return the entry behind a value of the view or of the notes; one that may be changed in place is a copy."""
        if value is MISSING:
            value = self.store.below(handle)
        if value is None:
            return None
        if type(value) is tuple:
            if not self.store._mutable:
                return value
            value = self.store._raw(handle, value)
        return self.store._codec.entry(value)

    def _uncommitted(self) -> dict[Any, Any]:
        """Return the values of all that was put since the last commit."""
        store = self.store
        return {handle: store._now(handle) for source in (store._frozen, store._dirty) for handle in source}

    def _at_start(self, handle: Any, layers: list[dict[Any, Any]], overlay: dict[Any, Any]) -> Any:
        """Return the value that a handle had when the reader began."""
        if handle in overlay:
            return overlay[handle]
        for layer in layers:
            if handle in layer:
                return layer[handle]
        return self.store._committed_value(handle)

    def _started(self, layers: list[dict[Any, Any]], steps: Iterator[None], rows: Generator[Row, None, None]) -> Rows:
        found = Rows(layers, steps, rows)
        self.store.readers.add(found)
        return found


class KeyValueReader(Reader[KeyValueBase[Any, Any]]):
    """Reads a key-value store."""

    def get(self, key: Any, *, committed: bool) -> Entry | None:
        """Return the entry of a key."""
        index = self._index(key)
        return self._entry(index, self._value(index, committed=committed))

    def prepare(self) -> Iterator[None]:
        """Put keys in order, as far as they are not, a step at a time, before a scan."""
        store = self.store
        while (order := store._arranged()).missing > MANY:
            order.place(STEP)
            yield

    def bounds(self, low: Any, high: Any) -> tuple[bytes, bytes]:
        """Return the bytes of the keys from `low` to `high`, both included: the first one, and what is behind the last one."""
        first = b"" if low is None else self.key_bytes(low)
        end = b"" if high is None else self.key_bytes(high) + b"\0"
        return first, first if end and end <= first else end

    def prefix_bounds(self, prefix: Any, serializer: Callable[[Any], bytes] | None) -> tuple[bytes, bytes]:
        """Return the bytes of the first key with a prefix, and what is behind the last one."""
        first = (serializer or self.key_bytes)(prefix)
        return first, after(first)

    def scan(self, low: bytes, high: bytes, *, committed: bool, reverse: bool) -> Rows:
        """Iterate over the keys whose bytes are from `low` to before `high` (nothing: the end), as they are now."""
        store = self.store
        order = store._arranged()
        order.place(order.missing)
        nothing = bool(high) and high <= low
        overlay: dict[Any, Any] = {}
        if not committed and not nothing:
            dirty, frozen = store._dirty, store._frozen
            if order.about(low, high) < len(dirty) + len(frozen):
                overlay = {index: store._now(index) for _, index in order.within(low, high) if index in dirty or index in frozen}
            else:
                overlay = self._uncommitted()
        # The order never loses a key: those that there are now are met, and those that are new had nothing.
        pairs = order.walk(low, high, reverse=reverse)
        prefix = store.prefix
        stored: Iterator[tuple[bytes, bytes]] = iter(())
        if store.engine is not None and not nothing:
            stored = store.engine.scan(prefix + low, prefix + high if high else after(prefix), reverse=reverse)
        layers: list[dict[Any, Any]] = []
        return self._started(layers, iter(()), self._rows(pairs, stored, layers, overlay, reverse=reverse))

    def _rows(
        self,
        pairs: Iterator[Pair],
        stored: Iterator[tuple[bytes, bytes]],
        layers: list[dict[Any, Any]],
        overlay: dict[Any, Any],
        *,
        reverse: bool,
    ) -> Generator[Row, None, None]:
        codec, cut = self.store._codec, len(self.store.prefix)
        read_key, faithful = codec.object_key, codec.faithful
        row = next(stored, None)
        for encoded, index in pairs:
            while row is not None and ((name := row[0][cut:]) > encoded if reverse else (name := row[0][cut:]) < encoded):
                yield name, read_key(name), codec.entry(codec.from_engine(row[1]))
                row = next(stored, None)
            if row is not None and row[0][cut:] == encoded:
                row = next(stored, None)
            entry = self._entry(index, self._at_start(index, layers, overlay))
            if entry is not None:
                yield encoded, index if faithful else read_key(encoded), entry
        while row is not None:
            name = row[0][cut:]
            yield name, read_key(name), codec.entry(codec.from_engine(row[1]))
            row = next(stored, None)


class WindowReader(Reader[WindowBase[Any, Any]]):
    """Reads a window store. What has expired is not seen, as of the last commit or as of now."""

    def _limit(self, *, committed: bool) -> int:
        store = self.store
        return store._committed - store._retention if committed else store._limit

    def get(self, key: Any, start: int, *, committed: bool) -> Entry | None:
        """Return the entry of one window; of a store with duplicates, what was put last if that was for this window."""
        store, index = self.store, self._index(key)
        if start <= self._limit(committed=committed):
            return None
        handle = (index, start << SEQUENCE_BITS | store._sequence if store._duplicates else start)
        return self._entry(handle, self._value(handle, committed=committed))

    def fetch(self, key: Any, time_from: int, time_to: int, *, committed: bool, reverse: bool) -> Rows:
        """Iterate over the windows of a key that start from `time_from` to `time_to`, both included, by time."""
        store, index = self.store, self._index(key)
        first = max(time_from, self._limit(committed=committed) + 1, 0)
        low, high = (first << SEQUENCE_BITS, (time_to + 1) << SEQUENCE_BITS) if store._duplicates else (first, time_to + 1)
        slots = sorted(slot for slot in store._tracks.get(index, ()) if low <= slot < high)
        found = {slot: value for slot in slots if (value := self._value((index, slot), committed=committed)) is not MISSING}
        stored = self._stored_of(index, first, time_to, reverse=reverse)
        rows = self._started([], iter(()), self._fetched(key, index, found, stored, reverse=reverse))
        rows.looking = False
        return rows

    def _stored_of(self, index: Any, first: int, last: int, *, reverse: bool) -> Iterator[tuple[int, bytes]]:
        """Return slot and value of what may be on disk only."""
        store = self.store
        engine, stop = store.engine, min(last + 1, store._low)
        if engine is None or first >= stop or index in store._loaded:
            return iter(())
        encoded = store._codec.index_bytes(index)
        scans = []
        for segment in range(first // store.segment_ms, (stop - 1) // store.segment_ms + 1):
            base = store.prefix + SEGMENT.pack(segment) + encoded
            since, until = max(first, segment * store.segment_ms), min(stop, (segment + 1) * store.segment_ms)
            scans.append(engine.scan(base + SUFFIX.pack(since, 0), base + SUFFIX.pack(until, 0), reverse=reverse))
        if reverse:
            scans.reverse()
        size = len(store.prefix) + SEGMENT.size + len(encoded)  # longer keys that begin with this one may lie in between

        def slot(name: bytes) -> int:
            start: int
            start, sequence = SUFFIX.unpack_from(name, size)
            return start << SEQUENCE_BITS | sequence if store._duplicates else start

        return ((slot(name), data) for name, data in chain.from_iterable(scans) if len(name) == size + SUFFIX.size)

    def _fetched(
        self, key: Any, index: Any, found: dict[int, Any], stored: Iterator[tuple[int, bytes]], *, reverse: bool
    ) -> Generator[Row, None, None]:
        codec, duplicates = self.store._codec, self.store._duplicates
        below = ((slot, codec.from_engine(data)) for slot, data in stored if slot not in found)
        memory = reversed(found.items()) if reverse else iter(found.items())
        for slot, value in heapq.merge(memory, below, key=_first, reverse=reverse):
            entry = self._entry((index, slot), value)
            if entry is not None:
                start = slot >> SEQUENCE_BITS if duplicates else slot
                yield start, (key, start), entry

    def fetch_all(self, time_from: int, time_to: int, *, committed: bool, reverse: bool) -> Rows:
        """Iterate over all windows that start from `time_from` to `time_to`, both included, in the order of the store's `fetch_all`."""
        store = self.store
        first = max(time_from, self._limit(committed=committed) + 1, 0)
        stop = min(time_to + 1, store._low)
        stored: Iterator[tuple[bytes, bytes]] = iter(())
        if store.engine is not None and first < stop:
            base, segment_ms = store.prefix, store.segment_ms
            bounds = base + SEGMENT.pack(first // segment_ms), base + SEGMENT.pack((stop - 1) // segment_ms + 1)
            stored = store.engine.scan(*bounds, reverse=reverse)
        layers: list[dict[Any, Any]] = []
        overlay = {} if committed else self._uncommitted()
        chunks: list[list[Found]] = []
        rows = self._started(layers, iter(()), self._all_fetched(chunks, self._below(stored, first, stop), reverse=reverse))
        rows.steps = self._look_through(rows, (first, time_to), layers, overlay, chunks, reverse=reverse)
        return rows

    def _look_through(
        self,
        rows: Rows,
        times: tuple[int, int],
        layers: list[dict[Any, Any]],
        overlay: dict[Any, Any],
        chunks: list[list[Found]],
        *,
        reverse: bool,
    ) -> Generator[None, None, None]:
        """Find what is in memory, and sort it, in pieces."""
        store, place, (first, last) = self.store, self._place, times
        low, high = (first << SEQUENCE_BITS, (last + 1) << SEQUENCE_BITS) if store._duplicates else (first, last + 1)
        part: list[Found] = []
        looked = 0
        handles = chain(
            ((index, slot) for index in list(store._tracks) for slot in list(store._tracks.get(index, ()))),
            overlay,  # what was rolled back since is not in the tracks any more
        )
        for handle in handles:
            if low <= handle[1] < high and (value := self._at_start(handle, layers, overlay)) is not MISSING:
                part.append((place(handle), handle, value))
            looked += 1
            if looked >= STEP:
                part.sort(key=_first)
                chunks.append(part)
                part, looked = [], 0
                yield
        part.sort(key=_first)
        chunks.append(part)
        if not reverse:
            for part in chunks:
                part.reverse()  # they are used up from their ends
        rows.looking = False

    def _place(self, handle: tuple[Any, int]) -> Any:
        """Return what windows are in the order of."""
        store, (index, slot) = self.store, handle
        start, sequence = (slot >> SEQUENCE_BITS, slot & SEQUENCE_MASK) if store._duplicates else (slot, 0)
        encoded = store._codec.index_bytes(index)
        if store._segmented:
            return SEGMENT.pack(start // store.segment_ms) + encoded + SUFFIX.pack(start, sequence)
        return start, encoded, sequence

    def _all_fetched(self, chunks: list[list[Found]], below: Iterator[Found], *, reverse: bool) -> Generator[Row, None, None]:
        codec, duplicates = self.store._codec, self.store._duplicates
        last = None
        for place, handle, value in heapq.merge(*map(_used_up, chunks), below, key=_first, reverse=reverse):
            if place == last:
                continue  # what is in memory comes before what is on disk
            last = place
            entry = self._entry(handle, value)
            if entry is not None:
                index, slot = handle
                key = index if codec.faithful else codec.object_key(index)
                yield place, (key, slot >> SEQUENCE_BITS if duplicates else slot), entry

    def _below(self, stored: Iterator[tuple[bytes, bytes]], first: int, stop: int) -> Generator[Found, None, None]:
        """Return what is on disk of windows that start from `first` to before `stop`."""
        store = self.store
        head = len(store.prefix)
        cut = head + SEGMENT.size
        for name, data in stored:
            start, sequence = SUFFIX.unpack_from(name, len(name) - SUFFIX.size)
            if first <= start < stop:
                index = store._codec.index_key(name[cut : -SUFFIX.size])
                yield name[head:], (index, start << SEQUENCE_BITS | sequence if store._duplicates else start), store._codec.from_engine(data)


def _used_up(part: list[Found]) -> Iterator[Found]:
    """Iterate over a list from its end, and take what is read out of it: to free all of a long one at the end would take long."""
    while part:
        yield part.pop()


def reader_of(store: Any) -> KeyValueReader | WindowReader | None:
    """Return what reads a store; None when nothing does."""
    if isinstance(store, KeyValueBase):
        return KeyValueReader(store)
    return WindowReader(store) if isinstance(store, WindowBase) else None


AnyReader: TypeAlias = KeyValueReader | WindowReader
