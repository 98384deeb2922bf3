"""Window stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final, overload

from ks_actors.state.core import StoreIterator
from ks_actors.state.join_window import JoinWindowBatchLookups
from ks_actors.state.key_value import ValueAndTimestamp
from ks_actors.state.window._by_key import Windows
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
    """Values by key and window start, wherever they are: the classes at the end of this file have the data too."""

    name: str
    _codec: Codec
    _time: Callable[[], int]
    _segmented: bool
    _iterators: WeakSet[StoreIterator[Any]]

    @abstractmethod
    def get_entry(self, key: K, start: int) -> Entry | None:
        """Return what is there of one window."""

    @abstractmethod
    def put_entry(self, key: K, start: int, entry: Entry | None) -> None:
        """Set or add what is there of one window."""

    @abstractmethod
    def fetch_entries(self, key: K, time_from: int, time_to: int) -> list[tuple[int, Entry]]:
        """Return start and entry of each window of `key` that starts at `time_from` to `time_to`, both included, in time order."""

    @abstractmethod
    def _fetched(self, time_from: int, time_to: int, *, by_time: bool) -> list[tuple[bytes, int, int, Entry]]:
        """Return key bytes, start, sequence number and entry of each window, in order."""

    def _show(self, entry: Entry) -> Any:
        return entry[0]

    def _entry(self, value: Any) -> Entry | None:
        return None if value is None else (value, self._time())

    def put(self, key: K, value: P | None, window_start_ms: int) -> None:
        """Set the value of a key's window; None deletes it. A store with duplicates adds the value, and ignores None.

        A window that starts `retention_ms` or more before the latest one that was put is too old: the put is dropped and counted.
        """
        if key is None:
            raise TypeError(f"store {self.name}: a key cannot be None")
        self.put_entry(key, self._codec.checked_time(window_start_ms), self._entry(value))

    @overload
    def fetch(self, key: K, time_from: int) -> P | None: ...
    @overload
    def fetch(self, key: K, time_from: int, time_to: int) -> StoreIterator[tuple[int, P]]: ...
    def fetch(self, key: K, time_from: int, time_to: int | None = None) -> P | StoreIterator[tuple[int, P]] | None:
        """Return the value of the window that starts at `time_from`, or None.

        With `time_to`, iterate over start and value of the windows that start from `time_from` to `time_to`, both included, in time order.
        """
        if key is None:
            raise TypeError(f"store {self.name}: a key cannot be None")
        if time_to is None:
            entry = self.get_entry(key, time_from)
            return None if entry is None else self._show(entry)
        return self._iterate((start, self._show(entry)) for start, entry in self.fetch_entries(key, time_from, time_to))

    def backward_fetch(self, key: K, time_from: int, time_to: int) -> StoreIterator[tuple[int, P]]:
        """Iterate over start and value of the windows that start from `time_from` to `time_to`, both included, the latest first."""
        return self._iterate((start, self._show(entry)) for start, entry in reversed(self.fetch_entries(key, time_from, time_to)))

    def fetch_range(self, low: K | None, high: K | None, time_from: int, time_to: int) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, over the keys whose bytes are from those of `low` to those of `high`, both included, None for no bound."""
        encode = self._codec.key
        first, last = None if low is None else encode(low), None if high is None else encode(high)
        within = (
            found
            for found in self._fetched(time_from, time_to, by_time=not self._segmented)
            if (first is None or found[0] >= first) and (last is None or found[0] <= last)
        )
        return self._shown(within)

    def fetch_all(self, time_from: int, time_to: int) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate over key, start and value of the windows that start from `time_from` to `time_to`, both included.

        The order is that of Kafka Streams: by start, then key bytes in memory, by segment, then key bytes, then start where there are segments.
        """
        return self._shown(self._fetched(time_from, time_to, by_time=not self._segmented))

    def backward_fetch_all(self, time_from: int, time_to: int) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, the other way round."""
        return self._shown(reversed(self._fetched(time_from, time_to, by_time=not self._segmented)))

    def all(self) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, over all there is."""
        return self.fetch_all(0, LATEST)

    def backward_all(self) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, over all there is, the other way round."""
        return self.backward_fetch_all(0, LATEST)

    def fetch_all_entries(self, time_from: int, time_to: int) -> list[tuple[K, int, Entry]]:
        """Return key, start and entry of all windows that start from `time_from` to `time_to`, by start, then key bytes: for operators."""
        key = self._codec.object_key
        return [(key(encoded), start, entry) for encoded, start, _, entry in self._fetched(time_from, time_to, by_time=True)]

    def _iterate(self, rows: Iterable[Any]) -> StoreIterator[Any]:
        return StoreIterator((row for row in rows), self._iterators)

    def _shown(self, rows: Iterable[tuple[bytes, int, int, Entry]]) -> StoreIterator[Any]:
        key = self._codec.object_key
        return self._iterate(((key(encoded), start), self._show(entry)) for encoded, start, _, entry in rows)


class WindowStore(WindowBase[K, V], Generic[K, V]):
    """Values by key and window start: what joins of streams live in."""


class TimestampedWindowStore(WindowBase[K, ValueAndTimestamp[V]], Generic[K, V]):
    """Values with their timestamps, by key and window start: what windowed aggregates live in.

    `get_entry`, `put_entry` and `fetch_entries` are the fast way for operators; an entry is a plain tuple of value and timestamp.
    """

    def _show(self, entry: Entry) -> Any:
        return ValueAndTimestamp(entry[0], entry[1])

    def _entry(self, value: Any) -> Entry | None:
        return None if value is None or value[0] is None else (value[0], self._codec.checked_time(value[1]))


@final
class SingleWindowStore(Windows[K], WindowStore[K, V], Generic[K, V]):
    """One value per key and window."""


@final
class SingleTimestampedWindowStore(Windows[K], TimestampedWindowStore[K, V], Generic[K, V]):
    """One value with its timestamp per key and window."""


@final
class ByStartWindowStore(WindowsByStart[K], WindowStore[K, V], Generic[K, V]):
    """One value per key and window, where all keys have the same windows."""


@final
class ByStartTimestampedWindowStore(WindowsByStart[K], TimestampedWindowStore[K, V], Generic[K, V]):
    """One value with its timestamp per key and window, where all keys have the same windows."""


@final
class DuplicatesWindowStore(JoinWindowBatchLookups[K], WindowStore[K, V], Generic[K, V]):
    """All values that were put, per key and window."""


@final
class DuplicatesTimestampedWindowStore(JoinWindowBatchLookups[K], TimestampedWindowStore[K, V], Generic[K, V]):
    """All values that were put with their timestamps, per key and window."""


def window_class(
    spec: StoreSpec, *, timestamped: bool
) -> type[
    SingleWindowStore[Any, Any]
    | SingleTimestampedWindowStore[Any, Any]
    | ByStartWindowStore[Any, Any]
    | ByStartTimestampedWindowStore[Any, Any]
    | DuplicatesWindowStore[Any, Any]
    | DuplicatesTimestampedWindowStore[Any, Any]
]:
    """Return the class of a window store."""
    if spec.retain_duplicates:
        return DuplicatesTimestampedWindowStore if timestamped else DuplicatesWindowStore
    if has_panes(spec):
        return ByStartTimestampedWindowStore if timestamped else ByStartWindowStore
    return SingleTimestampedWindowStore if timestamped else SingleWindowStore
