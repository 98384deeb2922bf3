"""The life cycle of a store's data: uncommitted changes, changelog, commit, write to disk.

A store keeps one view in memory: the latest values, uncommitted puts included. So a read is one
lookup. Beside the view, two dicts note how to undo the puts:

    _dirty    by key, the value before the first put of the open transaction
              (a put notes it, then changes the view)
    _frozen   the same for the transaction that is being committed
              (freeze turns _dirty into _frozen, O(1))

So the frozen value of a key is in `_dirty` if the key is there, else in the view. Its committed
value is in `_frozen`, else in `_dirty`, else in the view.

    publish   forgets `_frozen`, O(1)
    drop      rolls the view back, the newer notes first

A commit moves no data. Committed but unwritten keys are collected in slices, into several small
sets: one large set would stall when it grows. They are written in slices too, each with its
committed value at that moment. The offsets follow once all is written. So on disk, offsets are
never ahead of data; data ahead of its offset is replayed from the changelog.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from itertools import compress, islice, repeat
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import WeakSet

from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.records import WORTHWHILE, Batch, EncodedBatch
from ks_actors.state.core._closed import Closed
from ks_actors.state.core._codec import TIME_BYTES, Codec, unpack_time
from ks_actors.state.core._codec_with_headers import CodecWithHeaders
from ks_actors.state.core._entry import TimeWithHeaders
from ks_actors.state.core._memory_budget import NO_LIMIT
from ks_actors.state.core._row_weight import RowWeight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ks_actors.state.core._engine import Engine, EngineRow
    from ks_actors.state.core._entry import Entry
    from ks_actors.state.core._iterators import StoreIterator
    from ks_actors.state.core._row_scan import Rows
    from ks_actors.state.core._store_for_tasks import StoreParts

MISSING: Final[Any] = type("Missing", (), {"__repr__": lambda _: "MISSING"})()
"""No value is known in memory; it may be on disk."""

SLICE: Final = 1000
"""Changelog records per slice."""

BY_KEY, BY_KEY_AND_START, BY_START_AND_KEY = range(3)
"""Shapes of dicts with entries, as numbered by `write_changes` of the kernel."""

WRITTEN_BYTES: Final = 128 << 10
"""The most bytes of a slice that is encoded in one pass.

Larger slices become columns, which share large values with the store.
"""

RECORD_BYTES: Final = 300
"""Measured heap of an uncommitted record, the replaced value included.

The bytes of the new key and value are not included.
"""

LOGGED_BYTES: Final = 32
"""The bytes of a changelog record besides key and value."""

ROWS: Final = 200
"""Rows per write, about half a millisecond."""

WHOLE: Final = 8_000
"""The most keys added to a set at once, a few tenths of a millisecond.

Adding them in pieces takes three times as long.
"""

GROUP: Final = 50_000
"""The most keys per set: growing a larger one takes more than a millisecond."""

BACKLOG: Final = 50_000
"""A store is overdue when this many published changes wait to be compacted."""

_never: Final = object()
_first: Final = itemgetter(0)
_second: Final = itemgetter(1)

Handle = TypeVar("Handle")
"""The identity of a change: a key, or a key and a window."""


class Transactional(ABC, Generic[Handle]):
    """The life cycle of one store's data. Its public members are for TaskStores alone."""

    def __init__(self, parts: StoreParts) -> None:
        codec = parts.codec
        self.name: str = codec.name
        self.logged: bool = parts.spec.logging
        self.engine: Engine | None = parts.engine
        self.prefix: bytes = b""  # set when the store is opened
        self.bare: bool = False  # nothing was ever written to the engine, so reads skip it
        self.segment_ms: int = 0  # no segments
        self.row_weight: RowWeight = RowWeight()
        self.resident_records: int = NO_LIMIT
        self.codec: Codec = codec
        self._time: Callable[[], int] = parts.record_time
        # Each read of a mutable value makes a new object.
        self.mutable: bool = codec.mutable
        # from `_least` to below this, whole numbers are read as they are
        self.bound: int = codec.bound
        self._least: int = -codec.bound
        self._text: type | None = codec.text_type
        self._sized_keys: bool = codec.sized_keys
        self._ticks: int = 0
        self._dirty: dict[Handle, Any] = {}
        self._frozen: dict[Handle, Any] = {}
        self._deleted: dict[Handle, int] = {}
        self._frozen_deleted: dict[Handle, int] = {}
        # typical bytes of key and value, unless the bytes are counted one by one
        self._typical: int = 0
        self._size: int = 0  # bytes of the changes that are counted one by one
        self._frozen_size: int = 0
        self.unwritten_bytes: int = 0
        self._published: deque[tuple[dict[Handle, Any], dict[Handle, int], bool]] = deque()
        self._unwritten: list[set[Handle]] = []
        self._writing: deque[set[Handle]] = deque()
        self._iterators: WeakSet[StoreIterator[Any]] = WeakSet()
        # queries in progress: commits note replaced values for them
        self.readers: WeakSet[Rows] = WeakSet()

    def admit(self, key: Any, value: Any) -> Any:
        """Return an immutable value as reads after its put return it.

        Only operators call this. Raises SerializationError.
        """
        return self.codec.admit(key, value)

    # The hooks of each kind of store.

    @abstractmethod
    def _now(self, handle: Handle) -> Any:
        """Return the view's value: an entry, its bytes, None, or MISSING."""

    @abstractmethod
    def _put_back(self, handle: Handle, value: Any) -> None:
        """Restore an earlier value of `_now` in the view."""

    @abstractmethod
    def _frozen_values(self, handles: list[Handle]) -> list[Any]:
        """Return the frozen values of these handles, as `_frozen_value` does for one handle."""

    @abstractmethod
    def _log_keys(self, handles: list[Handle]) -> list[bytes]:
        """Return the changelog keys of these handles."""

    def _now_all(self, handles: list[Handle]) -> list[Any]:
        """Return the view's values."""
        return list(map(self._now, handles))

    @abstractmethod
    def _engine_key(self, handle: Handle) -> bytes:
        """Return the value's key in the engine."""

    @abstractmethod
    def below(self, handle: Handle) -> bytes | None:
        """Return the bytes of the entry below memory, without caching them."""

    @abstractmethod
    def _drop_tombstone(self, handle: Handle) -> None:
        """Remove the tombstone of a deletion that is written, or of a store without engine."""

    @abstractmethod
    def restore(self, batch: Batch) -> None:
        """Apply records of the changelog as committed."""

    @abstractmethod
    def resident_rows(self) -> int:
        """Return the number of rows in memory, in O(1)."""

    # The open transaction and its end.

    def uncommitted_bytes(self) -> int:
        """Return the approximate bytes of the open transaction, in O(1)."""
        return len(self._dirty) * (RECORD_BYTES + self._typical) + self._size

    def freeze(self) -> None:
        """Begin a new transaction and freeze the open one for commit."""
        self._frozen_size, self._size = (
            len(self._dirty) * (LOGGED_BYTES + self._typical) + self._size,
            0,
        )
        # Swapped, not copied: a freeze takes the same time for any number of changes.
        self._frozen, self._dirty = self._dirty, {}
        self._frozen_deleted, self._deleted = self._deleted, {}

    def _note_headers_of_delete(self, handle: Handle) -> None:
        """Note the current record's headers if it has just made a delete."""
        headers, time = self.codec.record_headers(), self._deleted.get(handle)
        if headers and time is not None:
            self._deleted[handle] = TimeWithHeaders(time, headers)

    def _frozen_value(self, handle: Handle) -> Any:
        dirty = self._dirty
        return dirty[handle] if handle in dirty else self._now(handle)

    def _raw(self, handle: Handle, value: Any) -> bytes:
        """Return the bytes of an entry, encoded or not; raises SerializationError."""
        return value if type(value) is bytes else self.codec.written(handle, value)

    def publish(self, *, written: bool) -> int:
        """Mark the frozen transaction as committed; return its number of records.

        `written` says that the engine already has the changes.
        """
        frozen = self._frozen
        if not frozen:
            return 0
        self.row_weight.learn(latest := next(reversed(frozen)), self._frozen_value(latest))
        if len(self.readers) and (looking := [reader for reader in self.readers if reader.looking]):
            replaced = dict(frozen)  # a copy, because `compact` consumes the notes
            for reader in looking:
                reader.note(replaced)
        # Compacted later, in slices: a commit must take the same time for any number of changes.
        self._published.append((frozen, self._frozen_deleted, written))
        if self.engine is not None and not written:
            self.unwritten_bytes += self._frozen_size
        self._frozen, self._frozen_deleted = {}, {}
        return len(frozen)

    def _preserve(self, handles: Iterable[Handle]) -> None:
        """Note for readers the committed values below memory, before they are overwritten."""
        for reader in list(self.readers):
            for layer in reader.layers:
                for handle in handles:
                    if layer.get(handle) is MISSING:
                        layer[handle] = self.below(handle)

    def end_reading(self, reason: str) -> None:
        """End all queries of this store: further reads raise StoreClosed."""
        for reader in list(self.readers):
            reader.void(reason)

    def drop(self) -> None:
        """Roll back to the last commit."""
        for changes in (self._dirty, self._frozen):
            # The open transaction first, then the frozen one: each undoes the values that it
            # replaced.
            for handle, value in changes.items():
                self._put_back(handle, value)
        self._dirty, self._frozen = {}, {}
        self._deleted, self._frozen_deleted = {}, {}
        self._size = 0

    def _committed_value(self, handle: Handle) -> Any:
        frozen = self._frozen
        return frozen[handle] if handle in frozen else self._frozen_value(handle)

    # Reads of queries: of the latest view, or of the committed one.

    def view(self, *, committed: bool) -> Callable[[Handle], Any]:
        """Return a function that returns a value: an entry, its bytes, None, or MISSING."""
        return self._committed_value if committed else self._now

    def shown(self, handle: Handle, value: Any) -> Entry | None:
        """Return the entry of a value that was read; a mutable one is a copy."""
        if value is MISSING:
            value = self.below(handle)
        if value is None:
            return None
        return self.codec.entry(value) if type(value) is bytes else value

    def uncommitted_values(self) -> dict[Handle, Any]:
        """Return the latest values of all puts since the last commit."""
        now = self._now
        return {handle: now(handle) for notes in (self._frozen, self._dirty) for handle in notes}

    def read_as_of(self, handle: Handle, layers: list[dict[Any, Any]]) -> Any:
        """Return a value as of the start of a query, which has noted later changes in `layers`.

        The first layer of a query of latest state is `uncommitted_values`.
        """
        for layer in layers:
            if handle in layer:
                return layer[handle]
        return self._committed_value(handle)

    # The changelog.

    def changelog(self, *, batch_bytes: int = 0, marked: bool = False) -> Iterator[Batch]:
        """Return the frozen changes, the last value of each key, in slices.

        `batch_bytes` is the log's largest batch. Such a log gets encoded slices if one pass can
        encode them; other logs get columns. With `marked` the last slice is columns too, because
        the caller adds headers to its last record.
        """
        handles = list(self._frozen)
        for start in range(0, len(handles), SLICE):
            part = handles[start : start + SLICE]
            last = start + SLICE >= len(handles)
            yield self._written_slice(
                part, 0 if last and marked else min(batch_bytes, WRITTEN_BYTES)
            ) or self._slice_of_columns(part)

    def _written_slice(self, handles: list[Handle], limit: int) -> Batch | None:
        """Return the frozen changes encoded; None if columns are required, or just as fast."""
        known = None if limit <= 0 or len(handles) < WORTHWHILE else self._known_forms()
        if known is None:
            return None
        entries, forms = known
        written = _kernel.write_changes(
            (entries, self._dirty, self._frozen_deleted), handles, forms, limit
        )
        return None if written is None else EncodedBatch(written[0], len(handles), *written[1:])

    def _known_forms(self) -> tuple[dict[Any, Any], tuple[int, int, int]] | None:
        """Return the dict of entries and the kernel's numbers for its shape, keys and values.

        Return None when the kernel does not know the shape, the keys or the values.
        """
        found, keys, values = self._entries(), self.codec.key_form, self.codec.value_form
        if not HAS_KERNEL or self.mutable or found is None or keys is None or values is None:
            return None
        entries, shape = found
        return entries, (shape, keys, values)

    def _entries(self) -> tuple[dict[Any, Any], int] | None:
        """Return the dict of entries and its shape; None for stores with their own row format."""
        return None

    def _slice_of_columns(self, handles: list[Handle]) -> Batch:
        keys = self._log_keys(handles)
        if isinstance(self.codec, CodecWithHeaders):
            values = self._frozen_values(handles)
            return self.codec.logged(keys, handles, values, self._frozen_deleted.__getitem__)
        columns = None if self.mutable else self._frozen_columns(handles)
        try:
            contents: list[bytes | None] | None = (
                None if columns is None else [*self.codec.values(columns[0])]
            )
        except Exception:  # noqa: BLE001 - the row-by-row path raises it again and names the row
            contents = None
        return (
            self._slow_slice(handles, keys)
            if columns is None or contents is None
            else Batch(keys, contents, columns[1])
        )

    def _frozen_columns(self, handles: list[Handle]) -> tuple[list[Any], list[int]] | None:
        """Return values and timestamps of the frozen changes; None unless all are entries."""
        values = self._frozen_values(handles)
        return (
            (list(map(_first, values)), list(map(_second, values)))
            if set(map(type, values)) == {tuple}
            else None
        )

    def _slow_slice(self, handles: list[Handle], keys: list[bytes]) -> Batch:
        contents: list[bytes | None] = []
        timestamps: list[int] = []
        for handle, value in zip(handles, self._frozen_values(handles), strict=True):
            if value is None or value is MISSING:
                contents.append(None)
                timestamps.append(self._frozen_deleted[handle])
            else:
                raw = self._raw(handle, value)
                contents.append(raw[TIME_BYTES:])
                timestamps.append(unpack_time(raw)[0])
        return Batch(keys, contents, timestamps)

    # The way to the engine.

    def frozen_rows(self) -> list[EngineRow]:
        """Return the engine's rows of all frozen changes."""
        self.bare = False
        return [self._row(handle, self._frozen_value(handle)) for handle in self._frozen]

    def _row(self, handle: Handle, value: Any) -> EngineRow:
        data = (
            None
            if value is None or value is MISSING
            else self.codec.to_engine(self._raw(handle, value))
        )
        return (self._engine_key(handle), data)

    def uncompacted(self) -> int:
        """Return the number of published changes that are not yet compacted."""
        return sum(len(changes) + len(deleted) for changes, deleted, _ in self._published)

    def waiting_rows(self) -> int:
        """Return the number of rows to write or to compact."""
        return self.uncompacted() + sum(map(len, self._unwritten)) + sum(map(len, self._writing))

    def memory_bytes(self) -> int:
        """Return the store's approximate size in memory (bytes)."""
        return self.row_weight.total(self.resident_rows(), self.waiting_rows())

    @property
    def overdue(self) -> bool:
        """Whether many published changes wait to be compacted."""
        return self.uncompacted() >= BACKLOG

    def wants_eviction(self, *, idle: bool) -> bool:
        """Return whether many changes wait for work in memory; if `idle`, whether any do."""
        return bool(self.uncompacted()) if idle else self.overdue

    def compact(self, count: int) -> bool:
        """Compact about `count` published changes: note each row once for writing, or forget it.

        Return whether all are compacted.
        """
        published, done = self._published, self.engine is None
        while published and count > 0:
            changes, deleted, written = published[0]
            # Tombstones first: a row whose deletion is on disk needs no place in memory.
            while deleted and count > 0:
                if done or written:
                    self._drop_tombstone(deleted.popitem()[0])
                    count -= 1
                else:
                    deleted.clear()  # tombstones are removed when they are written
            if not (done or written) and len(changes) <= WHOLE:
                count -= len(changes)
                self._group().update(changes)  # a dict's keys carry their hashes
                published.popleft()
                continue
            todo = min(count, len(changes))
            count -= todo
            # in pieces: freeing a large dict takes long
            pairs = islice(iter(changes.popitem, _never), todo)
            if done or written:
                self._forget(pairs)
            else:
                self._group().update(map(_first, pairs))
            if not changes and not deleted:
                published.popleft()
        return not published

    def _note_unwritten(self, size: int) -> None:
        """Count the bytes of unwritten rows that came without a put, such as restored rows."""
        self.unwritten_bytes += size

    def _forget(self, pairs: Iterator[tuple[Handle, Any]]) -> None:
        """Forget published changes that are written or have no engine."""
        deque(pairs, maxlen=0)

    def _group(self) -> set[Handle]:
        """Return the set that collects handles for writing."""
        groups = self._unwritten
        if not groups or len(groups[-1]) >= GROUP:
            groups.append(set())
        return groups[-1]

    def _clean(self, handles: Iterable[Handle]) -> set[Handle]:
        """Return the handles with a current row in the engine; none until all is compacted."""
        if self._published:
            return set()
        return (
            set(handles)
            .difference(self._dirty)
            .difference(self._frozen)
            .difference(*self._unwritten, *self._writing)
        )

    def has_unwritten(self) -> bool:
        """Return whether committed changes are missing in the engine."""
        return self.engine is not None and bool(self._published or self._writing or self._unwritten)

    def begin_write(self) -> None:
        """Select the compacted changes for writing.

        Changes that remain from an earlier write stay in front.
        """
        self.bare = False
        self._writing.extend(self._unwritten)
        self._unwritten = []
        self.unwritten_bytes = 0

    def write_slices(self, engine: Engine) -> Iterator[None]:
        """Write the changes, one slice per step; a slice that fails remains unwritten."""
        writing = self._writing
        while writing:
            group = writing[0]
            handles = [group.pop() for _ in range(min(ROWS, len(group)))]
            later = list(islice(writing, 1, None))
            try:
                for other in later:
                    # skip handles that are also in later groups, which will write them
                    if not other.isdisjoint(handles):
                        handles = [handle for handle in handles if handle not in other]
                self._write(engine, handles)
            except BaseException:
                group.update(handles)  # the skipped handles are still in later groups
                raise
            if not group:
                writing.popleft()
            yield

    def _write(self, engine: Engine, handles: list[Handle]) -> None:
        rows = self._rows_at_a_stroke(handles)
        if rows is None:
            self._write_one_by_one(engine, handles)
            return
        if self.readers:
            self._preserve(handles)
        engine.write(rows)

    def _rows_at_a_stroke(self, handles: list[Handle]) -> list[EngineRow] | None:
        """Return the engine's rows of these handles in its order, made in one pass.

        Return None when some rows are deleted or have to be handled one by one.
        """
        # the kernel's numbers have 64 bits
        known = None if self.segment_ms >> 63 else self._known_forms()
        if known is None:
            return None
        entries, forms = known
        timed = self.codec.timestamped
        return _kernel.engine_rows(
            (entries, self._frozen, self._dirty),
            handles,
            (*forms, timed, self.segment_ms),
            self.prefix,
        )

    def _write_one_by_one(self, engine: Engine, handles: list[Handle]) -> None:
        values = self._committed_values(handles)
        # a newer record was restored meanwhile, or the row has expired
        if MISSING in values:
            here = [value is not MISSING for value in values]
            handles, values = list(compress(handles, here)), list(compress(values, here))
        rows = self._rows(handles, values)
        rows.sort()
        if self.readers:
            self._preserve(handles)
        engine.write(rows)
        if None in values:
            for handle in compress(handles, map(is_, values, repeat(None))):
                self._drop_tombstone(handle)

    def _committed_values(self, handles: list[Handle]) -> list[Any]:
        """Return the committed value of each handle, or MISSING."""
        frozen, dirty, now = self._frozen, self._dirty, self._now
        if frozen.keys().isdisjoint(handles) and dirty.keys().isdisjoint(handles):
            return self._now_all(handles)
        return [
            frozen[handle]
            if handle in frozen
            else dirty[handle]
            if handle in dirty
            else now(handle)
            for handle in handles
        ]

    def _rows(self, handles: list[Handle], values: list[Any]) -> list[EngineRow]:
        """Return the engine's rows of these handles; a None value deletes."""
        return list(map(self._row, handles, values))

    @abstractmethod
    def evict(self) -> Iterator[None]:
        """Evict rows from memory, a slice per step, after all is written."""

    def facts(self, *, frozen: bool = False) -> bytes | None:  # noqa: ARG002 - windows have facts
        """Return the store's facts to persist besides entries and offset.

        They include the frozen transaction if `frozen` is set. Stores without times return None.
        """
        return None

    def recall(self, facts: bytes) -> None:
        """Restore the state that `facts` returned before the close."""

    def close(self) -> None:
        """Release the memory; every later use raises StoreClosed."""
        for iterator in list(self._iterators):
            iterator.cut_off(self.name)
        self.end_reading(f"store {self.name} is closed, as its task is")
        self._dirty = self._frozen = Closed(self.name)
        self._published.clear()
        self._unwritten = []
        self._writing.clear()
        self.engine = None
