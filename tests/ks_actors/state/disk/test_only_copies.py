"""State that no changelog has is never deleted, nor taken for none, even where the topology does not have it any more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ks_actors import StateError, TaskCorrupted
from ks_actors.state import Ingest, SharedResources, TaskStores, read_checkpoint, stored_offsets
from ks_actors.state.disk import only_copies, unlogged_stores
from ks_actors.topology import stores
from ks_actors.topology._stores import StoreSpec
from tests.ks_actors.state.custom.test_custom import OnDisk
from tests.ks_actors.state.helpers import Task, key_value
from tests.ks_actors.state.sqlite_engine import SqliteEngine
from tests.layouts import OWN


def closed(task: Task) -> Path:
    """Commit and close the stores of a task; return its directory."""
    token = task.stores.freeze()
    task.accept(task.log(token))
    task.stores.persist_unlogged(token)
    task.stores.publish(token, task.ends())
    task.stores.close(clean=True)
    assert task.directory is not None
    return task.directory


def filled(tmp_path: Path, *specs: StoreSpec) -> Path:
    """Return the directory of a closed task whose stores have a row each."""
    task = Task([key_value("first")], tmp_path)
    task.stores.close(clean=False)
    task.specs = list(specs)
    task.logs = {spec.name: [] for spec in specs if spec.logging}
    task.open()
    for spec in specs:
        store = task[spec.name]
        store.put(*((b"k", b"1") if isinstance(store, OnDisk) else ("k", 1)))
    return closed(task)


def stores_of(directory: Path, *specs: StoreSpec) -> TaskStores:
    return TaskStores("0_3", specs, directory=directory, shared=None, record_time=lambda: 0, expired=print)


LOCAL, LOGGED = key_value("local", type="rocksdb", logging=False), key_value("logged", type="rocksdb")


@OWN
def test_stores_without_changelog_are_told_from_the_others(tmp_path: Path) -> None:
    """By the list of the database's stores; by the checkpoint file for engines and custom stores, which have none."""
    shared = SharedResources()
    engines = [key_value("e", type=SqliteEngine), key_value("only", type=SqliteEngine, logging=False)]
    directory = filled(tmp_path, LOCAL, LOGGED, *engines, stores.custom("c", OnDisk), key_value("m", type="in_memory", logging=False))
    assert unlogged_stores("0_3", directory, shared) == ["local"]
    assert only_copies("0_3", directory, shared, ()) == ["local", "only"]
    assert only_copies("0_3", directory, shared, ("local", "only")) == []
    assert only_copies("0_3", tmp_path, shared, ()) == ["0_3"]  # a directory with files, of which nothing is known
    (tmp_path / "1_0").mkdir()
    assert only_copies("1_0", tmp_path / "1_0", shared, ()) == []


@OWN
def test_the_only_copy_of_a_former_store_is_not_deleted_with_the_database(tmp_path: Path) -> None:
    """Neither when the state is given up, nor when rows from elsewhere replace it."""
    directory = filled(tmp_path, LOCAL, LOGGED)
    now = stores_of(directory, LOGGED)
    now.open()
    now.close(clean=True)
    with pytest.raises(StateError, match=r"store local of task 0_3 has no changelog.*: it is wrong"):
        now.give_up("it is wrong")
    with pytest.raises(StateError, match=r"cannot be replaced: it has the only copy of store local"):
        Ingest("0_3", directory, SharedResources(), [LOGGED])
    before = stores_of(directory, LOCAL, LOGGED)
    before.open()
    assert before.store("local").get("k") == 1
    before.close(clean=True)


@OWN
def test_what_cannot_be_read_is_given_up(tmp_path: Path) -> None:
    """Of a database that is damaged nothing is known, and its other stores have to be restored; other engines stay."""
    directory = filled(tmp_path, LOCAL, LOGGED, key_value("e", type=SqliteEngine), key_value("f", type=SqliteEngine))
    (directory / "rocksdb" / "CURRENT").write_text("nonsense")
    now = stores_of(directory, LOGGED, key_value("e", type=SqliteEngine))
    with pytest.raises(TaskCorrupted):
        now.open()
    with pytest.raises(StateError):
        only_copies("0_3", directory, SharedResources(), ())
    now.give_up("it is damaged")
    assert not (directory / "rocksdb").exists()
    assert {path.name for path in (directory / "engines").iterdir() if path.is_dir()} == {"f"}


@OWN
@pytest.mark.parametrize("spec", [LOCAL, LOGGED])
def test_a_manifest_that_is_cut_off_is_damage(spec: StoreSpec, tmp_path: Path) -> None:
    """The store does not open as an empty one; the tables of a store without changelog are still there."""
    task = Task([spec], tmp_path)
    task[spec.name].put("k", 1)
    directory = closed(task)
    database = directory / "rocksdb"
    (manifest,) = database.glob("MANIFEST-*")
    files, content = {path: path.read_bytes() for path in database.iterdir()}, manifest.read_bytes()
    tables = {path: data for path, data in files.items() if path.suffix == ".sst"}
    assert tables
    found = set[str]()
    for length in range(1, len(content), 4):
        for path, data in files.items():
            path.write_bytes(data)
        manifest.write_bytes(content[:length])
        task.stores = task.make()
        try:
            task.stores.open()
        except TaskCorrupted as error:
            found.add("cut off" if "tables that are not in its MANIFEST" in str(error) else "other")
        else:
            assert task[spec.name].get("k") == 1
            task.close()
            continue
        assert spec is LOGGED or {path: path.read_bytes() for path in database.glob("*.sst")} == tables
    assert "cut off" in found


@OWN
def test_state_that_must_not_be_read_is_told_of(tmp_path: Path) -> None:
    """A StateError names the file or the directory; nothing is known of it before the opening."""
    directory = filled(tmp_path, LOGGED)
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and not path.stat().st_mode & 1:
            path.chmod(0o755)
    for path in (directory, *directory.rglob("*")):
        os.chown(path, 65534, 65534)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        for forbidden in (directory / ".checkpoint", directory):
            mode = forbidden.stat().st_mode
            forbidden.chmod(0)
            assert stored_offsets(directory, SharedResources()) == ({"logged": 1} if forbidden != directory else {})
            with pytest.raises(StateError, match="Permission denied") as raised:
                stores_of(directory, LOGGED).open()
            assert str(forbidden) in str(raised.value)
            forbidden.chmod(mode)
        now = stores_of(directory, LOGGED)
        now.open()
        now.close(clean=True)
    finally:
        if root:
            os.seteuid(0)
    assert read_checkpoint(directory) == {("logged", 3): 1}
