"""The records of one record batch, on their way into columns: read by the kernel, or one by one by aiokafka where there is no kernel."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, final

from aiokafka.errors import CorruptRecordException  # type: ignore[import-untyped]
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]

from ks_actors._native import kernel as _kernel
from ks_actors.log.kafka import _plain_records
from ks_actors.log.kafka._decompression import MAX_DECOMPRESSED, decompress
from ks_actors.log.kafka._format import APPEND_TIME, ATTRIBUTES_AT, BEHIND_LENGTH, CODEC, HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors._batch import Headers


_LENGTH_AT: Final = 8


class Records(NamedTuple):
    """Some records by columns; `headers` is None when none has any, `offsets` when they were not asked for."""

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers] | None
    offsets: list[int] | None


class Body(Protocol):
    """What is left to be read of a record batch, which takes `size` bytes, decompressed.

    Both methods raise CorruptRecordException for bytes that are no records; nothing is passed over then.
    """

    @property
    def size(self) -> int: ...

    def skip(self, count: int) -> None:
        """Pass over records."""

    def read(self, count: int, *, with_offsets: bool) -> Records:
        """Return the next records; there are as many."""
        ...


@final
class KernelBody:
    """Records as bytes that the kernel reads, or its twin in Python."""

    __slots__ = ("_append_time", "_at", "_base", "_data", "_reader", "_time")

    def __init__(self, reader: Any, data: memoryview | bytes, attributes: int, base_offset: int, first_time: int, highest_time: int) -> None:
        self._reader: Any = reader
        self._data: memoryview | bytes = data
        self._at: int = 0
        self._base: int = base_offset
        self._append_time: bool = bool(attributes & APPEND_TIME)
        self._time: int = highest_time if self._append_time else first_time

    @property
    def size(self) -> int:
        """How many bytes the records take, those that were read included."""
        return len(self._data)

    def skip(self, count: int) -> None:
        """Pass over records."""
        try:
            self._at = self._reader.skip_records(self._data, self._at, count)
        except ValueError as error:
            raise CorruptRecordException(str(error)) from error

    def read(self, count: int, *, with_offsets: bool) -> Records:
        """Return the next records."""
        try:
            self._at, *columns = self._reader.read_records(self._data, self._at, count, self._base, self._time, self._append_time, with_offsets)
        except ValueError as error:
            raise CorruptRecordException(str(error)) from error
        return Records(*columns)


@final
class IteratedBody:
    """Records as aiokafka gives them, one by one; what it refuses is read anew, as the kernel reads it, by `plain`."""

    __slots__ = ("_done", "_plain", "_records", "_refused")

    def __init__(self, records: Iterator[Any], plain: KernelBody | None = None) -> None:
        self._records: Iterator[Any] = records
        self._plain: KernelBody | None = plain
        self._refused: bool = False
        self._done: int = 0

    @property
    def size(self) -> int:
        """How many bytes the records take; 0 if they are of an old format."""
        return 0 if self._plain is None else self._plain.size

    def skip(self, count: int) -> None:
        """Pass over records."""
        if self._next(count) is None:
            self._beside().skip(count)
        self._done += count

    def read(self, count: int, *, with_offsets: bool) -> Records:
        """Return the next records."""
        records = self._next(count)
        if records is None:
            found = self._beside().read(count, with_offsets=with_offsets)
            self._done += count
            return found
        self._done += count
        headers = [tuple(record.headers) for record in records]
        return Records(
            [record.key for record in records],
            [record.value for record in records],
            [record.timestamp for record in records],
            headers if any(headers) else None,
            [record.offset for record in records] if with_offsets else None,
        )

    def _next(self, count: int) -> list[Any] | None:
        """Return the next records; None when aiokafka does not read all of them."""
        if not self._refused:
            try:
                records = list(islice(self._records, count))
            except Exception:  # noqa: BLE001 - of the libraries, each has its own, for bytes that are no records
                records = []
            if len(records) == count:
                return records
            self._refused = True
            if self._plain is not None:
                self._plain.skip(self._done)
        return None

    def _beside(self) -> KernelBody:
        if self._plain is None:
            raise CorruptRecordException("the messages of a set in an old format cannot be read")
        return self._plain


def body_of(
    stored: memoryview, attributes: int, base_offset: int, first_time: int, highest_time: int, limit: int = MAX_DECOMPRESSED, /
) -> Body:  # fmt: skip
    """Return the records of a batch, decompressed to no more than `limit` bytes.

    Raises CorruptRecordException, UnsupportedCodecError, MemoryError.
    """
    codec = attributes & CODEC
    data: memoryview | bytes = stored[HEADER.size :]
    if codec:
        data = decompress(stored[HEADER.size :], codec, limit)
    if _kernel is not None:
        return KernelBody(_kernel, data, attributes, base_offset, first_time, highest_time)
    plain = KernelBody(_plain_records, data, attributes, base_offset, first_time, highest_time)
    head = bytearray(stored[: HEADER.size])
    head[ATTRIBUTES_AT + 1] &= ~CODEC
    head[_LENGTH_AT : _LENGTH_AT + 4] = (HEADER.size - BEHIND_LENGTH + len(data)).to_bytes(4, "big")
    # The batch itself can be iterated over only once, and not piece by piece.
    batch: Any = MemoryRecords(b"".join((head, data))).next_batch()
    return IteratedBody(iter(batch), plain)
