"""The kernel does the same as the Python code beside it, and survives any arguments."""

from __future__ import annotations

import gc
import os
import platform
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder  # type: ignore[import-untyped]
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]
from aiokafka.record.util import calc_crc32c  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from ks_actors.kernel import _kernel
from tests.waiting import PATIENCE_S

HEADER = 61
LIMIT = 1 << 20

of_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or "libasan" in os.environ.get("LD_PRELOAD", ""),
    reason="it is malloc of glibc that keeps memory, and a sanitizer has its own in the place of it",
)
data = st.none() | st.binary(max_size=70)
names = st.text(max_size=5)
headers = st.lists(st.tuples(names, data), max_size=3).map(tuple)
records = st.lists(st.tuples(data, data, st.integers(-(1 << 62), 1 << 62), headers), min_size=1, max_size=30)


def columns(rows: list[Any], *, with_headers: bool) -> tuple[list[Any], list[Any], list[Any], list[Any] | None]:
    keys, values, timestamps, tags = map(list, zip(*rows, strict=True))
    return keys, values, timestamps, tags if with_headers else None


def by_aiokafka(keys: list[Any], values: list[Any], timestamps: list[int], tags: list[Any] | None, limit: int = LIMIT) -> tuple[bytes, int]:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, limit)
    count = 0
    for index, (key, value, timestamp) in enumerate(zip(keys, values, timestamps, strict=True)):
        if builder.append(index, timestamp, key, value, list(tags[index]) if tags else []) is None:
            break
        count += 1
    return bytes(builder.build()), count


@given(records, st.booleans(), st.integers(70, 700))
def test_written_bytes_equal_those_of_aiokafka(rows: list[Any], with_headers: bool, limit: int) -> None:
    """Byte for byte, and as many records as fit: aiokafka thinks of some that they are longer than they are."""
    given_columns = columns(rows, with_headers=with_headers)
    written, count, first, highest = _kernel.write_records(*given_columns, 0, limit, HEADER)
    expected, _ = by_aiokafka(*columns(rows[:count], with_headers=with_headers))
    assert bytes(written[HEADER:]) == expected[HEADER:]
    assert bytes(written[:HEADER]) == bytes(HEADER)
    assert len(written) <= limit or count == 1
    assert count == len(rows) or len(by_aiokafka(*columns(rows[: count + 1], with_headers=with_headers))[0]) > limit
    assert count >= by_aiokafka(*given_columns, limit)[1]
    assert (first, highest) == (rows[0][2], max(row[2] for row in rows[:count]))


@given(records, st.integers(0, 1 << 40), st.data())
def test_reads_return_the_written_records(rows: list[Any], base: int, draw: st.DataObject) -> None:
    """In pieces of any size, from any record on, with offsets if they are asked for."""
    keys, values, timestamps, tags = columns(rows, with_headers=True)
    stored, _ = by_aiokafka(keys, values, timestamps, tags)
    body = memoryview(stored)[HEADER:]
    start = draw.draw(st.integers(0, len(rows)))
    count = draw.draw(st.integers(0, len(rows) - start))
    at = _kernel.skip_records(body, 0, start)
    behind, *found = _kernel.read_records(body, at, count, base, timestamps[0], False, True)
    piece = slice(start, start + count)
    assert found[:3] == [keys[piece], values[piece], timestamps[piece]]
    assert tags is not None
    assert found[3] == (tags[piece] if any(tags[piece]) else None)
    assert found[4] == list(range(base + start, base + start + count))
    assert behind == _kernel.skip_records(body, at, count)


def test_names_of_headers_may_be_any_text() -> None:
    """As UTF-8."""
    tags: list[Any] = [(("täxt", b"1"), ("", None), ("\U00010000", b""))]
    written, *_ = _kernel.write_records([None], [None], [0], tags, 0, LIMIT, 0)
    assert bytes(written) == by_aiokafka([None], [None], [0], tags)[0][HEADER:]
    assert _kernel.read_records(written, 0, 1, 0, 0, False, False)[4] == tags


def test_time_may_be_that_of_the_broker() -> None:
    """With message.timestamp.type=LogAppendTime all records of a batch have one time."""
    stored, _ = by_aiokafka([b"a", b"b"], [None, None], [5, 9], None)
    assert _kernel.read_records(stored[HEADER:], 0, 2, 0, 77, True, False)[3] == [77, 77]


@given(records, st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4), st.integers(0, 40))
def test_bytes_that_are_no_records_are_refused(rows: list[Any], changes: list[tuple[int, int]], count: int) -> None:
    """With ValueError, or they are read as something: nothing beyond them is touched, and nothing is lost track of."""
    body = bytearray(by_aiokafka(*columns(rows, with_headers=True))[0][HEADER:])
    for place, byte in changes:
        body[place % len(body)] = byte
    found: list[Any]
    try:
        behind, *found = _kernel.read_records(bytes(body), 0, count, 0, 0, False, True)
    except ValueError:
        return
    assert 0 <= behind <= len(body)
    assert [len(column) for column in found if column is not None] == [count] * (5 - (found[3] is None))


@given(st.binary(max_size=200), st.integers(-5, 300), st.integers(-5, 300))
def test_any_bytes_are_safe_to_read(body: bytes, at: int, count: int) -> None:
    """For any records, and any place where reading begins."""
    for read in (
        lambda: _kernel.read_records(body, at, count, 0, 0, False, False),
        lambda: _kernel.skip_records(body, at, count),
    ):
        try:
            read()
        except ValueError:
            continue


@given(st.binary(max_size=100), st.integers(0, 9))
def test_checksums_are_those_of_aiokafka(content: bytes, start: int) -> None:
    """By the processor's instruction and without it, wherever in memory the bytes are."""
    part = memoryview(content)[start:]
    assert _kernel.crc32c(part) == _kernel.crc32c(part, True) == calc_crc32c(bytes(part))


def test_bytes_pass_as_they_are() -> None:
    """No copy is made."""
    column = [b"a", None]
    assert _kernel.check_bytes(column) is column


def test_a_function_is_called_for_all_but_none() -> None:
    """Errors of the function reach the caller."""
    assert _kernel.convert(str.__len__, ["abc", None, ""]) == [3, None, 0]
    with pytest.raises(ZeroDivisionError):
        _kernel.convert(lambda number: 1 // number, [1, 0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: _kernel.write_records(["text"], [b""], [0], None, 0, LIMIT, 0),  # type: ignore[list-item]
        lambda: _kernel.write_records([b""], [1], [0], None, 0, LIMIT, 0),  # type: ignore[list-item]
        lambda: _kernel.write_records([b""], [b""], ["0"], None, 0, LIMIT, 0),  # type: ignore[list-item]
        lambda: _kernel.write_records([b""], [b""], [0], [[("name", b"")]], 0, LIMIT, 0),  # type: ignore[list-item]
        lambda: _kernel.write_records([b""], [b""], [0], [((b"name", b""),)], 0, LIMIT, 0),  # type: ignore[list-item]
        lambda: _kernel.write_records((b"",), [b""], [0], None, 0, LIMIT, 0),  # type: ignore[arg-type]
        lambda: _kernel.partitions(["text"], 2),  # type: ignore[list-item]
        lambda: _kernel.partitions((b"",), 2),  # type: ignore[arg-type]
        lambda: _kernel.encode_texts([b""]),
        lambda: _kernel.decode_texts([""]),
        lambda: _kernel.encode_longs(["1"]),
        lambda: _kernel.decode_longs([1]),
        lambda: _kernel.check_bytes([bytearray()]),
        lambda: _kernel.convert(len, (b"",)),  # type: ignore[arg-type]
        lambda: _kernel.skip_records(b""),  # type: ignore[call-arg]
    ],
)
def test_values_of_the_wrong_type_are_refused(call: Callable[[], Any]) -> None:
    """With TypeError, before anything is done."""
    with pytest.raises(TypeError):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: _kernel.write_records([b""], [b"", b""], [0], None, 0, LIMIT, 0),
        lambda: _kernel.write_records([b""], [b""], [0], [], 0, LIMIT, 0),
        lambda: _kernel.write_records([b""], [b""], [0], None, 1, LIMIT, 0),
        lambda: _kernel.write_records([b""], [b""], [0], None, -1, LIMIT, 0),
        lambda: _kernel.partitions([b""], 0),
        lambda: _kernel.decode_longs([b"1234567"]),
    ],
)
def test_mismatching_parts_are_refused(call: Callable[[], Any]) -> None:
    """With ValueError."""
    with pytest.raises(ValueError):
        call()


class Shrinking:
    """An object that empties a list when it is asked for its number."""

    def __init__(self, *lists: list[Any]) -> None:
        self.lists = lists

    def __index__(self) -> int:
        for each in self.lists:
            each.clear()
        return 0


def test_lists_that_change_meanwhile_do_no_harm() -> None:
    """Code that runs in between may empty them; that is an error, and no crash."""
    keys: list[Any] = [b"a"] * 50
    timestamps: list[Any] = [0] * 50
    timestamps[3] = Shrinking(keys, timestamps)
    with pytest.raises(ValueError, match="changed"):
        _kernel.write_records(keys, [b"b"] * 50, timestamps, None, 0, LIMIT, 0)
    column: list[Any] = [b"a"] * 50
    with pytest.raises(ValueError, match="changed"):
        _kernel.convert(lambda _: column.clear(), column)


def test_nothing_leaks() -> None:
    """Objects that go in and come out are counted as before, also where an error ends it."""
    source = random.Random(3)
    rows: list[Any] = [(source.randbytes(9), source.randbytes(90), 1 << 40, (("name", b"value"),)) for _ in range(200)]
    given_columns = columns(rows, with_headers=True)
    bad = [*given_columns[0][:-1], "text"]

    def once() -> None:
        written = _kernel.write_records(*given_columns, 0, LIMIT, 0)[0]
        _kernel.read_records(written, 0, 200, 0, 0, False, True)
        _kernel.partitions(given_columns[0], 4)
        _kernel.decode_texts(_kernel.encode_texts(["text", "täxt"]))
        parts = _kernel.route_records(["text", "täxt"], ["täxt", None], [1, 1 << 40], (1, 1), 2, LIMIT) or []
        _kernel.join_records([(part[0], 0, len(part[0]), part[1], part[2], False) for part in parts if part is not None], 1, LIMIT, 0)
        for call in (
            lambda: _kernel.read_records(written[:-1], 0, 200, 0, 0, False, True),
            lambda: _kernel.write_records(bad, *given_columns[1:], 0, LIMIT, 0),
            lambda: _kernel.partitions(bad, 4),
            lambda: _kernel.route_records(["täxt", "\ud800"], ["täxt"] * 2, [1, 1], (1, 1), 2, LIMIT),
            lambda: _kernel.join_records([(written, 0, len(written) - 1, 200, 0, False)], 0, LIMIT, 0),
            lambda: _kernel.read_records(b"\x10\0\0\0\x02\xff\x02v\0", 0, 1, 0, 0, False, False, 1),
            lambda: _kernel.decode_texts([b"\xff"]),
        ):
            with suppress(ValueError, TypeError):
                call()

    once()
    tracemalloc.start()
    try:
        once()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(50):
            once()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 200 * 50, f"{grown} bytes stay"


def test_batches_of_aiokafka_are_read_as_it_reads_them() -> None:
    """With the header that a broker sends: both give the same for the same bytes."""
    source = random.Random(5)
    rows: list[Any] = [
        (source.randbytes(8), None if source.random() < 0.2 else source.randbytes(source.randint(0, 300)), index, ()) for index in range(500)
    ]
    stored, _ = by_aiokafka(*columns(rows, with_headers=False))
    theirs = list(MemoryRecords(stored).next_batch())
    _, keys, values, timestamps, tags, _ = _kernel.read_records(stored[HEADER:], 0, 500, 0, 0, False, False)
    assert [(record.key, record.value, record.timestamp) for record in theirs] == list(zip(keys, values, timestamps, strict=True))
    assert tags is None


def resident() -> int:
    """Return how many bytes of this process are in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@of_glibc
def test_memory_that_was_freed_is_given_back() -> None:
    """Memory that malloc keeps because a block behind it is still in use."""
    blocks = [bytearray(b"x" * 4_000) for _ in range(10_000)]
    last = blocks[-1]
    full = resident()
    del blocks
    assert _kernel.trim_memory()
    assert resident() < full - (30 << 20)
    assert len(last) == 4_000


LARGE = """
import sys
from ks_actors.kernel._kernel import map_large

def resident():
    # Pages of files come and go by themselves.
    with open("/proc/self/smaps_rollup") as found:
        return sum(int(line.split()[1]) << 10 for line in found if line.startswith("Anonymous"))

def given_back():
    bytes(30 << 20)
    blocks = [bytearray(b"x" * 900_000) for _ in range(40)]
    rest, full = blocks[1::2], resident()
    del blocks
    return (full - resident()) * len(rest) // 20

asked = sys.argv[1] == "map" and map_large(128 << 10)
print(asked, given_back())
"""


@of_glibc
def test_large_blocks_are_given_back() -> None:
    """Blocks are given back even after larger ones were freed, when glibc takes them for small; a wrong size is refused."""
    for size, error in ((100, ValueError), (1 << 30, ValueError), ("x", TypeError), (1 << 80, OverflowError)):
        with pytest.raises(error):
            _kernel.map_large(size)  # type: ignore[arg-type]
    # In a process each: blocks that one of them frees are where the next ones are put.
    told = {}
    for how in ("leave", "map"):
        command = [sys.executable, "-c", LARGE, how]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)  # noqa: S603 - it is the one above
        told[how], given_back = done.stdout.split()
        assert (int(given_back) > 16_000_000) is (how == "map"), done.stdout
    assert told == {"leave": "False", "map": "True"}
