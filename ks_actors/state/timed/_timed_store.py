"""The common part of window and session stores: slots by key, expiry, and rows on disk."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import deque
from contextlib import suppress
from itertools import islice
from operator import add
from typing import TYPE_CHECKING, Any, Final

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
    span_of,
    weigh,
    with_value,
)
from ks_actors.state.timed._expiry import expire
from ks_actors.state.timed._slot_form import SEGMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ks_actors.records import Batch
    from ks_actors.state.core import Codec, Engine, EngineRow, Entry
    from ks_actors.state.timed._slot_form import SlotForm
    from ks_actors.topology import StoreSpec

Track = dict[int, Any]
"""The values of one key by slot."""

SEQUENCE_BITS: Final = 31
SEQUENCE_MASK: Final = (1 << SEQUENCE_BITS) - 1
FACTS: Final = struct.Struct(">qi")
VISITS: Final = 200
"""Keys that each commit checks for expired slots."""
OVERDUE: Final = 5_000
"""Keys waiting to be swept, from which on a sweep is overdue."""
TRACK_BYTES: Final = 300
"""The bytes that a key takes besides its rows."""
_FEW: Final = 8


class TimedStore(Transactional[tuple[Any, int]]):
    """Values by key and slot: the base of window and session stores.

    A slot identifies a window among the windows of its key: by its start, or a session by its end
    and start. The `form` is that of slots on disk and in the changelog.

    All windows that start (sessions: end) at the low-water mark `_low` or later are in memory.
    Older ones may be on disk only and are looked up by key. The engine has segments, so that
    expired rows are deleted in one piece.

    Expired rows leave memory by stretches of time. Each stretch lists the keys that have a slot in
    it. Once it has expired, these keys are swept, a few at each commit and with each new key.
    """

    def __init__(
        self,
        codec: Codec,
        engine: Engine | None,
        prefix: bytes,
        record_time: Callable[[], int],
        spec: StoreSpec,
        expired: Callable[[int], None],
        form: SlotForm,
    ) -> None:
        super().__init__(codec, engine, prefix, record_time, logged=spec.logging)
        self._form: SlotForm = form
        self._expired: Callable[[int], None] = expired
        self._ticks: int = 0
        self._faithful: bool = codec.faithful
        self._simple: bool = not codec.mutable
        self._sized: bool = not codec.fixed
        # whole numbers from `_least` up to below this are read as they are
        self.bound: int = codec.bound
        self._least: int = -codec.bound
        self._text: type | None = codec.text_type
        self._sized_keys: bool = codec.sized_keys
        self._kernel_keys: bool = HAS_KERNEL and codec.plain_keys and not form.bits
        self.segment_ms: int = spec.segment_ms
        self._retention: int = spec.seen_ms
        self._segmented: bool = not spec.in_memory
        self._tracks: dict[Any, Track] = {}
        # a track's slots in order, maintained from the first fetch of its key on
        self._orders: dict[Any, list[int]] = {}
        # keys by start, maintained from the first fetch of all keys on
        self._starts: dict[int, dict[Any, None]] | None = None
        self._observed: int = -1
        self._limit: int = -1 - spec.seen_ms
        self._sequence: int = 0
        self._committed: int = -1  # the latest start observed up to the last commit
        self._frozen_observed: int = -1
        self._low: int = 0
        # keys with all slots in memory, also those older than the mark
        self._loaded: set[Any] = set()
        self._resident: int = 0
        self._span: int = span_of(spec.retention_ms)
        # keys by stretch of time, appended to with each new slot
        self._buckets: dict[int, list[Any]] = {}
        self._gone: deque[list[Any]] = deque()  # the keys of expired stretches
        # the latest start when each group of unwritten slots was last added to
        self._bounds: list[int] = []
        self._stale: list[set[tuple[Any, int]]] = []  # unwritten groups that have expired
        self._ring: deque[Any] = deque()  # keys to check for slots older than the low-water mark
        self._due: int = 0  # how many keys wait to be swept
        self._cleared: int = 0

    def _track(self, index: Any) -> Track:
        track = self._tracks.get(index)
        if track is None:
            if self._due:
                self.sweep(2)  # growth pays for eviction: each new key sweeps two others
            track = self._tracks[index] = {}
        return track

    def _slot_at(self, time: int) -> int:
        """Return the first slot of a time by which windows expire."""
        return time << self._form.bits

    def _set(self, index: Any, slot: int, value: Any) -> None:
        """Set a value that is committed already."""
        track = self._track(index)
        if slot not in track:
            self._added(index, slot)
        track[slot] = value

    def _observe(self, time: int) -> None:
        """Advance the store's time."""
        if time > self._observed:
            self._observed = time
            self._limit = time - self._retention

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
        self._codec.check_key(key if self._faithful else self._codec.key(key))

    @property
    def mutable(self) -> bool:
        """Whether values are mutable, so that each read makes a new object."""
        return self._mutable

    def admit(self, key: Any, value: Any) -> Any:
        """Return an immutable value as a read after the put returns it.

        For operators. Raises SerializationError.
        """
        return self._codec.admit(key, value)

    def _entry_of(self, index: Any, slot: int, value: Any) -> Entry | None:
        """Return the entry of a track's value, a new object when it is mutable."""
        if type(value) is not bytes:
            return value  # type: ignore[no-any-return]
        entry = self._codec.entry(value)
        if not self._mutable:
            self._put_back((index, slot), entry)
        return entry

    def _as_kept(self, key: Any, entry: Entry) -> Any:
        """Return an entry in the form in which the store keeps it.

        Immutable values are kept as their serde reads them, mutable ones as bytes. Raises
        SerializationError.
        """
        codec, value = self._codec, entry[0]
        if self._mutable:
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

    def _late(self, start: int) -> None:
        # As in Kafka Streams: stores on disk drop whole segments, and count what comes for one of
        # these.
        if not self._segmented or start // self.segment_ms < max(0, self._limit) // self.segment_ms:
            self._expired(1)

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

    def _frozen_values(self, handles: list[tuple[Any, int]]) -> list[Any]:
        return self._frozen_in(self._tracks, handles, by_start=False)

    def _frozen_in(
        self, dicts: dict[Any, dict[Any, Any]], handles: list[tuple[Any, int]], *, by_start: bool
    ) -> list[Any]:
        dirty = self._dirty
        if HAS_KERNEL:
            values = _kernel.window_values(dicts, dirty, handles, by_start)
            if values is not None:
                return values
        outer, inner = (1, 0) if by_start else (0, 1)
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
        pack, encode = self._form.struct.pack, self._codec.index_bytes
        bits, mask = self._form.bits, self._form.mask
        return [encode(index) + pack(slot >> bits, slot & mask) for index, slot in handles]

    def _engine_key(self, handle: tuple[Any, int]) -> bytes:
        index, slot = handle
        segment = (slot >> self._form.bits) // self.segment_ms
        encoded: bytes = self._codec.index_bytes(index)
        return self.prefix + SEGMENT.pack(segment) + encoded + self._form.suffix(slot)

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
        return None if raw is None else self._codec.from_engine(raw)

    def freeze(self) -> None:
        """Begin a new transaction and freeze the open one for commit."""
        super().freeze()
        self._frozen_observed = self._observed

    def publish(self, *, written: bool) -> int:
        """Take the frozen transaction as committed; return its number of records."""
        self._committed = max(self._committed, self._frozen_observed)
        count = super().publish(written=written)
        # Stream time is final only now: a rollback would have to bring back what expired by it.
        self._expire()
        if self._due:
            self.sweep(VISITS)
        return count

    def drop(self) -> None:
        """Roll back to the last commit."""
        super().drop()
        self._observed = self._committed
        self._limit = self._observed - self._retention
        # puts without a read leave memory unaware of the rows on disk
        self._loaded = set()

    def _expire(self) -> None:
        """Queue the keys of expired stretches for `sweep`."""
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
        # Each set of handles has the time of its latest row: when that expires, none need be
        # written.
        self._bounds += [-1] * (len(self._unwritten) - len(self._bounds))
        self._bounds[-1] = self._committed
        return group

    def begin_write(self) -> None:
        """Take the compacted changes as the ones to write."""
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
            return  # queries read from memory only for moments, so waiting is cheap
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
        data = self._codec.column(values)
        if data is None:
            return super()._rows(handles, values)
        segment_ms, bits = self.segment_ms, self._form.bits
        segments = [(slot >> bits) // segment_ms for _, slot in handles]
        bases = {segment: self.prefix + SEGMENT.pack(segment) for segment in set(segments)}
        return list(
            zip(
                map(add, map(bases.__getitem__, segments), self._log_keys(handles)),
                data,
                strict=True,
            )
        )

    def _preserve(self, handles: Iterable[tuple[Any, int]]) -> None:
        """Note nothing: while a query reads, all committed slots stay in memory."""

    def _visible(self, handles: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        """Return the handles that have not expired; the others are never read from disk."""
        alive = self._slot_at(self._committed - self._retention + 1)
        return [handle for handle in handles if handle[1] >= alive]

    def _committed_values(self, handles: list[tuple[Any, int]]) -> list[Any]:
        return self._committed_in(self._tracks, handles, by_start=False)

    def _committed_in(
        self, dicts: dict[Any, dict[Any, Any]], handles: list[tuple[Any, int]], *, by_start: bool
    ) -> list[Any]:
        if HAS_KERNEL and (not self._frozen or self._frozen.keys().isdisjoint(handles)):
            values = _kernel.window_values(dicts, self._dirty, handles, by_start)
            if values is not None:
                return values
        return list(map(self._committed_value, handles))

    def write_slices(self, engine: Engine) -> Iterator[None]:
        """Delete the expired segments, then write."""
        segment = max(0, self._committed - self._retention) // self.segment_ms
        if segment > self._cleared:
            engine.write(
                (),
                [(self.prefix + SEGMENT.pack(self._cleared), self.prefix + SEGMENT.pack(segment))],
            )
            self._cleared = segment
            yield
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
            value = self._codec.from_engine(raw)
            self._set(index, slot, value)
        return self._entry_of(index, slot, value)

    def _found(self, index: Any, slot: int, data: bytes) -> None:
        """Load a row from disk, unless memory has a newer entry."""
        if self._now((index, slot)) is MISSING:
            self._set(index, slot, self._codec.from_engine(data))

    def restore(self, batch: Batch) -> None:
        """Apply records of the changelog as committed; the last one of a slot counts."""
        batch = self._codec.restored(batch)
        form, index_key, in_memory = self._form, self._codec.index_key, self.engine is None
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

    def facts(self, *, frozen: bool = False) -> bytes | None:
        """Return the latest committed (or frozen) start and the sequence number."""
        return FACTS.pack(self._frozen_observed if frozen else self._committed, self._sequence)

    def recall(self, facts: bytes) -> None:
        """Restore the state that `facts` returned before the close: all older rows are on disk."""
        self._observed, self._sequence = FACTS.unpack(facts)
        self._committed = self._frozen_observed = self._observed
        self._limit = self._observed - self._retention
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
