"""Bytes of a partition, as a broker sent them, to columns."""

from __future__ import annotations

from itertools import chain, islice
from struct import Struct
from typing import TYPE_CHECKING, Any, final

from aiokafka.errors import CorruptRecordException, UnsupportedCodecError  # type: ignore[import-untyped]
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]

from ks_actors._batch import Batch
from ks_actors._errors import LogCorrupted, LogError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ks_actors._batch import Headers
    from ks_actors.log._types import TopicPartition

# Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and max timestamp, producer id and epoch, sequence, records.
_HEADER = Struct(">qiibIhiqqqhii")
_LENGTHS = Struct(">qi")
_BATCH_OVERHEAD = _LENGTHS.size
_MAGIC = 16
_LAST_DELTA = Struct(">i")
_LAST_DELTA_AT = 23
_COLUMNAR = 2
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_MARKER = Struct(">HH")
_ABORT = 0


@final
class Columns:
    """Records in the making."""

    __slots__ = ("headers", "keys", "offsets", "timestamps", "values")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: list[Headers] | None = None
        self.offsets: range | list[int] = range(0)

    def take(self, records: Iterator[Any], count: int) -> None:
        """Append the next `count` records, all but their offsets."""
        keys, values, timestamps, headers = self.keys, self.values, self.timestamps, self.headers
        add_key, add_value, add_timestamp = keys.append, values.append, timestamps.append
        wanted = len(keys) + count
        if headers is None:
            for record in islice(records, count):
                add_key(record.key)
                add_value(record.value)
                add_timestamp(record.timestamp)
                # Few topics have headers: the column begins with the first one.
                if record.headers:
                    headers = self.headers = [()] * (len(keys) - 1)
                    headers.append(tuple(record.headers))
                    break
        if headers is not None:
            for record in islice(records, wanted - len(keys)):
                add_key(record.key)
                add_value(record.value)
                add_timestamp(record.timestamp)
                headers.append(tuple(record.headers))

    def add_offsets(self, more: range | list[int]) -> None:
        """Append offsets; as long as there are no gaps they are a range, which costs nothing."""
        offsets = self.offsets
        if not offsets:
            self.offsets = more
        elif isinstance(offsets, range) and isinstance(more, range) and offsets.stop == more.start:
            self.offsets = range(offsets.start, more.stop)
        else:
            self.offsets = [*offsets, *more]

    def batch(self) -> Batch:
        """Return the records."""
        return Batch(self.keys, self.values, self.timestamps, self.headers, self.offsets)


@final
class Chunk:
    """What one fetch brought of one partition: record batches, of which the last one may be cut off.

    They stay as they came, compressed and unchecked, until somebody reads them. `next_offset` is behind the last whole batch (None when there is
    none), `end_offset` the end of what could be read at the time. For committed readers `aborted` has producer id and first offset of the aborted
    transactions in it; None shows all records, whatever became of their transactions. Raises LogCorrupted for bytes without batches.
    """

    __slots__ = (
        "_aborted",
        "_aborters",
        "_at",
        "_base",
        "_end",
        "_failure",
        "_gaps",
        "_left",
        "_partition",
        "_raw",
        "_records",
        "_stored",
        "end_offset",
        "next_offset",
        "size",
    )

    def __init__(self, partition: TopicPartition, raw: bytes, end_offset: int, aborted: Sequence[tuple[int, int]] | None) -> None:
        self.end_offset: int = end_offset
        self.size: int = len(raw)
        self._partition: TopicPartition = partition
        self.next_offset: int | None = self._find_end(raw)
        self._raw: bytes = raw
        self._stored: Any = MemoryRecords(raw)
        # Where the next batch begins in `raw`.
        self._at = 0
        self._aborted: list[tuple[int, int]] | None = None if aborted is None else sorted(aborted, key=_first_offset, reverse=True)
        self._aborters: set[int] = set()
        # The batch that is being read: what is left of it, how many records that is, where they begin and end, and whether some are missing.
        self._records: Any = None
        self._left = 0
        self._base = 0
        self._end = 0
        self._gaps = False
        self._failure: LogError | None = None

    def _find_end(self, raw: bytes) -> int | None:
        end = len(raw)
        at, behind = 0, None
        while end - at > _LAST_DELTA_AT:
            base, length = _LENGTHS.unpack_from(raw, at)
            if length <= 0:
                raise LogCorrupted(
                    f"{self._partition} holds bytes that are no records, behind offset {behind or base}: a batch is {length} bytes long"
                )
            following = at + _BATCH_OVERHEAD + length
            if following > end:
                break
            behind = base + 1
            if raw[at + _MAGIC] >= _COLUMNAR:
                behind += _LAST_DELTA.unpack_from(raw, at + _LAST_DELTA_AT)[0]
            at = following
        return behind

    @property
    def position(self) -> int:
        """Where the last `read` has got to."""
        return self._base if self._left else self._end

    def read(self, position: int, limit: int, columns: Columns) -> bool:
        """Append records from `position` on until `columns` has `limit`; tell whether there may be more.

        Raises LogCorrupted for bytes that are not what was written, LogError when the library for their compression is missing; what is in front of
        them is in `columns` then.
        """
        if self._failure is not None:
            raise self._failure
        try:
            while len(columns.keys) < limit:
                if not self._left and not self._open():
                    return False
                if self._gaps:
                    self._read_gaps(position, limit, columns)
                else:
                    self._read_run(position, limit, columns)
        except CorruptRecordException as error:
            self._failure = LogCorrupted(f"{self._partition} holds bytes that are no records, at or behind offset {self.position}: {error}")
            raise self._failure from error
        except UnsupportedCodecError as error:
            self._failure = LogError(f"{self._partition} cannot be decompressed at or behind offset {self.position}: {error}; install cramjam")
            raise self._failure from error
        return True

    def _read_run(self, position: int, limit: int, columns: Columns) -> None:
        """Read of a batch that has all its records."""
        skip = min(max(position - self._base, 0), self._left)
        if skip:
            for _ in islice(self._records, skip):
                pass
        count = min(self._left - skip, limit - len(columns.keys))
        begin = self._base + skip
        if count:
            columns.take(self._records, count)
            columns.add_offsets(range(begin, begin + count))
        self._base = begin + count
        self._left -= skip + count

    def _read_gaps(self, position: int, limit: int, columns: Columns) -> None:
        """Read of a batch of which some records were compacted away."""
        records = list(islice(self._records, min(self._left, limit - len(columns.keys))))
        self._left -= len(records)
        if records and records[0].offset < position:
            records = [record for record in records if record.offset >= position]
        if records:
            columns.take(iter(records), len(records))
            columns.add_offsets([record.offset for record in records])
            self._base = records[-1].offset + 1

    def _open(self) -> bool:
        """Go to the next batch that is to be read."""
        while self._stored.has_next():
            batch = self._stored.next_batch()
            at = self._at
            base, length = _LENGTHS.unpack_from(self._raw, at)
            self._at = at + _BATCH_OVERHEAD + length
            if not batch.validate_crc():
                self._end = base
                raise CorruptRecordException("the checksum of their batch is wrong")
            if self._raw[at + _MAGIC] < _COLUMNAR:
                legacy = list(batch)
                self._records = iter(legacy)
                self._left, self._base, self._end, self._gaps = len(legacy), legacy[0].offset, base + 1, True
            else:
                header = _HEADER.unpack_from(self._raw, at)
                attributes, last_delta, producer, count = header[5], header[6], header[9], header[12]
                self._end = base + last_delta + 1
                if self._is_left_out(batch, attributes, producer, base + last_delta):
                    continue
                # The batch itself can be iterated over only once, and not piece by piece.
                self._records = chain(batch)
                self._left, self._base, self._gaps = count, base, count != last_delta + 1
            if self._left:
                return True
        return False

    def _is_left_out(self, batch: Any, attributes: int, producer: int, last_offset: int) -> bool:
        """Tell whether a batch is a marker, or of an aborted transaction."""
        control = bool(attributes & _CONTROL)
        if self._aborted is not None:
            while self._aborted and self._aborted[-1][1] <= last_offset:
                self._aborters.add(self._aborted.pop()[0])
            if producer in self._aborters:
                if control and _MARKER.unpack_from(next(batch).key)[1] == _ABORT:
                    self._aborters.discard(producer)
                elif attributes & _TRANSACTIONAL:
                    return True
        return control


def _first_offset(aborted: tuple[int, int]) -> int:
    return aborted[1]
