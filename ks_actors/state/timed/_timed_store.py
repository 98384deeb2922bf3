"""The common part of window and session stores: slots by key, expiry, and rows on disk."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections import deque
from contextlib import suppress
from itertools import islice
from operator import add
from typing import TYPE_CHECKING, Any, Final

from ks_actors._errors import SerializationError
from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.state.core import (
    MISSING,
    SLICE,
    TEXTS,
    Closed,
    Transactional,
    average,
    pack_time,
    weigh,
    with_value,
)
from ks_actors.state.timed._expiry import expire
from ks_actors.state.timed._segmented_rows import Found, SegmentedRows
from ks_actors.state.timed._slot_form import SEGMENT, WINDOWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ks_actors.records import Batch
    from ks_actors.state.core import Engine, EngineRow, Entry, StoreParts
    from ks_actors.state.timed._slot_form import SlotForm

Track = dict[int, Any]
"""The values of one key by slot."""
VISITS: Final = 200
"""Keys that each commit checks for expired slots."""
OVERDUE: Final = 5_000
"""A sweep is overdue when so many keys wait for it."""
TRACK_BYTES: Final = 300
"""The bytes that a key takes besides its rows."""
_FEW: Final = 8


class TimedStore(SegmentedRows, Transactional[tuple[Any, int]]):
    """Values by key and slot: the base of window and session stores.

    A slot identifies a window among the windows of its key: by its start, or a session by its end
    and start.

    All windows that start (sessions: end) at the low-water mark `_low` or later are in memory.
    Older windows may be on disk only and are looked up by key. The engine has segments, so that
    expired rows are deleted in one piece.

    Expired rows leave memory by time ranges. Each range lists the keys that have a slot in it. Once
    it has expired, these keys are swept, a few at each commit and with each new key.
    """

    def __init__(self, parts: StoreParts, form: SlotForm = WINDOWS) -> None:
        Transactional.__init__(self, parts)
        SegmentedRows.__init__(self, parts, form)
        codec = parts.codec
        self._faithful: bool = codec.faithful
        self._simple: bool = not codec.mutable
        self._sized: bool = not codec.fixed
        self._kernel_keys: bool = HAS_KERNEL and codec.plain_keys and not form.bits
        self._tracks: dict[Any, Track] = {}
        # a track's slots in order, maintained from the first fetch of its key on
        self._orders: dict[Any, list[int]] = {}
        # keys by start, maintained from the first fetch of all keys on
        self._starts: dict[int, dict[Any, None]] | None = None
        self._low: int = 0
        # keys with all slots in memory, also those older than the mark
        self._loaded: set[Any] = set()
        self._resident: int = 0
        # keys by time range, extended with each new slot
        self._buckets: dict[int, list[Any]] = {}
        self._gone: deque[list[Any]] = deque()  # the keys of expired time ranges
        # the latest start at the last addition to each group of unwritten slots
        self._bounds: list[int] = []
        self._stale: list[set[tuple[Any, int]]] = []  # unwritten groups that have expired
        self._ring: deque[Any] = deque()  # keys to check for slots older than the low-water mark
        self._due: int = 0  # how many keys wait to be swept

    @property
    def resident_from(self) -> int:
        """The time from which on all rows are in memory; older ones may be on disk only."""
        return self._low

    def _track(self, index: Any) -> Track:
        track = self._tracks.get(index)
        if track is None:
            if self._due:
                self.sweep(2)  # growth pays for eviction: each new key sweeps two others
            track = self._tracks[index] = {}
        return track

    def _slot_at(self, time: int) -> int:
        """Return the first slot of a time by which windows expire."""
        return time << self.slot_form.bits

    def _set(self, index: Any, slot: int, value: Any) -> None:
        """Set a value that is committed already."""
        track = self._track(index)
        if slot not in track:
            self._added(index, slot)
        track[slot] = value

    def _added(self, index: Any, slot: int) -> None:
        self._resident += 1
        number = slot // self._span
        if number in self._buckets:
            self._buckets[number].append(index)
        else:
            self._buckets[number] = [index]
        if self._starts is not None:
            self._started(index, slot)

    def _started(self, index: Any, start: int) -> None:
        assert self._starts is not None
        keys = self._starts.get(start)
        if keys is None:
            self._starts[start] = {index: None}
        else:
            keys[index] = None

    def _arrange(self, index: Any, track: Track) -> list[int]:
        """Return the slots in order, including those added since the last call."""
        order = self._orders.get(index)
        if order is None:
            order = self._orders[index] = sorted(track)
            return order
        # a removal from a track forgets its order, so only additions can be missing
        fresh = list(islice(reversed(track), len(track) - len(order)))
        fresh.sort()
        if not order or fresh[0] > order[-1]:
            order.extend(fresh)
        else:
            order.extend(fresh)
            order.sort()
        return order

    # Entries.

    def check_key(self, key: Any) -> None:
        """Raise SerializationError when a key cannot be written. For operators."""
        self.codec.check_key(key if self._faithful else self.codec.key(key))

    def _entry_of(self, index: Any, slot: int, value: Any) -> Entry | None:
        """Return the entry of a track's value, a new object when it is mutable."""
        if type(value) is not bytes:
            return value  # type: ignore[no-any-return]
        entry = self.codec.entry(value)
        if not self.mutable:
            self._put_back((index, slot), entry)
        return entry

    def _as_kept(self, key: Any, entry: Entry) -> Any:
        """Return an entry in the form in which the store keeps it.

        Immutable values are kept as their serde reads them, mutable ones as bytes. Raises
        SerializationError.
        """
        codec, value = self.codec, entry[0]
        if self.mutable:
            return codec.written(key, entry)
        if type(value) is str and self._text is str and value.isascii():
            return entry
        admitted = codec.admit(key, value)
        return entry if admitted is value else with_value(entry, admitted)

    def _uncount(self, old: Any) -> None:
        """Subtract an overwritten value from the size of the transaction."""
        if type(old) is bytes:
            self._size -= len(old)
        elif old is not None and type(old[0]) in TEXTS:
            self._size -= len(old[0])

    def _count(self, kept: Any) -> None:
        """Add a put to the size of the transaction."""
        if type(kept) is bytes:
            self._size += len(kept)
            return
        value = kept[0]
        if type(value) in TEXTS:
            self._size += len(value)
            return
        if not self._ticks & 127:  # the first one too
            self._typical = average(self._typical, weigh(value))
        self._ticks += 1

    # The hooks of Transactional.

    def _now(self, handle: tuple[Any, int]) -> Any:
        track = self._tracks.get(handle[0])
        return MISSING if track is None else track.get(handle[1], MISSING)

    def _put_back(self, handle: tuple[Any, int], value: Any) -> None:
        index, slot = handle
        if value is MISSING:
            self._take_out(index, slot)
        else:
            self._track(index)[slot] = value

    def _take_out(self, index: Any, slot: int) -> None:
        track = self._tracks.get(index)
        if track is not None and track.pop(slot, MISSING) is not MISSING:
            self._orders.pop(index, None)
            self._resident -= 1

    def _dicts(self) -> tuple[dict[Any, dict[Any, Any]], bool]:
        """Return the nested dicts of the values, and whether the outer ones are by slot."""
        return self._tracks, False

    def _frozen_values(self, handles: list[tuple[Any, int]]) -> list[Any]:
        dirty, (dicts, by_slot) = self._dirty, self._dicts()
        if HAS_KERNEL:
            values = _kernel.window_values(dicts, dirty, handles, by_slot)
            if values is not None:
                return values
        outer, inner = (1, 0) if by_slot else (0, 1)
        try:
            return [
                dirty[handle] if handle in dirty else dicts[handle[outer]][handle[inner]]
                for handle in handles
            ]
        except KeyError:
            return list(map(self._frozen_value, handles))

    def _log_keys(self, handles: list[tuple[Any, int]]) -> list[bytes]:
        if self._kernel_keys:
            indexes, slots = map(list, zip(*handles, strict=True))
            with suppress(TypeError):  # a subclass of str or bytes
                return _kernel.window_keys(indexes, slots, None)
        pack, encode = self.slot_form.struct.pack, self.codec.index_bytes
        bits, mask = self.slot_form.bits, self.slot_form.mask
        return [encode(index) + pack(slot >> bits, slot & mask) for index, slot in handles]

    def _engine_key(self, handle: tuple[Any, int]) -> bytes:
        return self.prefix + self._place_on_disk(self.codec.index_bytes(handle[0]), handle[1])

    def _drop_tombstone(self, handle: tuple[Any, int]) -> None:
        if (
            self._now(handle) is None
            and handle not in self._dirty
            and handle not in self._frozen
            and not self._looked_at()
        ):
            self._take_out(*handle)  # otherwise it stays until it expires

    def below(self, handle: tuple[Any, int]) -> bytes | None:
        """Return the bytes of the entry below memory, without caching them."""
        if self.engine is None or handle[1] >= self._slot_at(self._low):
            # Older slots may be on disk even if the key is loaded: puts do not read the old value.
            return None
        raw = self.engine.get(self._engine_key(handle))
        return None if raw is None else self.codec.from_engine(raw)

    def freeze(self) -> None:
        """Begin a new transaction and freeze the open one for commit."""
        super().freeze()
        self._frozen_observed = self._observed

    def publish(self, *, written: bool) -> int:
        """Mark the frozen transaction as committed; return its number of records."""
        self._committed = max(self._committed, self._frozen_observed)
        count = super().publish(written=written)
        # Only after a commit is stream time final: a rollback would have to restore expired rows.
        self._expire()
        if self._due:
            self.sweep(VISITS)
        return count

    def drop(self) -> None:
        """Roll back to the last commit."""
        super().drop()
        self._observed = self._committed
        self._limit = self._observed - self._retention
        # After puts that read no old value, memory may lack rows that are on disk.
        self._loaded = set()

    def _expire(self) -> None:
        """Queue the keys of expired time ranges for `sweep`."""
        limit = self._committed - self._retention
        for number in [
            number for number in self._buckets if (number + 1) * self._span - 1 <= limit
        ]:
            keys = self._buckets.pop(number)
            self._gone.append(keys)
            self._due += len(keys)
        # expired rows are never read from disk, so they need not be written
        while self._bounds and self._bounds[0] <= limit:
            self._bounds.pop(0)
            self._stale.append(self._unwritten.pop(0))
        if self._loaded and self._low <= limit + 1:
            self._loaded = set()

    def _group(self) -> set[tuple[Any, int]]:
        group = super()._group()
        # Each set of handles has the time of its latest row: once that row has expired, no row of
        # the set has to be written.
        self._bounds += [-1] * (len(self._unwritten) - len(self._bounds))
        self._bounds[-1] = self._committed
        return group

    def begin_write(self) -> None:
        """Select the compacted changes for writing."""
        super().begin_write()
        self._bounds = []

    @property
    def overdue(self) -> bool:
        """Whether many published changes or expired slots wait to be processed."""
        return self._due >= OVERDUE or super().overdue

    # Memory and disk.

    def resident_rows(self) -> int:
        """Return the number of rows in memory."""
        return self._resident

    def memory_bytes(self) -> int:
        """Return the store's approximate size in memory (bytes)."""
        return super().memory_bytes() + len(self._tracks) * TRACK_BYTES

    def sweep(self, visits: int) -> None:
        """Sweep some keys: evict expired windows, and windows on disk below the low-water mark."""
        if self._looked_at():
            return  # queries read from memory only briefly, so waiting is cheap
        limit, gone, stale = self._committed - self._retention, self._gone, self._stale
        if stale:
            # in pieces: freeing a large set takes long
            for _ in range(min(visits, len(stale[-1]))):
                stale[-1].pop()
            if not stale[-1]:
                stale.pop()
        while gone and visits > 0:
            part = gone[0][-visits:]
            del gone[0][-visits:]
            if not gone[0]:
                gone.popleft()
            visits -= len(part)
            self._due -= len(part)
            self._take_out_expired(part, limit)
        for _ in range(min(visits, len(self._ring))):
            index = self._ring.popleft()
            self._due -= 1
            track = self._tracks.get(index)
            if track is None:
                continue
            self._trim(index, track, limit)
            if not track:
                del self._tracks[index]
                self._orders.pop(index, None)

    def _take_out_expired(self, indexes: list[Any], limit: int) -> None:
        """Evict windows that start at `limit` or before.

        The open transaction has none of them: such puts are rejected as late.
        """
        self._resident -= expire(self._tracks, indexes, limit)
        if self._orders:
            for index in indexes:
                self._orders.pop(index, None)

    def _looked_at(self) -> bool:
        # mostly there are no readers
        return len(self.readers) > 0 and any(reader.looking for reader in self.readers)

    def _trim(self, index: Any, track: Track, limit: int) -> None:
        evict = self._low if self.engine is not None else 0
        bound, alive = self._slot_at(max(limit + 1, evict)), self._slot_at(limit + 1)
        if len(track) <= _FEW:
            old = sorted(slot for slot in track if slot < bound)
        else:
            order = self._orders.get(index)
            if order is None:
                order = sorted(track)
            elif len(order) != len(track):
                order = self._arrange(index, track)
            old = order[: min(SLICE, bisect_left(order, bound))]
        if not old:
            return
        handles = [(index, slot) for slot in old]
        clean = self._clean(handles) if evict > limit + 1 else ()
        expired = []
        for handle in handles:
            if handle in clean:
                self._take_out(*handle)
                self._loaded.discard(index)
            elif handle[1] < alive and handle not in self._dirty and handle not in self._frozen:
                self._take_out(*handle)
                self._loaded.discard(index)
                expired.append(handle)
        # expired rows are never read from disk, so they need not be written
        for group in self._unwritten:
            group.difference_update(expired)

    def _write(self, engine: Engine, handles: list[tuple[Any, int]]) -> None:
        handles = self._visible(handles)
        if handles:
            super()._write(engine, handles)

    def _rows(self, handles: list[tuple[Any, int]], values: list[Any]) -> list[EngineRow]:
        data = self.codec.column(values)
        if data is None:
            return super()._rows(handles, values)
        segment_ms, bits = self.segment_ms, self.slot_form.bits
        segments = [(slot >> bits) // segment_ms for _, slot in handles]
        bases = {segment: self.prefix + SEGMENT.pack(segment) for segment in set(segments)}
        names = map(add, map(bases.__getitem__, segments), self._log_keys(handles))
        return list(zip(names, data, strict=True))

    def _preserve(self, handles: Iterable[tuple[Any, int]]) -> None:
        """Note nothing: while a query reads, all committed slots stay in memory."""

    def _visible(self, handles: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        """Return the handles that have not expired; the others are never read from disk."""
        alive = self._slot_at(self._committed - self._retention + 1)
        return [handle for handle in handles if handle[1] >= alive]

    def _committed_values(self, handles: list[tuple[Any, int]]) -> list[Any]:
        if HAS_KERNEL and (not self._frozen or self._frozen.keys().isdisjoint(handles)):
            dicts, by_slot = self._dicts()
            values = _kernel.window_values(dicts, self._dirty, handles, by_slot)
            if values is not None:
                return values
        return list(map(self._committed_value, handles))

    def write_slices(self, engine: Engine) -> Iterator[None]:
        """Delete the expired segments, then write."""
        yield from self._clear_expired(engine)
        yield from super().write_slices(engine)

    def evict(self) -> Iterator[None]:
        """Raise the low-water mark when memory is over its limit, and evict older rows."""
        if self._resident > self.resident_records:
            oldest = max(self._low, self._committed - self._retention, 0)
            self._low = (oldest + self._committed) // 2 + 1
            self._loaded = set()
            self._due += len(self._tracks) - len(self._ring)
            self._ring = deque(self._tracks)
        while (self._due or self._stale) and not self._looked_at():
            while not self.compact(SLICE):
                yield
            self.sweep(SLICE if self._gone or self._stale else VISITS)
            yield

    # Rows on disk.

    def _other_entry(self, index: Any, slot: int, time: int) -> Entry | None:
        """Return the entry of a slot and its time, from memory or from disk."""
        if time <= self._limit:
            return None
        value = self._now((index, slot))
        if value is MISSING:
            if time >= self._low or self.engine is None or index in self._loaded:
                return None
            raw = self.engine.get(self._engine_key((index, slot)))
            if raw is None:
                return None
            value = self.codec.from_engine(raw)
            self._set(index, slot, value)
        return self._entry_of(index, slot, value)

    def _found(self, index: Any, slot: int, data: bytes) -> None:
        """Load a row from disk, unless memory has a newer entry."""
        if self._now((index, slot)) is MISSING:
            self._set(index, slot, self.codec.from_engine(data))

    def _load(self, index: Any) -> None:
        """Load the slots of a key that may be on disk only."""
        # Load from the committed limit: queries of committed state see windows that have expired
        # since.
        first = max(0, self._committed - self._retention + 1)
        for slot, data in self.stored_of(index, first, self._low):
            self._found(index, slot, data)
        self._loaded.add(index)

    def _load_all(self, first: int, last: int) -> None:
        """Load the slots of all keys that may be on disk only."""
        due, self._due = self._due, 0  # keep sweeps from evicting the rows loaded here
        for _, encoded, slot, data in self.stored(first, last + 1):
            index = self.codec.index_key(encoded)
            if index not in self._loaded:
                self._found(index, slot, data)
        self._due = due

    # Many rows.

    @abstractmethod
    def _rows_between(self, first: int, last: int) -> Iterable[tuple[Any, int, Any]]:
        """Return dict key, slot and value of the rows in memory with times in a range."""

    def _values_between(self, first: int, last: int) -> list[tuple[Any, int, Any]]:
        """Return dict key, slot and value of all visible rows in a range, loaded if necessary."""
        first = max(first, self._limit + 1)
        if last < first:
            return []
        if first < self._low and self.engine is not None:
            self._load_all(max(first, 0), min(last, self._low - 1))
        return list(self._rows_between(first, last))

    def entries_between(self, first: int, last: int) -> list[Found]:
        """Return key bytes, slot and entry of all visible rows with times in a range, in no order.

        Rows that are on disk only are loaded.
        """
        encode, found = self.codec.index_bytes, []
        before, encoded = MISSING, b""
        for index, slot, value in self._values_between(first, last):
            entry = self._entry_of(index, slot, value)
            if entry is not None:
                if index is not before:
                    before, encoded = index, encode(index)
                found.append((encoded, slot, entry))
        return found

    def closed_entries(
        self, time_from: int, time_to: int
    ) -> list[tuple[Any, int, Entry | SerializationError]]:
        """Return the same as `fetch_all_entries`, but a SerializationError for an unreadable entry.

        For operators. An unreadable key is None.
        """
        encode, found = self.codec.index_bytes, []
        for index, start, value in self._values_between(time_from, time_to):
            key: Any = None
            try:
                key = self.codec.object_key(encode(index))
                entry: Any = self._entry_of(index, start, value)
            except SerializationError as error:
                entry = error
            if entry is not None:
                found.append((start, encode(index), key, entry))
        found.sort(key=lambda row: row[:2])
        return [(key, start, entry) for start, _, key, entry in found]

    # Rows in memory, for queries.

    def slots_of(self, index: Any) -> list[int]:
        """Return the slots of a key in memory, in no order."""
        return list(self._tracks.get(index, ()))

    def handles(self) -> Iterator[tuple[Any, int]]:
        """Iterate over dict key and slot of all rows in memory, which may change meanwhile."""
        for index in list(self._tracks):
            yield from [(index, slot) for slot in self._tracks.get(index, ())]

    def restore(self, batch: Batch) -> None:
        """Apply records of the changelog as committed; the last one of a slot counts."""
        batch = self.codec.restored(batch)
        form, index_key, in_memory = self.slot_form, self.codec.index_key, self.engine is None
        unpack, size = form.struct.unpack_from, form.size
        numbers = [unpack(key, len(key) - size) for key in batch.keys]
        form.check(numbers)
        self._observe(max((time for time, _ in numbers), default=-1))
        self._committed = max(self._committed, self._observed)
        for key, (time, _), slot, value, timestamp in zip(
            batch.keys, numbers, form.slots(numbers), batch.values, batch.timestamps, strict=True
        ):
            if time <= self._limit:
                continue
            index = index_key(key[:-size])
            if in_memory and value is None:
                self._take_out(index, slot)
                continue
            self._set(index, slot, None if value is None else pack_time(timestamp) + value)
            if not in_memory:
                self._group().add((index, slot))
        self._expire()

    def recall(self, facts: bytes) -> None:
        """Restore the state that `facts` returned before the close: all older rows are on disk."""
        super().recall(facts)
        self._low = self._observed + 1

    def close(self) -> None:
        """Release the memory; every later use raises StoreClosed."""
        super().close()
        self._tracks = Closed(self.name)
        self._orders, self._starts = {}, None
        self._buckets.clear()
        self._gone.clear()
        self._ring.clear()
        self._bounds, self._stale = [], []
        self._due = 0
