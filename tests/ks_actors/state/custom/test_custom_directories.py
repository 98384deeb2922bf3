"""The directories of custom stores: their names, their loss, and what is left of them after failures."""

from __future__ import annotations

import fcntl
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ks_actors import StateError, StateStoreContext
from ks_actors.state import read_checkpoint, write_checkpoint
from ks_actors.state.disk import CheckpointFile
from ks_actors.topology import stores
from ks_actors.topology._stores import StoreSpec
from tests.ks_actors.state.custom.test_custom import InMemory, OnDisk, Transactional
from tests.ks_actors.state.helpers import Task, key_value
from tests.ks_actors.state.sqlite_engine import SqliteEngine
from tests.layouts import OWN

PERSISTENT = (OnDisk, Transactional)
TAKEN = ("rocksdb", "RocksDB", "engines", "rocksdb.ingest", ".checkpoint", ".s.open", ".s.left")


def opened(tmp_path: Path, *specs: StoreSpec) -> Task:
    task = Task([key_value("former")], tmp_path)
    task.stores.close(clean=False)
    again(task, *specs)
    return task


def again(task: Task, *specs: StoreSpec, unfit: dict[str, str] | None = None) -> None:
    task.specs = list(specs) or task.specs
    task.logs = {spec.name: task.logs.get(spec.name, []) for spec in task.specs if spec.logging}
    task.stores = task.make()
    task.stores.unfit = unfit or {}
    task.stores.open()


def place(task: Task) -> Path:
    assert task.directory is not None
    return task.directory


@pytest.mark.parametrize("kind", PERSISTENT)
@pytest.mark.parametrize("name", TAKEN)
def test_a_store_with_a_name_that_the_task_uses_itself_has_a_directory_of_its_own(name: str, kind: type[OnDisk], tmp_path: Path) -> None:
    """To give it up deletes nothing of the database, of engines, or of the task's files."""
    others = [key_value("local", type="rocksdb", logging=False), key_value("e", type=SqliteEngine), stores.custom("s", OnDisk)]
    task = opened(tmp_path, *others, stores.custom(name, kind))
    for store in ("local", "e"):
        task[store].put("k", 1)
    task["s"].put(b"k", b"1")
    task[name].put(b"k", b"1")
    token = task.stores.freeze()
    task.accept(task.log(token))
    task.stores.persist_unlogged(token)
    task.stores.publish(token, task.ends())
    assert task.reopen() == 0
    assert task[name].data == {b"k": b"1"}
    task.stores.close(clean=True)
    again(task, unfit={name: "it is unfit"})
    assert task[name].data == {}
    assert (task["local"].get("k"), task["e"].get("k"), task["s"].data) == (1, 1, {b"k": b"1"})
    task.close()


@pytest.mark.parametrize("name", ["rocksdb", "engines"])
@pytest.mark.parametrize("logging", [True, False])
def test_a_directory_of_an_earlier_layout_is_moved(name: str, tmp_path: Path, *, logging: bool) -> None:
    """The store keeps what it has, and whether it was left open."""
    spec = stores.custom(name, OnDisk if logging else Unlogged, logging=logging)
    task = opened(tmp_path, spec)
    task[name].data = {b"k": b"1"}
    task[name].commit({})
    task.stores.close(clean=True)
    shutil.rmtree(place(task) / "rocksdb", ignore_errors=True)
    (place(task) / f"{name}~").rename(place(task) / name)
    if logging:
        write_checkpoint(place(task), {(name, 3): 1})
    (place(task) / f".{name}.open").touch()
    again(task, spec, key_value(type="rocksdb"))
    assert task[name].data == {b"k": b"1"}
    assert not (place(task) / f".{name}.open").exists()
    assert (place(task) / f".{name}~.open").exists()
    task.close()


@OWN
def test_the_only_copy_of_a_store_among_the_files_of_the_database_is_refused(tmp_path: Path) -> None:
    """The error names the files and their new place; moved there they are found."""
    spec = stores.custom("rocksdb", Unlogged, logging=False)
    task = opened(tmp_path, spec, key_value(type="rocksdb"))
    task["rocksdb"].data = {b"k": b"1"}
    task["rocksdb"].commit({})
    task.stores.close(clean=True)
    own, shared = place(task) / "rocksdb~", place(task) / "rocksdb"
    (own / "data.json").rename(shared / "data.json")
    own.rmdir()
    with pytest.raises(StateError, match=rf"store rocksdb has its only copy in .*: move its own files \(data.json\) to {re.escape(str(own))}"):
        again(task)
    own.mkdir()
    (shared / "data.json").rename(own / "data.json")
    again(task)
    assert task["rocksdb"].data == {b"k": b"1"}
    task.close()


class Unlogged(OnDisk):
    def init(self, context: StateStoreContext) -> None:
        context.register = lambda _: None  # type: ignore[method-assign,assignment]  # as without changelog it may not
        super().init(context)

    def take(self, batch: Any) -> None:
        raise AssertionError


@pytest.mark.parametrize("kind", PERSISTENT)
def test_an_unfit_store_begins_without_an_offset(kind: type[OnDisk], tmp_path: Path) -> None:
    """The offset in the checkpoint file, which is not in the changelog, is not taken over, now or after a crash."""
    task = opened(tmp_path, stores.custom("c", kind))
    task["c"].put(b"k", b"1")
    task.commit()
    task.stores.close(clean=True)
    assert read_checkpoint(place(task)) == {("c", 3): 1}
    again(task, unfit={"c": "it is beyond its changelog"})
    assert (task.stores.next_offset("c"), task["c"].data) == (None, {})
    task.stores.close(clean=False)
    again(task)
    assert task.stores.next_offset("c") is None
    task.close()


def test_an_unfit_store_that_keeps_its_data_elsewhere_begins_without_an_offset(tmp_path: Path) -> None:
    """The store still tells the offset that made it unfit: it would be given up for ever."""

    class Elsewhere(InMemory):
        persistent = manages_offsets = True

        def committed_offset(self, partition: Any) -> int | None:
            return 7

    task = opened(tmp_path, stores.custom("c", Elsewhere))
    assert task.stores.next_offset("c") == 7
    task.stores.close(clean=True)
    again(task, unfit={"c": "it is beyond its changelog"})
    assert task.stores.next_offset("c") is None
    task.close()


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("kind", PERSISTENT)
def test_a_store_whose_files_were_deleted_is_restored(kind: type[OnDisk], tmp_path: Path, *, whole: bool) -> None:
    """The offset in the checkpoint file is that of the files."""
    task = opened(tmp_path, stores.custom("c", kind))
    task["c"].put(b"k", b"1")
    task.commit()
    task.stores.close(clean=True)
    shutil.rmtree(place(task) / "c")
    if not whole:
        (place(task) / "c").mkdir()
    again(task)
    assert task.stores.next_offset("c") is None
    assert task.restore() == 1
    assert task["c"].data == {b"k": b"1"}
    task.close()


class Locking(InMemory):
    """A store with a lock, which may fail on opening and on closing."""

    fails: str = ""

    def init(self, context: StateStoreContext) -> None:
        super().init(context)
        assert context.directory is not None
        self.lock = (context.directory / "lock").open("w")
        fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if self.fails == "init":
            raise ValueError("this cannot be opened")

    def close(self) -> None:
        self.lock.close()
        if self.fails == "close":
            raise ValueError("this cannot be closed")


def locking(*fails: str) -> Callable[[], Locking]:
    """Return a supplier whose stores fail, one after the other, in these places."""
    places = iter(fails)

    def made() -> Locking:
        store = Locking()
        store.fails = next(places, "")
        return store

    return made


def test_a_custom_store_that_fails_to_close_leaves_nothing_locked(tmp_path: Path) -> None:
    """Neither the database nor other stores: its error is raised when all of them are closed."""
    specs = [stores.custom("a", locking("close")), key_value(type="rocksdb"), stores.custom("z", locking("close"))]
    task = opened(tmp_path, *specs)
    with pytest.raises(ValueError, match="this cannot be closed"):
        task.stores.close(clean=True)
    failed = task.stores
    again(task)
    assert failed is not task.stores
    task.close()


@pytest.mark.parametrize("first", ["init", "close"])
def test_a_failed_opening_leaves_nothing_locked(first: str, tmp_path: Path) -> None:
    """The stores that were open by then are closed, and so is the one that failed; the first error is raised."""
    task = opened(tmp_path, key_value(type="rocksdb"))
    task.stores.close(clean=True)
    suppliers = (locking(first if first == "close" else ""), locking("init"))
    specs = [stores.custom("a", suppliers[0]), key_value(type="rocksdb"), stores.custom("b", suppliers[1])]
    with pytest.raises(ValueError, match="this cannot be opened") as raised:
        again(task, *specs)
    failed = task.stores
    notes = getattr(raised.value, "__notes__", [])
    assert notes == (["and its stores cannot be closed: ValueError: this cannot be closed"] if first == "close" else [])
    with pytest.raises(StateError, match="it is not open"):
        failed.store("a")
    again(task)
    task.close()


@OWN
def test_a_store_that_is_given_up_does_not_come_back_at_its_old_offset(tmp_path: Path) -> None:
    """Though the opening that gave it up ends by an error, before the checkpoint file is written."""
    task = opened(tmp_path, key_value(type="rocksdb"), key_value("t", type="rocksdb"))
    for store in ("s", "t"):
        task[store].put("k", 1)
    task.commit()
    task.stores.close(clean=True)
    changed = key_value(type="rocksdb", timestamped=True)
    with pytest.raises(ValueError, match="this cannot be opened"):
        again(task, changed, key_value("t", type="rocksdb"), stores.custom("c", locking("init")))
    assert read_checkpoint(place(task)) == {("t", 3): 1}
    write_checkpoint(place(task), {("t", 3): 1, ("s", 3): 1})  # as an earlier version has left it
    again(task, changed, key_value("t", type="rocksdb"))
    assert (task.stores.next_offset("s"), task.stores.next_offset("t")) == (None, 1)
    task.close()


def test_an_offset_is_forgotten_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The whole file goes where a shorter one finds no room: the other stores without offsets are restored, none is wrong."""
    file = CheckpointFile("0_3", tmp_path, {})
    write_checkpoint(tmp_path, {("a", 3): 1, ("b", 3): 2})
    file.forget("c")
    file.forget("a")
    assert read_checkpoint(tmp_path) == {("b", 3): 2}

    def full(path: Path, text: str) -> int:
        raise OSError(28, f"No space left on device: {path}, {len(text)}")

    write_checkpoint(tmp_path, {("a", 3): 1, ("b", 3): 2})
    monkeypatch.setattr(Path, "write_text", full)
    file.forget("a")
    assert read_checkpoint(tmp_path) == {}
    assert "stores without stored offsets are restored: the checkpoint file" in caplog.text


def test_a_position_file_is_not_taken_for_a_store_of_that_name(tmp_path: Path) -> None:
    """A custom store may be called `s.position`, beside a store `s`."""
    task = opened(tmp_path, key_value(type="rocksdb"), stores.custom("s.position", OnDisk))
    task.stores.close(clean=True)
    again(task)
    assert (place(task) / "s.position").is_dir()
    task.close()
