"""The encoding of the durable log: keys that sort by partition and offset, and values.

The first byte of a key is its kind:

- `m`: the log itself
- `n`: the log's name, different for each log
- `t`: a topic
- `p`: the bounds of a partition
- `i`: the index entry of a segment
- `b`: the records of a segment
- `o`: a group's offset
- `x`: a transactional id

Index entries and records have separate keys, so that opening a log reads no records.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ks_actors._errors import LogCorrupted
from ks_actors.log.embedded._segment import Segment
from ks_actors.records import Batch, Headers

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

VERSION: Final = 1
LOG: Final = b"m"
NAME: Final = b"n"

_PLACE: Final = struct.Struct(">cIIQ")
_TOPIC: Final = struct.Struct(">cI")
_PARTITION: Final = struct.Struct(">cII")
_BOUNDS: Final = struct.Struct(">QQ")
# end, count, size, kind, pid, newest, horizon; -1 means None.
_ENTRY: Final = struct.Struct(">QIIBqqq")


class LogRecord(msgspec.Struct, array_like=True):
    """The record of the log as a whole.

    `incarnation` counts its openings; no topic ever gets an id below `next_topic`.
    """

    version: int = VERSION
    incarnation: int = 0
    next_topic: int = 0


class OffsetRecord(msgspec.Struct, array_like=True):
    """The record of a committed offset; its key is only for lookups, and is not decoded."""

    group_id: str
    topic: str
    partition: int
    offset: int
    metadata: str


_Columns = tuple[
    list[bytes | None], list[bytes | None], list[int], list[Headers] | None, list[int] | None
]
_columns: Final = msgspec.msgpack.Decoder(_Columns)
encode: Final = msgspec.msgpack.Encoder().encode


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """Return a function that decodes a `kind` from the output of `encode`.

    The returned function raises LogCorrupted.
    """
    decode = msgspec.msgpack.Decoder(kind).decode

    def read(data: bytes) -> T:
        try:
            return decode(data)
        except msgspec.DecodeError as error:
            raise LogCorrupted(f"a {kind.__name__} of the log cannot be read: {error}") from error

    return read


def topic_key(topic: int) -> bytes:
    """Return the key of a topic."""
    return _TOPIC.pack(b"t", topic)


def bounds_key(topic: int, partition: int) -> bytes:
    """Return the key of the bounds of a partition."""
    return _PARTITION.pack(b"p", topic, partition)


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key of an offset of a group."""
    return b"o" + encode((group_id, topic, partition))


def transactional_id_key(name: str) -> bytes:
    """Return the key of a transactional id."""
    return b"x" + name.encode()


def entry_key(topic: int, partition: int, base: int) -> bytes:
    """Return the key of the index entry of a segment."""
    return _PLACE.pack(b"i", topic, partition, base)


def records_key(topic: int, partition: int, base: int) -> bytes:
    """Return the key of the records of a segment."""
    return _PLACE.pack(b"b", topic, partition, base)


def ranges_of_topic(topic: int) -> list[tuple[bytes, bytes]]:
    """Return the ranges of a topic's keys, each from the first key to after the last."""
    return [(_TOPIC.pack(kind, topic), _TOPIC.pack(kind, topic + 1)) for kind in (b"b", b"i", b"p")]


def read_place(key: bytes) -> tuple[int, int, int]:
    """Return topic, partition and base of an entry's key."""
    _, topic, partition, base = _PLACE.unpack(key)
    return topic, partition, base


def read_partition(key: bytes) -> tuple[int, int]:
    """Return topic and partition of the key of bounds."""
    _, topic, partition = _PARTITION.unpack(key)
    return topic, partition


def encode_bounds(begin: int, end: int) -> bytes:
    """Return the bounds of a partition as bytes."""
    return _BOUNDS.pack(begin, end)


def decode_bounds(data: bytes) -> tuple[int, int]:
    """Return begin and end."""
    begin, end = _BOUNDS.unpack(data)
    return begin, end


def encode_entry(segment: Segment) -> bytes:
    """Return the index entry of a segment as bytes."""
    newest = -1 if segment.newest is None else segment.newest
    horizon = -1 if segment.horizon is None else segment.horizon
    return _ENTRY.pack(
        segment.end, segment.count, segment.size, segment.kind, segment.pid, newest, horizon
    )


def decode_entry(base: int, data: bytes) -> Segment:
    """Return the segment at `base`, without its records."""
    end, count, size, kind, pid, newest, horizon = _ENTRY.unpack(data)
    segment = Segment(base, end, kind=kind, pid=pid, count=count, size=size)
    segment.newest = newest
    segment.horizon = None if horizon < 0 else horizon
    return segment


def encode_batch(batch: Batch) -> bytes:
    """Return records as bytes; offsets without gaps are left out."""
    offsets: Any = None if isinstance(batch.offsets, range) else list(batch.offsets)
    return encode((batch.keys, batch.values, batch.timestamps, batch.headers, offsets))


def decode_batch(data: bytes, base: int) -> Batch:
    """Return the records of a segment. Raises LogCorrupted."""
    try:
        keys, values, timestamps, headers, offsets = _columns.decode(data)
    except msgspec.DecodeError as error:
        raise LogCorrupted(f"the records at offset {base} cannot be read: {error}") from error
    return Batch(
        keys,
        values,
        timestamps,
        headers,
        range(base, base + len(keys)) if offsets is None else offsets,
    )
