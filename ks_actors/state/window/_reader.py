"""The readers of window stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.state.core import instant
from ks_actors.state.join_window import JoinWindowLookups
from ks_actors.state.timed import LATEST, SegmentedReader, TimedReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ks_actors.state.core import Entry, Rows


class WindowReader(TimedReader):
    """A reader of a window store; each row has a key and a start."""

    def get(self, key: Any, start: int | datetime, *, committed: bool) -> Entry | None:
        """Return the entry of one window."""
        start = instant(self.store.name, start)
        return self._one((self._index(key), start), start, committed=committed)

    def fetch(
        self,
        key: Any,
        time_from: int | datetime,
        time_to: int | datetime,
        *,
        committed: bool,
        reverse: bool,
    ) -> Rows:
        """Iterate over the windows of a key in a time range, by time.

        They start from `time_from` to `time_to`, both included.
        """
        time_from, time_to = instant(self.store.name, time_from), instant(self.store.name, time_to)
        return self._of_key(key, time_from, time_to, committed=committed, reverse=reverse)

    def fetch_all(
        self, time_from: int | datetime, time_to: int | datetime, *, committed: bool, reverse: bool
    ) -> Rows:
        """Iterate over all windows in a time range, in the order of the store's `fetch_all`.

        They start from `time_from` to `time_to`, both included.
        """
        time_from, time_to = instant(self.store.name, time_from), instant(self.store.name, time_to)
        return self._of_all(time_from, time_to, committed=committed, reverse=reverse)


class DuplicatesReader(SegmentedReader[JoinWindowLookups[Any]]):
    """A reader of a window store with duplicates, in which a put never changes existing rows."""

    def __init__(self, store: JoinWindowLookups[Any]) -> None:
        super().__init__(store, store.shown)

    def get(self, key: Any, start: int | datetime, *, committed: bool) -> Entry | None:
        """Return the entry of the latest put if that put was for this window, else None."""
        start = instant(self.store.name, start)
        latest = self.store.latest_slot(start)
        rows = self.fetch(key, start, start, committed=committed, reverse=False)
        return next((entry for slot, _, entry in rows if slot == latest), None)

    def all(self, *, committed: bool) -> Rows:
        """Iterate over all values, in the store's order."""
        return self.fetch_all(0, LATEST, committed=committed, reverse=False)

    def fetch(
        self,
        key: Any,
        time_from: int | datetime,
        time_to: int | datetime,
        *,
        committed: bool,
        reverse: bool,
    ) -> Rows:
        """Iterate over the values of a key in a time range, by time, then in the order of puts.

        They start from `time_from` to `time_to`, both included.
        """
        time_from, time_to = instant(self.store.name, time_from), instant(self.store.name, time_to)
        store, first = self.store, self._visible_from(time_from, committed=committed)
        index = self._index(key)
        found = store.rows_of(index, first, time_to, committed=committed)
        span = first, min(time_to + 1, store.resident_from)
        return self._rows_of(key, index, found, span, reverse=reverse)

    def fetch_all(
        self, time_from: int | datetime, time_to: int | datetime, *, committed: bool, reverse: bool
    ) -> Rows:
        """Iterate over all values in a time range, in the order of the store's `fetch_all`.

        They start from `time_from` to `time_to`, both included.
        """
        time_from, time_to = instant(self.store.name, time_from), instant(self.store.name, time_to)
        store, first = self.store, self._visible_from(time_from, committed=committed)
        # copies, because the segments may be released meanwhile
        columns = store.columns(first, time_to, committed=committed)

        def found() -> Iterator[Any]:
            encode, place, slot_of = store.codec.index_bytes, store.place, store.slot_form.slot
            for segment in columns:
                for index, start, sequence, value, time in zip(*segment, strict=True):
                    if first <= start <= time_to:
                        slot = slot_of(start, sequence)
                        yield place(encode(index), slot), (index, slot), (value, time)
                    else:
                        yield None

        span = first, min(time_to + 1, store.resident_from)
        rows = self._all_rows([], found(), span, reverse=reverse)
        rows.looking = False
        return rows
