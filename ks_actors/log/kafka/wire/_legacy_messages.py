"""Messages of the formats before Kafka 0.11, for topics old enough to have such messages.

Python code reads them: if a length field is wrong, aiokafka's C reader reads past the end.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ks_actors.log.kafka._aiokafka import CorruptRecordException, UnsupportedCodecError
from ks_actors.log.kafka.wire._batch_header import APPEND_TIME, BEHIND_LENGTH, CODEC, CODECS
from ks_actors.log.kafka.wire._decompression import decompress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ks_actors.records import Headers

LEAST_LEGACY: Final = 14
"""The least number of bytes after the length field of a message, in the oldest format."""

WRONG_SUM: Final = "the checksum of their batch is wrong"

_HEAD: Final = Struct(">qiIbb")
_CRC_END: Final = 16
_TIME: Final = Struct(">q")
_LENGTH: Final = Struct(">i")
_NO_TIME: Final = -1
_MESSAGE_SIZE: Final = 256
"""Bytes of memory that a message takes in addition to its content."""
_LZ4: Final = CODECS.index("lz4")


class Message(NamedTuple):
    """One message; `offset` is relative as long as the enclosing set is unknown."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def legacy_messages(stored: memoryview, limit: int) -> Sequence[Message]:
    """Return the messages of a set, at least one, within about `limit` bytes of memory.

    Raises CorruptRecordException for malformed messages, UnsupportedCodecError when a library is
    not installed, MemoryError.
    """
    outer, attributes, magic = _message(stored)
    number = attributes & CODEC
    if not number:
        return [outer]
    if number == _LZ4 and not magic:
        raise UnsupportedCodecError("lz4 has other checksums in the format before Kafka 0.10")
    data = memoryview(decompress(memoryview(outer.value or b""), number, limit))
    found: list[Message] = []
    for message in _messages(data):
        found.append(message)
        if len(found) * _MESSAGE_SIZE + len(data) > limit:
            raise CorruptRecordException(
                f"more than {len(found)} messages of a set take more memory than "
                f"max_decompressed_bytes ({limit}): raise it to read them"
            )
    if not found:
        raise CorruptRecordException("a set of messages is empty")
    # In format 0 the offsets inside a set are absolute.
    if not magic:
        return found
    # The offset of a set is the offset of its last message.
    base = outer.offset - found[-1].offset
    time = outer.timestamp if attributes & APPEND_TIME else None
    return [
        message._replace(
            offset=base + message.offset, timestamp=message.timestamp if time is None else time
        )
        for message in found
    ]


def _messages(data: memoryview) -> Iterator[Message]:
    at = 0
    while at < len(data):
        if len(data) - at < BEHIND_LENGTH + LEAST_LEGACY:
            raise CorruptRecordException("a set of messages ends too early")
        _, length, *_ = _HEAD.unpack_from(data, at)
        end = at + BEHIND_LENGTH + length
        if length < LEAST_LEGACY or end > len(data):
            raise CorruptRecordException("a message is longer than its set")
        yield _message(data[at:end])[0]
        at = end


def _message(data: memoryview) -> tuple[Message, int, int]:
    """Return a message, its attributes, and its format."""
    offset, _, expected, magic, attributes = _HEAD.unpack_from(data)
    if zlib.crc32(data[_CRC_END:]) != expected:
        raise CorruptRecordException(WRONG_SUM)
    if magic not in {0, 1}:
        raise CorruptRecordException(f"a message has format {magic}")
    at, timestamp = _HEAD.size, _NO_TIME
    if magic:
        if len(data) - at < _TIME.size:
            raise CorruptRecordException("a message ends too early")
        (timestamp,) = _TIME.unpack_from(data, at)
        at += _TIME.size
    key, at = _bytes(data, at)
    value, _ = _bytes(data, at)
    return Message(offset, timestamp, key, value), attributes, magic


def _bytes(data: memoryview, at: int) -> tuple[bytes | None, int]:
    if len(data) - at < _LENGTH.size:
        raise CorruptRecordException("a message ends too early")
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if length < 0:
        return None, at
    if length > len(data) - at:
        raise CorruptRecordException("a key or value is longer than its message")
    return bytes(data[at : at + length]), at + length
