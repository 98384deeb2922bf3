"""The bytes of a record's headers in front of a value, as in Kafka Streams' stores (KIP-1271).

They are the size of the headers, then the headers: their number, and for each the length of its
name, the name (UTF-8), the length of its value (-1: None), and the value. All numbers are zigzag
varints. No headers are one byte 0, without a number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ks_actors.records._batch import Headers

NO_HEADERS: Final = b"\0"
"""The bytes of no headers."""

_BITS: Final = 7
_MORE: Final = 1 << _BITS
_MOST: Final = 5
"""The most bytes of a varint."""


def _varint(number: int) -> bytes:
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    written = bytearray()
    while rest >= _MORE:
        written.append(rest & _MORE - 1 | _MORE)
        rest >>= _BITS
    written.append(rest)
    return bytes(written)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the place after it."""
    rest = 0
    for place in range(_MOST):
        byte = data[at + place]
        rest |= (byte & _MORE - 1) << _BITS * place
        if byte < _MORE:
            return rest >> 1 ^ -(rest & 1), at + place + 1
    raise ValueError(f"the number at byte {at} has more than {_MOST} bytes")


def pack_headers(headers: Headers) -> bytes:
    """Return the bytes of headers, their size included."""
    if not headers:
        return NO_HEADERS
    parts = [_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (_varint(len(encoded)), encoded)
        parts += (_varint(-1),) if value is None else (_varint(len(value)), value)
    packed = b"".join(parts)
    return _varint(len(packed)) + packed


def headers_end(data: bytes, at: int = 0) -> int:
    """Return the place after the headers that begin at `at`; raises ValueError."""
    try:
        if data[at] == 0:
            return at + 1
        size, begin = _read_varint(data, at)
    except IndexError:
        raise ValueError("the headers are cut off") from None
    if size < 0 or begin + size > len(data):
        raise ValueError(f"headers of {size} bytes do not fit into {len(data) - begin}")
    return begin + size


def unpack_headers(data: bytes, at: int = 0) -> tuple[Headers, int]:
    """Return the headers that begin at `at`, and the place after them; raises ValueError."""
    end = headers_end(data, at)
    if data[at] == 0:
        return (), end
    packed = data[:end]
    headers: list[tuple[str, bytes | None]] = []
    try:
        _, at = _read_varint(packed, at)
        count, at = _read_varint(packed, at)
        for _ in range(count):
            name, at = _taken(packed, at)
            value, at = _taken(packed, at)
            if name is None:
                raise ValueError("a header has no name")
            headers.append((name.decode(), value))
    except IndexError:
        raise ValueError("the headers are cut off") from None
    if at != end:
        raise ValueError(f"{end - at} bytes are left after {count} headers")
    return tuple(headers), end


def _taken(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the bytes that follow their length (-1: None), and the place after them."""
    size, at = _read_varint(data, at)
    if size == -1:
        return None, at
    if size < 0 or at + size > len(data):
        raise ValueError(f"{size} bytes at byte {at} do not fit into the headers")
    return data[at : at + size], at + size
