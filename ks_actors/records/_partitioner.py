"""Kafka's default partitioner: a key goes to the partition that a Java producer would choose."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, final

from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF
POSITIVE = 0x7FFFFFFF

FEW = 32
"""Fewer keys than this are hashed one by one: numpy has an overhead of ~40 µs per call."""

CACHE = 1 << 16
"""The number of keys that a Partitioner remembers at most."""

REST = 16
"""How many batches do not use the cache after a batch of mostly unknown keys."""


def murmur2(key: bytes) -> int:
    """Return the hash of `key` as in Java's `Utils.murmur2`, a signed number of 32 bits."""
    value = _murmur2(key)
    return value - (1 << 32) if value >> 31 else value


def partition(key: bytes, partitions: int) -> int:
    """Return the partition of `key` among `partitions`."""
    return (_murmur2(key) & POSITIVE) % partitions


def partitions_of(keys: Sequence[bytes], partitions: int) -> list[int]:
    """Return the partition of each key, as `partition` does.

    For more than a few keys, the cost per key is much lower.
    """
    if partitions == 1:
        return [0] * len(keys)
    if HAS_KERNEL:
        return _kernel.partitions(keys if type(keys) is list else list(keys), partitions)
    if len(keys) < FEW:
        return [(_murmur2(key) & POSITIVE) % partitions for key in keys]
    hashes = _murmur2_batch(keys)
    if hashes is None:
        return [(_murmur2(key) & POSITIVE) % partitions for key in keys]
    hashes &= POSITIVE
    hashes %= partitions
    found: list[int] = hashes.tolist()
    return found


def warm_up() -> None:
    """Load numpy before the first batch needs it: that takes a tenth of a second."""
    partitions_of([b"key"] * FEW, 2)


@final
class Partitioner:
    """Find partitions of keys, batch by batch, among `partitions`; remember keys while that pays.

    With the kernel no key is remembered, because hashing is faster than a lookup. Without it, a
    lookup costs a fifth of hashing. If keys rarely repeat, only one batch in a few is remembered.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions: int = partitions
        self._known: dict[bytes, int] = {}
        self._rest: int = 0

    def __call__(self, keys: Sequence[bytes]) -> list[int]:
        """Return the partition of each key."""
        if self.partitions == 1 or self._rest or HAS_KERNEL:
            self._rest -= self._rest > 0
            return partitions_of(keys, self.partitions)
        known = self._known
        found = list(map(known.get, keys))
        if None not in found:
            return found  # type: ignore[return-value] # the line above
        unknown = list({key for key, where in zip(keys, found, strict=True) if where is None})
        if len(known) + len(unknown) > CACHE:
            known.clear()
        if 2 * len(unknown) > len(keys) >= FEW:
            self._rest = REST
        computed = dict(zip(unknown, partitions_of(unknown, self.partitions), strict=True))
        known.update(computed)
        return [
            computed[key] if where is None else where
            for key, where in zip(keys, found, strict=True)
        ]

    def one(self, key: bytes) -> int:
        """Return the partition of one key, and remember it."""
        known = self._known
        found = known.get(key)
        if found is None:
            if len(known) >= CACHE:
                known.clear()
            found = known[key] = partition(key, self.partitions)
        return found


def _murmur2(key: bytes) -> int:
    length = len(key)
    words = length >> 2
    value = SEED ^ (length & MASK)
    for word in struct.unpack_from(f"<{words}I", key):
        mixed = (word * MULTIPLIER) & MASK
        value = ((value * MULTIPLIER) ^ ((mixed ^ (mixed >> 24)) * MULTIPLIER)) & MASK
    if length & 3:
        value = ((value ^ int.from_bytes(key[words << 2 :], "little")) * MULTIPLIER) & MASK
    value = ((value ^ (value >> 13)) * MULTIPLIER) & MASK
    return value ^ (value >> 15)


def _murmur2_batch(keys: Sequence[bytes]) -> Any:
    """Return the unsigned hashes of at least FEW keys as a numpy array; None without numpy.

    All keys lie end to end in one buffer, and every round takes one word of each key that has words
    left. Keys are sorted by length, so these keys are the end of the array. The few longest keys
    are hashed separately, because rounds for only a few keys would cost most.
    """
    try:
        import numpy as np  # noqa: PLC0415 - it takes a while to load, and not every user has it
    except ImportError:
        return None
    data = b"".join((*keys, b"\0\0\0"))
    word_at = np.ndarray((len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))
    lengths = np.fromiter(map(len, keys), dtype=np.intp, count=len(keys))
    order = np.argsort(lengths)
    sizes = lengths[order]
    offsets = (np.cumsum(lengths) - lengths)[order]
    words = sizes >> 2
    rounds = int(words[-FEW])
    multiplier = np.uint32(MULTIPLIER)
    value = sizes.astype(np.uint32)
    value ^= np.uint32(SEED)
    for start in np.searchsorted(words, np.arange(rounds), side="right").tolist():
        mixed = word_at[offsets[start:]]
        offsets[start:] += 4
        mixed *= multiplier
        mixed ^= mixed >> np.uint32(24)
        mixed *= multiplier
        rest = value[start:]
        rest *= multiplier
        rest ^= mixed
    odd = np.flatnonzero(sizes & 3)
    value[odd] = (
        value[odd]
        ^ (
            word_at[offsets[odd]]
            & np.array((0, 0xFF, 0xFFFF, 0xFFFFFF), dtype=np.uint32)[sizes[odd] & 3]
        )
    ) * multiplier
    value ^= value >> np.uint32(13)
    value *= multiplier
    value ^= value >> np.uint32(15)
    hashes = np.empty_like(value)
    hashes[order] = value
    for position in order[np.searchsorted(words, rounds, side="right") :].tolist():
        hashes[position] = _murmur2(keys[position])
    return hashes
