"""The readers of window stores."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from ks_actors.state.core import MISSING, NotingReader, Reader, check_ms, pack_time, step
from ks_actors.state.join_window import JoinWindowLookups, Raw
from ks_actors.state.timed import Found, Timeline, into_chunks
from ks_actors.state.window._by_key import WindowsByKey
from ks_actors.state.window._by_start import WindowsByStart

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from ks_actors.state.core import Entry, Rows

AnyWindows: TypeAlias = WindowsByKey[Any] | WindowsByStart[Any]


class WindowReader(NotingReader[AnyWindows]):
    """A reader of a window store.

    Windows that have expired as of the last commit, or as of now, are invisible.
    """

    def __init__(self, store: AnyWindows) -> None:
        super().__init__(store)
        self._line: Timeline[AnyWindows] = Timeline(store, duplicates=False)

    def get(self, key: Any, start: int, *, committed: bool) -> Entry | None:
        """Return the entry of one window."""
        check_ms(self.store.name, start)
        handle = (self._index(key), start)
        return (
            None
            if start <= self._line.limit(committed=committed)
            else self._entry(handle, self._value(handle, committed=committed))
        )

    def fetch(
        self, key: Any, time_from: int, time_to: int, *, committed: bool, reverse: bool
    ) -> Rows:
        """Iterate over the windows of a key in a time range, by time.

        They start from `time_from` to `time_to`, both included.
        """
        check_ms(self.store.name, time_from, time_to)
        store, index, line = self.store, self._index(key), self._line
        first = max(time_from, line.limit(committed=committed) + 1, 0)
        starts = [start for start in store.starts_of(index) if first <= start <= time_to]
        found = {
            start: value
            for start in starts
            if (value := self._value((index, start), committed=committed)) is not MISSING
        }
        stored = line.stored_of(index, first, min(time_to + 1, store._low), reverse=reverse)
        rows = self._started(
            [], iter(()), line.rows_of(key, index, found, stored, self._entry, reverse=reverse)
        )
        rows.looking = False
        return rows

    def fetch_all(self, time_from: int, time_to: int, *, committed: bool, reverse: bool) -> Rows:
        """Iterate over all windows in a time range, in the order of the store's `fetch_all`.

        They start from `time_from` to `time_to`, both included.
        """
        check_ms(self.store.name, time_from, time_to)
        line = self._line
        first = max(time_from, line.limit(committed=committed) + 1, 0)
        stored = line.stored(first, min(time_to + 1, self.store._low), reverse=reverse)
        layers: list[dict[Any, Any]] = []
        overlay = {} if committed else self._uncommitted()
        chunks: list[list[Found]] = []
        rows = self._started(
            layers, iter(()), line.rows(chunks, stored, self._entry, reverse=reverse)
        )
        rows.steps = self._look_through(rows, first, time_to, layers, overlay, chunks)
        return rows

    def _look_through(
        self,
        rows: Rows,
        first: int,
        last: int,
        layers: list[dict[Any, Any]],
        overlay: dict[Any, Any],
        chunks: list[list[Found]],
    ) -> Generator[None, None, None]:
        """Find and sort the windows in memory, in pieces."""
        store, place = self.store, self._line.place
        handles = chain(
            store.handles(),
            overlay,  # rolled-back windows are no longer in the store
        )

        def found() -> Iterator[Found | None]:
            for handle in handles:
                if (
                    first <= handle[1] <= last
                    and (value := self._at_start(handle, layers, overlay)) is not MISSING
                ):
                    yield place(handle), handle, value
                else:
                    yield None

        yield from into_chunks(found(), chunks, step())
        rows.looking = False


class DuplicatesReader(Reader[JoinWindowLookups[Any]]):
    """A reader of a window store with duplicates, in which a put never changes existing rows."""

    def __init__(self, store: JoinWindowLookups[Any]) -> None:
        super().__init__(store)
        self._line: Timeline[JoinWindowLookups[Any]] = Timeline(store, duplicates=True)

    def _entry(self, _: tuple[Any, int], value: Any) -> Entry | None:
        """Return the entry of a value with its time, or of its bytes on disk.

        A mutable entry is a copy.
        """
        codec = self.store._codec
        if type(value) is bytes:
            return codec.entry(value)
        content, time = value
        if content is None:
            return None
        if type(content) is not Raw:
            return (content, time)
        return codec.entry(pack_time(time) + content)

    def get(self, key: Any, start: int, *, committed: bool) -> Entry | None:
        """Return the entry of the very last put, if it was for this window."""
        check_ms(self.store.name, start)
        slot = self._line.slot(start, self.store._sequence)
        return next(
            (
                entry
                for found, _, entry in self.fetch(
                    key, start, start, committed=committed, reverse=False
                )
                if found == slot
            ),
            None,
        )

    def fetch(
        self, key: Any, time_from: int, time_to: int, *, committed: bool, reverse: bool
    ) -> Rows:
        """Iterate over the values of a key in a time range, by time, then in the order of puts.

        They start from `time_from` to `time_to`, both included.
        """
        check_ms(self.store.name, time_from, time_to)
        store, index, line = self.store, self._index(key), self._line
        first = max(time_from, line.limit(committed=committed) + 1, 0)
        found: dict[int, Any] = {}
        for segment in store._within(first, time_to):
            end = segment.committed if committed else len(segment)
            for place in segment.places(index, first, time_to):
                if place < end:
                    found[line.slot(segment.starts[place], segment.sequences[place])] = (
                        segment.values[place],
                        segment.times[place],
                    )
        ordered = dict(sorted(found.items()))
        stored = line.stored_of(
            index, first, min(time_to + 1, store._low * store._span), reverse=reverse
        )
        rows = self._started(
            [], iter(()), line.rows_of(key, index, ordered, stored, self._entry, reverse=reverse)
        )
        rows.looking = False
        return rows

    def fetch_all(self, time_from: int, time_to: int, *, committed: bool, reverse: bool) -> Rows:
        """Iterate over all values in a time range, in the order of the store's `fetch_all`.

        They start from `time_from` to `time_to`, both included.
        """
        check_ms(self.store.name, time_from, time_to)
        store, line = self.store, self._line
        first = max(time_from, line.limit(committed=committed) + 1, 0)
        columns = []
        # copies, because the segments may be released meanwhile
        for segment in store._within(first, time_to):
            end = segment.committed if committed else len(segment)
            columns.append(segment.columns(end))

        def found() -> Iterator[Found | None]:
            for keys, starts, sequences, values, times in columns:
                for key, start, sequence, value, time in zip(
                    keys, starts, sequences, values, times, strict=True
                ):
                    handle = (key, line.slot(start, sequence))
                    yield (
                        (line.place(handle), handle, (value, time))
                        if first <= start <= time_to
                        else None
                    )

        stored = line.stored(first, min(time_to + 1, store._low * store._span), reverse=reverse)
        chunks: list[list[Found]] = []
        rows = self._started(
            [],
            into_chunks(found(), chunks, step()),
            line.rows(chunks, stored, self._entry, reverse=reverse),
        )
        rows.looking = False
        return rows
