"""Packed rows, and segments of them, are like those of objects, and smaller."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from ks_actors import Batch, SerializationError
from ks_actors.kernel import HAS_KERNEL, kernel
from ks_actors.records._packed_batch import PackedBatch
from ks_actors.serdes import BYTES, LONG, STRING
from ks_actors.state import SharedResources
from ks_actors.state.join_window import _rows_by_time
from ks_actors.state.join_window._packed_segment import PackedSegment
from ks_actors.state.join_window._segment import Segment
from ks_actors.state.timed import SUFFIX
from tests.ks_actors.state.helpers import PLACES, Task, memory_grown, window

pytestmark = pytest.mark.skipif(not HAS_KERNEL, reason="there is no kernel")
LOOKS: list[tuple[list[Any], list[Any]]] = [(["k"], [b"v", None]), ([b"k"], []), (["\ud800"], []), ([], ["v"])]
KINDS = [(False, False), (False, True), (True, False), (True, True)]


def text(number: int, *, of_text: bool) -> Any:
    word = f"{'ü' if number % 3 else 'k'}{number}" + "x" * (number % 5 * 40)
    return word if of_text else word.encode()


def test_large_values_lie_in_memory_of_their_own() -> None:
    """Values larger than the blocks of memory, and the values behind them; a rollback gives all of it back."""
    rows = kernel.Rows(0, True, False)
    empty = sys.getsizeof(rows)
    values = [bytes([number]) * size for number, size in enumerate((10, 300_000, 10, 262_000, 200_000, 1 << 20, 0))]
    rows.add_all(["k"] * 7, list(range(7)), list(range(7)), values)
    assert rows.column(3, 0, 7) == values
    rows.cut(2)
    assert rows.column(3, 0, 7) == values[:2]
    assert sys.getsizeof(rows) < 302_000
    rows.cut(0)
    assert sys.getsizeof(rows) < empty + 1_000
    rows.add("k", 3, 1, b"v", 3)
    assert rows.entries("k", 0, 9) == [(3, (b"v", 3))]


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="for a sanitizer each row has a block of its own")
def test_a_packed_row_takes_three_fifths_of_one_of_objects() -> None:
    """Keys of 8 bytes, values of 100: as a join of payments has them; and objects take more than they say, by the allocator."""
    count = 20_000
    rows, plain = kernel.Rows(0, True, False), Segment(0)
    columns: list[Any] = [[f"k{number:07}" for number in range(count)], [5] * count, [1] * count, [b"%100d" % number for number in range(count)]]
    rows.add_all(*columns)
    plain.add_all(*columns)
    texts = sum(map(sys.getsizeof, plain.keys)) + sum(map(sys.getsizeof, plain.values))
    objects = sum(map(sys.getsizeof, (plain.index, plain.keys, plain.starts, plain.sequences, plain.values, plain.times))) + texts
    assert sys.getsizeof(rows) / count < 160
    assert sys.getsizeof(rows) < 0.6 * objects


def test_packed_records_are_like_others() -> None:
    """Columns are there when they are looked for; a slice has its part of them; written batches need none."""
    rows = kernel.Rows(0, True, False)
    rows.add_all([f"k{number}" for number in range(9)], list(range(9)), list(range(9)), [b"%d" % number * 40 for number in range(9)])
    packed, plain = (PackedBatch(rows, 2, 8) for _ in range(2))
    assert packed.write(1, 1 << 20, 61) == kernel.write_records(plain.keys, plain.values, plain.timestamps, None, 1, 1 << 20, 61)
    assert len(packed) == len(plain.keys) == 6
    assert (packed.slice(1, 3).keys, packed.slice(4, 99).values, packed.slice(3, 2).timestamps) == (plain.keys[1:3], plain.values[4:], [])
    assert (packed.headers, packed.offsets, packed.select([0, 1, 0, 0, 0, 0]).keys) == (None, (), plain.keys[1:2])
    assert plain.keys == rows.names(2, 8)
    assert not hasattr(packed, "others")


def test_objects_that_are_no_key_are_absent() -> None:
    """To look for it is no error; a caller that would add it asks first."""
    rows = kernel.Rows(0, True, False)
    assert (len(rows), rows.places("k", 0, 9), rows.names(0, 9), rows.column(0, -5, 9)) == (0, [], [], [])
    rows.add("k", 5, 1, b"v", 5)
    assert [rows.places(key, 0, 9) for key in ("k", b"k", None, "\ud800", 5)] == [[0], [], [], [], []]
    assert [rows.take(keys, values) for keys, values in LOOKS] == [True, False, False, False]


def test_packed_rows_do_not_leak() -> None:
    """Neither their memory, nor the objects that go in and come out, also where an error ends it."""
    keys, values = [f"k{number % 50}" for number in range(400)], [b"v" * (number % 300) for number in range(400)]

    def once() -> None:
        rows = kernel.Rows(0, True, False)
        rows.add_all(keys, list(range(400)), list(range(400)), values)
        rows.replace(3, b"other", 1)
        rows.meet(keys, list(range(400)), 100, 100, None, [])
        rows.entries("k1", 0, 400)
        rows.names(0, 400)
        rows.write(0, 400, 10_000, 61)
        for which in range(6):
            rows.column(which, 0, 400)
        with suppress(TypeError):
            rows.add_all(["k", 5], [1, 2], [1, 2], [b"", b""])
        rows.cut(200)

    once()
    counts = sys.getrefcount(keys[7]), sys.getrefcount(values[7])
    assert memory_grown(once) < 10_000
    assert (sys.getrefcount(keys[7]), sys.getrefcount(values[7])) == counts


def pair(path: Path, place: str, kinds: tuple[bool, bool]) -> list[Task]:
    """Return a task with a store of packed rows, and one with a store of objects."""
    key, value = (STRING if of_text else BYTES for of_text in kinds)
    spec = window("d", key=key, value=value, timestamped=True, retention_ms=60, retain_duplicates=True)

    def make(name: str) -> Task:
        return Task([spec], path / name, place, SharedResources(resident_bytes=20_000, tail_records=20))

    packed = make("packed")
    with without_kernel():
        return [packed, make("objects")]


def without_kernel() -> AbstractContextManager[Any]:
    """Let stores that are opened meanwhile have segments of objects."""
    return patch.object(_rows_by_time, "HAS_KERNEL", new=False)


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("seed", range(4))
def test_stores_of_packed_rows_are_like_those_of_objects(seed: int, place: str, kinds: tuple[bool, bool], tmp_path: Path) -> None:
    """Their results, logs, and content after commits, rollbacks, writes to disk, restarts: rows that were put one by one, and together."""
    random, time = Random(seed), 100
    tasks = pair(tmp_path, place, kinds)
    for _ in range(40):
        what, at = random.choice(("put", "run", "run", "commit", "commit", "drop", "flush", "restart")), time - random.randrange(40)
        key, value = text(random.randrange(6), of_text=kinds[0]), text(random.randrange(30), of_text=kinds[1])
        picks = [(random.randrange(6), random.randrange(40)) for _ in range(random.randrange(1, 20))]
        time += random.choice((0, 1, 5, 30))
        seen: list[Any] = []
        for task in tasks:
            store = task["d"]
            match what:
                case "put":
                    store.put_entry(key, at, (value, at + 1))
                case "run":
                    keys = [text(pick, of_text=kinds[0]) for pick, _ in picks]
                    starts, values = [time + back % 7 for _, back in picks], [text(back, of_text=kinds[1]) for _, back in picks]
                    if store.takes(keys, starts, values):
                        seen.append(store.meet(keys, starts, 20, 10, None))
                        store.put_run(keys, starts, values)
                case "commit":
                    seen.append(task.commit())
                case "drop":
                    task.stores.drop()
                case "flush":
                    task.flush()
                case _:
                    task.commit()
                    with nullcontext() if task is tasks[0] else without_kernel():
                        task.reopen(clean=time % 2 == 0)
            store = task["d"]
            seen.append((list(store.all()), store.fetch_entries(key, at - 20, at + 20), store.get_entry(key, at), task.late))
            seen.append(list(store.fetch_all(at - 30, at)))
        assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    packed, objects = ({type(segment) for segment in task["d"]._segments.values()} for task in tasks)
    assert (packed, objects) in (({PackedSegment}, {Segment}), (set(), set()))
    for task in tasks:
        task.close()


def test_unwritable_values_are_refused_when_they_are_put(tmp_path: Path) -> None:
    """A value that is no text, a key that is none in Unicode: the store is as it was."""
    task = Task([window("d", value=STRING, retain_duplicates=True)], tmp_path)
    store = task["d"]
    for key, value in (("k", 5), ("\ud800", "v")):
        with pytest.raises(SerializationError, match="the serde cannot write"):
            store.put(key, value, 1)
        assert not store.takes([key], [1], [value])
    store.put("k", "v", 1)
    assert [row[-1] for row in store.all()] == ["v"]
    assert len(task.commit()["d"]) == 1
    task.close()


class Word(str):
    """Text of a class of its own, with a hash of its own."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, str(other))

    def __hash__(self) -> int:
        return 1


def test_keys_of_a_class_of_their_own_are_found() -> None:
    """Text counts as text."""
    rows = kernel.Rows(0, True, True)
    rows.add("k", 5, 1, "v", 5)
    met: list[Any] = []
    rows.meet([Word("k")], [5], 0, 0, None, met)
    assert (rows.places(Word("k"), 0, 9), rows.entries(Word("k"), 0, 9), met) == ([0], [(5, ("v", 5))], [(0, 5, "v")])
    with pytest.raises(TypeError, match="Word is not put"):
        rows.add(Word("k"), 5, 2, "v", 5)


@pytest.mark.parametrize("value", [STRING, LONG])
@pytest.mark.parametrize("place", PLACES)
def test_a_tombstone_takes_a_restored_row_away(place: str, value: Any, tmp_path: Path) -> None:
    """From all that look for it, be the rows packed or objects."""
    task = Task([window("d", value=value, retain_duplicates=True)], tmp_path, place)
    store, content = task["d"], value.serializer("")("v" if value is STRING else 7)
    names = [b"k" + SUFFIX.pack(5, number) for number in (1, 2)]
    task.stores.restore("d", Batch(names, [content] * 2, [5, 5]), 2)
    assert len(store.fetch_entries("k", 0, 9)) == 2
    task.stores.restore("d", Batch(names, [None, content], [5, 5]), 4)
    met = store.meet(["k"], [5], 0, 0, None)
    assert (len(met), len(store.fetch_entries("k", 0, 9)), len([*store.all()]), len([*store.fetch("k", 0, 9)])) == (1, 1, 1, 1)
    task.close()
