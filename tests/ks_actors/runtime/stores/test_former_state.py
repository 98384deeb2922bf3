"""Directories of former topologies, and of deletions that failed: what is the only copy stays, and the rest goes in the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ks_actors.records import TaskId
from ks_actors.runtime.stores import TaskDirectories
from ks_actors.state import SharedResources, TaskStores
from ks_actors.topology import StoreSpec, stores
from tests.ks_actors.state.custom.test_custom import OnDisk
from tests.ks_actors.state.helpers import key_value
from tests.ks_actors.state.sqlite_engine import SqliteEngine

SECONDS, LATER_MS = 600, 10**9


def fill(directory: Path, *specs: StoreSpec) -> None:
    """Have a task leave a row in each of the stores."""
    task = TaskStores(directory.name, specs, directory=directory, shared=None, record_time=lambda: 0, expired=print)
    task.open()
    for spec in specs:
        store = task.store(spec.name)
        store.put(*((b"k", b"1") if isinstance(store, OnDisk) else ("k", 1)))
    token = task.freeze()
    list(task.changelog(token))
    task.persist_unlogged(token)
    task.publish(token, {spec.name: 1 for spec in specs if spec.logging})
    task.close(clean=True)


class Directories:
    """The directories, at a time that moves on with each cleanup."""

    def __init__(self, root: Path, topology: Mapping[int, list[StoreSpec]]) -> None:
        self.root = root
        self.now = 10**13
        self.all = TaskDirectories(root, lambda: self.now, lambda task: topology.get(task.subtopology))

    def start(self, age_ms: int = -1) -> set[str]:
        self.all.remember(SharedResources(), age_ms)
        return {path.name for path in self.root.iterdir()}

    def set_aside(self) -> list[Path]:
        return self.all.set_old_aside(SECONDS, self.all.look(self.all.old(SECONDS * 1000)))

    def clean_up(self) -> set[str]:
        self.now += LATER_MS
        self.all.delete(self.set_aside())
        return {path.name for path in self.root.iterdir()}


LOGGED = key_value("logged")
KINDS = {
    "rocksdb": lambda logging: key_value("former", type="rocksdb", logging=logging),
    "engine": lambda logging: key_value("former", type=SqliteEngine, logging=logging),
    "custom": lambda logging: stores.custom("former", OnDisk if logging else Silent, logging=logging),
}


class Silent(OnDisk):
    def put(self, key: bytes, value: bytes | None) -> None:
        assert value is not None
        self.file.write_text('{"k": "1"}')


@pytest.mark.parametrize("at_start", [True, False])
@pytest.mark.parametrize("logging", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_only_copy_of_a_former_store_is_kept(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, logging: bool, at_start: bool
) -> None:
    """Whether the topology has the task with other stores or not at all; one warning names the store."""
    fill(tmp_path / "0_0", KINDS[kind](logging), LOGGED)
    fill(tmp_path / "2_0", KINDS[kind](logging), LOGGED)
    disk = Directories(tmp_path, {2: [LOGGED]})
    left = disk.start(0 if at_start else -1)
    if not at_start:
        assert left == {"0_0", "2_0"}
        left = disk.clean_up()
        assert disk.clean_up() == left
    assert left == (set() if logging else {"0_0", "2_0"})
    assert caplog.text.count("it has the only copy of store former, which has no changelog") == (0 if logging else 2)


def test_a_directory_that_cannot_be_read_is_kept_if_the_task_is_unknown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It may have stores without changelog; those of a task of the topology are known."""
    for name in ("0_0", "2_0"):
        fill(tmp_path / name, LOGGED)
        (tmp_path / name / "rocksdb" / "CURRENT").write_text("nonsense")
    disk = Directories(tmp_path, {2: [LOGGED]})
    disk.start()
    assert disk.clean_up() == {"0_0"}
    assert "0_0, the local state of task 0_0, which the topology does not have, is kept" in caplog.text
    assert "task 0_0: the state in" in caplog.text


def test_what_a_failed_deletion_has_left_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next cleanup deletes the directory that is old now, and tries the other one again."""
    fill(tmp_path / "0_0", LOGGED)
    disk = Directories(tmp_path, {0: [LOGGED]})
    disk.start()
    (tmp_path / "0_0.deleted").mkdir()
    (tmp_path / "0_0.deleted" / "rest").touch()
    disk.now += LATER_MS
    aside = disk.set_aside()
    assert {path.name for path in aside} == {"0_0.deleted", "0_0.1.deleted"}
    assert disk.set_aside() == []  # they are being deleted
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", refuse)
        disk.all.delete(aside)
    assert disk.clean_up() == set()
    disk.all.released(TaskId(0, 0), 1)
    assert disk.clean_up() == set()


def test_a_task_that_comes_back_while_its_directory_is_looked_at_keeps_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is said of its deletion; one that becomes old meanwhile waits for the next cleanup."""
    for name in ("0_0", "0_1"):
        fill(tmp_path / name, LOGGED)
    disk = Directories(tmp_path, {0: [LOGGED]})
    disk.start()
    disk.now += LATER_MS
    found = disk.all.look([TaskId(0, 0)])
    disk.all.used(TaskId(0, 0))
    assert disk.all.set_old_aside(SECONDS, found) == []
    assert caplog.text == ""
    assert disk.clean_up() == {"0_0"}


def refuse(path: Path) -> None:
    raise PermissionError(f"{path} is not yours")
