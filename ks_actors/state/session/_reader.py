"""The reader of session stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.state.core import instant, within
from ks_actors.state.timed import LATEST, SHIFT, TimedReader

if TYPE_CHECKING:
    from datetime import datetime

    from ks_actors.state.core import Bounds, Entry, Rows


class SessionReader(TimedReader):
    """A reader of a session store; each row has a key and a `Window`."""

    def get(
        self, key: Any, start: int | datetime, end: int | datetime, *, committed: bool
    ) -> Entry | None:
        """Return the entry of one session."""
        start, end = instant(self.store.name, start), instant(self.store.name, end)
        handle = (self._index(key), end << SHIFT | start)
        return self._one(handle, end, committed=committed)

    def find(
        self,
        key: Any,
        earliest_end: int | datetime,
        latest_start: int | datetime,
        *,
        committed: bool,
        reverse: bool,
    ) -> Rows:
        """Iterate over a key's sessions that overlap with a span.

        The order is that of the store's `find_sessions`, forward or in reverse.
        """
        earliest_end, latest_start = (
            instant(self.store.name, earliest_end),
            instant(self.store.name, latest_start),
        )
        return self._of_key(
            key,
            earliest_end,
            LATEST,
            committed=committed,
            reverse=reverse,
            admits=lambda _, slot: slot & LATEST <= latest_start,
        )

    def find_range(
        self,
        keys: Bounds,
        earliest_end: int | datetime,
        latest_start: int | datetime,
        *,
        committed: bool,
        reverse: bool,
    ) -> Rows:
        """Iterate over the sessions of a range of keys (see `bounds`).

        The order is that of the store's `find_sessions_range`, forward or in reverse.
        """
        earliest_end, latest_start = (
            instant(self.store.name, earliest_end),
            instant(self.store.name, latest_start),
        )
        return self._of_all(
            earliest_end,
            LATEST,
            committed=committed,
            reverse=reverse,
            admits=lambda encoded, slot: slot & LATEST <= latest_start and within(encoded, keys),
        )
