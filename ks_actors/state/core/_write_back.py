"""How what a store has changed becomes committed, and reaches the disk.

What is committed under a key is what the older notes (see `_changes`) say: frozen, else dirty, else the view.

    keep    frozen is forgotten, O(1)
    drop    the view goes back, the newer notes first

A commit moves no data. Keys that are committed and not yet written are collected in slices, into several small sets: one large one would stall when
it grows. They are written in slices too, with the value that is committed at that moment; offsets follow when all is written, so on disk they are
never ahead of data, and data that is ahead of them comes again with the changelog.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from itertools import compress, islice, repeat
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic
from weakref import WeakSet

from ks_actors.kernel import kernel as _kernel
from ks_actors.state.core._closed import Closed
from ks_actors.state.core._undo_log import MISSING, Handle, UndoLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ks_actors.records import Batch
    from ks_actors.state.core._codec import Codec
    from ks_actors.state.core._iterators import StoreIterator
    from ks_actors.state.core._row_scan import Rows
    from ks_actors.state.disk import Engine, Row

ROWS: Final = 200
"""Rows that are written in one go, about half a millisecond."""

WHOLE: Final = 8_000
"""Keys that are taken into a set at once, a few tenths of a millisecond: in pieces they take three times as long."""

GROUP: Final = 50_000
"""Keys that are collected in one set: to grow a larger one takes longer than a millisecond."""

BACKLOG: Final = 50_000
"""Kept changes that have not been looked at, from which on somebody should."""

_never: Final = object()
_first: Final = itemgetter(0)


class Transactional(UndoLog[Handle], Generic[Handle]):
    """The life of one store's data. What is public here is for TaskStores alone."""

    def __init__(self, codec: Codec, engine: Engine | None, prefix: bytes, record_time: Callable[[], int], *, logged: bool) -> None:
        super().__init__(codec, record_time)
        self.logged: bool = logged
        self.engine: Engine | None = engine
        self.prefix: bytes = prefix
        self.bare: bool = False  # nothing of it was ever written to the engine, which need not be asked
        self.segment_ms: int = 0  # none
        self.unwritten_bytes: int = 0
        self._kept: deque[tuple[dict[Handle, Any], dict[Handle, int], bool]] = deque()
        self._unwritten: list[set[Handle]] = []
        self._writing: deque[set[Handle]] = deque()
        self._iterators: WeakSet[StoreIterator[Any]] = WeakSet()
        self.readers: WeakSet[Rows] = WeakSet()  # of queries: what they began with is noted until they are done

    # What the kinds of stores differ in.

    def _now_all(self, handles: list[Handle]) -> list[Any]:
        """Return the view's values."""
        return list(map(self._now, handles))

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

    def _committed_value(self, handle: Handle) -> Any:
        frozen = self._frozen
        return frozen[handle] if handle in frozen else self._frozen_value(handle)

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
        rows = self._rows_at_a_stroke(handles)
        if rows is None:
            self._write_one_by_one(engine, handles)
            return
        if self.readers:
            self._preserve(handles)
        engine.write(rows)

    def _rows_at_a_stroke(self, handles: list[Handle]) -> list[Row] | None:
        """Return the engine's rows of these, in its order; None when some were deleted, or have to be looked at."""
        known = None if self.segment_ms >> 63 else self._known_forms()  # a number of the kernel has no more bits
        if known is None:
            return None
        entries, forms = known
        timed = self._codec.timestamped
        rows: list[Row] | None = _kernel.engine_rows((entries, self._frozen, self._dirty), handles, (*forms, timed, self.segment_ms), self.prefix)
        return rows

    def _write_one_by_one(self, engine: Engine, handles: list[Handle]) -> None:
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
