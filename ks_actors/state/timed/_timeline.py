"""The common part of window readers: scans of windows on disk, merged with memory in order."""

from __future__ import annotations

import heapq
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

from ks_actors.state.timed._slot_form import SEGMENT, SUFFIX
from ks_actors.state.timed._timed_store import SEQUENCE_BITS, SEQUENCE_MASK

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from struct import Struct

    from ks_actors.state.core import Entry, Row, StoreForTasks
    from ks_actors.state.join_window import JoinWindowRows
    from ks_actors.state.window import WindowsByKey, WindowsByStart

W = TypeVar("W", bound="WindowsByKey[Any] | WindowsByStart[Any] | JoinWindowRows")
Found = tuple[Any, Any, Any]
"""The sort key of a window, its key and slot, and its value in memory or its bytes."""
_first: Final = itemgetter(0)


@final
class Timeline(Generic[W]):
    """The windows of one store.

    A slot is a window's start; with `duplicates`, it combines start and sequence number.
    """

    __slots__ = ("duplicates", "store")

    def __init__(self, store: W, *, duplicates: bool) -> None:
        self.store: W = store
        self.duplicates: bool = duplicates

    def limit(self, *, committed: bool) -> int:
        """Return the latest expired start, as of the last commit or as of now."""
        store = self.store
        limit: int = store._committed - store._retention if committed else store._limit
        return limit

    def slot(self, start: int, sequence: int) -> int:
        """Return the slot of a start and a sequence number."""
        return start << SEQUENCE_BITS | sequence if self.duplicates else start

    def start(self, slot: int) -> int:
        """Return the start of a slot."""
        return slot >> SEQUENCE_BITS if self.duplicates else slot

    def place(self, handle: tuple[Any, int]) -> Any:
        """Return the sort key of a window."""
        store, (index, slot) = self.store, handle
        start, sequence = (
            (slot >> SEQUENCE_BITS, slot & SEQUENCE_MASK) if self.duplicates else (slot, 0)
        )
        encoded = store._codec.index_bytes(index)
        if store._segmented:
            return SEGMENT.pack(start // store.segment_ms) + encoded + SUFFIX.pack(start, sequence)
        return start, encoded, sequence

    # Windows on disk, as of now.

    def stored_of(
        self, index: Any, first: int, stop: int, *, reverse: bool
    ) -> Iterator[tuple[int, bytes]]:
        """Return slot and value of a key's windows that start from `first` to before `stop`."""
        store = self.store
        rows = stored_of_key(
            store, store._codec.index_bytes(index), (first, stop), SUFFIX, reverse=reverse
        )
        return ((self.slot(start, sequence), data) for (start, sequence), data in rows)

    def stored(self, first: int, stop: int, *, reverse: bool) -> Iterator[Found]:
        """Return all windows that start from `first` to before `stop`."""
        store, engine = self.store, self.store.engine
        if engine is None or first >= stop:
            return iter(())
        low, high = (
            SEGMENT.pack(first // store.segment_ms),
            SEGMENT.pack((stop - 1) // store.segment_ms + 1),
        )
        return self._read(
            engine.scan(store.prefix + low, store.prefix + high, reverse=reverse), first, stop
        )

    def _read(
        self, stored: Iterator[tuple[bytes, bytes]], first: int, stop: int
    ) -> Generator[Found, None, None]:
        codec, head = self.store._codec, len(self.store.prefix)
        cut = head + SEGMENT.size
        for name, data in stored:
            start, sequence = SUFFIX.unpack_from(name, len(name) - SUFFIX.size)
            if first <= start < stop:
                yield (
                    name[head:],
                    (codec.index_key(name[cut : -SUFFIX.size]), self.slot(start, sequence)),
                    codec.from_engine(data),
                )

    # Rows.

    def rows_of(
        self,
        key: Any,
        index: Any,
        found: dict[int, Any],
        stored: Iterator[tuple[int, bytes]],
        entry_of: Callable[[tuple[Any, int], Any], Entry | None],
        *,
        reverse: bool,
    ) -> Generator[Row, None, None]:
        """Iterate over a key's windows: those `found` in memory, in order, and those `stored`."""
        from_engine = self.store._codec.from_engine
        below = ((slot, from_engine(data)) for slot, data in stored if slot not in found)
        memory = reversed(found.items()) if reverse else iter(found.items())
        for slot, value in heapq.merge(memory, below, key=_first, reverse=reverse):
            entry = entry_of((index, slot), value)
            if entry is not None:
                yield slot, (key, self.start(slot)), entry

    def rows(
        self,
        chunks: list[list[Found]],
        below: Iterator[Found],
        entry_of: Callable[[tuple[Any, int], Any], Entry | None],
        *,
        reverse: bool,
    ) -> Generator[Row, None, None]:
        """Iterate over the rows of `merged`."""
        codec = self.store._codec
        for place, handle, value in merged(chunks, below, reverse=reverse):
            entry = entry_of(handle, value)
            if entry is not None:
                index, slot = handle
                yield (
                    place,
                    (index if codec.faithful else codec.object_key(index), self.start(slot)),
                    entry,
                )


def stored_of_key(
    store: StoreForTasks,
    encoded: bytes,
    span: tuple[int, int],
    suffix: Struct,
    *,
    reverse: bool,
) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Return the suffix and the bytes of a key's rows on disk, in order, as of now.

    `encoded` is the key as bytes. `span` is the times, the second one excluded, by which the store
    makes segments. They are the first part of the `suffix`.
    """
    engine, (first, stop) = store.engine, span
    if engine is None or first >= stop:
        return iter(())
    scans = []
    # One scan per segment: keys on disk begin with the segment, so a key's rows lie apart.
    for segment in range(first // store.segment_ms, (stop - 1) // store.segment_ms + 1):
        base = store.prefix + SEGMENT.pack(segment) + encoded
        since, until = (
            max(first, segment * store.segment_ms),
            min(stop, (segment + 1) * store.segment_ms),
        )
        scans.append(
            engine.scan(base + suffix.pack(since, 0), base + suffix.pack(until, 0), reverse=reverse)
        )
    if reverse:
        scans.reverse()
    # A scan may also meet longer keys that begin with this one.
    size = len(store.prefix) + SEGMENT.size + len(encoded)
    return (
        (suffix.unpack_from(name, size), data)
        for name, data in chain.from_iterable(scans)
        if len(name) == size + suffix.size
    )


def merged(
    chunks: list[list[Found]], below: Iterator[Found], *, reverse: bool
) -> Generator[Found, None, None]:
    """Iterate over the sorted `chunks` merged with `below`, and use up the chunks.

    Rows in memory take precedence over rows on disk.
    """
    last = None
    for chunk in chunks if not reverse else ():
        # `used_up` takes from the end, because a list gives back its last item in constant time.
        chunk.reverse()
    for found in heapq.merge(*map(used_up, chunks), below, key=_first, reverse=reverse):
        # The merge is stable, so the row in memory comes before the one on disk.
        if found[0] != last:
            last = found[0]
            yield found


def into_chunks(
    found: Iterator[Found | None], chunks: list[list[Found]], size: int
) -> Generator[None, None, None]:
    """Collect the found windows in sorted chunks.

    Take one step for each `size` windows, found or not.
    """
    part: list[Found] = []
    for looked, one in enumerate(found, 1):
        if one is not None:
            part.append(one)
        if not looked % size:
            part.sort(key=_first)
            chunks.append(part)
            part = []
            yield
    part.sort(key=_first)
    chunks.append(part)


def used_up(part: list[Found]) -> Iterator[Found]:
    """Iterate over a list from its end and pop each item.

    Popping avoids a long pause at the end to free a long list.
    """
    while part:
        yield part.pop()
