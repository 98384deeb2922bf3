"""The kernel does the same for window stores as the Python code that replaces it."""

from __future__ import annotations

import gc
from pathlib import Path
from random import Random
from typing import Any
from weakref import ref

import pytest

from ks_actors import Batch, ProcessingFailed
from ks_actors.kernel import HAS_KERNEL, kernel
from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
from ks_actors.processors.aggregates._windowed import WindowedAggregate
from ks_actors.records._windowed import Window, Windowed
from ks_actors.serdes import BYTES, LONG, STRING, Serde
from ks_actors.state import SharedResources
from ks_actors.state.join_window import _lookups, _rows_by_time, _segment
from ks_actors.state.join_window._segment import Raw
from ks_actors.state.timed import _expiry, _timed_store
from ks_actors.state.window import _by_start
from tests.ks_actors.processors.helpers import Node
from tests.ks_actors.state.helpers import PLACES, Task, window
from tests.ks_actors.state.model import drive
from tests.ks_actors.state.window.test_model import WindowsAgainstDicts

pytestmark = pytest.mark.skipif(not HAS_KERNEL, reason="there is no kernel")
USERS = (_expiry, _by_start, _segment, _lookups, _rows_by_time, _timed_store)
LIMITED = Serde.of(lambda text: text.encode(), bytes.decode)


@pytest.fixture
def _without(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in USERS:
        monkeypatch.setattr(module, "HAS_KERNEL", False)


@pytest.mark.usefixtures("_without")
@pytest.mark.parametrize("seed", range(100, 130))
def test_stores_are_like_dicts_without_a_kernel(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model holds for the Python code too."""
    drive(WindowsAgainstDicts, seed, monkeypatch)


def rows_of(random: Random, time: int) -> list[tuple[str | None, int]]:
    rows: list[tuple[str | None, int]] = []
    for _ in range(random.randrange(60)):
        time += random.choice((0, 0, 1, 3, 20))
        late = random.randrange(150) if random.random() < 0.2 else 0
        rows.append((None if random.random() < 0.05 else f"k{random.randrange(12)}", max(0, time - late)))
    return rows


@pytest.mark.parametrize("seed", range(80))
def test_windows_are_counted_as_by_get_and_put(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output, drops, logged and stored rows, and the size: over commits, rollbacks, expiry, writes to disk and restarts."""
    random = Random(seed)
    place, shared = random.choice(PLACES), SharedResources(resident_bytes=random.choice((3_000, 1 << 20)), tail_records=20)
    retention, grace = random.choice((20, 60, 200)), random.choice((0, 15))
    spec = window("w", timestamped=True, key=random.choice((STRING, STRING, LIMITED)), value=LONG, retention_ms=retention, advance_ms=10)
    operator = WindowedAggregate(WindowAggregation(store="w", size_ms=10, advance_ms=10, grace_ms=grace, send_old=random.random() < 0.5))
    tasks = [Task([spec], tmp_path / name, place, shared) for name in ("kernel", "python")]
    nodes = [Node({"w": task["w"]}) for task in tasks]
    forms = [operator.bind(nodes[0]).batch]
    monkeypatch.setattr(_by_start, "HAS_KERNEL", False)
    forms.append(operator.bind(nodes[1]).batch)
    monkeypatch.undo()
    time = 0
    for _ in range(25):
        rows = rows_of(random, time)
        time = max([time, *(at for _, at in rows)])
        then, at = random.choice(("commit", "commit", "drop", "flush", "look", "restart", "go on")), random.randrange(time + 1)
        for task, node, form in zip(tasks, nodes, forms, strict=True):
            assert form is not None
            if rows:
                form(Batch([row[0] for row in rows], [b""] * len(rows), [row[1] for row in rows]))
            match then:
                case "commit":
                    task.commit()
                case "drop":
                    task.stores.drop()
                case "flush":
                    task.flush()
                case "look":
                    node.rows.append(list(task["w"].fetch_all(at, time)))  # type: ignore[arg-type]  # to be compared
                    node.rows.append(task["w"].fetch_entries("k3", at, time))
                case "restart":
                    task.commit()
                    task.reopen(clean=at % 2 == 0)
                    node.stores = {"w": task["w"]}
        if then == "restart":
            forms = [operator.bind(nodes[0]).batch]
            monkeypatch.setattr(_by_start, "HAS_KERNEL", False)
            forms.append(operator.bind(nodes[1]).batch)
            monkeypatch.undo()
        assert nodes[0].rows == nodes[1].rows
        assert nodes[0].dropped_count == nodes[1].dropped_count
        assert tasks[0].logs == tasks[1].logs
        assert tasks[0].late == tasks[1].late
        assert tasks[0].stores.uncommitted_bytes == tasks[1].stores.uncommitted_bytes
        assert list(tasks[0]["w"].all()) == list(tasks[1]["w"].all()) if then != "go on" else True
    for task in tasks:
        task.close()


def test_most_windows_are_counted_by_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New keys, new windows, and known ones; rows put one by one are few."""
    task = Task([window("w", timestamped=True, value=LONG, retention_ms=50, advance_ms=10)], tmp_path)
    puts: list[Any] = []
    put = type(task["w"]).put_entry

    def noted(store: Any, *entry: Any) -> None:
        puts.append(entry)
        put(store, *entry)

    monkeypatch.setattr(type(task["w"]), "put_entry", noted)
    node = Node({"w": task["w"]})
    form = WindowedAggregate(WindowAggregation(store="w", size_ms=10, advance_ms=10, grace_ms=10)).bind(node).batch
    assert form is not None
    form(Batch([f"k{number % 700}" for number in range(5000)], [b""] * 5000, [number // 100 for number in range(5000)]))
    assert len(node.rows) == 5000
    assert len(puts) < 300
    task.close()


def test_a_closed_store_counts_nothing(tmp_path: Path) -> None:
    """It raises, as it does for every other use."""
    task = Task([window("w", timestamped=True, value=LONG, advance_ms=10)], tmp_path)
    node = Node({"w": task["w"]}, go_on=False)
    form = WindowedAggregate(WindowAggregation(store="w", size_ms=10, advance_ms=10, grace_ms=10)).bind(node).batch
    assert form is not None
    form(Batch(["a"], [b""], [5]))
    task.close()
    with pytest.raises(ProcessingFailed):
        form(Batch(["a", "b"], [b"", b""], [6, 7]))
    assert "store w is closed" in node.failures[0].error


def test_keys_of_windows_in_a_changelog() -> None:
    """Text and bytes with start and sequence number behind; other keys are for Python."""
    keys: list[Any] = ["a", "ä", b"\0\1", ""]
    made = kernel.window_keys(keys, [0, 1, 1 << 40, 2**63 - 1], [0, 7, 2**31 - 1, 1])
    assert made == [
        (key.encode() if isinstance(key, str) else key) + start.to_bytes(8, "big") + sequence.to_bytes(4, "big")
        for key, start, sequence in zip(keys, [0, 1, 1 << 40, 2**63 - 1], [0, 7, 2**31 - 1, 1], strict=True)
    ]
    assert kernel.window_keys(["a"], [1], None) == [b"a" + (1).to_bytes(8, "big") + bytes(4)]
    with pytest.raises(TypeError, match="str and bytes"):
        kernel.window_keys([1.5], [1], None)
    with pytest.raises(UnicodeEncodeError):
        kernel.window_keys(["\ud800"], [1], None)


def test_keys_with_their_windows() -> None:
    """They equal those of their class, for any keys; the garbage collector finds those that refer to other objects."""
    windows = [Window(0, 10), Window(5, 15), Window(5, 15)]
    keys: list[Any] = ["a", None, ["list"]]
    made = kernel.windowed(Windowed, keys, windows)
    assert made == [Windowed(key, window) for key, window in zip(keys, windows, strict=True)]
    assert {type(key) for key in made} == {Windowed}
    assert [gc.is_tracked(key) for key in made] == [False, True, True]
    keys[2].append(made[2])
    found = ref(cycle := Node({}))
    keys[2].append(cycle)
    del keys, made, cycle
    gc.collect()
    assert found() is None


class Tagged(tuple[Any, ...]):  # noqa: SLOT001 - that is the point
    """A tuple with attributes."""


class Word(str):
    """Text that is not plain."""

    __slots__ = ()


def test_keys_that_are_not_plain_are_logged_all_the_same(tmp_path: Path) -> None:
    """A subclass of text is counted and encoded by Python."""
    task = Task([window("w", timestamped=True, value=LONG), window("d", value=BYTES, retain_duplicates=True)], tmp_path)
    node = Node({"w": task["w"]})
    form = WindowedAggregate(WindowAggregation(store="w", size_ms=10, advance_ms=10, grace_ms=10)).bind(node).batch
    assert form is not None
    form(Batch([Word("a"), "a", Word("b")], [b""] * 3, [1, 2, 3]))
    task["d"].put(Word("a"), b"x", 1)
    assert [row.value[0] for row in node.rows] == [1, 2, 1]
    records = task.commit()
    assert [key[:1] for key, _, _ in (*records["w"], *records["d"])] == [b"a", b"b", b"a"]
    task.close()


def test_restored_rows_are_decoded_before_they_are_met(tmp_path: Path) -> None:
    """Restored rows are in memory as bytes until they are read."""
    task = Task([window("d", value=LONG, retain_duplicates=True)], tmp_path, "in_memory")
    task["d"].put_run(["a", "b"], [10, 11], [1, 2])
    task.commit()
    task.reopen()
    store = task["d"]
    assert {type(value) for segment in store._segments.values() for value in segment.values} == {Raw}
    assert store.meet(["b", "a"], [12, 9], 5, 5, None) == [(0, 11, 2), (1, 10, 1)]
    task.close()
