"""The records of one record batch, decoded into columns.

The kernel decodes the records; without the kernel, aiokafka decodes them one by one.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, final

from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.log.kafka._aiokafka import CorruptRecordException, MemoryRecords
from ks_actors.log.kafka.wire import _plain_record_reader
from ks_actors.log.kafka.wire._batch_header import (
    APPEND_TIME,
    ATTRIBUTES_AT,
    BEHIND_LENGTH,
    CODEC,
    HEADER,
)
from ks_actors.log.kafka.wire._decompression import MAX_DECOMPRESSED, decompress
from ks_actors.records import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.records import Headers


_MOST_GROWTH: Final = 50
"""The most bytes of memory per byte of a record.

The worst case is a record that has only headers, with names that are invalid text.
"""

_LENGTH_AT: Final = 8
_HIGHEST_OFFSET: Final = (1 << 63) - 1
_GUARD: Final = b"\x80" * 11
"""A guard after a batch:

aiokafka may read a number past the end of its batch, but no valid number begins like this.
"""


class Records(NamedTuple):
    """Some records by columns.

    `headers` is None when no record has headers, `offsets` when they were not requested.
    """

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers] | None
    offsets: list[int] | None


class Body(Protocol):
    """The unread part of a record batch; `size` is in decompressed bytes.

    All methods raise CorruptRecordException for malformed records, and then do not advance.
    """

    @property
    def size(self) -> int: ...

    def fitting(self, count: int, limit: int) -> int:
        """Return how many of the next records fit into about `limit` bytes of memory together.

        Raises CorruptRecordException when the first record alone takes more: a header of two bytes
        takes over a hundred bytes of memory.
        """
        ...

    def skip(self, count: int) -> None:
        """Skip records."""

    def read(self, count: int, *, with_offsets: bool) -> Records:
        """Return exactly the next `count` records."""
        ...

    def take(self, count: int, least: int) -> Run | None:
        """Return the next `count` records as they are; None if they have to be read at once.

        So they have if they are fewer than `least`.
        """
        ...


class _Reader(Protocol):
    """The module that reads records: the kernel, or `_plain_record_reader`."""

    def read_records(
        self,
        data: memoryview | bytes,
        at: int,
        count: int,
        base_offset: int,
        base_time: int,
        append_time: bool,
        with_offsets: bool,
        /,
    ) -> tuple[
        int,
        list[bytes | None],
        list[bytes | None],
        list[int],
        list[Headers] | None,
        list[int] | None,
    ]: ...
    def skip_records(self, data: memoryview | bytes, at: int, count: int, /) -> int: ...


@final
class KernelBody:
    """Records as bytes, read by the kernel or its Python equivalent."""

    __slots__ = ("_append_time", "_at", "_base", "_data", "_reader", "_time")

    def __init__(
        self,
        reader: _Reader,
        data: memoryview | bytes,
        attributes: int,
        base_offset: int,
        first_time: int,
        highest_time: int,
    ) -> None:
        self._reader: _Reader = reader
        self._data: memoryview | bytes = data
        self._at: int = 0
        self._base: int = base_offset
        self._append_time: bool = bool(attributes & APPEND_TIME)
        self._time: int = highest_time if self._append_time else first_time

    @property
    def size(self) -> int:
        """The bytes of all records, including those already read."""
        return len(self._data)

    def fitting(self, count: int, limit: int) -> int:
        """Return how many of the next records fit; inspect each only if some might not fit."""
        if (len(self._data) - self._at) * _MOST_GROWTH <= limit:
            return count
        try:
            if (
                self._reader.skip_records(self._data, self._at, count) - self._at
            ) * _MOST_GROWTH <= limit:
                return count
        except ValueError:
            # Even the records before the malformed record may be too large.
            pass
        fit, first = _plain_record_reader.fitting(self._data, self._at, count, limit)
        if not fit:
            raise CorruptRecordException(
                f"a record with {first.headers} headers takes {first.size} bytes of memory, more "
                f"than max_decompressed_bytes ({limit}): raise it to read the record"
            )
        return fit

    def skip(self, count: int) -> None:
        """Skip records."""
        try:
            self._at = self._reader.skip_records(self._data, self._at, count)
        except ValueError as error:
            raise CorruptRecordException(str(error)) from error

    def read(self, count: int, *, with_offsets: bool) -> Records:
        """Return the next records."""
        try:
            self._at, keys, values, timestamps, headers, offsets = self._reader.read_records(
                self._data, self._at, count, self._base, self._time, self._append_time, with_offsets
            )
        except ValueError as error:
            raise CorruptRecordException(str(error)) from error
        return Records(keys, values, timestamps, headers, offsets)

    def take(self, count: int, least: int) -> Run | None:
        """Return the next records as they are, if they are many, well-formed and without headers.

        Objects that are made of them later, a few at a time, are used while they are in the CPU's
        cache.
        """
        if count < least or not HAS_KERNEL:
            return None
        at = self._at
        try:
            self._at = _kernel.skip_records(self._data, at, count, True)
        except ValueError:
            return None
        return Run(self._data, at, self._at, count, self._time, self._append_time)


@final
class IteratedBody:
    """Records that aiokafka reads one by one; `plain` rereads the records that aiokafka refuses.

    `plain` reads records as the kernel does. aiokafka misreads attributes of 128 or more, which no
    record has so far, as the start of a longer number. A check of each record would add half of the
    reading time, so aiokafka's result is not checked.
    """

    __slots__ = ("_done", "_plain", "_records", "_refused")

    def __init__(self, records: Iterator[Any], plain: KernelBody | None = None) -> None:
        self._records: Iterator[Any] = records
        self._plain: KernelBody | None = plain
        self._refused: bool = False
        # The number of records by which `plain` lags behind.
        self._done: int = 0

    @property
    def size(self) -> int:
        """The bytes of the records; 0 for records of an old format."""
        return 0 if self._plain is None else self._plain.size

    def fitting(self, count: int, limit: int) -> int:
        """Return how many of the next records fit.

        For an old format, whose records have no headers, the memory was checked before.
        """
        if self._plain is None or self._plain.size * _MOST_GROWTH <= limit:
            return count
        self._follow(self._plain)
        return self._plain.fitting(count, limit)

    def skip(self, count: int) -> None:
        """Skip records."""
        if self._next(count) is None:
            self._beside().skip(count)

    def read(self, count: int, *, with_offsets: bool) -> Records:
        """Return the next records."""
        records = self._next(count)
        if records is None:
            return self._beside().read(count, with_offsets=with_offsets)
        headers = [tuple(record.headers) for record in records]
        return Records(
            [record.key for record in records],
            [record.value for record in records],
            [record.timestamp for record in records],
            headers if any(headers) else None,
            [record.offset for record in records] if with_offsets else None,
        )

    def take(self, count: int, least: int) -> Run | None:  # noqa: ARG002 - reads at once
        """Return None: these records are read one by one."""
        return None

    def _next(self, count: int) -> list[Any] | None:
        """Return the next records; None when aiokafka cannot read all of them."""
        if not self._refused:
            try:
                records = list(islice(self._records, count))
            except Exception:  # noqa: BLE001 - each library has its own errors for bad bytes
                records = []
            if len(records) == count:
                self._done += count
                return records
            self._refused = True
            if self._plain is not None:
                self._follow(self._plain)
        return None

    def _follow(self, plain: KernelBody) -> None:
        """Move `plain` past the records already read."""
        if self._done:
            plain.skip(self._done)
            self._done = 0

    def _beside(self) -> KernelBody:
        if self._plain is None:
            raise CorruptRecordException("could not read the messages of a set in an old format")
        return self._plain


class PlainBatches(NamedTuple):
    """Some whole record batches, the position after them, and their offsets."""

    behind: int
    records: Records
    offsets: range | list[int]


def plain_batches(
    raw: bytes,
    at: int,
    end: int,
    position: int,
    most_records: int,
    plain_attributes: int,
    limit: int,
    /,
) -> PlainBatches | None:
    """Return the records of the batches from `at` on at once, up to a special batch.

    No batch begins at `end` or after it. Returns None without the kernel, or if the first batch is
    special: compressed, malformed, with gaps or with offsets below `position`, with attributes
    beyond `plain_attributes`, or too large for `most_records` or for `limit` bytes of memory.
    """
    if not HAS_KERNEL or position > _HIGHEST_OFFSET:
        return None
    found = _kernel.read_batches(raw, at, end, position, most_records, plain_attributes, limit)
    if found is None:
        return None
    behind, keys, values, timestamps, headers, runs = found
    offsets: range | list[int]
    if len(runs) == 1:
        offsets = range(*runs[0])
    else:
        offsets = [offset for first, last in runs for offset in range(first, last)]
    return PlainBatches(behind, Records(keys, values, timestamps, headers, None), offsets)


def offset_behind(raw: bytes) -> tuple[int, int, bool] | None:
    """Return the offset after the last whole record batch, and the leader epoch of that batch.

    The third value tells whether any whole batch is compressed. Returns None without the kernel,
    and for batches that the kernel cannot handle.
    """
    return _kernel.behind_batches(raw) if HAS_KERNEL else None


def body_of(
    stored: memoryview,
    attributes: int,
    base_offset: int,
    first_time: int,
    highest_time: int,
    limit: int = MAX_DECOMPRESSED,
    /,
) -> Body:
    """Return the records of a batch, decompressed to no more than `limit` bytes.

    Raises CorruptRecordException, UnsupportedCodecError, MemoryError.
    """
    codec = attributes & CODEC
    data: memoryview | bytes = stored[HEADER.size :]
    if codec:
        data = decompress(stored[HEADER.size :], codec, limit)
    if HAS_KERNEL:
        return KernelBody(_kernel, data, attributes, base_offset, first_time, highest_time)
    plain = KernelBody(
        _plain_record_reader, data, attributes, base_offset, first_time, highest_time
    )
    head = bytearray(stored[: HEADER.size])
    head[ATTRIBUTES_AT + 1] &= ~CODEC
    head[_LENGTH_AT : _LENGTH_AT + 4] = (HEADER.size - BEHIND_LENGTH + len(data)).to_bytes(4, "big")
    # Make the batch's iterator only once: a second iterator could not continue where it stopped.
    batch: Any = MemoryRecords(b"".join((head, data, _GUARD))).next_batch()
    return IteratedBody(iter(batch), plain)
