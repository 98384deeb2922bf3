"""Decompress record batches up to a limit: a few kB may expand to gigabytes."""

from __future__ import annotations

import mmap
import zlib
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ks_actors.log.kafka._aiokafka import CorruptRecordException, UnsupportedCodecError, codec
from ks_actors.log.kafka.wire._batch_header import CODECS

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DECOMPRESSED: Final = 268_435_456
"""The most bytes of a decompressed batch, unless the options set another limit."""

_GZIP: Final = 16 + zlib.MAX_WBITS
_GZIP_PIECE: Final = 1_024
# One byte of lz4 expands to at most 255 bytes.
_LZ4_RATIO: Final = 255
_ZSTD_FRAME: Final = 0xFD2FB528
_ZSTD_SKIPPED: Final = range(0x184D2A50, 0x184D2A60)
# The most bytes of one decompressed block.
_ZSTD_BLOCK: Final = 131_072
_ZSTD_RAW, _ZSTD_REPEATED = 0, 1
# The framing of Java's snappy library.
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_BEGIN: Final = 16
# A part of the error text for output that exceeds the given memory.
_OVERFLOW: Final = "whole buffer"


class _TooLarge(Exception):
    """The decompressed bytes exceed the limit."""


def decompress(data: memoryview, number: int, limit: int) -> bytes:
    """Decompress a batch after its header; `number` is the codec's number, `limit` is in bytes.

    Uses at most about twice `limit` of memory meanwhile. Raises CorruptRecordException for bytes
    that the codec cannot decompress, an unknown codec, or more than `limit` bytes;
    UnsupportedCodecError when the library is not installed; MemoryError.
    """
    if number >= len(CODECS):
        raise CorruptRecordException(
            f"records are compressed by codec {number}, which neither Kafka nor cramjam has"
        )
    name = CODECS[number]
    if not getattr(codec, f"has_{name}")():
        raise UnsupportedCodecError(f"the library for {name} is not installed")
    try:
        return _DECODERS[name](data, limit)
    except _TooLarge:
        raise CorruptRecordException(
            f"{len(data)} bytes compressed by {name} become more than max_decompressed_bytes "
            f"({limit}): raise it to read them"
        ) from None
    except MemoryError:
        raise
    except Exception as error:
        # Each library raises its own errors for foreign bytes.
        raise CorruptRecordException(
            f"records are not compressed by {name}, although their batch says so: {error}"
        ) from error


def _gunzip(data: memoryview, limit: int) -> bytes:
    parts: list[bytes] = []
    size, at, end = 0, 0, len(data)
    piece = end
    while at < end:
        member = zlib.decompressobj(_GZIP)
        while not member.eof:
            given = data[at : at + piece]
            part = member.decompress(given, limit - size + 1)
            size += len(part)
            if size > limit:
                raise _TooLarge
            if not (given or part):
                raise EOFError("they end too early")
            parts.append(part)
            at += len(given) - len(member.unused_data)
            piece *= 2
        at = _behind_padding(data, at)
        # At a member's end zlib copies the rest of its input, so begin each with a small piece.
        piece = _GZIP_PIECE
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _behind_padding(data: memoryview, at: int) -> int:
    """Return the start of the next gzip member; like gzip, take zeros after a member as padding."""
    while some := data[at : at + _GZIP_PIECE]:
        rest = bytes(some).lstrip(b"\0")
        at += len(some) - len(rest)
        if rest:
            break
    return at


def _unsnappy(data: memoryview, limit: int) -> bytes:
    if bytes(data[: len(_XERIAL)]) != _XERIAL or len(data) <= _XERIAL_BEGIN:
        blocks = [data]
    else:
        blocks, at = [], _XERIAL_BEGIN
        while at < len(data):
            length = int.from_bytes(data[at : at + 4], "big", signed=True)
            at += 4
            if not 0 <= length <= len(data) - at:
                raise ValueError("a block is longer than the batch")
            blocks.append(data[at : at + length])
            at += length
    snappy = codec.cramjam.snappy
    lengths: Callable[[Any], int] = snappy.decompress_raw_len
    if sum(map(lengths, blocks)) > limit:
        raise _TooLarge
    return b"".join(bytes(snappy.decompress_raw(block)) for block in blocks)


def _unlz4(data: memoryview, limit: int) -> bytes:
    return _bounded(codec.cramjam.lz4, data, len(data) * _LZ4_RATIO, limit)


def _unzstd(data: memoryview, limit: int) -> bytes:
    return _bounded(codec.cramjam.zstd, data, _zstd_bound(data), limit)


def _bounded(library: Any, data: memoryview, bound: float, limit: int) -> bytes:
    """If `bound` is within the limit, decompress at once, else into a mapping of limited size.

    The mapping takes memory only for the pages that are written.
    """
    if bound <= limit:
        return bytes(library.decompress(data))
    with mmap.mmap(-1, limit) as memory:
        try:
            size = library.decompress_into(data, memory)
        except Exception as error:
            if _OVERFLOW in str(error):
                raise _TooLarge from error
            raise
        return memory[:size]


def _zstd_bound(data: memoryview) -> float:
    """Return the most bytes that zstd frames can expand to, from their block sizes.

    Returns infinity if the data are not zstd frames.
    """
    at, total, end = 0, 0, len(data)
    while at < end:
        magic = int.from_bytes(data[at : at + 4], "little")
        if magic in _ZSTD_SKIPPED:
            at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
            continue
        if magic != _ZSTD_FRAME or at + 5 > end:
            return inf
        descriptor = data[at + 4]
        single = descriptor >> 5 & 1
        # Skip magic and descriptor, then window, dictionary id and content size, if present.
        at += 6 - single + (0, 1, 2, 4)[descriptor & 3] + (single, 2, 4, 8)[descriptor >> 6]
        last = 0
        while not last:
            if at + 3 > end:
                return inf
            block = int.from_bytes(data[at : at + 3], "little")
            last, kind, size = block & 1, block >> 1 & 3, block >> 3
            at += 3 + (1 if kind == _ZSTD_REPEATED else size)
            total += size if kind in {_ZSTD_RAW, _ZSTD_REPEATED} else _ZSTD_BLOCK
        # Skip the checksum of the content, if present.
        at += 4 * (descriptor >> 2 & 1)
    return total


_DECODERS: Final = {"gzip": _gunzip, "snappy": _unsnappy, "lz4": _unlz4, "zstd": _unzstd}
