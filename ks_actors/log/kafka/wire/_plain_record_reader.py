"""Decode the records of a batch in Python, with the same columns and errors as the kernel.

Without the kernel, this module reads the records that aiokafka refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ks_actors.records import Headers

# The bits of the longest number: ten bytes of seven bits.
_LONGEST_NUMBER: Final = 70
# The least bytes of a record: one each for length, attributes, two deltas, key and value lengths,
# and header count.
_LEAST_RECORD: Final = 7
_SIGN: Final = 1 << 63
_WRAP: Final = 1 << 64
_HEADER_SIZE: Final = 192
"""Bytes of memory that a header takes in addition to its text.

The memory is for a tuple, two objects and a list slot.
"""
_RECORD_SIZE: Final = 256
"""Bytes of memory that a record takes in columns in addition to its content."""
_WIDEST: Final = 4
"""The most bytes of memory that one byte of a header's name takes."""
_TOO_MANY: Final = "a record cannot have as many headers as it says"
_TOO_EARLY: Final = "a record ends too early"


def read_records(
    data: bytes | memoryview,
    at: int,
    count: int,
    base_offset: int,
    base_time: int,
    append_time: bool,
    with_offsets: bool,
) -> tuple[
    int, list[bytes | None], list[bytes | None], list[int], list[Headers] | None, list[int] | None
]:
    """Return the start of the next record, and the columns of `count` records from `at` on.

    The columns are keys, values, timestamps (ms), headers and offsets. Raises ValueError for
    malformed records.
    """
    if count < 0 or count > (len(data) - at) // _LEAST_RECORD:
        raise ValueError("a batch holds fewer records than it says")
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    timestamps: list[int] = []
    headers: list[Headers] = []
    offsets: list[int] = []
    for _ in range(count):
        here, end = _enter(data, at)
        here += 1  # attributes: all unused
        if here > end:
            raise ValueError(_TOO_EARLY)
        time_delta, here = _number(data, here, end)
        offset_delta, here = _number(data, here, end)
        key, here = _bytes(data, here, end)
        value, here = _bytes(data, here, end)
        header_count, here = _number(data, here, end)
        found, here = _headers(data, here, end, header_count)
        if here != end:
            raise ValueError("a record is longer than its fields")
        keys.append(key)
        values.append(value)
        timestamps.append(base_time if append_time else _wrapped(base_time + time_delta))
        headers.append(found)
        offsets.append(_wrapped(base_offset + offset_delta))
        at = end
    return (
        at,
        keys,
        values,
        timestamps,
        headers if any(headers) else None,
        offsets if with_offsets else None,
    )


def skip_records(data: bytes | memoryview, at: int, count: int) -> int:
    """Return the start of the record that is `count` records after the record at `at`.

    Raises ValueError for malformed records.
    """
    for _ in range(count):
        _, at = _enter(data, at)
    return at


class Measured(NamedTuple):
    """The approximate bytes of memory for a record, and its claimed number of headers."""

    size: int
    headers: int


def fitting(data: bytes | memoryview, at: int, count: int, limit: int) -> tuple[int, Measured]:
    """Return how many of `count` records from `at` on fit into `limit` bytes of memory.

    Also returns the measure of the first record. If a record is malformed, it is the last to be
    counted, so that its reader gets the error.
    """
    total, first = 0, Measured(0, 0)
    for index in range(count):
        try:
            measured, at = _measure(data, at)
        except ValueError:
            return index + 1, first
        first = first if index else measured
        total += measured.size
        if total > limit:
            return index, first
    return count, first


def _measure(data: bytes | memoryview, at: int) -> tuple[Measured, int]:
    """Return the measure of a record, and its end.

    The number of headers is as the record claims; the headers are not inspected.
    """
    at, end = _enter(data, at)
    _, here = _number(data, at + 1, end)
    _, here = _number(data, here, end)
    begin = here
    for _ in range(2):
        length, here = _number(data, here, end)
        here += max(length, 0)
    headers, here = _number(data, here, end)
    if not 0 <= headers <= (end - here) // 2:
        raise ValueError(_TOO_MANY)
    text = here - begin + (end - here) * (_WIDEST if headers else 1)
    return Measured(_RECORD_SIZE + text + headers * _HEADER_SIZE, headers), end


def _enter(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the start of a record after its length field, and its end."""
    length, at = _number(data, at, len(data))
    if length <= 0 or length > len(data) - at:
        raise ValueError("a record is longer than its batch")
    return at, at + length


def _number(data: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    raw = shift = 0
    while shift < _LONGEST_NUMBER:
        if at >= end:
            raise ValueError("a record ends in the middle of a number")
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << (shift & 63)
        if not byte & 0x80:
            raw %= _WRAP
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    raise ValueError("a number of a record has more than ten bytes")


def _bytes(data: bytes | memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = _number(data, at, end)
    if length < 0:
        return None, at
    if length > end - at:
        raise ValueError("a key, value or header is longer than its record")
    return bytes(data[at : at + length]), at + length


def _headers(data: bytes | memoryview, at: int, end: int, count: int) -> tuple[Headers, int]:
    if count < 0 or count > (end - at) // 2:
        raise ValueError(_TOO_MANY)
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, at = _number(data, at, end)
        if length < 0 or length > end - at:
            raise ValueError("a header's name is longer than its record")
        name = bytes(data[at : at + length]).decode(errors="replace")
        value, at = _bytes(data, at + length, end)
        found.append((name, value))
    return tuple(found), at


def _wrapped(number: int) -> int:
    """Return a number wrapped to signed 64 bits."""
    return (number + _SIGN) % _WRAP - _SIGN
