"""Restored rows of a store: the last row of each key, until it is written."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from tests.ks_actors.state.helpers import Task, key_value

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


def test_there_is_one_kind_of_rows_that_stores_use() -> None:
    """The kernel's, where there is one."""
    assert RestoredRows is KINDS[-1]
