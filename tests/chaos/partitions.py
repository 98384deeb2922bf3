"""A second version of Kafka's default partitioner, so that the checked one does not check itself."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Return the hash, unsigned."""
    h = (0x9747B28C ^ len(data)) & _MASK
    whole = len(data) - len(data) % 4
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if data[whole:]:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for(key: bytes, partitions: int) -> int:
    """Return the partition of a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
