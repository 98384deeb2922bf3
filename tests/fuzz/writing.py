"""Records that are written, beside plain Python, and read again; checksums by the processor's instruction beside those by tables."""

from __future__ import annotations

from random import Random
from typing import Any

from ks_actors.kernel import _kernel
from tests.fuzz.batches import some_bytes, varint
from tests.fuzz.values import EDGES, LEAST, MOST, Bits, outcome

NAMES = ("h", "", "ü", "\U00010000", "a\0b", "n" * 200)


def part(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def wrapped(number: int) -> int:
    """Return a number as int64 has it, which turns around."""
    return (number - LEAST) % (1 << 64) + LEAST


def expected(columns: list[list[Any]], start: int, limit: int, header: int) -> tuple[bytearray, int, int, int]:
    """Do the same as `write_records`."""
    made, written, first, latest = bytearray(header), 0, columns[2][start], columns[2][start]
    for key, value, time, headers in list(zip(*columns, strict=True))[start:]:
        told = b"".join(part(name.encode()) + part(data) for name, data in headers)
        body = b"\0" + varint(wrapped(time - first)) + varint(written) + part(key) + part(value) + varint(len(headers)) + told
        if written and len(made) + len(varint(len(body)) + body) > limit:
            break
        made += varint(len(body)) + body
        written += 1
        latest = max(latest, time)
    return made, written, first, latest


def spoil(random: Random, columns: list[list[Any]]) -> bool:
    """Put something into a column, once in a while, that is no part of a record."""
    if random.random() >= 0.2:
        return False
    number = random.randrange(4)
    headers: tuple[Any, ...] = (None, [("h", b"")], ((b"h", b""),), (("h", "v"),), (("h",),), ("hv",), (("\ud800", b""),))
    odd: tuple[tuple[Any, ...], ...] = (("text", 5, bytearray(b"k")), ("text", 5, [None]), (None, "5", 1.5, 1 << 63), headers)
    columns[number][random.randrange(len(columns[number]))] = random.choice(odd[number])
    return True


def session(random: Random) -> None:
    """Write some records."""
    count = random.choice((1, 1, 2, 5, 40))
    keys, values = ([random.choice((some_bytes(random), Bits(b"bits"))) for _ in range(count)] for _ in range(2))
    times = [random.choice((random.randrange(100), *EDGES)) for _ in range(count)]
    headers = [tuple((random.choice(NAMES), some_bytes(random)) for _ in range(random.choice((0, 0, 1, 3, 70)))) for _ in range(count)]
    columns: list[list[Any]] = [keys, values, times, headers]
    spoilt = spoil(random, columns)
    start, limit, header = random.randrange(count), random.choice((0, 61, 100, 1000, 1 << 20, -1, MOST)), random.choice((0, 61, 4096))
    found, error = outcome(_kernel.write_records, *columns, start, limit, header)
    if spoilt:
        assert error is None or error in (TypeError, OverflowError, UnicodeEncodeError), error
        return
    assert found == expected(columns, start, limit, header)
    raw, written, first, _ = found
    assert raw[:header] == bytes(header)
    behind, *read = _kernel.read_records(raw, header, written, 0, first, False, True)
    part_of = slice(start, start + written)
    told: list[Any] = headers[part_of]
    assert (behind, read) == (len(raw), [keys[part_of], values[part_of], times[part_of], told if any(told) else None, list(range(written))])
    assert _kernel.write_records(keys, values, times, None, start, limit, header) == expected([*columns[:3], [()] * count], start, limit, header)
    assert _kernel.crc32c(raw) == _kernel.crc32c(bytes(raw), True) == _kernel.crc32c(memoryview(raw), False)
