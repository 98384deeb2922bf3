"""What a record batch is made of (message format v2, KIP-98), for those who read it and those who write it."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from aiokafka.record.util import calc_crc32c  # type: ignore[import-untyped]

from ks_actors.kernel import kernel as _kernel

HEADER: Final = Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and max timestamp, producer id and epoch, sequence, records."""

BEHIND_LENGTH: Final = 12
"""Where that begins which the length in the header is of."""

ATTRIBUTES_AT: Final = 21
"""Where the attributes are, and that begins which the checksum is of."""

MAGIC: Final = 2
CODEC: Final = 0x07
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Compressions, by their number in the attributes."""


def checksum(batch: memoryview | bytearray) -> int:
    """Return what the checksum of a whole record batch has to be."""
    signed: Any = memoryview(batch)[ATTRIBUTES_AT:]  # aiokafka takes any buffer, and says bytes
    found: int = calc_crc32c(signed) if _kernel is None else _kernel.crc32c(signed)
    return found
