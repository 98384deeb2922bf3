"""Rows that the kernel makes for the engine in one call are the same as single ones, and its lookups ahead find the same rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ks_actors.kernel import HAS_KERNEL, kernel
from ks_actors.serdes import BYTES, INTEGER, LONG, STRING
from ks_actors.state.core import _transactional
from tests.ks_actors.state.helpers import VALUES, Task, key_value, memory_grown, put, store_of, versioned, window

pytestmark = pytest.mark.skipif(not HAS_KERNEL, reason="there is no kernel")

MANY = 700
KEYS: dict[Any, Callable[[int], Any]] = {STRING: lambda n: "kö"[: 1 + n % 2] + str(n), BYTES: lambda n: b"k%d" % n, LONG: lambda n: n - 300}


def fill(task: Task, kind: str, key: Any, value: Any) -> None:
    """Put rows, of which the transaction that follows puts and deletes some, and the one after it some as well."""
    random = Random(11)
    for number in range(MANY):
        put(task.store, kind, KEYS[key](number), number, (VALUES[value](number), random.randrange(-5, 1 << 42)))
    task.commit()
    for step in (3, 5):
        for number in range(0, MANY, step):
            put(task.store, kind, KEYS[key](number), number, None if number % 4 == 0 else (VALUES[value](number + step), number))
        if step == 3:
            task.stores.freeze()


@pytest.mark.parametrize("timestamped", [True, False])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", ["key-value", "tracks", "panes"])
def test_rows_at_a_stroke_are_those_made_one_by_one(kind: str, key: Any, value: Any, timestamped: bool, tmp_path: Path) -> None:
    """For each kind of store, also while a commit is under way and the next transaction has begun."""
    task = Task([store_of(kind, key, value, timestamped=timestamped)], tmp_path)
    fill(task, kind, key, value)
    store: Any = task.store
    numbers = [number for number in range(MANY) if kind != "key-value" or number % 2]
    handles = [KEYS[key](number) if kind == "key-value" else (KEYS[key](number), number % 7 * 10) for number in numbers]
    Random(3).shuffle(handles)
    rows = store._rows_at_a_stroke(handles)
    assert rows == sorted(map(store._row, handles, map(store._committed_value, handles)))
    assert len(rows) == len(numbers)
    task.close()


@pytest.mark.parametrize("kind", ["key-value", "tracks", "panes"])
def test_the_engine_has_the_same_with_and_without_a_kernel(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over commits, deletes and rollbacks, when the task comes back."""
    found = []
    for native in (True, False):
        monkeypatch.setattr(_transactional, "HAS_KERNEL", native)  # who decides whether the kernel knows a store
        task = Task([store_of(kind, STRING, LONG, timestamped=True)], tmp_path / str(native))
        fill(task, kind, STRING, LONG)
        task.stores.drop()
        for number in range(0, MANY, 2):
            put(task.store, kind, KEYS[STRING](number), number, None if number % 3 == 0 else (number, number))
        task.commit()
        task.reopen()
        store: Any = task.store
        handles = [(KEYS[STRING](number),) if kind == "key-value" else (KEYS[STRING](number), number % 7 * 10) for number in range(MANY)]
        found.append([store.get_entry(*handle) for handle in handles])
        task.close()
    assert found[0] == found[1]
    assert sum(entry is not None for entry in found[0]) == MANY - len(range(0, MANY, 6))


def test_versions_and_other_serdes_have_rows_made_one_by_one(tmp_path: Path) -> None:
    """The kernel knows nothing of them."""
    task = Task([versioned(history_retention_ms=1 << 40)], tmp_path / "versions")
    task.store.put("k", "x", 5)
    versions: Any = task.store
    assert versions._rows_at_a_stroke(["k"]) is None
    task.close()
    task = Task([key_value(timestamped=True, value=INTEGER)], tmp_path / "integers")
    task.store.put_entry("k", (1, 1))
    integers: Any = task.store
    assert integers._rows_at_a_stroke(["k"]) is None
    task.close()


def test_to_make_rows_does_not_leak() -> None:
    """Neither memory, nor the arguments, also where an error ends it."""
    view = {f"ké{number}": (f"é{number}" * 5, 10_000 + number) for number in range(100)}
    handles = list(view)
    odd: dict[Any, Any] = {**view, "odd": None}

    def once() -> None:
        assert kernel.engine_rows((view, {}, {}), handles, (0, 1, 1, True, 0), b"p") is not None
        assert kernel.engine_rows((odd, {}, {}), [*handles, "odd"], (0, 1, 1, True, 0), b"p") is None
        assert kernel.engine_rows(({0: view}, {}, {}), [(key, 0) for key in handles], (2, 1, 1, True, 60), b"p") is not None
        with pytest.raises(TypeError):
            kernel.engine_rows((view, {}, {}), [*handles, []], (0, 1, 1, True, 0), b"p")

    once()
    counts = sys.getrefcount(handles[7]), sys.getrefcount(view[handles[7]][0])
    assert memory_grown(once) < 10_000
    assert (sys.getrefcount(handles[7]), sys.getrefcount(view[handles[7]][0])) == counts


class Odd(int):
    """A number that is not plain."""

    __slots__ = ()


def shaped(shape: str, size: int) -> tuple[dict[Any, Any], list[Any]]:
    """Return a dict of entries, and keys that are in it, were in it, or never."""
    makers: dict[str, Callable[[int], Any]] = {
        "text": str,
        "bytes": lambda n: b"%d" % n,
        "numbers": lambda n: n,
        "numbers of one place": lambda n: n << 40,
        "mixed": lambda n: (str(n), b"%d" % n, n, Odd(n << 50))[n % 4],
        "deleted": str,
    }
    make = makers[shape]
    keys = [make(number) for number in range(2 * size)]
    view = {key: (number, number) for number, key in enumerate(keys[:size])}
    if shape == "deleted":
        for key in keys[: size // 2]:
            del view[key]
    return view, keys


@pytest.mark.parametrize("size", [0, 1, 5, 6, 40, 300, 3_000, 70_000])
@pytest.mark.parametrize("shape", ["text", "bytes", "numbers", "numbers of one place", "mixed", "deleted"])
def test_lookups_ahead_find_the_same_rows(shape: str, size: int) -> None:
    """For any inside of a dict: of text or not, full, with holes, with keys that come to lie in one place, small or large."""
    if shape == "numbers of one place":
        size = min(size, 300)  # each is looked for among all others
    view, keys = shaped(shape, size)
    order = Random(5).sample(keys, len(keys))
    plain = [key for key in order if type(key) in (str, bytes, int)]
    assert kernel.absent(view, order, 0) == [key for key in plain if key not in view]
    assert kernel.absent(view, [*order, *order], len(order)) == kernel.absent(view, order, 0)
    there = [key for key in plain if key in view] * 2
    expected = {key: (entry[0] + 2, entry[1]) if type(key) in (str, bytes, int) else entry for key, entry in view.items()}
    dirty: dict[Any, Any] = {}
    before = dict(view)
    assert kernel.count_up(view, dirty, there, there, [0] * len(there), 0, [], [], False)[0] == len(there)
    assert view == expected
    assert dirty == {key: before[key] for key in there}


def test_absent_keys_are_looked_for_from_a_place_on() -> None:
    """Each is named once; absent rows beyond the end give nothing."""
    assert kernel.absent({}, ["a", None, "a", 1.5, b"a"], 1) == ["a", b"a"]
    assert kernel.absent({}, ["a"], 1) == []


class Acting(int):
    """The start of a window that does something when it is compared, once."""

    act: Callable[[], object] | None = None

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        act, Acting.act = Acting.act, None
        if act is not None:
            act()
        return int(self) == other


CALLS: dict[str, Callable[[dict[Any, Any], list[Any]], object]] = {
    "engine_rows": lambda panes, handles: kernel.engine_rows((panes, {}, {}), handles, (2, 1, 2, True, 60_000), b"p"),
    "window_values": lambda panes, handles: kernel.window_values(panes, {}, handles, True),
    "write_changes": lambda panes, handles: kernel.write_changes((panes, {}, {}), handles, (2, 1, 2), 1 << 20),
}


@pytest.mark.parametrize("act", ["handles go", "windows go", "an error"])
@pytest.mark.parametrize("call", CALLS)
def test_any_effect_of_comparing_ends_in_an_answer_or_its_error(call: str, act: str) -> None:
    """Though the object looked at may be gone after it."""
    starts = [10, 11, 12]
    panes: dict[Any, Any] = {start: {f"key{number}": (number, number) for number in range(40)} for start in (Acting(0), *starts)}
    handles = [(f"key{number}", 0 if place else starts[number % 3]) for number in range(40) for place in range(2)]

    def take_windows() -> None:
        for start in starts:
            panes.pop(start, None)

    def fail() -> None:
        raise KeyboardInterrupt

    Acting.act = {"handles go": handles.clear, "windows go": take_windows, "an error": fail}[act]
    if act == "an error":
        with pytest.raises(KeyboardInterrupt):
            CALLS[call](panes, handles)
    else:
        CALLS[call](panes, handles)
    assert Acting.act is None


def test_windows_may_be_kept_for_good(tmp_path: Path) -> None:
    """For longer than a number of the kernel can say."""
    task = Task([window(retention_ms=1 << 65)], tmp_path)
    task.store.put("a", "x", 5)
    task.commit()
    task.flush()
    task.reopen()
    assert task.store.fetch("a", 5) == "x"
    task.close()
