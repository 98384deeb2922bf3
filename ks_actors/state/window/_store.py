"""Window stores."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime, timedelta
from functools import cache
from types import new_class
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ks_actors._hints import Elsewhere
from ks_actors.lifecycle import check_instant
from ks_actors.state.core import (
    HEADERS_FORM,
    TIMESTAMPED_FORM,
    StoreIterator,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    instant,
    within,
)
from ks_actors.state.join_window import JoinWindowLookups
from ks_actors.state.timed import SegmentedRows
from ks_actors.state.window._by_key import WindowsByKey
from ks_actors.state.window._by_start import WindowsByStart, has_panes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ks_actors.state.core import Entry, StoreParts
    from ks_actors.state.timed import Found

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P")
LATEST = (1 << 63) - 1


class WindowBase(SegmentedRows, Generic[K, P]):
    """The user's interface of window stores: values by key and window start.

    `window_store` combines it with the data.
    """

    if not TYPE_CHECKING:
        get = Elsewhere(
            "store.fetch(key, start) has one window, store.fetch(key, time_from, time_to) several"
        )

    name: str

    @abstractmethod
    def get_entry(self, key: K, start: int) -> Entry | None:
        """Return the entry of one window."""

    @abstractmethod
    def put_entry(self, key: K, start: int, entry: Entry | None) -> None:
        """Set or add the entry of one window."""

    @abstractmethod
    def fetch_entries(self, key: K, time_from: int, time_to: int) -> list[tuple[int, Entry]]:
        """Return start and entry of the windows of `key` in a time range, in time order."""

    def put(self, key: K, value: P | None, window_start_ms: int | datetime | timedelta) -> None:
        """Set the value of a key's window; None deletes it.

        A store with duplicates adds the value, and ignores None. A put is dropped and counted as
        late when its window starts `retention_ms` or more before the latest put window.
        """
        if key is None:
            raise TypeError(f"store {self.name}: a key cannot be None")
        if type(window_start_ms) is not int and isinstance(window_start_ms, datetime | timedelta):
            window_start_ms = check_instant(
                window_start_ms, f"window_start_ms of store {self.name}"
            )
        self.put_entry(key, self.codec.checked_time(window_start_ms), self._take(value))

    @overload
    def fetch(self, key: K, time_from: int | datetime) -> P | None: ...
    @overload
    def fetch(
        self, key: K, time_from: int | datetime, time_to: int | datetime
    ) -> StoreIterator[tuple[int, P]]: ...
    def fetch(
        self, key: K, time_from: int | datetime, time_to: int | datetime | None = None
    ) -> P | StoreIterator[tuple[int, P]] | None:
        """Return the value of the window that starts at `time_from`, or None.

        With `time_to`, iterate over start and value of the windows that start from `time_from` to
        `time_to`, both included, in time order. Raises SerializationError for a key that the store
        cannot have.
        """
        if key is None:
            raise TypeError(f"store {self.name}: a key cannot be None")
        if type(time_from) is not int:
            time_from = instant(self.name, time_from)
        if time_to is None:
            entry = self.get_entry(key, time_from)
            if entry is None:
                self.codec.key_bytes(key)
            return None if entry is None else self._show(entry)
        return self._starts_of(self._of_key(key, time_from, time_to))

    def backward_fetch(
        self, key: K, time_from: int | datetime, time_to: int | datetime
    ) -> StoreIterator[tuple[int, P]]:
        """Iterate over start and value of the windows in a time range, the latest first.

        They start from `time_from` to `time_to`, both included.
        """
        return self._starts_of(reversed(self._of_key(key, time_from, time_to)))

    def _of_key(
        self, key: K, time_from: int | datetime, time_to: int | datetime
    ) -> list[tuple[int, Entry]]:
        time_from, time_to = instant(self.name, time_from), instant(self.name, time_to)
        found = self.fetch_entries(key, time_from, time_to)
        if not found:  # check the key: a key of the wrong type is never found
            self.codec.key_bytes(key)
        return found

    def fetch_range(
        self, low: K | None, high: K | None, time_from: int | datetime, time_to: int | datetime
    ) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, over the keys from `low` to `high`, both included.

        Keys are compared by their bytes; None is no bound.
        """
        time_from, time_to = instant(self.name, time_from), instant(self.name, time_to)
        bounds = self.codec.bounds(low, high)
        found = self._in_order(time_from, time_to)
        return self._shown(row for row in found if within(row[0], bounds))

    def fetch_all(
        self, time_from: int | datetime, time_to: int | datetime
    ) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate over key, start and value of the windows in a time range.

        They start from `time_from` to `time_to`, both included. The order is that of Kafka Streams:
        in memory by start, then key bytes; with segments by segment, then key bytes, then start.
        """
        return self._shown(self._in_order(time_from, time_to))

    def backward_fetch_all(
        self, time_from: int | datetime, time_to: int | datetime
    ) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, in reverse order."""
        return self._shown(reversed(self._in_order(time_from, time_to)))

    def all(self) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, over all windows."""
        return self.fetch_all(0, LATEST)

    def backward_all(self) -> StoreIterator[tuple[tuple[K, int], P]]:
        """Iterate like `fetch_all`, over all windows in reverse order."""
        return self.backward_fetch_all(0, LATEST)

    def _in_order(self, time_from: int | datetime, time_to: int | datetime) -> list[Found]:
        time_from, time_to = instant(self.name, time_from), instant(self.name, time_to)
        return self.in_order(self.entries_between(time_from, time_to))

    def _starts_of(self, rows: Iterable[tuple[int, Entry]]) -> StoreIterator[tuple[int, P]]:
        show = self._show
        return StoreIterator(((start, show(entry)) for start, entry in rows), self._iterators)

    def _shown(self, rows: Iterable[Found]) -> StoreIterator[tuple[tuple[K, int], P]]:
        key, window, show = self.codec.object_key, self.slot_form.window, self._show
        return StoreIterator(
            (((key(encoded), window(slot)), show(entry)) for encoded, slot, entry in rows),
            self._iterators,
        )


class WindowStore(WindowBase[K, V], Generic[K, V]):
    """Values by key and window start: the store of stream-stream joins."""


class TimestampedWindowStore(WindowBase[K, ValueAndTimestamp[V]], Generic[K, V]):
    """Values with their timestamps, by key and window start: the store of windowed aggregates.

    `get_entry`, `put_entry` and `fetch_entries` are the fast way for operators; an entry is a plain
    tuple of value and timestamp.
    """

    form = TIMESTAMPED_FORM


class WindowStoreWithHeaders(WindowBase[K, ValueTimestampHeaders[V]], Generic[K, V]):
    """Values with their timestamps and headers, by key and window start (KIP-1271).

    A delete takes the headers of the current record into the changelog. Entries that operators make
    have no headers.
    """

    form = HEADERS_FORM

    def put(
        self,
        key: K,
        value: ValueTimestampHeaders[V] | None,
        window_start_ms: int | datetime | timedelta,
    ) -> None:
        """Set the value of a key's window with its timestamp and headers; None deletes it.

        See WindowBase.
        """
        if type(window_start_ms) is not int and isinstance(window_start_ms, datetime | timedelta):
            window_start_ms = check_instant(
                window_start_ms, f"window_start_ms of store {self.name}"
            )
        super().put(key, value, window_start_ms)
        if value is None or value[0] is None:
            index = key if self.codec.faithful else self.codec.key(key)
            self._note_headers_of_delete((index, window_start_ms))


def window_store(parts: StoreParts) -> Any:
    """Make a window store: the windows decide on its data, the form of values on its interface."""
    spec, codec = parts.spec, parts.codec
    data: type[SegmentedRows] = (
        JoinWindowLookups
        if spec.retain_duplicates and not codec.headed
        else WindowsByStart
        if has_panes(spec)
        else WindowsByKey
    )
    interface: type[WindowBase[Any, Any]] = (
        WindowStoreWithHeaders
        if codec.headed
        else TimestampedWindowStore
        if codec.timestamped
        else WindowStore
    )
    return _joined(data, interface)(parts)


@cache
def _joined(data: type[SegmentedRows], interface: type[WindowBase[Any, Any]]) -> Any:
    """Return the class of stores with this data and this interface.

    One object has both, so that operators and users reach the data without a call in between.
    """
    names = {"__module__": __name__}
    return new_class(
        interface.__name__, (data, interface), exec_body=lambda body: body.update(names)
    )
