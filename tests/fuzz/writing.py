"""Records that are written, beside plain Python, and read again; checksums by the processor's instruction beside those by tables."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any, Final

from ks_actors.kernel import _kernel
from ks_actors.records import partition
from tests.fuzz.batches import some_bytes, varint
from tests.fuzz.values import EDGES, LEAST, MOST, Bits, Word, outcome, text

WRITERS: Final[tuple[Callable[[Any], bytes], ...]] = (bytes, str.encode, struct.Struct(">q").pack)
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
    """Write some records, or route some."""
    random.choice((written, routed))(random)


def routed(random: Random) -> None:
    """Write records by partition, join what was written to others, and read it again as bytes and as texts."""
    count, total, forms = random.choice((1, 2, 7)), random.choice((1, 5, 40)), (random.randrange(3), random.randrange(3))
    makers: tuple[Callable[[], Any], ...] = (lambda: some_bytes(random) or b"", lambda: text(random), lambda: random.choice(EDGES))
    keys: list[Any] = [makers[forms[0]]() for _ in range(total)]
    values: list[Any] = [random.choice((None, makers[forms[1]](), makers[forms[1]]())) for _ in range(total)]
    if forms[0] == forms[1]:
        values = [key if random.random() < 0.5 else value for key, value in zip(keys, values, strict=True)]
    times: list[Any] = [random.choice((random.randrange(3), *EDGES)) for _ in range(total)]
    spoilt = random.random() < 0.2
    if spoilt:
        no_keys, no_values, no_times = (None, Bits(b"k"), Word("k"), "\ud800"), (Bits(b"v"), True, 1 << 63), (None, 1 << 63, True)
        spoils: Any = random.choice(((keys, no_keys), (values, no_values), (times, no_times)))
        column, odd = spoils
        column[random.randrange(total)] = random.choice(odd)
    limit = random.choice((1 << 20, 1 << 20, 100))
    found = _kernel.route_records(keys, values, times, forms, count, limit)
    if spoilt:
        assert found is None
        return
    bare: list[list[Any]] = [
        [None if each is None else WRITERS[form](each) for each in column] for column, form in zip((keys, values), forms, strict=True)
    ]
    where = [partition(key, count) for key in bare[0]]
    parts: list[Any] = [
        [[each for each, at in zip(column, where, strict=True) if at == number] for column in (*bare, times)] for number in range(count)
    ]
    wanted = [None if not part[0] else _kernel.write_records(part[0], part[1], part[2], None, 0, MOST, 0) for part in parts]
    if found is None:
        assert any(each is not None and len(each[0]) > limit for each in wanted)
        return
    assert found == [each and (bytes(each[0]), *each[1:]) for each in wanted]
    whole: list[Any] = [[each for part in parts for each in part[place]] for place in range(3)]
    pieces = [each[:3] for each in found if each is not None]
    runs = [(data, 0, len(data), number, first, False) for data, number, first in pieces]
    start, most, header = random.randrange(total), random.choice((0, 100, 1000, 1 << 20)), random.choice((0, 61))
    assert _kernel.join_records(runs, start, most, header) == expected([*whole, [()] * total], start, most, header)
    for data, number, first in pieces:
        at = random.randrange(number)
        behind = _kernel.skip_records(data, 0, at)
        texts = (forms[0] == 1) + 2 * (forms[1] == 1)
        plain: Any = _kernel.read_records(data, 0, number, 0, first, False, False)[1:4]
        assert _kernel.skip_records(data, behind, number - at, True) == len(data)
        read = _kernel.read_records(data, behind, number - at, 0, first, False, False, texts)[1:4]
        assert read == tuple(
            [each.decode() if each is not None and texts >> place & 1 else each for each in column[at:]] for place, column in enumerate(plain)
        )
        assert outcome(_kernel.skip_records, data[:-1], 0, number, True) == (None, ValueError)


def written(random: Random) -> None:
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
