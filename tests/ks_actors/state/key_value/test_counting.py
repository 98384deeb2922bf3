"""Counting in the kernel is counting by get and put."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import Batch
from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as native
from ks_actors.serdes import BYTES, INTEGER, LONG, STRING, Serde, json
from ks_actors.state.timed import _expiry
from tests.ks_actors.state.helpers import Task, key_value
from tests.layouts import OWN

kernel: Any = native
needs_kernel = pytest.mark.skipif(not HAS_KERNEL, reason="there is no kernel")
KEYS = ("a", "b", "cc", "ddd")
rows = st.lists(st.tuples(st.sampled_from((*KEYS, None)), st.sampled_from((b"", None)), st.integers(0, 9)), max_size=20)
steps = st.lists(st.tuples(rows, st.sampled_from(["commit", "drop", "go on"])), max_size=6)


class Plainly:
    """One count after the other, by `get_entry` and `put_entry`."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def count(self, batch: list[tuple[Any, Any, int]], *, with_old: bool) -> list[tuple[Any, int]]:
        sent = []
        for key, value, timestamp in batch:
            if key is None or value is None:
                continue
            before, seen = self.store.get_entry(key) or (None, timestamp)
            entry = ((before or 0) + 1, max(seen, timestamp))
            self.store.put_entry(key, entry)
            sent.append(((entry[0], before if with_old else None), entry[1]))
        return sent


class ByKernel(Plainly):
    """As many as the kernel counts at a time; a row at which it stops is counted plainly."""

    def count(self, batch: list[tuple[Any, Any, int]], *, with_old: bool) -> list[tuple[Any, int]]:
        keys, values, times = [row[0] for row in batch], [row[1] for row in batch], [row[2] for row in batch]
        sent: list[tuple[Any, int]] = []
        done = 0
        while done < len(batch):
            changes: list[Any] = []
            latest: list[int] = []
            done = self.store.count_up(keys, values, times, done, changes, latest, with_old=with_old)
            sent += zip(changes, latest, strict=True)
            sent += super().count(batch[done : done + 1], with_old=with_old)
            done += 1
        return sent


@pytest.mark.extended
@needs_kernel
@pytest.mark.parametrize("place", ["in_memory", "rocksdb"])
@given(script=steps, with_old=st.booleans())
def test_the_kernel_counts_as_get_and_put_do(tmp_path_factory: pytest.TempPathFactory, place: str, script: Any, with_old: bool) -> None:
    """The output, the stored rows, the undo log for the commit and its size, over commits and rollbacks."""
    tasks = [Task([key_value(timestamped=True)], tmp_path_factory.mktemp("task"), place) for _ in range(2)]
    plainly, by_kernel = Plainly(tasks[0]["s"]), ByKernel(tasks[1]["s"])
    for batch, then in script:
        assert by_kernel.count(batch, with_old=with_old) == plainly.count(batch, with_old=with_old)
        sizes = {task.stores.uncommitted_bytes for task in tasks}
        assert len(sizes) == 1
        for task in tasks:
            if then == "commit":
                task.commit()
            elif then == "drop":
                task.stores.drop()
        contents = [[(key, task["s"].get_entry(key)) for key in KEYS] for task in tasks]
        assert contents[0] == contents[1]
        assert tasks[0].logs == tasks[1].logs
    for task in tasks:
        task.close()


@OWN
@needs_kernel
def test_counts_go_on_from_stored_or_restored_rows(tmp_path: Path) -> None:
    """Of many keys at once, those that are known below memory go on, the others begin; uncounted keys are absent."""
    with_disk = Task([key_value(timestamped=True)], tmp_path)
    for number in range(10):
        with_disk["s"].put_entry(f"k{number}", (number, number))
    with_disk.commit()
    with_disk.stores.close(clean=True)
    for restored in (False, True):
        task = Task([key_value(timestamped=True)], tmp_path)
        if restored:
            task.stores.restore("s", Batch([b"k3", b"new"], [LONG.serializer("")(100), None], [7, 7]), 12)
        store = task["s"]
        keys = [f"k{number}" for number in range(12)] + ["k11", "new", "none", "none"]
        changes: list[Any] = []
        times: list[int] = []
        assert store.count_up(keys, [b""] * 14 + [None, b""], [5] * 16, 0, changes, times, with_old=True) == 14
        before = [0, 1, 2, 100 if restored else 3, *range(4, 10), None, None, 1, None]
        assert changes == [((number or 0) + 1, number) for number in before]
        assert times == [5] * 3 + [7 if restored else 5] + [5, 5, 6, 7, 8, 9] + [5] * 4
        assert store.get_entry("none") is None
        assert dict.fromkeys(store.uncommitted) == dict.fromkeys([*dict.fromkeys(keys[:14])])
        task.stores.drop()
        assert (store.get_entry("k11"), store.get_entry("k9")) == (None, (9, 9))
        task.close()


class Touchy(str):
    """Text that cannot be compared."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise ValueError(other)


@needs_kernel
def test_an_error_of_comparing_keys_is_raised() -> None:
    """By all that looks for keys, wherever in the batch it is: here at the 18th."""
    keys = [f"k{number}" for number in range(20)]
    view: dict[Any, Any] = {(Touchy(key) if key == "k17" else key): (1, 1) for key in keys}
    with pytest.raises(ValueError, match="k17"):
        kernel.entry_columns(view, {}, keys)
    changes: list[Any] = []
    with pytest.raises(ValueError, match="k17"):
        kernel.count_up(view, {}, keys, [b""] * 20, [1] * 20, 0, changes, [], False)
    assert len(changes) == 17


@pytest.mark.parametrize(("key", "value"), [(STRING, json(int)), (json(str), LONG)])
def test_not_every_store_counts_by_itself(tmp_path: Path, key: Serde[Any], value: Serde[Any]) -> None:
    """Keys that are stored as bytes, and values that have to be weighed, are for get and put."""
    task = Task([key_value(timestamped=True, key=key, value=value)], tmp_path)
    assert task["s"].count_up is None
    task.close()


@needs_kernel
@pytest.mark.parametrize(("serde", "key"), [(BYTES, b"k"), (INTEGER, 7), (STRING, "k")])
def test_keys_may_be_of_any_plain_type(tmp_path: Path, serde: Serde[Any], key: Any) -> None:
    """Text, bytes, numbers; and a count that has no room for one more is left to Python, which knows no largest number."""
    task = Task([key_value(timestamped=True, key=serde)], tmp_path)
    store = task["s"]
    store.put_entry(key, (1, 5))
    changes: list[Any] = []
    times: list[int] = []
    assert store.count_up([key, key], [b"", b""], [4, 6], 0, changes, times, with_old=True) == 2
    assert (changes, times, store.get_entry(key)) == ([(2, 1), (3, 2)], [5, 6], (3, 6))
    store.put_entry(key, (2**63 - 1, 5))
    assert store.count_up([key], [b""], [4], 0, changes, times, with_old=True) == 0
    task.close()


@pytest.mark.parametrize("way", ["kernel", "python"])
def test_windows_that_have_expired_are_taken_out(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that start at the limit or before, and keys of which nothing is left; keys that are not there do no harm."""
    if way == "python":
        monkeypatch.setattr(_expiry, "HAS_KERNEL", False)
    tracks: dict[Any, dict[int, Any]] = {"a": {1: "x", 5: "x", 6: "x"}, "b": {5: "x"}, "c": {1: "x"}, "d": dict.fromkeys(range(100), "x")}
    assert _expiry.expire(tracks, ["a", "b", "d", "nobody"], 5) == 2 + 1 + 6
    assert tracks == {"a": {6: "x"}, "c": {1: "x"}, "d": dict.fromkeys(range(6, 100), "x")}
