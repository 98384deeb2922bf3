"""The fetched but unprocessed records of one partition."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from contextlib import suppress
from itertools import repeat
from operator import index as index_of
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.metrics import STILL, Timing
from ks_actors.processors.api import LATEST_MS, refuse_awaitable
from ks_actors.records import TEXT_KEYS, TEXT_VALUES, Batch, FetchedBatch
from ks_actors.serdes import for_column
from ks_actors.task._unreadable_batch import UnreadableBatch
from ks_actors.task.figures import estimated_bytes
from ks_actors.task.origins import Chunk, RawRecord
from ks_actors.topology import InputRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ks_actors.metrics import Window
    from ks_actors.records import Headers, TopicPartition
    from ks_actors.serdes import MutableHeaders
    from ks_actors.topology import TimestampExtractor

# The most and the fewest records to decode at a time.
_CHUNK = 1000
_LEAST = 64


Decoder: TypeAlias = "Callable[[bytes, MutableHeaders], Any]"
Decoders: TypeAlias = tuple[Decoder, Decoder]
"""The functions that decode keys and values with the headers, which they may change."""


def latest(timestamps: list[int]) -> int:
    """Return the highest of some timestamps."""
    return max(timestamps)


class Source(Protocol):
    """The reader of a topic's records: functions bound to the topic, and error handling."""

    @property
    def name(self) -> str:
        """The source node's name."""
        ...

    @property
    def decode_key(self) -> Callable[[bytes], Any]: ...
    @property
    def decode_value(self) -> Callable[[bytes], Any]: ...
    @property
    def with_headers(self) -> Decoders | None:
        """The decoders of key and value for records with headers, if a serde takes headers."""
        ...

    @property
    def extract(self) -> TimestampExtractor:
        """The extractor of a record's event time."""
        ...

    @property
    def keeps_valid(self) -> bool:
        """Whether valid record timestamps are used as they are."""
        ...

    def unstampable(self, raw: RawRecord, error: Exception) -> Exception:
        """Return the error to raise for a failure of the extractor."""
        ...

    def undecodable(self, raw: RawRecord, error: Exception) -> None:
        """Decide about an undecodable record: return to leave it out, raise to end the task."""
        ...

    def untimely(self, raw: RawRecord, timestamp: int) -> None:
        """Count a record that is left out because it has no valid timestamp."""
        ...


class RecordQueue:
    """The records of one partition, first in, first out.

    Records are kept as fetched, and decoded a chunk at a time shortly before they are processed.
    The source decides about an undecodable record once the records before it are processed.
    `partition_time` is the highest timestamp taken so far. `page` is the fetched chunk with the
    records that were taken last. `logged` says whether the log has the records, which is false only
    in a backfill.
    """

    def __init__(
        self,
        partition: TopicPartition,
        source: Source,
        position: int,
        partition_time: int = -1,
        *,
        logged: bool = True,
        window: Window = STILL,
    ) -> None:
        self._logged: bool = logged
        self.partition: TopicPartition = partition
        self.source: Source = source
        self.partition_time: int = partition_time
        self.end_offset: int | None = None
        self.buffered: int = 0
        self.bytes: float = 0.0
        """The approximate bytes of all records that were added."""
        self.ages: Timing = Timing(window)
        """The ages (ms) of the last records of slices, at the slices' ends."""
        self.lateness: Timing = Timing(window)
        """How far (ms) the last records of slices were behind the partition's time."""
        self._added: int = 0
        self._measured: int = 0
        self._decode_keys: Callable[[list[Any]], list[Any]] = for_column(source.decode_key)
        self._decode_values: Callable[[list[Any]], list[Any]] = for_column(source.decode_value)
        self._texts: int = sum(
            part
            for part, decode in ((TEXT_KEYS, self._decode_keys), (TEXT_VALUES, self._decode_values))
            if HAS_KERNEL and decode is _kernel.decode_texts
        )
        self._raw: deque[Batch] = deque()
        self._chunk: Batch = Batch([], [], [], None, ())
        self._raw_chunk: Batch = self._chunk
        self.page: Chunk = Chunk(partition, self._raw_chunk, logged=logged)
        self._at: int = 0
        self._behind: int = position
        # Once so many records are consumed, a position later than the first may be committed.
        self._back_to: tuple[int, int] = position, 0
        self._poison: Exception | None = None
        self._poisoned: int = -1
        # The undecodable records without a decision: index in the fetched chunk, and error.
        self._bad: deque[tuple[int, Exception]] = deque()
        self._fatal: Exception | None = None

    def add(self, batch: Batch, next_offset: int, end_offset: int) -> None:
        """Add fetched records; `next_offset` is the log's next offset after them."""
        count = len(batch)
        if count <= _CHUNK:
            if count:
                self._raw.append(batch)
        else:
            # Split the batch into chunks, so that only a part of a large batch is decoded at a
            # time.
            self._raw.extend(
                batch.slice(start, start + _CHUNK) for start in range(0, count, _CHUNK)
            )
        self.buffered += count
        # Do not use the last record's offset plus one: markers and compacted records may follow it.
        self._added += count
        self.bytes += estimated_bytes(batch)
        self._behind = next_offset
        # An unreadable batch does not know the log's end.
        if not isinstance(batch, UnreadableBatch):
            self.end_offset = end_offset

    def note_end(self, end_offset: int) -> None:
        """Set the log's end offset, unless a fetch has set it."""
        if self.end_offset is None:
            self.end_offset = end_offset

    def move(self, position: int) -> None:
        """Continue at `position` after the buffered records: the log has none in between.

        The end offset is unknown until the next fetch. After a move back, the log has other records
        at the offsets of the buffered records. Until the buffered records are processed, `position`
        stays at or before the new position.
        """
        if self.buffered and position < self._behind:
            offset, consumed = self._back_to
            least = min(offset, position) if self.consumed < consumed else position
            self._back_to = least, self._added
        self._behind = position
        self.end_offset = None

    def clear(self, position: int, partition_time: int) -> None:
        """Drop all records and continue from `position`.

        Forget the log's end, too, because it may have changed meanwhile.
        """
        self._raw.clear()
        self._chunk = self._raw_chunk = Batch([], [], [], None, ())
        self.page = Chunk(self.partition, self._raw_chunk, logged=self._logged)
        self._added -= self.buffered
        self._at = self.buffered = 0
        self._back_to = position, 0
        self.move(position)
        # Decided again after a rewind: the handler's earlier output was rolled back with the rest.
        self._poison = self._fatal = None
        self._bad.clear()
        self.partition_time = partition_time

    @property
    def lag(self) -> int | None:
        """The number of offsets in the log after the fetched ones; None before the first fetch."""
        end = self.end_offset  # read once: `App.health` calls this from other threads
        return None if end is None else max(0, end - self._behind)

    def lag_to(self, end: int | None) -> int | None:
        """Return the lag by the last fetch, or to the later looked-up `end`; None without both."""
        lag = self.lag
        return lag if end is None else max(lag or 0, end - self._behind, 0)

    @property
    def fetch_position(self) -> int:
        """The log's next offset after the fetched records."""
        return self._behind

    @property
    def position(self) -> int:
        """The offset of the next record to process: the offset to commit."""
        offset, consumed = self._back_to
        return min(offset, self._next_offset) if self.consumed < consumed else self._next_offset

    @property
    def _next_offset(self) -> int:
        # The lowest offset of: the next decoded record, the next record to decide about, and the
        # record with a failed timestamp.
        nearest: list[int] = []
        if self._at < len(self._chunk):
            nearest.append(self._chunk.offsets[self._at])
        if self._bad:
            nearest.append(self._raw_chunk.offsets[self._bad[0][0]])
        if self._poison is not None:
            nearest.append(self._poisoned)
        if nearest:
            return min(nearest)
        # Not the last offset plus one: compaction and markers leave gaps that a commit should skip.
        return self._raw[0].offsets[0] if self._raw else self._behind

    @property
    def consumed(self) -> int:
        """The number of records taken, including records that were left out."""
        return self._added - self.buffered

    def measure(self, now_ms: int) -> None:
        """Note the age of the record taken last, if a record was taken since the last call."""
        consumed = self._added - self.buffered
        if consumed != self._measured and self._at:
            self._measured = consumed
            time = self._chunk.timestamps[self._at - 1]
            self.ages.add(max(0, now_ms - time))
            self.lateness.add(self.partition_time - time)

    @property
    def next_time(self) -> int | None:
        """The timestamp of the next record in memory, as fetched or extracted; None without one."""
        if self._at < len(self._chunk):
            return self._chunk.timestamps[self._at]
        # A copy of one record, as the others may still be bytes.
        first = self._raw[0].slice(0, 1) if self._raw else None
        return first.timestamps[0] if first is not None and len(first) else None

    def head(self, wanted: int = _CHUNK) -> int | None:
        """Return the timestamp of the next record; None without one.

        Raises the error of an undecodable record that ends the task. Only about `wanted` records
        are decoded, so that they are still in the CPU's cache when they are processed.
        """
        while True:
            chunk = self._chunk
            more = self._at < len(chunk)
            # There may be undecodable records before the next record: the handler is called in
            # their turn.
            if self._bad:
                self._decide(chunk.offsets[self._at] if more else None)
            if more:
                return chunk.timestamps[self._at]
            if self._poison is not None:
                raise self._poison
            if not self._raw:
                return None
            self._decode(wanted)

    def take(self, limit: int, until: tuple[int, bool] | None = None) -> Batch:
        """Take the next records, after `head` found one: at most `limit`, all before `until`.

        `until` is a timestamp, with a flag whether records of that time itself may be taken too.
        The first record is taken in any case.
        """
        start, chunk = self._at, self._chunk
        stop = min(len(chunk), start + limit)
        if until is not None:
            stop = self._run(start, stop, *until)
        if self._bad:
            stop = self._decide_within(stop)
        self._at = stop
        self.buffered -= stop - start
        batch = chunk if start == 0 and stop == len(chunk) else chunk.slice(start, stop)
        self.partition_time = max(self.partition_time, latest(batch.timestamps))
        return batch

    def run(self, limit: int, until: int) -> tuple[Batch, int, int]:
        """Take the next records up to time `until`, and the first record in any case.

        Returns the chunk, and the bounds of the records in it. Call it only after `plain` has
        returned a timestamp.
        """
        start, chunk = self._at, self._chunk
        timestamps = chunk.timestamps
        stop, last, time = start + 1, min(len(timestamps), start + limit), timestamps[start]
        highest = max(self.partition_time, time)
        while stop < last and (time := timestamps[stop]) <= until:
            stop += 1
            if time > highest:  # noqa: PLR1730 - faster than a call, for every record
                highest = time
        self._at = stop
        self.buffered -= stop - start
        self.partition_time = highest
        return chunk, start, stop

    def upcoming(self, limit: int) -> tuple[Batch, int, int]:
        """Return the chunk of the next records, and their bounds in it, at most `limit`.

        Call it only after `plain` has returned a timestamp.
        """
        return self._chunk, self._at, min(len(self._chunk), self._at + limit)

    def skip(self, stop: int) -> Batch:
        """Take the upcoming records before index `stop` of the chunk; at least one."""
        batch = self._chunk.slice(self._at, stop)
        self.buffered -= stop - self._at
        self._at = stop
        self.partition_time = max(self.partition_time, latest(batch.timestamps))
        return batch

    @property
    def plain(self) -> int | None:
        """The next record's timestamp.

        None when it is not decoded yet, or undecodable records await a decision.
        """
        chunk, at = self._chunk, self._at
        return chunk.timestamps[at] if at < len(chunk.timestamps) and not self._bad else None

    def _run(self, start: int, stop: int, until: int, inclusive: bool) -> int:
        timestamps = self._chunk.timestamps
        bound = until if inclusive else until - 1
        # Joined streams alternate, so the run often ends after one record; `max` would scan all of
        # them.
        if start + 1 < stop and timestamps[start + 1] > bound:
            return start + 1
        if max(timestamps[start:stop]) <= bound:
            return stop
        for index in range(start + 1, stop):
            if timestamps[index] > bound:
                return index
        return stop

    def _decode(self, wanted: int) -> None:
        raw = self._raw.popleft()
        wanted = max(wanted, _LEAST)
        # Decode only the records that are processed next, but do not keep a tiny remainder.
        if len(raw) > wanted + _LEAST:
            self._raw.appendleft(raw.slice(wanted, len(raw)))
            raw = raw.slice(0, wanted)
        self._raw_chunk, self._at = raw, 0
        self.page = Chunk(self.partition, raw, logged=self._logged)
        if isinstance(raw, UnreadableBatch):
            self._chunk = Batch([], [], [])
            self._bad.append((0, raw.error))
            return
        source = self.source
        failures: dict[int, Exception] = {}
        if source.with_headers is not None and raw.headers is not None:
            chunk = _decoded_with_headers(source.with_headers, raw, raw.headers, failures)
        else:
            keys, values, timestamps, texts = _columns_of(raw, self._texts)
            # Decode by column: one call decodes all keys. If this call fails, keys are decoded one
            # by one.
            if not texts & TEXT_KEYS:
                keys = _decoded(self._decode_keys, source.decode_key, keys, failures)
            if not texts & TEXT_VALUES:
                values = _decoded(self._decode_values, source.decode_value, values, failures)
            chunk = Batch(keys, values, timestamps, raw.headers, raw.offsets)
        if failures:
            self._bad.extend(sorted(failures.items()))
            keep = [True] * len(raw)
            for index in failures:
                keep[index] = False
            chunk = chunk.select(keep)
        good = len(chunk)
        # Kafka's own extractors return the record's timestamp: without negative timestamps nothing
        # changes.
        if not source.keeps_valid or min(chunk.timestamps, default=0) < 0:
            chunk = self._stamp(chunk, raw)
        self._chunk = chunk
        if self._poison is None:
            self.buffered -= good - len(chunk)

    def _decide(self, before: int | None) -> None:
        """Decide about undecodable records before an offset (None: all in the chunk).

        Do this only when the position passes the records: the handler's output about them is
        committed with that position.
        """
        if self._fatal is not None:
            raise self._fatal
        offsets = self._raw_chunk.offsets
        while self._bad and (before is None or offsets[self._bad[0][0]] < before):
            index, error = self._bad[0]
            # The record with the failed timestamp comes first.
            if self._poison is not None and offsets[index] > self._poisoned:
                return
            try:
                self.source.undecodable(
                    RawRecord(self.partition, self._raw_chunk, index, logged=self._logged), error
                )
            except Exception as fatal:
                self._fatal = fatal
                raise
            self._bad.popleft()
            self.buffered -= 1

    def _decide_within(self, stop: int) -> int:
        """Decide about undecodable records between those taken up to `stop`.

        Returns an earlier stop if an undecodable record ends the task.
        """
        offsets = self._chunk.offsets
        try:
            self._decide(offsets[stop] if stop < len(offsets) else None)
        except Exception:  # noqa: BLE001 - raised when those in front are done, by `head`
            return min(stop, bisect_left(offsets, self._raw_chunk.offsets[self._bad[0][0]]))
        return stop

    def _stamp(self, chunk: Batch, raw: Batch) -> Batch:
        """Give every record its event time; leave out records without a valid time."""
        extract, time = self.source.extract, self.partition_time
        stamps: list[int] = []
        topic, partition = self.partition
        headers = repeat(()) if chunk.headers is None else chunk.headers
        columns = zip(
            chunk.keys,
            chunk.values,
            chunk.timestamps,
            headers,
            repeat(topic),
            repeat(partition),
            chunk.offsets,
            strict=False,
        )
        try:
            for record in map(InputRecord._make, columns):
                stamp = extract(record, time)
                if type(stamp) is not int or stamp > LATEST_MS:
                    stamp = _valid(extract, stamp)
                stamps.append(stamp)
                time = max(time, stamp)
        except Exception as error:  # noqa: BLE001 - a user's function; kept until its turn
            at = bisect_left(raw.offsets, chunk.offsets[len(stamps)])
            self._poison, self._poisoned = (
                self.source.unstampable(
                    RawRecord(self.partition, raw, at, logged=self._logged), error
                ),
                raw.offsets[at],
            )
            chunk = chunk.slice(0, len(stamps))
        stamped = Batch(chunk.keys, chunk.values, stamps, chunk.headers, chunk.offsets)
        if min(stamps, default=0) >= 0:
            return stamped
        for offset, stamp in zip(chunk.offsets, stamps, strict=True):
            if stamp < 0:
                self.source.untimely(
                    RawRecord(
                        self.partition, raw, bisect_left(raw.offsets, offset), logged=self._logged
                    ),
                    stamp,
                )
        return stamped.select([stamp >= 0 for stamp in stamps])


def _valid(extract: TimestampExtractor, stamp: Any) -> int:
    """Return an extracted timestamp as an int. Raises TypeError or ValueError if it is invalid."""
    try:
        found = None if isinstance(stamp, bool) else index_of(stamp)
    except TypeError:
        found = None
    if found is None:
        refuse_awaitable(extract, stamp, awaited=False)
        raise TypeError(f"it returned {stamp!r}: return a whole number of ms")
    if found > LATEST_MS:
        raise ValueError(f"it returned {found}: return a time in ms, below 2**63")
    return found


def _columns_of(raw: Batch, texts: int) -> tuple[list[Any], list[Any], list[int], int]:
    """Return keys, values and timestamps, and which of the columns are decoded already.

    Bytes as they were fetched become `texts` without other objects in between.
    """
    if isinstance(raw, FetchedBatch):
        for wanted in (texts, 0):
            with suppress(UnicodeDecodeError):
                return *raw.read(wanted), wanted
    return raw.keys, raw.values, raw.timestamps, 0


def _decoded(
    whole: Callable[[list[Any]], list[Any]],
    decode: Callable[[bytes], Any],
    column: list[bytes | None],
    failures: dict[int, Exception],
) -> list[Any]:
    """Return a decoded column with None for failures, and the errors by index."""
    try:
        return whole(column)
    except Exception:  # noqa: BLE001 - bytes may be anything; once more, and note which
        decoded: list[Any] = []
    rest = iter(column)
    while len(decoded) < len(column):
        try:
            # Values decoded before an error stay in the list, and `rest` continues after the error.
            decoded.extend(None if data is None else decode(data) for data in rest)
        except Exception as error:  # noqa: BLE001 - as above
            failures.setdefault(
                len(decoded), error.with_traceback(_of_the_serde(error.__traceback__))
            )
            decoded.append(None)
    return decoded


def _decoded_with_headers(
    decoders: Decoders, raw: Batch, headers: list[Headers], failures: dict[int, Exception]
) -> Batch:
    """Return the decoded records, with their headers as the serdes have changed them."""
    left = list(map(list, headers))
    columns: list[list[Any]] = []
    for decode, column in zip(decoders, (raw.keys, raw.values), strict=True):
        decoded: list[Any] = []
        for at, data in enumerate(column):
            try:
                decoded.append(None if data is None else decode(data, left[at]))
            except Exception as error:  # noqa: BLE001 - bytes may be anything
                found = error.__traceback__
                # Drop our own frame, which would keep the whole chunk alive.
                failures.setdefault(at, error.with_traceback(found and found.tb_next))
                decoded.append(None)
        columns.append(decoded)
    keys, values = columns
    return Batch(keys, values, raw.timestamps, list(map(tuple, left)), raw.offsets)


def _of_the_serde(traceback: TracebackType | None) -> TracebackType | None:
    """Strip our own two frames from a traceback: they would keep the whole chunk alive."""
    for _ in range(2):
        traceback = None if traceback is None else traceback.tb_next
    return traceback
