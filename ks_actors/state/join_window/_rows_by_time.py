"""The rows of a window store with duplicates, by time: commit, writes to disk and expiry."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import partial
from operator import add
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from ks_actors import serdes
from ks_actors._errors import IllegalTransition
from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.records import Batch, PackedBatch
from ks_actors.state.core import (
    LOGGED_BYTES,
    NO_LIMIT,
    ROWS,
    SLICE,
    Closed,
    Codec,
    Entry,
    RowWeight,
    StoreForTasks,
    pack_time,
)
from ks_actors.state.join_window._packed_segment import START, AnySegment, PackedSegment
from ks_actors.state.join_window._segment import Raw, Segment
from ks_actors.state.timed import DUPLICATES, SUFFIX, SegmentedRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ks_actors.state.core import Engine, EngineRow, Rows, StoreIterator, StoreParts

ROW_BYTES: Final = 600
"""The heap of an uncommitted row besides its value.

It covers object headers, columns, the index, and a row that expires when this row is committed.
"""

BACKLOG: Final = 2_000
"""The release of expired rows is overdue when this many are in memory."""


class JoinWindowRows(SegmentedRows, StoreForTasks):
    """Rows by time, key and order of puts.

    A put never changes existing rows: it appends a row to the segment of its time. So a transaction
    consists of the rows after a position in each segment. A rollback truncates segments, and puts
    need no undo notes. A segment leaves memory as a whole when its last row has expired. Rows that
    expire before they are written are never written. The engine has segments of its own, as long as
    those of Kafka Streams.

    Segments below `_low` may have rows on disk only. Such rows are read by key, and kept in `_cold`
    until they expire. The public members are for TaskStores.
    """

    def __init__(self, parts: StoreParts) -> None:
        super().__init__(parts, DUPLICATES)
        spec, codec = parts.spec, parts.codec
        self.name: str = codec.name
        self.logged: bool = spec.logging
        self.engine: Engine | None = parts.engine
        self.prefix: bytes = b""  # set when the store is opened
        self.unwritten_bytes: int = 0
        self.row_weight: RowWeight = RowWeight()
        self.resident_records: int = NO_LIMIT
        self.codec: Codec = codec
        self._time: Callable[[], int] = parts.record_time
        # Each read of a mutable value makes a new object.
        self.mutable: bool = codec.mutable
        self._plain: bool = spec.value is serdes.BYTES  # the bytes are the objects
        self._packed: bool = HAS_KERNEL and codec.text and codec.plain_keys
        self._texts: tuple[bool, bool] = (spec.key is serdes.STRING, spec.value is serdes.STRING)
        self._segments: dict[int, AnySegment] = {}
        self._touched: dict[int, AnySegment] = {}  # by the open transaction
        self._frozen: dict[int, AnySegment] = {}  # by the transaction that is being committed
        self._resident: int = 0
        self._rows: int = 0  # of the open transaction
        self._size: int = 0
        self._frozen_size: int = 0
        self._gone: deque[AnySegment] = deque()  # expired segments, released bit by bit
        self._gone_rows: int = 0
        self._low: int = 0
        self._cold: dict[Any, list[tuple[int, bytes]]] = {}
        self._cold_rows: int = 0
        self._iterators: WeakSet[StoreIterator[Any]] = WeakSet()
        self.readers: WeakSet[Rows] = WeakSet()  # of queries

    @property
    def resident_from(self) -> int:
        """The time from which on all rows are in memory; older ones may be on disk only."""
        return self._low * self._span

    def _segment(self, number: int) -> AnySegment:
        segment = self._segments.get(number)
        if segment is None and self._packed:
            segment = self._segments[number] = PackedSegment(
                number, partial(_kernel.Rows, number * self._span, *self._texts)
            )
        elif segment is None:
            segment = self._segments[number] = Segment(number)
        return segment

    def _add(self, segment: AnySegment, row: tuple[Any, int, int, Any, int]) -> None:
        if type(segment) is PackedSegment:
            segment.add(self.codec, row)
        else:
            segment.add(*row)

    # Transactions.

    def uncommitted_bytes(self) -> int:
        """Return the approximate bytes of the open transaction, in O(1)."""
        return self._rows * ROW_BYTES + self._size

    def freeze(self) -> None:
        """Begin a new transaction and freeze the open one for commit."""
        self._frozen, self._touched = self._touched, {}
        for segment in self._frozen.values():
            # Rows are only appended, so their number is all that a freeze has to note.
            segment.frozen = len(segment)
        self._frozen_size = self._rows * LOGGED_BYTES + self._size
        self._rows = self._size = 0
        self._frozen_observed = self._observed

    def publish(self, *, written: bool) -> int:
        """Mark the frozen transaction as committed; return its number of records.

        `written` says that the engine already has the rows.
        """
        count = 0
        for segment in self._frozen.values():
            count += segment.frozen - segment.committed
            # Not if earlier rows are still unwritten, because rows are written in order.
            if written and segment.written == segment.committed:
                segment.written = segment.frozen
            segment.committed = segment.frozen
        self._frozen = {}
        if count:
            self.row_weight.learn_bytes(ROW_BYTES + self._frozen_size // count)
        if self.engine is not None and not written:
            self.unwritten_bytes += self._frozen_size
        self._committed = max(self._committed, self._frozen_observed)
        self._expire()
        return count

    def drop(self) -> None:
        """Roll back to the last commit."""
        for segment in (self._frozen | self._touched).values():
            self._resident -= segment.roll_back()
            if not segment.committed:
                self._segments.pop(segment.number, None)
        self._frozen, self._touched = {}, {}
        self._rows = self._size = 0
        self._observed = self._frozen_observed = self._committed
        self._limit = self._observed - self._retention

    def _expire(self) -> None:
        """Forget segments with expired rows only."""
        limit, span = self._committed - self._retention, self._span
        for number, segment in list(self._segments.items()):
            if (number + 1) * span - 1 <= limit and segment.committed == len(segment):
                del self._segments[number]
                self._let_go(segment)
        if self._low and self._low * span <= limit + 1:
            self._low = 0
            self._cold, self._cold_rows = {}, 0

    def _let_go(self, segment: AnySegment) -> None:
        self._resident -= len(segment)
        self._gone_rows += len(segment)
        self._gone.append(segment)

    def release(self, count: int) -> None:
        """Free the memory of about `count` expired rows."""
        gone = self._gone
        while gone and count > 0:
            freed = gone[0].release(count)
            self._gone_rows -= freed
            count -= max(freed, 1)
            if not len(gone[0]):
                gone.popleft()

    # The changelog.

    def changelog(
        self,
        *,
        batch_bytes: int = 0,  # noqa: ARG002 - packed rows or columns
        marked: bool = False,  # noqa: ARG002 - packed rows or columns
    ) -> Iterator[Batch]:
        """Return the frozen rows, in slices.

        Packed rows stay packed until they are written or read.
        """
        for segment in list(self._frozen.values()):
            for first in range(segment.committed, segment.frozen, SLICE):
                last = min(first + SLICE, segment.frozen)
                if type(segment) is PackedSegment:
                    yield PackedBatch(segment.rows, first, last)
                else:
                    yield Batch(
                        self._log_keys(segment, first, last),
                        self._contents(segment, first, last),
                        segment.times[first:last].tolist(),
                    )

    def _log_keys(self, segment: Segment, first: int, last: int) -> list[bytes]:
        keys = segment.keys[first:last]
        if HAS_KERNEL and self.codec.plain_keys:
            with suppress(TypeError):  # a subclass of str or bytes
                starts = segment.starts[first:last].tolist()
                sequences = segment.sequences[first:last].tolist()
                return _kernel.window_keys(keys, starts, sequences)
        encoded = map(self.codec.key, keys) if self.codec.faithful else keys
        return list(
            map(
                add,
                encoded,
                map(SUFFIX.pack, segment.starts[first:last], segment.sequences[first:last]),
            )
        )

    def _contents(self, segment: Segment, first: int, last: int) -> list[Any]:
        values = segment.values[first:last]
        if self._plain and None not in values:
            return values
        if self.mutable or None in values or Raw in map(type, values):
            return [
                None if value is None else self._encoded(segment, place)
                for place, value in enumerate(values, first)
            ]
        try:
            return list(map(self.codec.value, values))
        except Exception:  # noqa: BLE001 - the row-by-row path raises it again and names the row
            return [self._encoded(segment, place) for place in range(first, last)]

    def _encoded(self, segment: AnySegment, place: int) -> bytes:
        """Return a value as plain bytes, never a subclass: a log accepts nothing else."""
        value = segment.values[place]
        return (
            bytes(value) if type(value) is Raw else self.codec.content(segment.keys[place], value)
        )

    def _entry_at(self, segment: AnySegment, place: int) -> Entry:
        """Return the entry of a row, a new object when it is mutable."""
        value, time = segment.values[place], segment.times[place]
        if type(value) is not Raw or type(segment) is PackedSegment:
            return (value, time)
        entry = self.codec.entry(pack_time(time) + value)
        if not self.mutable and type(segment) is Segment:
            segment.values[place] = entry[0]
        return entry

    def restore(self, batch: Batch) -> None:
        """Apply records of the changelog as committed; the last one of a row counts.

        Raises IllegalTransition while a transaction is open.
        """
        if self._touched or self._frozen:
            raise IllegalTransition(
                f"store {self.name}: drop uncommitted changes before you restore anything"
            )
        parts = [SUFFIX.unpack_from(key, len(key) - SUFFIX.size) for key in batch.keys]
        observed = max((start for start, _ in parts), default=-1)
        self._observed = max(observed, self._observed)
        self._limit = self._observed - self._retention
        self._committed = self._frozen_observed = max(self._committed, self._observed)
        self._cold, self._cold_rows = {}, 0
        for key, (start, sequence), value, time in zip(
            batch.keys, parts, batch.values, batch.timestamps, strict=True
        ):
            self._sequence = max(self._sequence, sequence)
            if start > self._limit:
                self._restore_row(
                    self.codec.index_key(key[: -SUFFIX.size]), start, sequence, value, time
                )
        self._expire()

    def _restore_row(
        self, index: Any, start: int, sequence: int, value: bytes | None, time: int
    ) -> None:
        segment = self._segment(start // self._span)
        stored: Any = value
        if value is not None and not self._plain:
            stored = self.codec.entry(pack_time(time) + value)[0] if self._packed else Raw(value)
        for place in segment.places(index, start, start):
            if segment.sequences[place] == sequence:
                segment.replace(place, stored, time)
                return
        if value is not None:
            self._add(segment, (index, start, sequence, stored, time))
            segment.committed = segment.frozen = len(segment)
            self._resident += 1

    # Writes to the engine.

    def _rows_of(
        self, segment: AnySegment, first: int, last: int, limit: int
    ) -> Iterator[EngineRow]:
        """Return the engine's form of the rows that start after `limit`."""
        if type(segment) is not PackedSegment:
            starts = segment.starts
            yield from (
                self._row(segment, place) for place in range(first, last) if starts[place] > limit
            )
            return
        timestamped = self.codec.timestamped
        for start, name, value, time in zip(
            segment.rows.column(START, first, last), *segment.contents(first, last), strict=True
        ):
            if start > limit:
                yield (
                    self.prefix + self._segment_prefix(start) + name,
                    pack_time(time) + value if timestamped and value is not None else value,
                )

    def _row(self, segment: Segment, place: int) -> EngineRow:
        start, sequence = segment.starts[place], segment.sequences[place]
        name = self.codec.index_bytes(segment.keys[place]) + SUFFIX.pack(start, sequence)
        if segment.values[place] is None:
            return (self.prefix + self._segment_prefix(start) + name, None)
        data = self._encoded(segment, place)
        return (
            self.prefix + self._segment_prefix(start) + name,
            pack_time(segment.times[place]) + data if self.codec.timestamped else data,
        )

    def frozen_rows(self) -> list[EngineRow]:
        """Return the engine's form of all frozen rows."""
        return [
            row
            for segment in self._frozen.values()
            for row in self._rows_of(segment, segment.committed, segment.frozen, -1 << 63)
        ]

    def uncompacted(self) -> int:
        """Return the number of expired rows still in memory."""
        return self._gone_rows

    def wants_eviction(self, *, idle: bool) -> bool:
        """Return whether many changes wait for work in memory; if `idle`, whether any do."""
        return self._gone_rows >= (1 if idle else BACKLOG)

    def compact(self, count: int) -> bool:
        """Release about `count` expired rows; return whether none remain."""
        self.release(count)
        return not self._gone

    def has_unwritten(self) -> bool:
        """Return whether committed rows are missing in the engine."""
        return self.engine is not None and any(
            segment.written < segment.committed for segment in self._segments.values()
        )

    def begin_write(self) -> None:
        """Select the committed rows for writing."""
        for segment in self._segments.values():
            segment.goal = segment.committed
        self.unwritten_bytes = 0

    def write_slices(self, engine: Engine) -> Iterator[None]:
        """Delete the expired segments, then write, a slice per step.

        A slice that fails remains unwritten.
        """
        yield from self._clear_expired(engine)
        for number in sorted(self._segments):
            segment = self._segments.get(number)
            while segment is not None and segment.written < segment.goal:
                first, last = segment.written, min(segment.written + ROWS, segment.goal)
                engine.write(
                    sorted(self._rows_of(segment, first, last, self._committed - self._retention))
                )
                segment.written = last
                yield
                segment = self._segments.get(number)

    def resident_rows(self) -> int:
        """Return the number of rows in memory."""
        return self._resident + self._cold_rows

    def evict(self) -> Iterator[None]:
        """Evict the oldest written segments when memory is over its limit, and expired rows."""
        if self.resident_rows() > self.resident_records and self.engine is not None:
            for number in sorted(self._segments):
                segment = self._segments[number]
                # Evict down to half of the limit, so that the next rows do not exceed it at once.
                if self._resident <= self.resident_records // 2:
                    break
                # Only whole segments: uncommitted and unwritten rows are nowhere else.
                if segment.written == len(segment):
                    del self._segments[number]
                    self._let_go(segment)
                    self._low = max(self._low, number + 1)
            self._cold, self._cold_rows = {}, 0
        while self._gone:
            self.release(SLICE)
            yield

    # Rows on disk.

    def _cold_of(self, index: Any) -> list[tuple[int, bytes]]:
        """Return slots and bytes of a key's rows that may be on disk only, in order."""
        rows = self._cold.get(index)
        if rows is None:
            if self._cold_rows > self.resident_records // 2:
                self._cold, self._cold_rows = {}, 0
            first = max(0, self._committed - self._retention + 1)
            convert = self.codec.from_engine
            stored = self.stored_of(index, first, self.resident_from)
            rows = self._cold[index] = [(slot, convert(data)) for slot, data in stored]
            self._cold_rows += len(rows) + 1
        return rows

    def recall(self, facts: bytes) -> None:
        """Restore the state that `facts` returned before the close: all older rows are on disk."""
        super().recall(facts)
        self._low = self._observed // self._span + 1

    def end_reading(self, reason: str) -> None:
        """End all queries of this store: further reads raise StoreClosed."""
        for reader in list(self.readers):
            reader.void(reason)

    def close(self) -> None:
        """Release the memory; every later use raises StoreClosed."""
        for iterator in list(self._iterators):
            iterator.cut_off(self.name)
        self.end_reading(f"store {self.name} is closed, as its task is")
        self._segments = Closed(self.name)
        self._touched, self._frozen, self._cold = {}, {}, {}
        self._gone.clear()
        self.engine = None
