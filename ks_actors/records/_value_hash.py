"""The hash by which a foreign-key join recognizes a value: Murmur3 of 128 bits."""

from __future__ import annotations

import struct
from typing import Final

_SEED: Final = 104729
_MASK: Final = (1 << 64) - 1
_FIRST: Final = 0x87C37B91114253D5
_SECOND: Final = 0x4CF5AD432745937F
_HASH: Final = struct.Struct(">QQ")


def murmur3_128(data: bytes) -> bytes:
    """Return the hash of bytes as Kafka Streams' `Murmur3.hash128` does.

    It is two numbers of 8 bytes, big-endian.
    """
    length = len(data)
    blocks = length >> 4
    first = second = _SEED
    words = iter(struct.unpack_from(f"<{2 * blocks}Q", data))
    for low, high in zip(words, words, strict=True):
        first = _rotated(first ^ _mixed_first(low), 27)
        first = ((first + second) * 5 + 0x52DCE729) & _MASK
        second = _rotated(second ^ _mixed_second(high), 31)
        second = ((second + first) * 5 + 0x38495AB5) & _MASK
    rest = data[blocks << 4 :]
    # No bytes mix to zero, which changes nothing.
    second ^= _mixed_second(int.from_bytes(rest[8:], "little"))
    first ^= _mixed_first(int.from_bytes(rest[:8], "little"))
    first, second = first ^ length, second ^ length
    first = (first + second) & _MASK
    second = (second + first) & _MASK
    first, second = _final(first), _final(second)
    first = (first + second) & _MASK
    return _HASH.pack(first, (second + first) & _MASK)


def _mixed_first(word: int) -> int:
    return _rotated(word * _FIRST & _MASK, 31) * _SECOND & _MASK


def _mixed_second(word: int) -> int:
    return _rotated(word * _SECOND & _MASK, 33) * _FIRST & _MASK


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & _MASK


def _final(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return word ^ word >> 33
