"""The put paths of a key-value store."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from ks_actors.state.core import MISSING, TEXTS, Transactional, average, weigh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.serdes import AsRead
    from ks_actors.state.core import Codec, Entry
    from ks_actors.state.disk import Engine
    from ks_actors.state.key_value._sorted_keys import Order


class Puts(Transactional[Any]):
    """Puts with undo notes, size estimates and key order.

    A put that cannot be written is rejected with nothing changed. Mutable values are kept as bytes.
    """

    put_entry: Callable[[Any, Entry | None], None]

    def __init__(
        self,
        codec: Codec,
        engine: Engine | None,
        prefix: bytes,
        record_time: Callable[[], int],
        *,
        logged: bool,
    ) -> None:
        super().__init__(codec, engine, prefix, record_time, logged=logged)
        self._view: dict[Any, Any] = {}
        # The keys of the view in order, maintained from the first scan on; some may have left the
        # view.
        self._order: Order | None = None
        # the keys in the order in which they entered the view
        self._entered: deque[Any] | None = None if engine is None else deque()
        self._sized_keys: bool = codec.sized_keys
        # whole numbers from `_least` up to below this are read as they are
        self.bound: int = codec.bound
        self._least: int = -codec.bound
        self._text: type | None = codec.text_type
        self._as_read: AsRead = codec.as_read
        self._ticks: int = 0

    def enter_all(self, keys: list[Any]) -> None:
        """Note keys that entered the view."""
        if self._order is not None:
            self._order.pending.extend(keys)
        if self._entered is not None:
            self._entered.extend(keys)

    def _enter(self, key: Any) -> None:
        if self._order is not None:
            self._order.pending.append(key)
        if self._entered is not None:
            self._entered.append(key)

    def _admitted(self, key: Any, entry: Entry) -> Entry:
        """Return an entry as a later read returns it; raises SerializationError."""
        value = self._codec.admit(key, entry[0])
        return entry if value is entry[0] else (value, entry[1])

    def check_key(self, key: Any) -> None:
        """Raise SerializationError for a new dict key that cannot be written. For operators."""
        if key not in self._view:
            self._codec.check_key(key)

    def admit(self, key: Any, value: Any) -> Any:
        """Return an immutable value as a read after the put returns it.

        For operators. Raises SerializationError.
        """
        return self._codec.admit(key, value)

    @property
    def mutable(self) -> bool:
        """Whether values are mutable, so that each read makes a new object."""
        return self._mutable

    def _first(self, key: Any) -> None:
        """Note the value of a key before the first put of this transaction."""
        value = self._view.get(key, MISSING)
        if value is MISSING:
            self._codec.check_key(key)
            self._enter(key)
        self._dirty[key] = value
        if self._sized_keys:
            self._size += len(key)

    def _put_bytes(self, key: Any, entry: Entry | None) -> None:
        """Put an entry as bytes: the caller may keep the object and change it."""
        view = self._view
        raw = None if entry is None else self._codec.written(key, entry)
        if key in self._dirty:
            old = view[key]
            size = self._size if old is None else self._size - len(old)
        else:
            self._first(key)
            size = self._size
        view[key] = raw
        if raw is None:
            self._size = size
            self._deleted[key] = self._time()
        else:
            self._size = size + len(raw)

    def _put_fixed(self, key: Any, entry: Entry | None) -> None:
        dirty, view = self._dirty, self._view
        if entry is not None:
            value = entry[0]
            if type(value) is not int or not self._least <= value < self.bound:
                entry = self._admitted(key, entry)
        if key not in dirty:  # as `_first` does
            old = view.get(key, MISSING)
            if old is MISSING:
                self._codec.check_key(key)
                self._enter(key)
            dirty[key] = old
            if self._sized_keys:
                self._size += len(key)
        view[key] = entry
        if entry is None:
            self._deleted[key] = self._time()

    @property
    def uncommitted(self) -> dict[Any, Any]:
        """The old entries of all keys put since the last commit, by first put.

        None or MISSING means that there was none. It is another dict after each commit.
        """
        return self._dirty

    def _put_text(self, key: Any, entry: Entry | None) -> None:
        view = self._view
        if entry is not None:
            value = entry[0]
            if type(value) is not self._text or (type(value) is str and not value.isascii()):
                entry = self._admitted(key, entry)
        if key in self._dirty:
            old = view[key]
            size = self._size if old is None else self._size - len(old[0])
        else:
            self._first(key)
            size = self._size
        view[key] = entry
        if entry is None:
            self._size = size
            self._deleted[key] = self._time()
        else:
            self._size = size + len(entry[0])

    def _put_any(self, key: Any, entry: Entry | None) -> None:
        if entry is not None and not self._as_read(entry[0]):
            entry = self._admitted(key, entry)
        view = self._view
        if key in self._dirty:
            old = view[key]
            if old is not None and type(old[0]) in TEXTS:
                self._size -= len(old[0])
        else:
            self._first(key)
        view[key] = entry
        if entry is None:
            self._deleted[key] = self._time()
        else:
            self._weigh(entry[0])

    def _weigh(self, value: Any) -> None:
        """Add a value's size: exact for text, by samples for others."""
        if type(value) in TEXTS:
            self._size += len(value)
            return
        if not self._ticks & 127:  # the first one too
            self._typical = average(self._typical, weigh(value))
        self._ticks += 1

    def put_entries(self, entries: dict[Any, Entry], fresh: Iterable[Any]) -> None:
        """Put many entries, no deletes. For operators.

        All keys except the `fresh` ones were put in this transaction before. The values are
        admitted already. Raises SerializationError, with nothing put, when a key cannot be written.
        """
        if not (self._codec.fixed and self._codec.faithful):
            put = self.put_entry
            for key, entry in entries.items():
                put(key, entry)
            return
        dirty = self._dirty
        first = [key for key in fresh if key not in dirty]
        if first:  # as `_first` does
            values = self._now_all(first)
            self._log_keys(
                [key for key, value in zip(first, values, strict=True) if value is MISSING]
            )
            dirty.update(zip(first, values, strict=True))
            if self._sized_keys:
                self._size += sum(map(len, first))
            self.enter_all(
                [key for key, value in zip(first, values, strict=True) if value is MISSING]
            )
        self._view.update(entries)
