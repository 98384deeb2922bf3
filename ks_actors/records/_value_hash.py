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
    mask = _MASK
    length = len(data)
    blocks = length >> 4
    first = second = _SEED
    # Rotations are written out: a call for each would take most of the time.
    if blocks:
        words = iter(struct.unpack_from(f"<{2 * blocks}Q", data))
        for low, high in zip(words, words, strict=True):
            mixed = low * _FIRST & mask
            first ^= (mixed << 31 | mixed >> 33) * _SECOND & mask
            first = (((first << 27 | first >> 37) + second) * 5 + 0x52DCE729) & mask
            mixed = high * _SECOND & mask
            second ^= (mixed << 33 | mixed >> 31) * _FIRST & mask
            second = (((second << 31 | second >> 33) + first) * 5 + 0x38495AB5) & mask
        data = data[blocks << 4 :]
    if len(data) > 8:  # noqa: PLR2004 - the rest's second word
        mixed = int.from_bytes(data[8:], "little") * _SECOND & mask
        second ^= (mixed << 33 | mixed >> 31) * _FIRST & mask
    if data:
        mixed = int.from_bytes(data[:8], "little") * _FIRST & mask
        first ^= (mixed << 31 | mixed >> 33) * _SECOND & mask
    first ^= length
    second ^= length
    first = (first + second) & mask
    second = (second + first) & mask
    first = _final(first)
    second = _final(second)
    first = (first + second) & mask
    return _HASH.pack(first, (second + first) & mask)


def _final(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return word ^ word >> 33
