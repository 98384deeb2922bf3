"""The format of row files: blocks of columns, each with a checksum, and a final row count."""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from itertools import accumulate, pairwise, repeat
from typing import TYPE_CHECKING, Any, Final

from ks_actors._errors import SnapshotRefused
from ks_actors.records import Batch, pack_headers, unpack_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MAGIC: Final = b"KSROWS01"
"""The first bytes of a row file: its format and version."""

BLOCK_ROWS: Final = 5_000
BLOCK_BYTES: Final = 1 << 20
"""A block ends at this number of rows, or of bytes of keys and values."""

LARGEST: Final = 1 << 30
"""The exclusive limit of a block's size, in bytes."""

PLAIN: Final = 0
DEFLATED: Final = 1
# Checksum of the rest, stored bytes, bytes of the columns, rows, and storage method.
_HEAD: Final = struct.Struct("<IIIIB")
_END: Final = struct.Struct("<Q")
# Bytes of a row besides its key and value: two lengths and the timestamp.
_ROW: Final = 16
# Size of the checksum, which does not cover itself.
_SUMMED: Final = 4


def _little(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _numbers(code: str, data: bytes) -> array[int]:
    numbers: array[int] = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _sealed(columns: bytes, rows: int, *, deflate: bool) -> bytes:
    stored = zlib.compress(columns, 1) if deflate else columns
    head = _HEAD.pack(0, len(stored), len(columns), rows, DEFLATED if deflate else PLAIN)
    return (
        struct.pack("<I", zlib.crc32(stored, zlib.crc32(head[_SUMMED:]))) + head[_SUMMED:] + stored
    )


def encode_block(
    keys: list[bytes], values: list[bytes], timestamps: list[int], *, deflate: bool
) -> bytes:
    """Return a block of rows.

    Raises ValueError when the block would be too large, or when keys, values or timestamps have
    wrong types.
    """
    try:
        columns = b"".join(
            (
                _little(array("I", map(len, keys))),
                _little(array("I", map(len, values))),
                _little(array("q", timestamps)),
                *keys,
                *values,
            )
        )
    except (TypeError, OverflowError) as error:
        raise ValueError(
            f"rows of a snapshot have bytes as keys and values, and a time in ms: {error}"
        ) from error
    if len(columns) >= LARGEST:
        raise ValueError(
            f"a block of a snapshot may have {LARGEST:,} bytes, but {len(keys):,} rows take "
            f"{len(columns):,}"
        )
    return _sealed(columns, len(keys), deflate=deflate)


def encode_end(rows: int) -> bytes:
    """Return the end block of a file with this number of rows."""
    return _sealed(_END.pack(rows), 0, deflate=False)


def decode_blocks(read: Callable[[int], bytes], name: str) -> Iterator[Batch]:
    """Yield the rows of the file that `read` reads, one batch per verified block.

    Raises SnapshotRefused for a corrupt file, also if it lacks the end block or continues after it.
    """
    if read(len(MAGIC)) != MAGIC:
        raise SnapshotRefused(f"{name} is not a file of rows in this format")
    total = 0
    while True:
        rows, columns = _block(read, name)
        if rows == 0:
            break
        total += rows
        yield _decoded(rows, columns, name)
    if len(columns) != _END.size or _END.unpack(columns)[0] != total or read(1):
        raise SnapshotRefused(f"{name} does not end after its {total:,} rows")


def _block(read: Callable[[int], bytes], name: str) -> tuple[int, bytes]:
    head = read(_HEAD.size)
    if len(head) != _HEAD.size:
        raise SnapshotRefused(f"{name} is cut off")
    checksum, size, full, rows, how = _HEAD.unpack(head)
    stored = read(size) if size < LARGEST else b""
    if len(stored) != size or zlib.crc32(stored, zlib.crc32(head[_SUMMED:])) != checksum:
        raise SnapshotRefused(
            f"{name} has changed since it was written: a checksum does not match, or it is cut off"
        )
    if how == PLAIN:
        columns = stored
    elif how == DEFLATED and full < LARGEST:
        try:
            # Bound the output: a corrupt block must not exhaust memory.
            columns = zlib.decompressobj().decompress(stored, full + 1)
        except zlib.error as error:
            raise SnapshotRefused(f"{name} has an unreadable block: {error}") from error
    else:
        raise SnapshotRefused(f"{name} has a block of an unknown compression: {how}")
    if len(columns) != full:
        raise SnapshotRefused(
            f"{name} has a block of {len(columns)} bytes whose header says {full}"
        )
    return rows, columns


def _decoded(rows: int, columns: bytes, name: str) -> Batch:
    if len(columns) < rows * _ROW:
        raise SnapshotRefused(f"{name} has a block that is too short for its {rows:,} rows")
    lengths = _numbers("I", columns[: rows * 8])
    timestamps = _numbers("q", columns[rows * 8 : rows * _ROW]).tolist()
    places = list(accumulate(lengths, initial=rows * _ROW))
    if places[-1] != len(columns):
        raise SnapshotRefused(f"{name} has a block whose length does not match its rows")
    contents: list[Any] = [columns[start:end] for start, end in pairwise(places)]
    return Batch(contents[:rows], contents[rows:], timestamps)


def with_headers(batch: Batch) -> Batch:
    """Return rows with their headers in front of their values."""
    headers: Iterable[Any] = repeat(()) if batch.headers is None else batch.headers
    values: list[Any] = [
        pack_headers(header) + value for header, value in zip(headers, batch.values, strict=False)
    ]
    return Batch(batch.keys, values, batch.timestamps)


def without_headers(batch: Batch, name: str) -> Batch:
    """Return rows whose values begin with headers, as values and headers.

    Raises SnapshotRefused when a value does not.
    """
    try:
        found = [unpack_headers(value) for value in batch.values]
    except ValueError as error:
        raise SnapshotRefused(f"{name} has a row with unreadable headers: {error}") from error
    values: list[Any] = [value[end:] for value, (_, end) in zip(batch.values, found, strict=True)]
    return Batch(batch.keys, values, batch.timestamps, [headers for headers, _ in found])


def in_blocks(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the rows of `batches` in batches of a block's size."""
    keys: list[Any] = []
    values: list[Any] = []
    timestamps: list[int] = []
    size = 0
    for batch in batches:
        for start in range(0, len(batch), BLOCK_ROWS // 10):
            part = batch.slice(start, start + BLOCK_ROWS // 10)
            keys += part.keys
            values += part.values
            timestamps += part.timestamps
            size += sum(map(len, part.keys)) + sum(map(len, part.values))
            if size >= BLOCK_BYTES or len(keys) >= BLOCK_ROWS:
                yield Batch(keys, values, timestamps)
                keys, values, timestamps, size = [], [], [], 0
    if keys:
        yield Batch(keys, values, timestamps)
