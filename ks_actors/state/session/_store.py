"""Session stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from ks_actors.records import Window, Windowed
from ks_actors.state.core import StoreIterator
from ks_actors.state.session._sessions import ENDS, LATEST, Sessions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ks_actors.state.core import Entry

K = TypeVar("K")
V = TypeVar("V")
_Row = tuple[bytes, int, int, "Entry"]


@final
class SessionStore(Sessions[K], Generic[K, V]):
    """Aggregates by key and session, for session windows (`SessionStore` of Kafka Streams).

    A session is `Windowed(key, Window(start, end))`, both times in ms and included. It expires when
    a session of any key is put that ends `retention_ms` or more after it. Iterators are in the
    order of Kafka Streams: in memory by end, then key bytes, then the latest start first; with
    segments by segment, then key bytes, then end, then start. The backward ones reverse it.
    """

    def put(self, session: Windowed[K], aggregate: V | None) -> None:
        """Set the aggregate of a session; None deletes it.

        The put is dropped and counted as late when the session ends `retention_ms` or more before
        the latest put end.
        """
        key, (start, end) = self._checked(session)
        self.put_entry(key, start, end, None if aggregate is None else (aggregate, self._time()))

    def remove(self, session: Windowed[K]) -> None:
        """Delete a session; do nothing if it has expired or does not exist."""
        key, (start, end) = self._checked(session)
        self.remove_entry(key, start, end)

    def fetch_session(self, key: K, start: int, end: int) -> V | None:
        """Return the aggregate of the session of `key` from `start` to `end`, or None."""
        self._check_key(key)
        entry = self.get_entry(key, start, end)
        return None if entry is None else entry[0]

    def fetch(self, key: K) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate over the sessions of `key` and their aggregates, the earliest first."""
        return self.find_sessions(key, 0, LATEST)

    def backward_fetch(self, key: K) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate over the sessions of `key` and their aggregates, the latest first."""
        return self.backward_find_sessions(key, 0, LATEST)

    def find_sessions(
        self, key: K, earliest_end: int, latest_start: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate over the sessions of `key` that overlap with a span, the earliest first.

        They end at `earliest_end` or later and start at `latest_start` or earlier.
        """
        return self._of_key(key, earliest_end, latest_start, reverse=False)

    def backward_find_sessions(
        self, key: K, earliest_end: int, latest_start: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate like `find_sessions`, the latest first."""
        return self._of_key(key, earliest_end, latest_start, reverse=True)

    def fetch_range(self, low: K | None, high: K | None) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate over the sessions of the keys from `low` to `high`, both included.

        Keys are compared by their bytes; None is no bound.
        """
        return self.find_sessions_range(low, high, 0, LATEST)

    def backward_fetch_range(
        self, low: K | None, high: K | None
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate like `fetch_range`, in reverse order."""
        return self.backward_find_sessions_range(low, high, 0, LATEST)

    def find_sessions_range(
        self, low: K | None, high: K | None, earliest_end: int, latest_start: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate over the overlapping sessions of a range of keys.

        See `find_sessions` for the overlap, and `fetch_range` for the range.
        """
        return self._shown(self._in_range(low, high, earliest_end, latest_start))

    def backward_find_sessions_range(
        self, low: K | None, high: K | None, earliest_end: int, latest_start: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate like `find_sessions_range`, in reverse order."""
        return self._shown(reversed(self._in_range(low, high, earliest_end, latest_start)))

    def find_ended_sessions(
        self, earliest_end: int, latest_end: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Iterate over all sessions that end in a time range, sorted by end.

        The range is from `earliest_end` to `latest_end`, both included. Sessions with the same end
        are in the order of Kafka Streams: in memory by key bytes, then the latest start first; with
        segments by start, then key bytes.
        """
        return self._shown(self._ended(earliest_end, latest_end))

    def ended_sessions(self, earliest_end: int, latest_end: int) -> list[tuple[K, int, int]]:
        """Return key, start and end of the sessions of `find_ended_sessions`, in its order.

        For operators. The aggregates need not be readable.
        """
        key = self._codec.object_key
        found = self._known(earliest_end, LATEST, latest_end)
        found.sort(key=self._by_end)
        return [(key(encoded), start, end) for encoded, start, end in found]

    def own_key(self, key: K) -> K:
        """Return a key, copied if it is mutable. For operators."""
        codec = self._codec
        return codec.object_key(codec.key(key)) if codec.mutable_keys else key

    def end_order(self, key: K, start: int, end: int) -> tuple[Any, Any, Any]:
        """Return the sort key of a session in `find_ended_sessions`. For operators."""
        encoded = self._codec.key(key)
        return (end, start, encoded) if self._segmented else (end, encoded, -start)

    def _checked(self, session: Windowed[K]) -> Windowed[K]:
        key, (start, end) = session
        self._check_key(key)
        self._codec.checked_time(start)
        self._codec.checked_time(end)
        if not 0 <= start <= end:
            raise ValueError(
                f"store {self.name}: a session starts at 0 or later and does not end before it "
                f"starts; this one is {start} to {end} ms"
            )
        return session

    def _check_key(self, key: Any) -> None:
        if key is None:
            raise TypeError(f"store {self.name}: a key cannot be None")

    def _of_key(
        self, key: K, earliest_end: int, latest_start: int, *, reverse: bool
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        self._check_key(key)
        found = self.find_entries(key, earliest_end, latest_start)
        if reverse:
            found.reverse()
        return StoreIterator(
            ((Windowed(key, Window(start, end)), entry[0]) for start, end, entry in found),
            self._iterators,
        )

    def _in_range(
        self, low: K | None, high: K | None, earliest_end: int, latest_start: int
    ) -> list[_Row]:
        encode = self._codec.key
        first, last = None if low is None else encode(low), None if high is None else encode(high)
        found = [
            row
            for row in self._fetched(earliest_end, latest_start)
            if (first is None or row[0] >= first) and (last is None or row[0] <= last)
        ]
        found.sort(key=self.row_order)
        return found

    def row_order(self, row: tuple[bytes, int, int, Any]) -> tuple[Any, ...]:
        """Return the sort key of a session among those of many keys. For readers."""
        encoded, start, end, _ = row
        return (
            (end // self.segment_ms, encoded + ENDS.pack(end, start))
            if self._segmented
            else (end, encoded, -start)
        )

    def _ended(self, earliest_end: int, latest_end: int) -> list[_Row]:
        return sorted(self._fetched(earliest_end, LATEST, latest_end), key=self._by_end)

    def _by_end(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        encoded, start, end = row[:3]
        return (end, start, encoded) if self._segmented else (end, encoded, -start)

    def _shown(self, rows: Iterable[_Row]) -> StoreIterator[tuple[Windowed[K], V]]:
        key = self._codec.object_key
        return StoreIterator(
            (
                (Windowed(key(encoded), Window(start, end)), entry[0])
                for encoded, start, end, entry in rows
            ),
            self._iterators,
        )
