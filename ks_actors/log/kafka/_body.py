"""The records of one record batch, on their way into columns: read by the kernel, or one by one by aiokafka where there is no kernel."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

from aiokafka import codec  # type: ignore[import-untyped]
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError  # type: ignore[import-untyped]
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]

from ks_actors._native import kernel as _kernel
from ks_actors.log.kafka._format import APPEND_TIME, CODEC, CODECS, HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors._batch import Headers


class Records(NamedTuple):
    """Some records by columns; `headers` is None when none has any, `offsets` when they were not asked for."""

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers] | None
    offsets: list[int] | None


class Body(Protocol):
    """What is left to be read of a record batch. Both methods raise CorruptRecordException for bytes that are no records."""

    def skip(self, count: int) -> None:
        """Pass over records."""

    def read(self, count: int, *, with_offsets: bool) -> Records:
        """Return the next records; there are as many."""
        ...


@final
class KernelBody:
    """Records as bytes that the kernel reads."""

    __slots__ = ("_append_time", "_at", "_base", "_data", "_time")

    def __init__(self, stored: memoryview, attributes: int, base_offset: int, first_time: int, highest_time: int) -> None:
        self._data: memoryview | bytes = stored[HEADER.size :] if not attributes & CODEC else _uncompressed(stored[HEADER.size :], attributes & CODEC)
        self._at: int = 0
        self._base: int = base_offset
        self._append_time: bool = bool(attributes & APPEND_TIME)
        self._time: int = highest_time if self._append_time else first_time

    def skip(self, count: int) -> None:
        """Pass over records."""
        try:
            self._at = _kernel.skip_records(self._data, self._at, count)
        except ValueError as error:
            raise CorruptRecordException(str(error)) from error

    def read(self, count: int, *, with_offsets: bool) -> Records:
        """Return the next records."""
        try:
            self._at, *columns = _kernel.read_records(self._data, self._at, count, self._base, self._time, self._append_time, with_offsets)
        except ValueError as error:
            raise CorruptRecordException(str(error)) from error
        return Records(*columns)


@final
class IteratedBody:
    """Records as aiokafka gives them, one by one."""

    __slots__ = ("_records",)

    def __init__(self, batch: Any) -> None:
        # The batch itself can be iterated over only once, and not piece by piece. To begin with that is what decompresses it.
        self._records: Iterator[Any] = chain(iter(batch))

    def skip(self, count: int) -> None:
        """Pass over records."""
        for _ in islice(self._records, count):
            pass

    def read(self, count: int, *, with_offsets: bool) -> Records:
        """Return the next records."""
        records = list(islice(self._records, count))
        headers = [tuple(record.headers) for record in records]
        return Records(
            [record.key for record in records],
            [record.value for record in records],
            [record.timestamp for record in records],
            headers if any(headers) else None,
            [record.offset for record in records] if with_offsets else None,
        )


def body_of(stored: memoryview, attributes: int, base_offset: int, first_time: int, highest_time: int) -> Body:
    """Return the records of a batch, decompressed. Raises CorruptRecordException, UnsupportedCodecError."""
    if _kernel is not None:
        return KernelBody(stored, attributes, base_offset, first_time, highest_time)
    return IteratedBody(MemoryRecords(stored.tobytes()).next_batch())


def _uncompressed(data: memoryview, number: int) -> bytes:
    name = CODECS[number] if number < len(CODECS) else f"compression {number}"
    if number >= len(CODECS) or not getattr(codec, f"has_{name}")():
        raise UnsupportedCodecError(f"the library for {name} is not installed")
    try:
        return bytes(getattr(codec, f"{name}_decode")(data.tobytes()))
    except Exception as error:
        # Each of the libraries has errors of its own, for bytes that it has not made.
        raise CorruptRecordException(f"records are not compressed by {name} as their batch says: {error}") from error
