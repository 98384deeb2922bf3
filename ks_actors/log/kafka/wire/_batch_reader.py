"""Decode a partition's fetched bytes into columns."""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from struct import Struct
from time import perf_counter
from typing import TYPE_CHECKING, final

from ks_actors._errors import LogCorrupted, LogError
from ks_actors.log.kafka._aiokafka import CorruptRecordException, UnsupportedCodecError
from ks_actors.log.kafka.wire._batch_header import (
    APPEND_TIME,
    BEHIND_LENGTH,
    CONTROL,
    HEADER,
    MAGIC,
    TRANSACTIONAL,
    checksum,
)
from ks_actors.log.kafka.wire._decompression import MAX_DECOMPRESSED
from ks_actors.log.kafka.wire._legacy_messages import LEAST_LEGACY, WRONG_SUM, legacy_messages
from ks_actors.log.kafka.wire._record_reader import (
    Body,
    IteratedBody,
    Records,
    body_of,
    offset_behind,
    plain_batches,
)
from ks_actors.log.kafka.wire._unpacking import GROWN, LITTLE, PIECE, is_packed
from ks_actors.records import WORTHWHILE, Batch, FetchedBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ks_actors.log.kafka.wire._unpacking import Unpacked
    from ks_actors.records import Headers, Run, TopicPartition

_LENGTHS = Struct(">qi")
_EPOCH = Struct(">i")
_NO_EPOCH = -1
# So few records are read at once, even behind records that stay bytes.
_FEW = 16
_MAGIC_AT = 16
_LAST_DELTA = Struct(">i")
_LAST_DELTA_AT = 23
# The key of a control record: its version and type.
_MARKER = Struct(">HH")
_ABORT = 0


@final
class Columns:
    """Columns under construction, or records as they were fetched.

    The lists are there once any record had to be read.
    """

    __slots__ = ("_runs", "headers", "keys", "offsets", "timestamps", "values")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: list[Headers] | None = None
        self.offsets: range | list[int] = range(0)

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def in_bytes(self) -> bool:
        """Whether there are records, and all of them are as they were fetched."""
        return bool(self._runs)

    def take_run(self, run: Run) -> None:
        """Append records as they were fetched, except for their offsets."""
        if self.keys:
            self.take(Records(*run.read(0), None, None))
        else:
            self._runs.append(run)

    def take(self, records: Records) -> None:
        """Append records, except for their offsets."""
        runs, self._runs = self._runs, []
        for run in runs:
            self.take(Records(*run.read(0), None, None))
        if self.keys:
            before = len(self.keys)
            self.keys += records.keys
            self.values += records.values
            self.timestamps += records.timestamps
        else:
            before = 0
            self.keys, self.values, self.timestamps = (
                records.keys,
                records.values,
                records.timestamps,
            )
        headers = records.headers
        # Few topics have headers, so make the column only at the first batch with headers.
        if headers is not None and self.headers is None:
            self.headers = [()] * before
        if self.headers is not None:
            self.headers += [()] * len(records.keys) if headers is None else headers

    def add_offsets(self, more: range | list[int]) -> None:
        """Append offsets; if there are no gaps, keep a range, which costs nothing."""
        offsets = self.offsets
        if not offsets:
            self.offsets = more
        elif isinstance(offsets, range) and isinstance(more, range) and offsets.stop == more.start:
            self.offsets = range(offsets.start, more.stop)
        else:
            self.offsets = [*offsets, *more]

    def batch(self) -> Batch:
        """Return the records."""
        if self._runs:
            return FetchedBatch(self._runs, self.offsets)
        return Batch(self.keys, self.values, self.timestamps, self.headers, self.offsets)


@final
class Chunk:
    """The record batches of one partition in one fetch; the last batch may be cut off.

    The batches stay compressed and unchecked until `read`. `next_offset` is the offset after the
    last whole batch (None if there is none), and `leader_epoch` the epoch of the leader that wrote
    that batch (-1 for old formats). `end_offset` is the end of the readable records at the time of
    the fetch. For committed readers `aborted` has the producer id and first offset of each aborted
    transaction; with None, aborted records are read too. Raises LogCorrupted for bytes without
    batches.

    With `apart`, batches that take long to decompress count as `packed` until a thread has
    decompressed them: `read` stops in front of them. If a batch has more than `limit` bytes after
    decompression, it is not read.
    """

    __slots__ = (
        "_aborted",
        "_aborters",
        "_at",
        "_base",
        "_behind",
        "_bodies",
        "_body",
        "_end",
        "_failure",
        "_gaps",
        "_left",
        "_partition",
        "_plain_attributes",
        "_unpacked_to",
        "end_offset",
        "grown",
        "leader_epoch",
        "limit",
        "next_offset",
        "raw",
        "size",
        "unpacking",
    )

    def __init__(
        self,
        partition: TopicPartition,
        raw: bytes,
        end_offset: int,
        aborted: Sequence[tuple[int, int]] | None,
        *,
        apart: bool = False,
        limit: int = MAX_DECOMPRESSED,
    ) -> None:
        self.end_offset: int = end_offset
        self.size: int = len(raw)
        self._partition: TopicPartition = partition
        self.limit: int = limit
        # The start of the next batch that a thread must decompress.
        self._unpacked_to: float = inf
        self.leader_epoch: int = _NO_EPOCH
        self.next_offset: int | None = self._find_end(raw, apart=apart and self.size > LITTLE)
        self.raw: bytes = raw
        # `unpacking`: a thread is decompressing batches. `_bodies`: decompressed batches by their
        # start.
        self.unpacking: bool = False
        self._bodies: dict[int, Body] = {}
        # The bytes of `_bodies`: a few compressed bytes may become many.
        self.grown: int = 0
        # The start of the next batch in `raw`.
        self._at = 0
        self._aborted: list[tuple[int, int]] | None = (
            None if aborted is None else sorted(aborted, key=_first_offset, reverse=True)
        )
        self._aborters: set[int] = set()
        # If no transaction was aborted, batches of transactions are read like all others.
        self._plain_attributes: int = APPEND_TIME if self._aborted else APPEND_TIME | TRANSACTIONAL
        # The current batch: its remaining records, their number, first and end offset, and whether
        # compaction has left gaps.
        self._body: Body = IteratedBody(iter(()))
        self._left = 0
        self._base = 0
        self._end = 0
        self._gaps = False
        # The offset to resume at if the current batch is unreadable.
        self._behind = 0
        self._failure: LogError | None = None

    def _find_end(self, raw: bytes, *, apart: bool) -> int | None:
        found = offset_behind(raw)
        if found is not None:
            behind, self.leader_epoch, packed = found
            if apart and packed:
                self._unpacked_to = 0
            return behind
        at, following = 0, None
        for at, following in whole_batches(self._partition, raw):  # noqa: B007 - the last one's
            if apart and is_packed(raw, at):
                apart, self._unpacked_to = False, 0
        if following is not None:
            self.leader_epoch = _epoch_at(raw, at)
        return following

    def epoch_starts(self) -> list[tuple[int, int]]:
        """Return the leader epochs of the whole batches, each with the end of the previous batch.

        The pairs are in order; the first epoch counts from offset 0.
        """
        first = _epoch_at(self.raw, 0)
        starts = [(0, first)]
        if first == self.leader_epoch:
            # Epochs never decrease, so all batches have this epoch.
            return starts
        before = 0
        for at, following in whole_batches(self._partition, self.raw):
            epoch = _epoch_at(self.raw, at)
            if starts[-1][1] != epoch:
                starts.append((before, epoch))
            before = following
        return starts

    @property
    def packed(self) -> bool:
        """Whether some batches still need decompression."""
        return self._unpacked_to != inf

    @property
    def waits(self) -> bool:
        """Whether the next batch still needs decompression."""
        return not self._left and self._at >= self._unpacked_to

    @property
    def wants_unpacking(self) -> bool:
        """Whether to decompress the next piece; to do so much earlier would waste memory.

        True when less than half a piece is left to read, in compressed and in decompressed bytes.
        """
        return self.packed and self._unpacked_to - self._at < PIECE // 2 and self.grown < GROWN // 2

    @property
    def unpacked_to(self) -> int:
        """The start of the batch to decompress next; only valid while `packed`."""
        return int(self._unpacked_to)

    def take(self, unpacked: Unpacked) -> None:
        """Add decompressed batches."""
        self.unpacking = False
        self._bodies.update(unpacked.bodies)
        self.grown += sum(body.size for body in unpacked.bodies.values())
        self._unpacked_to = inf if unpacked.behind is None else unpacked.behind

    @property
    def half_read(self) -> bool:
        """Whether at least half of the bytes have been read or are being read."""
        return 2 * self._at >= self.size

    @property
    def position(self) -> int:
        """The offset that the last `read` reached."""
        return self._base if self._left else self._end

    def read(self, position: int, limit: int, columns: Columns, until: float = inf) -> bool:
        """Append records from `position` until `columns` has `limit`; return whether more may come.

        Starts no further batch once `perf_counter` reaches `until`, and no batch that still needs
        decompression. Raises LogCorrupted for corrupt bytes, and LogError when the library for
        their compression is missing; `columns` then has the records before these bytes.
        """
        if self._failure is not None:
            raise self._failure
        try:
            while len(columns) < limit:
                if not self._left:
                    if self._at == self.size:
                        return False
                    late = len(columns) > 0 and perf_counter() >= until
                    if not late and self._read_plain(position, limit, columns):
                        continue
                    if not self._open():
                        return self.waits
                if len(columns) and perf_counter() >= until:
                    return True
                if self._gaps:
                    self._read_gaps(position, limit, columns)
                else:
                    self._read_run(position, limit, columns)
        except CorruptRecordException as error:
            raise self._unreadable(position, error) from error
        except UnsupportedCodecError as error:
            self._failure = LogError(
                f"{self._partition} cannot be decompressed at or after offset {self.position}: "
                f"{error}; install cramjam"
            )
            raise self._failure from error
        except MemoryError as error:
            # The batch itself is sound: a later read may find enough memory.
            self._end, self._left = max(position, self.position), 0
            self._failure = LogError(
                f"{self._partition} cannot be read at offset {self._end}: there is not enough "
                "memory for the records of the batch"
            )
            raise self._failure from error
        return True

    def _unreadable(self, position: int, error: Exception) -> LogCorrupted:
        """Return the error for the current batch, and stop reading there."""
        behind = max(min(self._behind, self.end_offset), position + 1)
        if len(self.raw) - self._at >= _LENGTHS.size:
            # A wrong checksum makes the header unreliable, so use the base offset of the next
            # batch.
            behind = min(
                behind, max(int(_LENGTHS.unpack_from(self.raw, self._at)[0]), position + 1)
            )
        offset = max(position, self.position)
        self._end, self._left = offset, 0
        self._failure = LogCorrupted(
            f"{self._partition} has bytes at offset {offset} that are not records or cannot be "
            f"read; reading can continue at {behind}: {error}",
            partition=self._partition,
            offset=offset,
            next_offset=behind,
        )
        return self._failure

    def _read_body(self, count: int, *, with_offsets: bool) -> Records:
        """Return the next records.

        Returns fewer than `count` records if memory is limited, or before an unreadable record.
        """
        count = self._body.fitting(count, self.limit)
        while True:
            try:
                return self._body.read(count, with_offsets=with_offsets)
            except CorruptRecordException:
                if count <= 1:
                    raise
                count //= 2

    def _read_plain(self, position: int, limit: int, columns: Columns) -> bool:
        """Read the next plain batches at once; return whether there were any.

        With many partitions most batches have a record or two: a call of `_open` for each batch
        would take longer than reading the batch's records.
        """
        end = min(len(self.raw), self._unpacked_to)
        # Records of a larger batch are left as they are.
        room = min(limit - len(columns), WORTHWHILE)
        found = plain_batches(
            self.raw, self._at, int(end), position, room, self._plain_attributes, self.limit
        )
        if found is None:
            return False
        columns.take(found.records)
        columns.add_offsets(found.offsets)
        self._at, self._end = found.behind, found.offsets[-1] + 1
        self._note_aborted(found.offsets[-1])
        return True

    def _read_run(self, position: int, limit: int, columns: Columns) -> None:
        """Read from a batch that has all its records."""
        skip = min(max(position - self._base, 0), self._left)
        if skip:
            self._body.skip(skip)
            self._base += skip
            self._left -= skip
        count = min(self._left, limit - len(columns))
        begin = self._base
        if count:
            count = self._body.fitting(count, self.limit)
            run = self._body.take(count, _FEW if columns.in_bytes else WORTHWHILE)
            if run is not None:
                columns.take_run(run)
            else:
                records = self._read_body(count, with_offsets=False)
                count = len(records.keys)
                columns.take(records)
            columns.add_offsets(range(begin, begin + count))
        self._base = begin + count
        self._left -= count

    def _read_gaps(self, position: int, limit: int, columns: Columns) -> None:
        """Read from a batch with offset gaps left by compaction."""
        records = self._read_body(min(self._left, limit - len(columns)), with_offsets=True)
        offsets = records.offsets
        assert offsets is not None
        if offsets and not self._base <= offsets[0] <= offsets[-1] < self._end:
            # Offsets outside the batch would make the reader loop forever, or skip records of later
            # batches.
            raise CorruptRecordException(
                f"records at {offsets[0]} to {offsets[-1]} are in a batch of {self._base} "
                f"to {self._end - 1}"
            )
        self._left -= len(offsets)
        if offsets and offsets[0] < position:
            records = _from(records, bisect_left(offsets, position))
            offsets = offsets[bisect_left(offsets, position) :]
        if offsets:
            columns.take(records)
            columns.add_offsets(offsets)
            self._base = offsets[-1] + 1

    def _open(self) -> bool:
        """Move to the next batch with records to read."""
        raw = self.raw
        while len(raw) - self._at > _LAST_DELTA_AT and self._at < self._unpacked_to:
            at = self._at
            base, length = _LENGTHS.unpack_from(raw, at)
            following = at + BEHIND_LENGTH + length
            if following > len(raw):
                break
            stored = memoryview(raw)[at:following]
            self._at = following
            if stored[_MAGIC_AT] < MAGIC:
                self._open_legacy(stored, base)
            else:
                body = self._bodies.pop(at, None)
                if body is not None:
                    self.grown -= body.size
                if not self._open_columnar(stored, base, body):
                    continue
            if self._left:
                return True
        return False

    def _open_legacy(self, stored: memoryview, base: int) -> None:
        self._end, self._behind = base, base + 1
        legacy = legacy_messages(stored, self.limit)
        self._body = IteratedBody(iter(legacy))
        self._left, self._base, self._end, self._gaps = (
            len(legacy),
            legacy[0].offset,
            base + 1,
            True,
        )

    def _open_columnar(self, stored: memoryview, base: int, body: Body | None) -> bool:
        """Open a batch; return whether it has records to read.

        `body` has its records if they are already decompressed.
        """
        (
            _,
            _,
            _,
            magic,
            expected,
            attributes,
            last_delta,
            first_time,
            highest_time,
            producer,
            _,
            _,
            count,
        ) = HEADER.unpack_from(stored)
        self._end, self._behind = base, base + last_delta + 1
        if magic != MAGIC:
            raise CorruptRecordException(
                f"a batch has format {magic & 0xFF}, and only 0, 1 and {MAGIC} exist"
            )
        if body is None and checksum(stored) != expected:
            raise CorruptRecordException(WRONG_SUM)
        if not 0 <= count <= last_delta + 1:
            raise CorruptRecordException(
                f"a batch has {last_delta + 1} offsets, and says that it has {count} records"
            )
        if body is None:
            body = body_of(stored, attributes, base, first_time, highest_time, self.limit)
        left_out = self._is_left_out(body, attributes, producer, base + last_delta)
        self._end = self._behind
        if left_out:
            return False
        self._body = body
        self._left, self._base, self._gaps = count, base, count != last_delta + 1
        return True

    def _is_left_out(self, body: Body, attributes: int, producer: int, last_offset: int) -> bool:
        """Return whether to skip a batch: a marker, or records of an aborted transaction."""
        control = bool(attributes & CONTROL)
        if self._aborted is not None:
            self._note_aborted(last_offset)
            if producer in self._aborters:
                if control and _kind_of_marker(body, self.limit) == _ABORT:
                    self._aborters.discard(producer)
                elif attributes & TRANSACTIONAL:
                    return True
        return control

    def _note_aborted(self, last_offset: int) -> None:
        """Note the producers of aborted transactions that begin up to an offset."""
        while self._aborted and self._aborted[-1][1] <= last_offset:
            self._aborters.add(self._aborted.pop()[0])


def _kind_of_marker(body: Body, limit: int) -> int:
    body.fitting(1, limit)
    key = body.read(1, with_offsets=False).keys[0] or b""
    if len(key) < _MARKER.size:
        raise CorruptRecordException(f"the key of a control record has {len(key)} bytes")
    return int(_MARKER.unpack_from(key)[1])


def whole_batches(partition: TopicPartition, raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start of each complete record batch, and the offset after it.

    Raises LogCorrupted.
    """
    end = len(raw)
    at, behind = 0, None
    while end - at > _LAST_DELTA_AT:
        base, length = _LENGTHS.unpack_from(raw, at)
        legacy = raw[at + _MAGIC_AT] < MAGIC
        if length < (LEAST_LEGACY if legacy else HEADER.size - BEHIND_LENGTH):
            raise _no_batch(partition, base, behind, f"a batch is {length} bytes long")
        following = at + BEHIND_LENGTH + length
        if following > end:
            return
        behind = base + 1
        if not legacy:
            last_delta: int = _LAST_DELTA.unpack_from(raw, at + _LAST_DELTA_AT)[0]
            if last_delta < 0:
                raise _no_batch(
                    partition,
                    base,
                    None,
                    f"the last offset of a batch is {-last_delta} below its first offset",
                )
            behind += last_delta
        yield at, behind
        at = following


def _epoch_at(raw: bytes, at: int) -> int:
    """Return the leader epoch of the batch at a position; -1 for formats without epochs."""
    if raw[at + _MAGIC_AT] < MAGIC:
        return _NO_EPOCH
    return int(_EPOCH.unpack_from(raw, at + BEHIND_LENGTH)[0])


def _no_batch(partition: TopicPartition, base: int, behind: int | None, why: str) -> LogCorrupted:
    offset = behind or base
    return LogCorrupted(
        f"{partition} has bytes after offset {offset} that are not records: {why}",
        partition=partition,
        offset=offset,
    )


def _first_offset(aborted: tuple[int, int]) -> int:
    return aborted[1]


def _from(records: Records, start: int) -> Records:
    headers = records.headers
    return Records(
        records.keys[start:],
        records.values[start:],
        records.timestamps[start:],
        None if headers is None else headers[start:],
        None,
    )
