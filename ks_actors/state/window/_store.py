"""Window stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final, overload

from ks_actors.state.core import StoreIterator, check_ms, headers_of
from ks_actors.state.join_window import JoinWindowLookups
from ks_actors.state.key_value import ValueAndTimestamp, ValueTimestampHeaders, entry_of
from ks_actors.state.window._by_key import WindowsByKey
from ks_actors.state.window._by_start import WindowsByStart, has_panes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from weakref import WeakSet

    from ks_actors.state.core import Codec, Entry
    from ks_actors.topology import StoreSpec

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P")
LATEST = (1 << 63) - 1


class WindowBase(ABC, Generic[K, P]):
    """The user's interface of window stores: values by key and window start.

    The classes at the end of this file combine it with the data.
    """

    name: str
    _codec: Codec
    _time: Callable[[], int]
    _segmented: bool
    _iterators: WeakSet[StoreIterator[Any]]

    @abstractmethod
    def get_entry(self, key: K, start: int) -> Entry | None:
        """Return the entry of one window."""

    @abstractmethod
    def put_entry(self, key: K, start: int, entry: Entry | None) -> None:
        """Set or add the entry of one window."""

    @abstractmethod
    def fetch_entries(self, key: K, time_from: int, time_to: int) -> list[tuple[int, Entry]]:
        """Return start and entry of the windows of `key` in a time range, in time order.

        They start from `time_from` to `time_to`, both included.
        """

    @abstractmethod
    def _fetched(
        self, time_from: int, time_to: int, *, by_time: bool
    ) -> list[tuple[bytes, int, int, Entry]]:
        """Return key bytes, start, sequence number and entry of each window, in order."""

    def _show(self, entry: Entry) -> Any:
        return entry[0]

    def _entry(self, value: Any) -> Entry | None:
        return None if value is None else (value, self._time())

    def put(self, key: K, value: P | None, window_start_ms: int) -> None:
        """Set the value of a key's window; None deletes it.

        A store with duplicates adds the value, and ignores None. A put is dropped and counted as
        late when its window starts `retention_ms` or more before the latest put window.
        """
        if key is None:
            raise TypeError(f"store {self.name}: a key cannot be None")
        self.put_entry(key, self._codec.checked_time(window_start_ms), self._entry(value))

    @overload
    def fetch(self, key: K, time_from: int) -> P | None: ...
    @overload
    def fetch(self, key: K, time_from: int, time_to: int) -> StoreIterator[tuple[int, P]]: ...
    def fetch(
        self, key: K, time_from: int, time_to: int | None = None
    ) -> P | StoreIterator[tuple[int, P]] | None:
        """Return the value of the window that starts at `time_from`, or None.

        With `time_to`, iterate over start and value of the windows that start from `time_from` to
        `time_to`, both included, in time order. Raises SerializationError for a key that the store
        could not have.
        """
        if key is None:
            raise TypeError(f"store {self.name}: a key cannot be None")
        if type(time_from) is not int:
            check_ms(self.name, time_from)
        if time_to is None:
            entry = self.get_entry(key, time_from)
            if entry is None:
                self._codec.key_bytes(key)
            return None if entry is None else self._show(entry)
        found = self._of_key(key, time_from, time_to)
        return self._iterate((start, self._show(entry)) for start, entry in found)

    def backward_fetch(self, key: K, time_from: int, time_to: int) -> StoreIterator[tuple[int, P]]:
        """Iterate over start and value of the windows in a time range, the latest first.

        They start from `time_from` to `time_to`, both included.
        """
        found = reversed(self._of_key(key, time_from, time_to))
        return self._iterate((start, self._show(entry)) for start, entry in found)

    def _of_key(self, key: K, time_from: int, time_to: int) -> list[tuple[int, Entry]]:
        check_ms(self.name, time_from, time_to)
        found = self.fetch_entries(key, time_from, time_to)
        if not found:  # A key of another type than the store's would never be found.
            self._codec.key_bytes(key)
        return found

    def fetch_range(
        self, low: K | None, high: K | None, time_from: int, time_to: int
    ) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, over the keys from `low` to `high`, both included.

        Keys are compared by their bytes; None is no bound.
        """
        encode = self._codec.key_bytes
        first, last = None if low is None else encode(low), None if high is None else encode(high)
        within = (
            found
            for found in self._fetched(time_from, time_to, by_time=not self._segmented)
            if (first is None or found[0] >= first) and (last is None or found[0] <= last)
        )
        check_ms(self.name, time_from, time_to)
        return self._shown(within)

    def fetch_all(self, time_from: int, time_to: int) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate over key, start and value of the windows in a time range.

        They start from `time_from` to `time_to`, both included. The order is that of Kafka Streams:
        in memory by start, then key bytes; with segments by segment, then key bytes, then start.
        """
        check_ms(self.name, time_from, time_to)
        return self._shown(self._fetched(time_from, time_to, by_time=not self._segmented))

    def backward_fetch_all(
        self, time_from: int, time_to: int
    ) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, in reverse order."""
        check_ms(self.name, time_from, time_to)
        return self._shown(reversed(self._fetched(time_from, time_to, by_time=not self._segmented)))

    def all(self) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, over all windows."""
        return self.fetch_all(0, LATEST)

    def backward_all(self) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, over all windows in reverse order."""
        return self.backward_fetch_all(0, LATEST)

    def fetch_all_entries(self, time_from: int, time_to: int) -> list[tuple[K, int, Entry]]:
        """Return key, start and entry of all windows in a time range. For operators.

        They start from `time_from` to `time_to`, and are sorted by start, then key bytes.
        """
        key = self._codec.object_key
        return [
            (key(encoded), start, entry)
            for encoded, start, _, entry in self._fetched(time_from, time_to, by_time=True)
        ]

    def _iterate(self, rows: Iterable[Any]) -> StoreIterator[Any]:
        return StoreIterator((row for row in rows), self._iterators)

    def _shown(self, rows: Iterable[tuple[bytes, int, int, Entry]]) -> StoreIterator[Any]:
        key = self._codec.object_key
        return self._iterate(
            ((key(encoded), start), self._show(entry)) for encoded, start, _, entry in rows
        )


class WindowStore(WindowBase[K, V], Generic[K, V]):
    """Values by key and window start: the store of stream-stream joins."""


class TimestampedWindowStore(WindowBase[K, ValueAndTimestamp[V]], Generic[K, V]):
    """Values with their timestamps, by key and window start: the store of windowed aggregates.

    `get_entry`, `put_entry` and `fetch_entries` are the fast way for operators; an entry is a plain
    tuple of value and timestamp.
    """

    def _show(self, entry: Entry) -> Any:
        return ValueAndTimestamp(entry[0], entry[1])

    def _entry(self, value: Any) -> Entry | None:
        return (
            None
            if value is None or value[0] is None
            else (value[0], self._codec.checked_time(value[1]))
        )


class WindowStoreWithHeaders(WindowBase[K, ValueTimestampHeaders[V]], Generic[K, V]):
    """Values with their timestamps and headers, by key and window start (KIP-1271).

    A delete takes the headers of the current record into the changelog. Entries that operators make
    have no headers.
    """

    @abstractmethod
    def _note_headers_of_delete(self, handle: tuple[Any, int]) -> None:
        """Note the current record's headers with the delete that it has just made, if any."""

    def put(self, key: K, value: ValueTimestampHeaders[V] | None, window_start_ms: int) -> None:
        """Set the value of a key's window with its timestamp and headers; None deletes it.

        See WindowBase.
        """
        super().put(key, value, window_start_ms)
        if value is None or value[0] is None:
            index = key if self._codec.faithful else self._codec.key(key)
            self._note_headers_of_delete((index, window_start_ms))

    def _show(self, entry: Entry) -> Any:
        return ValueTimestampHeaders(entry[0], entry[1], headers_of(entry))

    def _entry(self, value: Any) -> Entry | None:
        return entry_of(self._codec, value)


@final
class SingleWindowStore(WindowsByKey[K], WindowStore[K, V], Generic[K, V]):
    """One value per key and window."""


@final
class SingleTimestampedWindowStore(WindowsByKey[K], TimestampedWindowStore[K, V], Generic[K, V]):
    """One value with its timestamp per key and window."""


@final
class ByStartWindowStore(WindowsByStart[K], WindowStore[K, V], Generic[K, V]):
    """One value per key and window, for windows shared by all keys."""


@final
class ByStartTimestampedWindowStore(WindowsByStart[K], TimestampedWindowStore[K, V], Generic[K, V]):
    """One value with its timestamp per key and window, for windows shared by all keys."""


@final
class SingleWindowStoreWithHeaders(WindowsByKey[K], WindowStoreWithHeaders[K, V], Generic[K, V]):
    """One value with timestamp and headers per key and window."""


@final
class ByStartWindowStoreWithHeaders(WindowsByStart[K], WindowStoreWithHeaders[K, V], Generic[K, V]):
    """One value with timestamp and headers per key and window, for windows shared by all keys."""


@final
class DuplicatesWindowStore(JoinWindowLookups[K], WindowStore[K, V], Generic[K, V]):
    """All put values, per key and window."""


@final
class DuplicatesTimestampedWindowStore(
    JoinWindowLookups[K], TimestampedWindowStore[K, V], Generic[K, V]
):
    """All put values with their timestamps, per key and window."""


def window_class(
    spec: StoreSpec, *, timestamped: bool, headed: bool = False
) -> type[
    SingleWindowStore[Any, Any]
    | SingleTimestampedWindowStore[Any, Any]
    | ByStartWindowStore[Any, Any]
    | ByStartTimestampedWindowStore[Any, Any]
    | DuplicatesWindowStore[Any, Any]
    | DuplicatesTimestampedWindowStore[Any, Any]
    | SingleWindowStoreWithHeaders[Any, Any]
    | ByStartWindowStoreWithHeaders[Any, Any]
]:
    """Return the class of a window store."""
    if headed:
        return ByStartWindowStoreWithHeaders if has_panes(spec) else SingleWindowStoreWithHeaders
    if spec.retain_duplicates:
        return DuplicatesTimestampedWindowStore if timestamped else DuplicatesWindowStore
    if has_panes(spec):
        return ByStartTimestampedWindowStore if timestamped else ByStartWindowStore
    return SingleTimestampedWindowStore if timestamped else SingleWindowStore
