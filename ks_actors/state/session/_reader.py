"""The reader of session stores."""

from __future__ import annotations

import heapq
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from ks_actors.records import Window
from ks_actors.state.core import MISSING, NotingReader, check_ms, step
from ks_actors.state.session._store import SessionStore
from ks_actors.state.timed import ENDS, LATEST, SEGMENT, SHIFT, into_chunks, merged, stored_of_key

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from ks_actors.state.core import Entry, Row, Rows
    from ks_actors.state.timed import Found

Bounds = tuple[bytes, bytes]
_first: Final = itemgetter(0)


class SessionReader(NotingReader[SessionStore[Any, Any]]):
    """A reader of a session store. Each row has a key and a `Window`.

    Sessions that have expired as of the last commit, or as of now, are invisible.
    """

    def _limit(self, *, committed: bool) -> int:
        store = self.store
        limit: int = store._committed - store._retention if committed else store._limit
        return limit

    def get(self, key: Any, start: int, end: int, *, committed: bool) -> Entry | None:
        """Return the entry of one session."""
        check_ms(self.store.name, start, end)
        handle = (self._index(key), end << SHIFT | start)
        return (
            None
            if end <= self._limit(committed=committed)
            else self._entry(handle, self._value(handle, committed=committed))
        )

    def find(
        self, key: Any, earliest_end: int, latest_start: int, *, committed: bool, reverse: bool
    ) -> Rows:
        """Iterate over a key's sessions that overlap with a span.

        The order is that of the store's `find_sessions`, forward or in reverse.
        """
        check_ms(self.store.name, earliest_end, latest_start)
        store, index = self.store, self._index(key)
        first = max(earliest_end, self._limit(committed=committed) + 1, 0)
        low = first << SHIFT
        found = {}
        for slot in store._tracks.get(index, ()):
            if slot >= low and slot & LATEST <= latest_start:
                value = self._value((index, slot), committed=committed)
                if value is not MISSING:
                    found[slot] = value
        stored = self._stored_of(index, first, store._low, latest_start, reverse=reverse)
        rows = self._started(
            [], iter(()), self._rows_of(key, index, found, stored, reverse=reverse)
        )
        rows.looking = False
        return rows

    def _stored_of(
        self, index: Any, first: int, stop: int, latest_start: int, *, reverse: bool
    ) -> Iterator[tuple[int, bytes]]:
        """Return slot and value of a key's sessions on disk, as of now.

        They end from `first` to before `stop`.
        """
        store = self.store
        rows = stored_of_key(
            store, store._codec.index_bytes(index), (first, stop), ENDS, reverse=reverse
        )
        return (
            (end << SHIFT | start, data) for (end, start), data in rows if start <= latest_start
        )

    def _rows_of(
        self,
        key: Any,
        index: Any,
        found: dict[int, Any],
        stored: Iterator[tuple[int, bytes]],
        *,
        reverse: bool,
    ) -> Generator[Row, None, None]:
        from_engine, order = self.store._codec.from_engine, self._slot_order
        below = (
            (order(slot), slot, from_engine(data)) for slot, data in stored if slot not in found
        )
        memory = sorted(
            ((order(slot), slot, value) for slot, value in found.items()),
            key=_first,
            reverse=reverse,
        )
        for place, slot, value in heapq.merge(memory, below, key=_first, reverse=reverse):
            entry = self._entry((index, slot), value)
            if entry is not None:
                yield place, (key, Window(slot & LATEST, slot >> SHIFT)), entry

    def _slot_order(self, slot: int) -> Any:
        return slot if self.store._segmented else (slot >> SHIFT, -(slot & LATEST))

    def find_range(
        self, keys: Bounds, earliest_end: int, latest_start: int, *, committed: bool, reverse: bool
    ) -> Rows:
        """Iterate over the sessions of a range of keys (see `bounds`).

        The order is that of the store's `find_sessions_range`, forward or in reverse.
        """
        check_ms(self.store.name, earliest_end, latest_start)
        first = max(earliest_end, self._limit(committed=committed) + 1, 0)
        layers: list[dict[Any, Any]] = []
        overlay = {} if committed else self._uncommitted()
        chunks: list[list[Found]] = []
        wanted = _Wanted(keys, first, latest_start)
        rows = self._started(
            layers,
            iter(()),
            self._rows(chunks, self._stored(wanted, reverse=reverse), reverse=reverse),
        )
        rows.steps = self._look_through(rows, wanted, layers, overlay, chunks)
        return rows

    def bounds(self, low: Any, high: Any) -> Bounds:
        """Return the byte range of the keys from `low` to `high`, both included.

        The end of the byte range is exclusive; an empty end is no bound.
        """
        first = b"" if low is None else self.key_bytes(low)
        end = b"" if high is None else self.key_bytes(high) + b"\0"
        return first, first if end and end <= first else end

    def _place(self, encoded: bytes, slot: int) -> Any:
        """Return the sort key of a session among those of many keys."""
        return self.store.row_order((encoded, slot & LATEST, slot >> SHIFT, None))

    def _stored(self, wanted: _Wanted, *, reverse: bool) -> Iterator[Found]:
        """Return the sessions on disk, as of now."""
        store, engine, stop = self.store, self.store.engine, self.store._low
        if engine is None or wanted.first >= stop:
            return iter(())
        low, high = (
            SEGMENT.pack(wanted.first // store.segment_ms),
            SEGMENT.pack((stop - 1) // store.segment_ms + 1),
        )
        return self._read(
            engine.scan(store.prefix + low, store.prefix + high, reverse=reverse), wanted, stop
        )

    def _read(
        self, stored: Iterator[tuple[bytes, bytes]], wanted: _Wanted, stop: int
    ) -> Generator[Found, None, None]:
        codec, cut = self.store._codec, len(self.store.prefix) + SEGMENT.size
        for name, data in stored:
            end, start = ENDS.unpack_from(name, len(name) - ENDS.size)
            encoded, slot = name[cut : -ENDS.size], end << SHIFT | start
            if end < stop and wanted.admits(encoded, slot):
                yield (
                    self._place(encoded, slot),
                    (codec.index_key(encoded), slot),
                    codec.from_engine(data),
                )

    def _look_through(
        self,
        rows: Rows,
        wanted: _Wanted,
        layers: list[dict[Any, Any]],
        overlay: dict[Any, Any],
        chunks: list[list[Found]],
    ) -> Generator[None, None, None]:
        """Find and sort the sessions in memory, in pieces."""
        store, encode = self.store, self.store._codec.index_bytes
        handles = chain(
            (
                (index, slot)
                for index in list(store._tracks)
                for slot in list(store._tracks.get(index, ()))
            ),
            overlay,  # rolled-back sessions are no longer in the tracks
        )

        def found() -> Iterator[Found | None]:
            for handle in handles:
                encoded = encode(handle[0])
                if (
                    wanted.admits(encoded, handle[1])
                    and (value := self._at_start(handle, layers, overlay)) is not MISSING
                ):
                    yield self._place(encoded, handle[1]), handle, value
                else:
                    yield None

        yield from into_chunks(found(), chunks, step())
        rows.looking = False

    def _rows(
        self, chunks: list[list[Found]], below: Iterator[Found], *, reverse: bool
    ) -> Generator[Row, None, None]:
        """Iterate over the rows of `merged`."""
        codec = self.store._codec
        for place, handle, value in merged(chunks, below, reverse=reverse):
            entry = self._entry(handle, value)
            if entry is not None:
                index, slot = handle
                yield (
                    place,
                    (
                        index if codec.faithful else codec.object_key(index),
                        Window(slot & LATEST, slot >> SHIFT),
                    ),
                    entry,
                )


class _Wanted:
    """The filter of a session query."""

    __slots__ = ("_end", "_latest_start", "_low", "_start", "first")

    def __init__(self, keys: Bounds, first: int, latest_start: int) -> None:
        self.first: int = first
        self._start, self._end = keys
        self._low = first << SHIFT
        self._latest_start = latest_start

    def admits(self, encoded: bytes, slot: int) -> bool:
        """Return whether a session matches."""
        return (
            slot >= self._low
            and slot & LATEST <= self._latest_start
            and encoded >= self._start
            and (not self._end or encoded < self._end)
        )
