"""The layout of a record batch (message format v2, KIP-98), for reader and writer."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.log.kafka._aiokafka import calc_crc32c

HEADER: Final = Struct(">qiibIhiqqqhii")
"""The header fields, in their order on the wire.

Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and max
timestamp, producer id and epoch, base sequence, record count.
"""

BEHIND_LENGTH: Final = 12
"""The offset of the first byte that the length field counts."""

ATTRIBUTES_AT: Final = 21
"""The offset of the attributes, and of the first byte that the checksum covers."""

MAGIC: Final = 2
CODEC: Final = 0x07
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names of compressions; the index is the number in the attributes."""


def checksum(batch: memoryview | bytearray) -> int:
    """Return the expected checksum of a whole record batch."""
    signed: Any = memoryview(batch)[ATTRIBUTES_AT:]  # any buffer works, despite the types
    if HAS_KERNEL:
        return _kernel.crc32c(signed)
    found: int = calc_crc32c(signed)
    return found
