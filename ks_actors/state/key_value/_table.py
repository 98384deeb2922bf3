"""The data of a key-value store: its view, puts, key order and restored rows."""

from __future__ import annotations

import heapq
from collections import deque
from contextlib import suppress
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.state.core import (
    BY_KEY,
    MISSING,
    SLICE,
    TEXTS,
    TIME_BYTES,
    Closed,
    Entry,
    StoreIterator,
    Transactional,
    after,
    average,
    weigh,
    with_value,
)
from ks_actors.state.key_value._restored_rows import ARRANGED, RESTORED, RestoredRows
from ks_actors.state.key_value._sorted_keys import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from ks_actors.processors.api import CountUp
    from ks_actors.records import Batch
    from ks_actors.serdes import AsRead
    from ks_actors.state.core import Engine, EngineRow, StoreParts
    from ks_actors.state.key_value._restored_rows import AnyRestoredRows

K = TypeVar("K")
Found = tuple[bytes, Any, Any]
"""A key's bytes, the key (MISSING until it is decoded), and its entry or the entry's bytes."""


class View(dict[Any, Any]):
    """Values by key; a missing key is loaded from below.

    So a read of a key in memory stays in C from beginning to end.
    """

    __slots__ = ("below",)

    def __init__(self, below: Callable[[Any], Any]) -> None:
        super().__init__()
        self.below: Callable[[Any], Any] = below

    def __missing__(self, key: Any) -> Any:
        return self.below(key)


class Table(Transactional[Any], Generic[K]):
    """Entries by key. `get_entry` and `put_entry` are for operators.

    An entry is a plain tuple of value and timestamp (ms); None deletes.

    The view holds entries of immutable values (None: deleted), so that reading one is
    `dict.__getitem__`. Mutable values are kept as bytes from the put on, and each read makes a new
    object. So the store shares no object with its users, and reads do not depend on the time of a
    commit. A put that cannot be written is rejected. Restored rows wait as bytes, by the bytes of
    their keys, until they are read or written.
    """

    get_entry: Callable[[K], Entry | None]
    put_entry: Callable[[K, Entry | None], None]
    count_up: CountUp | None = None

    def __init__(self, parts: StoreParts) -> None:
        super().__init__(parts)
        codec, engine = parts.codec, parts.engine
        self._view: dict[Any, Any] = View(self._load)
        # The keys of the view in order, maintained from the first scan on; some may have left the
        # view.
        self._order: Order | None = None
        # the keys in the order in which they entered the view
        self._entered: deque[Any] | None = None if engine is None else deque()
        self._as_read: AsRead = codec.as_read
        self._restored: AnyRestoredRows = RestoredRows()
        self._restored_writing: AnyRestoredRows = RestoredRows()
        self._stale: int = 0
        get = self._get_mutable if codec.mutable else self._view.__getitem__
        put = (
            self._put_bytes
            if codec.mutable
            else self._put_fixed
            if codec.fixed
            else self._put_text
            if codec.text
            else self._put_any
        )
        # The same by dict keys.
        self._get_at: Callable[[Any], Entry | None] = get
        self._put_at: Callable[[Any, Entry | None], None] = put
        if codec.faithful:
            self.get_entry = get
            self.put_entry = put
        else:
            encode = codec.key
            self.get_entry = lambda key: get(encode(key))
            self.put_entry = lambda key, entry: put(encode(key), entry)

    # One key.

    def _load(self, key: Any) -> Any:
        engine = self.engine
        raw: bytes | None
        # Encode the key only after a miss: a key of the wrong type is never found.
        encoded = self.codec.index_bytes(key)
        if self._restored or self._restored_writing:
            raw = self._restored.get(encoded, MISSING)
            if raw is MISSING:
                raw = self._restored_writing.get(encoded, MISSING)
            if raw is not MISSING:
                if engine is None:  # the view takes the row over, so one copy is enough
                    self._restored.discard(encoded)
                return None if raw is None else self._remember(key, raw)
        if engine is None or self.bare:
            return None
        raw = engine.get(self.prefix + encoded)
        return None if raw is None else self._remember(key, self.codec.from_engine(raw))

    def below(self, handle: Any) -> bytes | None:
        """Return the bytes of the entry below memory, without caching them."""
        encoded = self.codec.index_bytes(handle)
        for source in (self._restored, self._restored_writing):
            found: bytes | None = source.get(encoded, MISSING)
            if found is not MISSING:
                return found
        raw = None if self.engine is None else self.engine.get(self.prefix + encoded)
        return None if raw is None else self.codec.from_engine(raw)

    def _remember(self, key: Any, raw: bytes) -> Any:
        value = self._view[key] = raw if self.mutable else self.codec.entry(raw)
        self._enter(key)
        return value

    def _get_mutable(self, key: Any) -> Entry | None:
        raw = self._view[key]
        return None if raw is None else self.codec.entry(raw)

    # Puts.

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
        value = self.codec.admit(key, entry[0])
        return entry if value is entry[0] else with_value(entry, value)

    def check_key(self, key: Any) -> None:
        """Raise SerializationError for a new dict key that cannot be written. For operators."""
        if key not in self._view:
            self.codec.check_key(key)

    def _first(self, key: Any) -> None:
        """Note the value of a key before the first put of this transaction."""
        value = self._view.get(key, MISSING)
        if value is MISSING:
            self.codec.check_key(key)
            self._enter(key)
        self._dirty[key] = value
        if self._sized_keys:
            self._size += len(key)

    def _put_bytes(self, key: Any, entry: Entry | None) -> None:
        """Put an entry as bytes: the caller may keep the object and change it."""
        view = self._view
        raw = None if entry is None else self.codec.written(key, entry)
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
            # Most values here are ints that the serde accepts, which are checked without a call.
            if type(value) is not int or not self._least <= value < self.bound:
                entry = self._admitted(key, entry)
        if key not in dirty:  # as `_first` does
            old = view.get(key, MISSING)
            if old is MISSING:
                self.codec.check_key(key)
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

        None or MISSING means that there was no entry. Each commit begins a new dict.
        """
        return self._dirty

    def _put_text(self, key: Any, entry: Entry | None) -> None:
        view = self._view
        if entry is not None:
            value = entry[0]
            # The length in characters is the number of bytes only for ASCII text.
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
        # Sizes or keys differ row by row here, so each put checks its own size and key.
        if not (self.codec.fixed and self.codec.faithful):
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

    # The hooks of Transactional.

    def resident_rows(self) -> int:
        """Return the number of rows in memory."""
        return len(self._view) + len(self._restored) + len(self._restored_writing)

    def _now(self, handle: Any) -> Any:
        return self._view.get(handle, MISSING)

    def _now_all(self, handles: list[Any]) -> list[Any]:
        return list(map(self._view.get, handles, repeat(MISSING)))

    def _put_back(self, handle: Any, value: Any) -> None:
        # MISSING means that the disk has the old value: then memory must have none.
        if value is not MISSING:
            self._view[handle] = value
        elif handle in self._view:
            del self._view[handle]
            self._stale += 1

    def _entries(self) -> tuple[dict[Any, Any], int] | None:
        return self._view, BY_KEY

    def _frozen_values(self, handles: list[Any]) -> list[Any]:
        return [
            self._dirty[handle] if handle in self._dirty else self._view[handle]
            for handle in handles
        ]

    def _frozen_columns(self, handles: list[Any]) -> tuple[list[Any], list[int]] | None:
        return (
            super()._frozen_columns(handles)
            if not HAS_KERNEL
            else _kernel.entry_columns(self._view, self._dirty, handles)
        )

    def _log_keys(self, handles: list[Any]) -> list[bytes]:
        return self.codec.keys(handles) if self.codec.faithful else handles

    def _forget(self, pairs: Iterator[tuple[Any, Any]]) -> None:
        if self._restored:
            for key, _ in pairs:
                if self.readers:
                    self._preserve((key,))
                self._restored.discard(self.codec.index_bytes(key))
        super()._forget(pairs)

    def _engine_key(self, handle: Any) -> bytes:
        return self.prefix + self.codec.index_bytes(handle)

    def _rows(self, handles: list[Any], values: list[Any]) -> list[EngineRow]:
        codec = self.codec
        data = codec.column(values)
        if data is not None:
            # The row-by-row path below raises the error again and names the bad row.
            with suppress(Exception):
                return list(
                    zip(
                        map(
                            self.prefix.__add__, codec.keys(handles) if codec.faithful else handles
                        ),
                        data,
                        strict=True,
                    )
                )
        return super()._rows(handles, values)

    def _drop_tombstone(self, handle: Any) -> None:
        if self.engine is None and self._restored:
            if self.readers:
                self._preserve((handle,))
            # it is older than the deletion and must not reappear
            self._restored.discard(self.codec.index_bytes(handle))
        if (
            self._view.get(handle, MISSING) is None
            and handle not in self._dirty
            and handle not in self._frozen
        ):
            del self._view[handle]
            self._stale += 1

    def restore(self, batch: Batch) -> None:
        """Apply records of the changelog as committed; the last one of a key counts."""
        batch = self.codec.restored(batch)
        keys = batch.keys
        if keys and self.codec.tells_keys:
            self.codec.read_key(keys[0])
        restored = self._restored
        restored.put(keys, batch.values, batch.timestamps)
        # Without a disk below, a deletion has nothing to hide.
        if self.engine is None and None in batch.values:
            for key in keys:
                if restored.get(key, MISSING) is None:
                    restored.discard(key)
        if self._order is not None:
            self._order.pending_bytes += keys
        # The restored records are newer than the values in the view.
        if self._view:
            for key in keys:
                self._put_back(self.codec.index_key(key), MISSING)

    def has_unwritten(self) -> bool:
        """Return whether committed changes are missing in the engine."""
        return super().has_unwritten() or (
            self.engine is not None and bool(self._restored or self._restored_writing)
        )

    def begin_write(self) -> None:
        """Select the compacted and restored changes for writing."""
        super().begin_write()
        # The changes left by a failed write are older, and go first.
        if self._restored_writing:
            self._restored_writing.take_over(self._restored)
        else:
            self._restored, self._restored_writing = self._restored_writing, self._restored

    def write_slices(self, engine: Engine) -> Iterator[None]:
        """Write the restored rows first, because later puts are newer."""
        writing = self._restored_writing
        codec = self.codec
        cut = 0 if codec.timestamped or codec.headed else TIME_BYTES
        while not writing.arranged(ARRANGED):
            yield
        while rows := writing.rows(RESTORED, self.prefix, cut):
            if codec.headed:
                rows = [(key, raw and codec.to_engine(raw)) for key, raw in rows]
            engine.write(rows)
            writing.written(len(rows))
            yield
        yield from super().write_slices(engine)

    def evict(self) -> Iterator[None]:
        """Evict the rows that entered memory first, when memory is over its limit."""
        entered, view = self._entered, self._view
        if self._order is not None and self._order.missing > len(self._order) + len(view) + SLICE:
            self._order = None  # no scan for a long time
        if entered is None:
            return
        if len(entered) > 2 * len(view) + SLICE:  # most keys left memory in other ways
            entered = self._entered = deque(view)
        excess = len(view) - self.resident_records
        if excess > 0:
            # slack, so that the limit is not exceeded again at once
            excess += self.resident_records // 8
        left = len(entered)
        while excess > 0 and left > 0:
            while not self.compact(SLICE):
                yield
            part = [entered.popleft() for _ in range(min(SLICE // 2, left, excess))]
            left -= len(part)
            clean = self._clean(part)
            for key in part:
                if key not in clean:
                    entered.append(key)
                elif view.pop(key, MISSING) is not MISSING:
                    excess -= 1
                    self._stale += 1
            yield

    def close(self) -> None:
        """Release the memory; every later use raises StoreClosed."""
        super().close()
        closed = Closed(self.name)
        if isinstance(self._view, View):
            self._view.below = closed.get
            self._view.clear()
        self._view = closed
        self._order, self._restored, self._restored_writing = None, RestoredRows(), RestoredRows()

    # Ranges.

    def arranged(self) -> Order:
        """Return the order of the keys; pending keys are still to be inserted."""
        order = self._order
        if order is None or self._stale > len(order) // 4 + 64:
            order = self._order = Order(self.codec.index_bytes, self.codec.index_key, self._view)
            order.pending_bytes += [
                key
                for source in (self._restored, self._restored_writing)
                for key, _ in source.items()
            ]
            self._stale = 0
        return order

    def uncommitted_within(self, low: bytes, high: bytes) -> dict[Any, Any]:
        """Return the latest values of the uncommitted puts in a range of keys, or of all puts."""
        dirty, frozen, order = self._dirty, self._frozen, self.arranged()
        if order.about(low, high) >= len(dirty) + len(frozen):
            return self.uncommitted_values()
        return {
            key: self._now(key)
            for _, key in order.within(low, high)
            if key in dirty or key in frozen
        }

    def _promote(self) -> None:
        """Move restored rows into the view, so that they are in the order too."""
        view, codec, in_memory = self._view, self.codec, self.engine is None
        for source in (self._restored, self._restored_writing):
            for encoded, raw in source.items():
                key = codec.index_key(encoded)
                # otherwise the restored row stays: the put above it may be rolled back
                if key not in view:
                    view[key] = raw if raw is None or self.mutable else codec.entry(raw)
                    self._enter(key)
                    if in_memory:
                        source.discard(encoded)

    def _in_memory(self, low: bytes, high: bytes) -> list[Found]:
        if self._restored or self._restored_writing:
            self._promote()
        order, view = self.arranged(), self._view
        order.place_all()
        found: list[Found] = []
        for encoded, key in order.within(low, high):
            value = view.get(key, MISSING)
            if value is not MISSING:
                found.append((encoded, key, value))
        return found

    def stored(self, low: bytes, high: bytes, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return key bytes and the engine's values of the rows on disk in a range, as of now."""
        prefix, cut = self.prefix, len(self.prefix)
        if self.engine is None or (high and high <= low):
            return iter(())
        end = prefix + high if high else after(prefix)
        rows = self.engine.scan(prefix + low, end, reverse=reverse)
        return ((name[cut:], data) for name, data in rows)

    def scan(
        self,
        low: bytes,
        high: bytes,
        show: Callable[[Entry], Any],
        *,
        reverse: bool = False,
        read: Callable[[bytes], Entry] | None = None,
    ) -> StoreIterator[Any]:
        """Iterate over the entries from `low` to before `high`, in key byte order.

        An empty `high` is the end. Entries are decoded by their serde, or by `read`.
        """
        memory = self._in_memory(low, high)
        known = {found[0] for found in memory}
        live = [
            found for found in (reversed(memory) if reverse else memory) if found[2] is not None
        ]
        rows: Iterable[Found] = live
        if self.engine is not None:
            convert = self.codec.from_engine
            below = (
                (encoded, MISSING, convert(data))
                for encoded, data in self.stored(low, high, reverse=reverse)
                if encoded not in known
            )
            rows = heapq.merge(live, below, key=itemgetter(0), reverse=reverse) if live else below
        return StoreIterator(self._shown(rows, show, read or self.codec.entry), self._iterators)

    def _shown(
        self,
        rows: Iterable[Found],
        show: Callable[[Entry], Any],
        read_entry: Callable[[bytes], Entry],
    ) -> Generator[Any, None, None]:
        read_key, faithful = self.codec.object_key, self.codec.faithful
        for encoded, index, value in rows:
            key = index if faithful and index is not MISSING else read_key(encoded)
            yield key, show(read_entry(value) if type(value) is bytes else value)

    def approximate_num_entries(self) -> int:
        """Return the approximate number of keys.

        It is exact in memory. With an engine it is the engine's estimate for all stores of the
        task.
        """
        deleted = {
            key
            for keys in (self._deleted, self._frozen_deleted)
            for key in keys
            if self._view.get(key, MISSING) is None
        }
        here = self.resident_rows() - len(deleted)
        return here if self.engine is None else max(here, self.engine.estimated_keys())
