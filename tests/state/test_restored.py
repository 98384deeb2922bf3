"""Restored rows of a store: the last row of each key, until it is written."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import Batch, StateFull
from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as native
from ks_actors.serdes import LONG
from ks_actors.state import SharedResources
from ks_actors.state.disk._rocksdb import RocksEngine
from ks_actors.state.key_value._restored_rows import PlainRestoredRows, RestoredRows

from .helpers import Task, key_value

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

kernel: Any = native
needs_kernel = pytest.mark.skipif(not HAS_KERNEL, reason="there is no kernel")
KINDS: list[Any] = [PlainRestoredRows, kernel.RestoredRows] if HAS_KERNEL else [PlainRestoredRows]

# Keys that are close to each other: of one beginning, prefixes of others, and such that differ only by a last zero byte.
keys = st.binary(max_size=2) | st.binary(max_size=3).map(b"the same beginning".__add__) | st.integers(0, 3).map(lambda zeros: b"k" + bytes(zeros))
columns = st.lists(st.tuples(keys, st.none() | st.binary(max_size=40), st.integers(-(2**63), 2**63 - 1)), max_size=60)
writes = st.tuples(st.integers(0, 7), st.booleans())
steps = st.lists(st.tuples(st.just("put"), columns) | st.tuples(st.just("discard"), keys) | st.tuples(st.just("write"), writes), max_size=12)


def entry(value: bytes | None, time: int) -> bytes | None:
    return None if value is None else time.to_bytes(8, "big", signed=True) + value


def put(rows: Any, part: list[tuple[bytes, bytes | None, int]]) -> None:
    rows.put(*([list(column) for column in zip(*part, strict=True)] or [[], [], []]))


def arrange(rows: Any) -> None:
    """Have an order made, however little is looked at in one go."""
    for _ in range(100_000):
        if rows.arranged(3):
            return
    raise AssertionError("the order is never whole")


@pytest.mark.parametrize("kind", KINDS)
@given(steps=steps, other=columns)
def test_the_last_row_of_a_key_counts(kind: Callable[[], Any], steps: list[tuple[str, Any]], other: list[Any]) -> None:
    """With any puts, removals, and writes before, and any rows put together in the end."""
    rows, expected = kind(), dict[bytes, bytes | None]()
    for step, given_ in steps:
        if step == "put":
            put(rows, given_)
            expected |= {key: entry(value, time) for key, value, time in given_}
        elif step == "discard":
            rows.discard(given_)
            expected.pop(given_, None)
        else:
            count, done = given_
            arrange(rows)
            found = rows.rows(count, b"", 0)
            assert len(found) == min(count, len(expected))
            assert found == sorted(found)
            assert dict(found).items() <= expected.items()
            if done:
                rows.written(len(found))
                expected = {key: raw for key, raw in expected.items() if key not in dict(found)}
        assert dict(rows.items()) == expected
        assert len(rows) == len(expected)
        assert bool(rows) == bool(expected)
    for key in (*expected, b"nowhere"):
        assert rows.get(key, 5) == expected.get(key, 5)
        assert (key in rows) == (key in expected)
    more = kind()
    put(more, other)
    rows.take_over(more)
    assert not more
    assert dict(rows.items()) == expected | {key: entry(value, time) for key, value, time in other}


@needs_kernel
@given(st.integers(0, 2_000), st.randoms(use_true_random=False))
def test_rows_are_written_in_the_order_of_all_keys(count: int, source: Any) -> None:
    """By the kernel: also rows written in small parts, and when some are taken over first."""
    numbers = [source.randrange(1 << 30) for _ in range(count)]
    made = [b"prefix-%d" % number if number % 3 else number.to_bytes(4, "big") for number in numbers]
    first, second = kernel.RestoredRows(), kernel.RestoredRows()
    first.put(made[::2], [b"v"] * len(made[::2]), [1] * len(made[::2]))
    second.put(made[1::2], [None] * len(made[1::2]), [2] * len(made[1::2]))
    arrange(first)
    first.take_over(second)
    arrange(first)
    written: list[Any] = []
    while part := first.rows(source.randrange(1, 300), b"p", 8):
        written += part
        first.written(len(part))
    expected: dict[bytes, bytes | None] = dict.fromkeys(made[::2], b"v")
    expected.update(dict.fromkeys(made[1::2]))
    assert written == sorted((b"p" + key, value) for key, value in expected.items())
    assert len(first) == 0


def test_rows_that_could_not_be_written_are_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readable as before, and written by the next attempt, together with rows restored meanwhile."""
    task = Task([key_value(value=LONG)], tmp_path, shared=SharedResources())
    names = [b"%05d" % number for number in range(2_000)]
    task.stores.restore("s", Batch(names, [bytes(8)] * 2_000, [0] * 2_000), 2_000)
    store, left = task["s"], 2

    def write(engine: RocksEngine, rows: Any, *others: Any, **more: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise StateFull("no room")
        plain(engine, rows, *others, **more)

    plain = RocksEngine.write
    monkeypatch.setattr(RocksEngine, "write", write)
    with pytest.raises(StateFull):
        task.flush()
    assert 0 < len(store._restored_writing) < 2_000
    assert [store.get(name.decode()) for name in names[::100]] == [0] * 20
    task.stores.restore("s", Batch([names[7], b"new", names[-1]], [bytes(7) + b"\x05", bytes(8), None], [0] * 3), 2_003)
    monkeypatch.setattr(RocksEngine, "write", plain)
    task.flush()
    assert not store._restored_writing
    assert not store._restored
    assert store.get(names[7].decode()) == 5
    assert store.get(names[-1].decode()) is None
    assert sum(1 for _ in store.all()) == 2_000
    task.close()


@needs_kernel
def test_rows_take_little_memory_however_often_they_are_put() -> None:
    """A longer entry takes the place of the shorter one, and written rows are freed."""
    tracemalloc.start()
    try:
        rows = kernel.RestoredRows()
        for size in (1, 100, 10, 1_000, 400):
            put(rows, [(b"%d" % number, bytes(size), 0) for number in range(1_000)])
        held, _ = tracemalloc.get_traced_memory()
        assert 1_000 * 1_000 < held < 1_000 * 1_200
        arrange(rows)
        while part := rows.rows(100, b"", 0):
            rows.written(len(part))
        del part
        assert tracemalloc.get_traced_memory()[0] < held // 8  # Python keeps some pairs for later
    finally:
        tracemalloc.stop()


class Odd(bytes):
    """Bytes of a class of their own."""

    __slots__ = ()


@needs_kernel
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("put", ([], [])),
        ("put", ([b"a"], (b"x",), [0])),
        ("put", ([b"a"], [], [0])),
        ("put", ([b"a"], [b"x"], [])),
        ("put", (["a"], [b"x"], [0])),
        ("put", ([Odd(b"a")], [b"x"], [0])),
        ("put", ([b"a"], ["x"], [0])),
        ("put", ([b"a"], [b"x"], ["0"])),
        ("put", ([b"a"], [b"x"], [1 << 63])),
        ("get", ("a", None)),
        ("get", (b"a",)),
        ("discard", ("a",)),
        ("__contains__", ("a",)),
        ("take_over", ({},)),
        ("arranged", (0,)),
        ("arranged", ("a",)),
        ("rows", (1, "a", 0)),
        ("rows", (1, b"a", 9)),
        ("rows", (-1, b"a", 0)),
        ("rows", (1, b"a", 0)),
        ("written", ("a",)),
    ],
)
def test_the_kernel_refuses_wrong_arguments(name: str, arguments: tuple[Any, ...]) -> None:
    """With an error, for any arguments; also rows before they are in order."""
    rows = kernel.RestoredRows()
    rows.put([b"there"], [b"x"], [0])
    with pytest.raises((TypeError, ValueError, OverflowError)):
        getattr(rows, name)(*arguments)
    with pytest.raises(TypeError):
        rows.take_over(rows)
    assert rows.items() == [(b"there", bytes(8) + b"x")]


@needs_kernel
def test_rows_put_before_a_wrong_one_stay() -> None:
    """As it does in Python; a key of a class of its own is found by its bytes."""
    rows = kernel.RestoredRows()
    with pytest.raises(TypeError, match="keys of rows are bytes, got int"):
        rows.put([b"a", b"b", 5], [b"1", None, b"3"], [1, 2, 3])
    assert dict(rows.items()) == {b"a": entry(b"1", 1), b"b": None}
    assert rows.get(Odd(b"a"), None) == entry(b"1", 1)


def test_there_is_one_kind_of_rows_that_stores_use() -> None:
    """The kernel's, where there is one."""
    assert RestoredRows is KINDS[-1]
