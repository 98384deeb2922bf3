"""What a store has changed since the last commit, and how that becomes committed, and reaches the disk.

A store keeps one view of what is in memory, the latest, uncommitted puts included: so a read is one look-up. What undoes the puts is noted beside it:

    _dirty    by key, the value before the first put of this transaction      put: note it, change the view
    _frozen   the same of the transaction that is being committed             freeze: dirty becomes frozen, O(1)
                                                                               keep: frozen is forgotten, O(1)
                                                                               drop: the view goes back, the newer notes first

So what is committed under a key is what the older notes say: frozen, else dirty, else the view; what was frozen is what dirty says, else the view.
A commit moves no data. Keys that are committed and not yet written are collected in slices, into several small sets: one large one would stall when
it grows. They are written in slices too, with the value that is committed at that moment; offsets follow when all is written, so on disk they are
never ahead of data, and data that is ahead of them comes again with the changelog.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from itertools import compress, islice, repeat
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import WeakSet

from ks_actors._batch import Batch
from ks_actors.state._closed import Closed
from ks_actors.state._codec import TIME_BYTES, Codec, unpack_time
from ks_actors.state._memory import Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ks_actors.state._engine import Engine, Row
    from ks_actors.state._iterators import StoreIterator
    from ks_actors.state._rows import Rows

MISSING: Final[Any] = type("Missing", (), {"__repr__": lambda _: "MISSING"})()
"""Nothing is known in memory: not even that there is nothing."""

SLICE: Final = 1000
"""Records of the changelog that are made in one go."""

ROWS: Final = 200
"""Rows that are written in one go, about half a millisecond."""

RECORD_BYTES: Final = 300
"""Heap that an uncommitted record takes besides the bytes of key and value: measured, the value that it replaces included."""

LOGGED_BYTES: Final = 32
"""What a record in a changelog takes besides key and value."""

WHOLE: Final = 8_000
"""Keys that are taken into a set at once, a few tenths of a millisecond: in pieces they take three times as long."""

GROUP: Final = 50_000
"""Keys that are collected in one set: to grow a larger one takes longer than a millisecond."""

BACKLOG: Final = 50_000
"""Kept changes that have not been looked at, from which on somebody should."""

_never: Final = object()
_first: Final = itemgetter(0)
_second: Final = itemgetter(1)

Handle = TypeVar("Handle")
"""What a change is noted under: a key, or a key and a window."""


class Transactional(ABC, Measured, Generic[Handle]):
    """The life of one store's data. What is public here is for TaskStores alone."""

    def __init__(self, codec: Codec, engine: Engine | None, prefix: bytes, record_time: Callable[[], int], *, logged: bool) -> None:
        self.name: str = codec.name
        self.logged: bool = logged
        self.engine: Engine | None = engine
        self.prefix: bytes = prefix
        self.bare: bool = False  # nothing of it was ever written to the engine, which need not be asked
        self.segment_ms: int = 0  # none
        self.unwritten_bytes: int = 0
        self._codec: Codec = codec
        self._time: Callable[[], int] = record_time
        self._mutable: bool = codec.mutable
        self._dirty: dict[Handle, Any] = {}
        self._frozen: dict[Handle, Any] = {}
        self._deleted: dict[Handle, int] = {}
        self._frozen_deleted: dict[Handle, int] = {}
        self._typical: int = 0  # bytes of a key and a value, where they are not counted one by one
        self._size: int = 0  # of those that are
        self._frozen_size: int = 0
        self._kept: deque[tuple[dict[Handle, Any], dict[Handle, int], bool]] = deque()
        self._unwritten: list[set[Handle]] = []
        self._writing: deque[set[Handle]] = deque()
        self._iterators: WeakSet[StoreIterator[Any]] = WeakSet()
        self.readers: WeakSet[Rows] = WeakSet()  # of queries: what they began with is noted until they are done

    # What the kinds of stores differ in.

    @abstractmethod
    def _now(self, handle: Handle) -> Any:
        """Return the view's value: an entry, its bytes, None, or MISSING."""

    def _now_all(self, handles: list[Handle]) -> list[Any]:
        """Return the view's values."""
        return list(map(self._now, handles))

    @abstractmethod
    def _put_back(self, handle: Handle, value: Any) -> None:
        """Set the view to a value that `_now` returned once."""

    @abstractmethod
    def _frozen_values(self, handles: list[Handle]) -> list[Any]:
        """Return the values that were frozen, as `_frozen_value` does for one."""

    @abstractmethod
    def _log_keys(self, handles: list[Handle]) -> list[bytes]:
        """Return the keys of the changes' records in the changelog."""

    @abstractmethod
    def _engine_key(self, handle: Handle) -> bytes:
        """Return the key of the value in the engine."""

    @abstractmethod
    def below(self, handle: Handle) -> bytes | None:
        """Return the bytes of the entry that lies below memory, without remembering them."""

    @abstractmethod
    def _settled(self, handle: Handle) -> None:
        """Take note that nothing of this key is left to write: a deletion need not be remembered any more."""

    @abstractmethod
    def restore(self, batch: Batch) -> None:
        """Take in records of the changelog, as committed."""

    def uncommitted_bytes(self) -> int:
        """Return about how much memory the open transaction takes, in O(1)."""
        return len(self._dirty) * (RECORD_BYTES + self._typical) + self._size

    def freeze(self) -> None:
        """Begin a new transaction; the one that was open is being committed."""
        self._frozen_size, self._size = len(self._dirty) * (LOGGED_BYTES + self._typical) + self._size, 0
        self._frozen, self._dirty = self._dirty, {}
        self._frozen_deleted, self._deleted = self._deleted, {}

    def keep(self, *, written: bool) -> int:
        """Take what is frozen as committed, `written` when it is in the engine already; return how many records that are."""
        frozen = self._frozen
        if not frozen:
            return 0
        self.weigh_row(latest := next(reversed(frozen)), self._frozen_value(latest))
        if len(self.readers) and (looking := [reader for reader in self.readers if reader.looking]):
            replaced = dict(frozen)  # a copy, as the notes are used up
            for reader in looking:
                reader.note(replaced)
        self._kept.append((frozen, self._frozen_deleted, written))
        if self.engine is not None and not written:
            self.unwritten_bytes += self._frozen_size
        self._frozen, self._frozen_deleted = {}, {}
        return len(frozen)

    def _preserve(self, handles: Iterable[Handle]) -> None:
        """Before something is written over: note for readers what was below memory when it was committed."""
        for reader in list(self.readers):
            for layer in reader.layers:
                for handle in handles:
                    if layer.get(handle) is MISSING:
                        layer[handle] = self.below(handle)

    def end_reading(self, reason: str) -> None:
        """Tell those who read that there is nothing more to be had."""
        for reader in list(self.readers):
            reader.void(reason)

    def drop(self) -> None:
        """Go back to what is committed."""
        for changes in (self._dirty, self._frozen):
            for handle, value in changes.items():
                self._put_back(handle, value)
        self._dirty, self._frozen = {}, {}
        self._deleted, self._frozen_deleted = {}, {}
        self._size = 0

    def _frozen_value(self, handle: Handle) -> Any:
        dirty = self._dirty
        return dirty[handle] if handle in dirty else self._now(handle)

    def _committed_value(self, handle: Handle) -> Any:
        frozen = self._frozen
        return frozen[handle] if handle in frozen else self._frozen_value(handle)

    def _raw(self, handle: Handle, value: Any) -> bytes:
        """Return the bytes of an entry that may be encoded already; raises SerializationError."""
        if type(value) is bytes:
            return value
        try:
            return self._codec.raw(value)
        except Exception as error:  # noqa: BLE001 - whatever a serde raises means that the object is bad
            self._codec.refuse(handle, value[0], error)

    def _encoded(self, handle: Handle, value: Any) -> bytes:
        """Return the bytes of a value of what is frozen; a mutable one is bytes from now on."""
        raw = self._raw(handle, value)
        if self._mutable and raw is not value:
            if handle in self._dirty:
                self._dirty[handle] = raw
            else:
                self._put_back(handle, raw)
        return raw

    # The changelog.

    def changelog(self) -> Iterator[Batch]:
        """Return what is frozen, the last value of each key, in slices."""
        handles = list(self._frozen)
        for start in range(0, len(handles), SLICE):
            part = handles[start : start + SLICE]
            keys = self._log_keys(part)
            columns = None if self._mutable else self._frozen_columns(part)
            try:
                contents: list[bytes | None] | None = None if columns is None else [*self._codec.values(columns[0])]
            except Exception:  # noqa: BLE001 - it comes again, with the name of the one that it was
                contents = None
            yield self._slow_slice(part, keys) if columns is None or contents is None else Batch(keys, contents, columns[1])

    def _frozen_columns(self, handles: list[Handle]) -> tuple[list[Any], list[int]] | None:
        """Return values and timestamps of what is frozen; None when not all are entries."""
        values = self._frozen_values(handles)
        return (list(map(_first, values)), list(map(_second, values))) if set(map(type, values)) == {tuple} else None

    def _slow_slice(self, handles: list[Handle], keys: list[bytes]) -> Batch:
        contents: list[bytes | None] = []
        timestamps: list[int] = []
        for handle, value in zip(handles, self._frozen_values(handles), strict=True):
            if value is None or value is MISSING:
                contents.append(None)
                timestamps.append(self._frozen_deleted[handle])
            else:
                raw = self._encoded(handle, value)
                contents.append(raw[TIME_BYTES:])
                timestamps.append(unpack_time(raw)[0])
        return Batch(keys, contents, timestamps)

    # The way to the engine.

    def frozen_rows(self) -> list[Row]:
        """Return all that is frozen as rows of the engine, to be written."""
        self.bare = False
        return [self._row(handle, self._frozen_value(handle)) for handle in self._frozen]

    def _row(self, handle: Handle, value: Any) -> Row:
        data = None if value is None or value is MISSING else self._codec.to_engine(self._raw(handle, value))
        return (self._engine_key(handle), data)

    def unsettled(self) -> int:
        """Return how many changes were kept and not looked at since."""
        return sum(len(changes) + len(deleted) for changes, deleted, _ in self._kept)

    def waiting_rows(self) -> int:
        """Return of how many rows something is to be written, or to be looked at."""
        return self.unsettled() + sum(map(len, self._unwritten)) + sum(map(len, self._writing))

    @property
    def overdue(self) -> bool:
        """Whether so many changes were kept and not looked at that somebody should."""
        return self.unsettled() >= BACKLOG

    def wants_tidying(self, *, idle: bool) -> bool:
        """Return whether there is enough to be done in memory for somebody to do it; while `idle`, whether there is anything."""
        return bool(self.unsettled()) if idle else self.overdue

    def settle(self, count: int) -> bool:
        """Look at about `count` changes that were kept: they are to be written, or done with; return whether that was all."""
        kept, done = self._kept, self.engine is None
        while kept and count > 0:
            changes, deleted, written = kept[0]
            while deleted and count > 0:
                if done or written:
                    self._settled(deleted.popitem()[0])
                    count -= 1
                else:
                    deleted.clear()  # they are done with when they are written
            if not (done or written) and len(changes) <= WHOLE:
                count -= len(changes)
                self._group().update(changes)  # a dict's keys have their hashes with them
                kept.popleft()
                continue
            todo = min(count, len(changes))
            count -= todo
            pairs = islice(iter(changes.popitem, _never), todo)  # in pieces, as to free a large dict takes long
            if done or written:
                self._forget(pairs)
            else:
                self._group().update(map(_first, pairs))
            if not changes and not deleted:
                kept.popleft()
        return not kept

    def _note_unwritten(self, size: int) -> None:
        """Count what is committed, and not in the engine, without having been put here."""
        self.unwritten_bytes += size

    def _forget(self, pairs: Iterator[tuple[Handle, Any]]) -> None:
        """Take note that nothing of what was kept is left to write."""
        deque(pairs, maxlen=0)

    def _group(self) -> set[Handle]:
        """Return the set that takes what is to be written."""
        groups = self._unwritten
        if not groups or len(groups[-1]) >= GROUP:
            groups.append(set())
        return groups[-1]

    def _clean(self, handles: Iterable[Handle]) -> set[Handle]:
        """Return those of which the engine has what the view has; none as long as not all is settled."""
        if self._kept:
            return set()
        return set(handles).difference(self._dirty).difference(self._frozen).difference(*self._unwritten, *self._writing)

    def has_unwritten(self) -> bool:
        """Return whether something is committed that the engine does not have."""
        return self.engine is not None and bool(self._kept or self._writing or self._unwritten)

    def begin_write(self) -> None:
        """Take what is settled as what is to be written; what a write before this one has left stays in front."""
        self.bare = False
        self._writing.extend(self._unwritten)
        self._unwritten = []
        self.unwritten_bytes = 0

    def write_slices(self, engine: Engine) -> Iterator[None]:
        """Write it, a slice per step; what a failing step would have written stays to be written."""
        writing = self._writing
        while writing:
            group = writing[0]
            handles = [group.pop() for _ in range(min(ROWS, len(group)))]
            later = list(islice(writing, 1, None))
            try:
                for other in later:
                    if not other.isdisjoint(handles):  # they are written with the other group
                        handles = [handle for handle in handles if handle not in other]
                self._write(engine, handles)
            except BaseException:
                group.update(handles)  # what is in another group is written all the same
                raise
            if not group:
                writing.popleft()
            yield

    def _write(self, engine: Engine, handles: list[Handle]) -> None:
        values = self._committed_values(handles)
        if MISSING in values:  # a newer record was restored meanwhile, or it has expired
            here = [value is not MISSING for value in values]
            handles, values = list(compress(handles, here)), list(compress(values, here))
        rows = self._rows(handles, values)
        rows.sort()
        if self.readers:
            self._preserve(handles)
        engine.write(rows)
        if None in values:
            for handle in compress(handles, map(is_, values, repeat(None))):
                self._settled(handle)

    def _committed_values(self, handles: list[Handle]) -> list[Any]:
        """Return what is committed of each, or MISSING."""
        frozen, dirty, now = self._frozen, self._dirty, self._now
        if frozen.keys().isdisjoint(handles) and dirty.keys().isdisjoint(handles):
            return self._now_all(handles)
        return [frozen[handle] if handle in frozen else dirty[handle] if handle in dirty else now(handle) for handle in handles]

    def _rows(self, handles: list[Handle], values: list[Any]) -> list[Row]:
        """Return the engine's rows of these, None for a value deletes."""
        return list(map(self._row, handles, values))

    @abstractmethod
    def tidy(self) -> Iterator[None]:
        """Make room in memory, a slice per step, after all is written."""

    def facts(self, *, frozen: bool = False) -> bytes | None:  # noqa: ARG002 - windows have such facts
        """Return what is to be remembered on disk besides entries and offset, with or without what is frozen."""
        return None

    def recall(self, facts: bytes) -> None:
        """Take up what `facts` returned before the store was closed."""

    def close(self) -> None:
        """Let go of the memory; every later use raises StoreClosed."""
        for iterator in list(self._iterators):
            iterator.cut_off(self.name)
        self.end_reading(f"store {self.name} is closed, as its task is")
        self._dirty = self._frozen = Closed(self.name)
        self._kept.clear()
        self._unwritten = []
        self._writing.clear()
        self.engine = None
