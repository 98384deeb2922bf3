"""Decompress record batches before they are read, in pieces that any thread may make."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ks_actors.log.kafka.wire._batch_header import BEHIND_LENGTH, CODEC, HEADER, MAGIC, checksum
from ks_actors.log.kafka.wire._decompression import MAX_DECOMPRESSED
from ks_actors.log.kafka.wire._record_reader import body_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.log.kafka.wire._record_reader import Body

# If one fetch of a partition has at most this many compressed bytes, they are decompressed while
# reading, which takes a few ms.
LITTLE: Final = 65_536
# Compressed bytes (or one batch) that a thread decompresses in one step. Each partition has at most
# two such pieces: the piece that is read, and the next piece.
PIECE: Final = 262_144
# A step also ends after this many decompressed bytes: a few bytes may become many.
GROWN: Final = 4_194_304
_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22


class Unpacked(NamedTuple):
    """Decompressed batches by their start, and the start of the next batch; None at the end."""

    bodies: Mapping[int, Body]
    behind: int | None


def is_packed(raw: bytes, at: int) -> bool:
    """Tell whether the batch at `at` is compressed.

    Formats before Kafka 0.11 count as not compressed.
    """
    return raw[at + _MAGIC_AT] >= MAGIC and bool(raw[at + _ATTRIBUTES_AT] & CODEC)


def unpacked(raw: bytes, at: int, limit: int = MAX_DECOMPRESSED) -> Unpacked:
    """Decompress the next piece, from the batch at `at` on; any thread may call it.

    If a batch cannot be decompressed, or exceeds `limit` bytes, it stays compressed: its reader
    then gets the error.
    """
    bodies: dict[int, Body] = {}
    size = grown = 0
    while len(raw) - at >= HEADER.size:
        if size >= PIECE or grown >= GROWN:
            return Unpacked(bodies, at)
        following = at + BEHIND_LENGTH + int(_LENGTH.unpack_from(raw, at + _LENGTH_AT)[0])
        if following > len(raw):
            break
        if is_packed(raw, at):
            size += following - at
            body = _body(memoryview(raw)[at:following], limit)
            if body is not None:
                bodies[at] = body
                grown += body.size
        at = following
    return Unpacked(bodies, None)


def _body(stored: memoryview, limit: int) -> Body | None:
    base, _, _, _, expected, attributes, _, first_time, highest_time, *_ = HEADER.unpack_from(
        stored
    )
    if checksum(stored) != expected:
        return None
    try:
        return body_of(stored, attributes, base, first_time, highest_time, limit)
    except Exception:  # noqa: BLE001 - each library has its own errors; the reader raises it again
        return None
