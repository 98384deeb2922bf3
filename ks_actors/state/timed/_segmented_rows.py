"""The times of a store with windows or sessions, and its rows on disk."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ks_actors.state.core import PLAIN_FORM
from ks_actors.state.timed._slot_form import SEGMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from weakref import WeakSet

    from ks_actors.state.core import Codec, Engine, Entry, Form, StoreIterator, StoreParts, Take
    from ks_actors.state.timed._slot_form import SlotForm

LONG_MS: Final = 3_600_000
LONGEST_MS: Final = 86_400_000
FACTS: Final = struct.Struct(">qi")
Found = tuple[bytes, int, "Entry"]
"""Key bytes, slot and entry of a row."""


class SegmentedRows(ABC):
    """The common part of all stores with times: when rows expire, and where they are on disk.

    Expiry is that of Kafka Streams: rows with a time at or before the latest put time minus the
    retention are invisible. A put that old is dropped and counted as late. In a segmented store
    (type rocksdb) such a put is counted only when its whole segment has expired; otherwise it is
    neither counted nor visible. `slot_form` is that of slots on disk and in the changelog.
    """

    codec: Codec
    engine: Engine | None
    prefix: bytes
    form: ClassVar[Form] = PLAIN_FORM
    _note_headers_of_delete: Callable[[Any], None]
    _iterators: WeakSet[StoreIterator[Any]]

    def __init__(self, parts: StoreParts, form: SlotForm) -> None:
        spec = parts.spec
        self.slot_form: SlotForm = form
        self._show: Callable[[Entry], Any] = self.form.show
        self._take: Take = self.form.taker(parts.codec, parts.record_time)
        self.segment_ms: int = spec.segment_ms
        self.segmented: bool = not spec.in_memory
        self._expired: Callable[[int], None] = parts.expired
        self._retention: int = spec.seen_ms
        self._span: int = _span_of(spec.retention_ms)
        self._observed: int = -1
        self._limit: int = -1 - spec.seen_ms
        self._committed: int = -1  # the latest time observed up to the last commit
        self._frozen_observed: int = -1
        self._sequence: int = 0
        self._cleared: int = 0

    @property
    @abstractmethod
    def resident_from(self) -> int:
        """The time from which on all rows are in memory; older ones may be on disk only."""

    def limit(self, *, committed: bool) -> int:
        """Return the latest expired time, as of the last commit or as of now."""
        return self._committed - self._retention if committed else self._limit

    def _observe(self, time: int) -> None:
        """Advance the store's time."""
        if time > self._observed:
            self._observed = time
            self._limit = time - self._retention

    def _late(self, time: int) -> None:
        # As in Kafka Streams, stores on disk drop whole segments, and count puts into dropped
        # segments.
        if not self.segmented or time // self.segment_ms < max(0, self._limit) // self.segment_ms:
            self._expired(1)

    @property
    def place(self) -> Callable[[bytes, int], Any]:
        """The function that returns a row's sort key from its key bytes and slot."""
        return self._place_on_disk if self.segmented else self.slot_form.in_memory

    def in_order(self, rows: list[Found]) -> list[Found]:
        """Sort rows in the order of Kafka Streams' store; return them."""
        place = self.place
        rows.sort(key=lambda row: place(row[0], row[1]))
        return rows

    def _place_on_disk(self, encoded: bytes, slot: int) -> bytes:
        form = self.slot_form
        return self._segment_prefix(slot >> form.bits) + encoded + form.suffix(slot)

    def _segment_prefix(self, time: int) -> bytes:
        return SEGMENT.pack(time // self.segment_ms)

    # Rows in memory and on disk.

    @abstractmethod
    def entries_between(self, first: int, last: int) -> list[Found]:
        """Return key bytes, slot and entry of all visible rows with times in a range, in no order.

        The range is from `first` to `last`, both included.
        """

    def fetch_all_entries(self, time_from: int, time_to: int) -> list[tuple[Any, int, Entry]]:
        """Return key, start and entry of all windows in a time range. For operators.

        They start from `time_from` to `time_to`, and are sorted by start, then key bytes.
        """
        key, window = self.codec.object_key, self.slot_form.window
        found, order = self.entries_between(time_from, time_to), self.slot_form.in_memory
        found.sort(key=lambda row: order(row[0], row[1]))
        return [(key(encoded), window(slot), entry) for encoded, slot, entry in found]

    # Rows on disk, as of now.

    def stored_of(
        self, index: Any, first: int, stop: int, *, reverse: bool = False
    ) -> Iterator[tuple[int, bytes]]:
        """Return slot and engine's value of a key's rows, from time `first` to before `stop`."""
        engine, form = self.engine, self.slot_form
        if engine is None or first >= stop:
            return iter(())
        encoded, segment_ms, pack = self.codec.index_bytes(index), self.segment_ms, form.struct.pack
        scans = []
        # One scan per segment: keys on disk begin with the segment, so a key's rows lie apart.
        for segment in range(first // segment_ms, (stop - 1) // segment_ms + 1):
            base = self.prefix + SEGMENT.pack(segment) + encoded
            since, until = max(first, segment * segment_ms), min(stop, (segment + 1) * segment_ms)
            scans.append(engine.scan(base + pack(since, 0), base + pack(until, 0), reverse=reverse))
        if reverse:
            scans.reverse()
        size = len(self.prefix) + SEGMENT.size + len(encoded)
        unpack, whole = form.struct.unpack_from, size + form.size
        return (
            (form.slot(*unpack(name, size)), data)
            for name, data in chain.from_iterable(scans)
            if len(name) == whole  # otherwise the row belongs to a longer key
        )

    def stored(
        self, first: int, stop: int, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes, int, bytes]]:
        """Return all rows with times from `first` to before `stop`.

        Each row has its stored key, its key bytes, its slot and the engine's value.
        """
        engine, form = self.engine, self.slot_form
        if engine is None or first >= stop:
            return iter(())
        low, high = self._segment_prefix(first), SEGMENT.pack((stop - 1) // self.segment_ms + 1)
        rows = engine.scan(self.prefix + low, self.prefix + high, reverse=reverse)
        unpack, size, head = form.struct.unpack_from, form.size, len(self.prefix)
        cut = head + SEGMENT.size
        return (
            (name[head:], name[cut:-size], form.slot(*numbers), data)
            for name, data in rows
            if first <= (numbers := unpack(name, len(name) - size))[0] < stop
        )

    def _clear_expired(self, engine: Engine) -> Iterator[None]:
        """Delete the expired segments on disk, in one step."""
        segment = max(0, self._committed - self._retention) // self.segment_ms
        if segment > self._cleared:
            ends = [self.prefix + SEGMENT.pack(number) for number in (self._cleared, segment)]
            engine.write((), [(ends[0], ends[1])])
            self._cleared = segment
            yield

    def facts(self, *, frozen: bool = False) -> bytes | None:
        """Return the latest committed (or frozen) time and the sequence number."""
        return FACTS.pack(self._frozen_observed if frozen else self._committed, self._sequence)

    def recall(self, facts: bytes) -> None:
        """Restore the state that `facts` returned before the close: all older rows are on disk."""
        self._observed, self._sequence = FACTS.unpack(facts)
        self._committed = self._frozen_observed = self._observed
        self._limit = self._observed - self._retention


def _span_of(retention_ms: int) -> int:
    """Return the length of a segment (ms).

    It is short enough to free expired rows soon, and long enough for joins to search few segments.
    """
    return min(retention_ms // (6 if retention_ms <= LONG_MS else 12) + 1, LONGEST_MS)
