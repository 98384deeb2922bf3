"""One database for all tasks: a task's rows are its own, whatever happens to those of the others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ks_actors import StateError, StateFull, StateLocked, TaskCorrupted
from ks_actors.records._batch import Batch
from ks_actors.serdes import LONG, STRING
from ks_actors.state import CheckpointRows, Ingest, SharedResources, TaskStores, attach, stored_offsets
from ks_actors.state.disk import RocksEngine, SharedDatabase, only_copies, unlogged_stores
from ks_actors.testing._disk import copy_as_is
from ks_actors.topology._stores import StoreKind, StoreSpec
from tests.waiting import PATIENCE_S

SPECS = [StoreSpec(name="s", kind=StoreKind.TIMESTAMPED_KEY_VALUE, key=STRING, value=LONG, type="rocksdb")]
LOCAL = [*SPECS, StoreSpec(name="u", kind=StoreKind.KEY_VALUE, key=STRING, value=LONG, type="rocksdb", logging=False)]
ROWS = 20


@contextmanager
def resources(root: Path, layout: str = "shared", specs: list[StoreSpec] = SPECS) -> Iterator[SharedResources]:
    shared = SharedResources()
    try:
        attach(shared, root, specs, layout=layout)
        yield shared
    finally:
        shared.close()


def stores_of(root: Path, name: str, shared: SharedResources | None, specs: list[StoreSpec] = SPECS) -> TaskStores:
    return TaskStores(name, specs, directory=root / name, shared=shared, record_time=lambda: 0, expired=print)


def opened(root: Path, name: str, shared: SharedResources | None, specs: list[StoreSpec] = SPECS) -> TaskStores:
    stores = stores_of(root, name, shared, specs)
    stores.open()
    return stores


def put(stores: TaskStores, round_: int) -> None:
    """Put all rows with the number of the round, and commit; the changelog's end is the number of puts."""
    for store in stores.names:
        for key in range(ROWS):
            if store == "s":
                stores.store(store).put_entry(f"{key:03}", (round_, round_))
            else:
                stores.store(store).put(f"{key:03}", round_)
    token = stores.freeze({("in", 0): round_})
    list(stores.changelog(token))
    stores.persist_unlogged(token)
    stores.publish(token, {"s": round_ * ROWS})


def open_files() -> int:
    files = Path("/proc/self/fd")
    return sum(1 for _ in files.iterdir()) if files.exists() else 0


def rounds(stores: TaskStores) -> set[int]:
    return {value for _, (value, _) in stores.store("s").all()}


def fill(root: Path, layout: str, tasks: int = 3, specs: list[StoreSpec] = SPECS) -> None:
    """Have each task commit a round and close."""
    with resources(root, layout, specs) as shared:
        for number in range(tasks):
            stores = opened(root, f"0_{number}", shared, specs)
            put(stores, number + 1)
            stores.close(clean=True)


def found(root: Path, layout: str, tasks: int = 3, specs: list[StoreSpec] = SPECS) -> list[tuple[set[int], int | None]]:
    """Return the rounds and the offset of each task."""
    with resources(root, layout, specs) as shared:
        result = []
        for number in range(tasks):
            stores = opened(root, f"0_{number}", shared, specs)
            result.append((rounds(stores), stores.next_offset("s")))
            stores.close(clean=True)
        return result


EXPECTED: list[tuple[set[int], int | None]] = [({number}, number * ROWS) for number in (1, 2, 3)]


# --- flushes ----------------------------------------------------------------------------------------------------------------------


def test_no_task_is_ahead_of_its_offsets_at_any_step_of_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process killed at any step, just after a neighbour has flushed all rows in memory: replay from the offset gives the committed state."""
    root, image = tmp_path / "app", tmp_path / "image"
    for module in ("_transactional", "_row_scan"):
        monkeypatch.setattr(f"ks_actors.state.core.{module}.ROWS", 3, raising=False)
    monkeypatch.setattr("ks_actors.state.key_value._table.ROWS", 3, raising=False)
    steps, ahead = 0, 0
    with resources(root) as shared:
        assert shared.database is not None
        tasks = [opened(root, f"0_{number}", shared) for number in range(2)]
        for round_ in (1, 2):
            for stores in tasks:
                put(stores, round_)
                for _ in stores.flush_steps():
                    steps += 1
                    shared.database._engine.flush(wait=True)
                    copy_as_is(root, image)
                    with resources(image) as crashed:
                        for number in range(2):
                            restored = opened(image, f"0_{number}", crashed)
                            at = (restored.next_offset("s") or 0) // ROWS
                            values = [entry for key in range(ROWS) if (entry := restored.store("s").get_entry(f"{key:03}"))]
                            assert all(value >= at for value, _ in values)
                            assert len(values) == ROWS or not at
                            ahead += any(value > at for value, _ in values)
                            for replayed in range(at + 1, round_ + 1):
                                keys = [b"%03d" % key for key in range(ROWS)]
                                restored.restore("s", Batch(keys, [replayed.to_bytes(8, "big")] * ROWS, [replayed] * ROWS), replayed * ROWS)
                            assert rounds(restored) == {round_}
                            restored.close(clean=False)
        for stores in tasks:
            stores.close(clean=False)
    assert steps > 4
    assert ahead, "no step had rows on disk before their offset"


def test_tasks_share_a_flush(tmp_path: Path) -> None:
    """Those that ask within a second; the last task that closes flushes all, and no other."""
    with resources(tmp_path) as shared:
        tasks = [opened(tmp_path, f"0_{number}", shared) for number in range(20)]
        for stores in tasks:
            put(stores, 1)
            for _ in stores.flush_steps():
                pass
        database: Any = shared.database
        database._engine.flush(wait=True)
        assert len(list(database.directory.glob("*.sst"))) <= 2
        for stores in tasks:
            put(stores, 2)
        for stores in tasks[1:]:
            stores.close(clean=True)
        assert int(database._engine._data.property_int_value("rocksdb.num-entries-active-mem-table"))
        tasks[0].close(clean=True)
        assert not int(database._engine._data.property_int_value("rocksdb.num-entries-active-mem-table"))
        assert len(list(database.directory.glob("*.sst"))) <= 3


# --- tasks beside one another -------------------------------------------------------------------------------------------------------


def test_a_wiped_task_leaves_all_others_untouched(tmp_path: Path) -> None:
    """While they are open and in the middle of commits, and after a crash; its space is freed by a merge."""
    root, image = tmp_path / "app", tmp_path / "image"
    fill(root, "shared", 100)
    with resources(root) as shared:
        assert shared.database is not None
        others = {number: opened(root, f"0_{number}", shared) for number in range(100) if number != 17}
        wiped = stores_of(root, "0_17", shared)
        wiped.give_up("the test says so")
        assert stored_offsets(root / "0_17", shared) == {}
        copy_as_is(root, image)
        shared.database.compact(["0_17"])
        for number, stores in others.items():
            assert (rounds(stores), stores.next_offset("s")) == ({number + 1}, (number + 1) * ROWS)
        wiped.open()
        assert list(wiped.store("s").all()) == []
        put(wiped, 7)
        assert shared.database.tasks() == sorted(f"0_{number}" for number in range(100))
        for stores in (*others.values(), wiped):
            stores.close(clean=True)
    with resources(image) as shared:
        assert shared.database is not None
        assert shared.database.tasks() == sorted(f"0_{number}" for number in range(100) if number != 17)
    assert found(root, "shared", 17) == [({number}, number * ROWS) for number in range(1, 18)]


def test_rows_are_wiped_without_a_directory(tmp_path: Path) -> None:
    """A user has deleted it, and rows without it would come back."""
    fill(tmp_path, "shared")
    shutil.rmtree(tmp_path / "0_1")
    with resources(tmp_path) as shared:
        stores_of(tmp_path, "0_1", shared).give_up("the test says so")
        assert shared.database.tasks() == ["0_0", "0_2"]
    assert found(tmp_path, "shared") == [EXPECTED[0], (set(), None), EXPECTED[2]]


def test_a_task_is_open_once(tmp_path: Path) -> None:
    """Two openings would write the same rows; another process cannot open the database at all."""
    with resources(tmp_path) as shared:
        stores = opened(tmp_path, "0_0", shared)
        with pytest.raises(StateLocked, match=r"task 0_0: the state in .* is in use by another"):
            opened(tmp_path, "0_0", shared)
        opened(tmp_path, "0_00", shared).close(clean=True)  # the name only begins alike
        code = (
            "import sys; from pathlib import Path; from ks_actors.state import *; attach(SharedResources(), Path(sys.argv[1]), (), layout='shared')"
        )
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)  # noqa: S603 - our own
        assert "StateLocked: the state of all tasks in" in done.stderr
        stores.close(clean=True)
        opened(tmp_path, "0_0", shared).close(clean=True)


def test_offsets_are_known_without_opening_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all tasks come from the one that is open, which has few files."""
    fill(tmp_path, "shared", 100)
    before = open_files()
    with resources(tmp_path) as shared:
        assert shared.database is not None
        monkeypatch.setattr(RocksEngine, "__init__", lambda *_, **__: pytest.fail("a database was opened"))
        for number in range(100):
            assert stored_offsets(tmp_path / f"0_{number}", shared) == {"s": (number + 1) * ROWS}
        tasks = [opened(tmp_path, f"0_{number}", shared) for number in range(100)]
        assert open_files() - before < 50
        for stores in tasks:
            stores.close(clean=True)
    assert not (tmp_path / "0_5" / ".checkpoint").exists()


def test_a_copy_for_a_snapshot_has_the_rows_of_its_task(tmp_path: Path) -> None:
    """And its offset; the rows of the others in the copy are not read."""
    with resources(tmp_path / "app") as shared:
        tasks = [opened(tmp_path / "app", f"0_{number}", shared) for number in range(3)]
        for number, stores in enumerate(tasks):
            put(stores, number + 1)
            for _ in stores.point_steps():
                pass
        for number, stores in enumerate(tasks):
            stores.checkpoint(tmp_path / f"copy {number}")
            with CheckpointRows(f"0_{number}", tmp_path / f"copy {number}", shared) as rows:
                assert rows.next_offset("s") == (number + 1) * ROWS
                assert [time for batch in rows.batches(SPECS[0]) for time in batch.timestamps] == [number + 1] * ROWS
            stores.close(clean=True)


def test_a_database_is_not_closed_amid_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleanup may merge while the app closes: it ends with the range that it is at, and the rest is left to RocksDB."""
    fill(tmp_path, "shared")
    begun, go_on = threading.Event(), threading.Event()
    merged: list[bytes] = []
    real = RocksEngine.compact

    def compact(engine: RocksEngine, low: bytes, high: bytes) -> None:
        merged.append(low)
        begun.set()
        assert go_on.wait(PATIENCE_S)
        real(engine, low, high)

    monkeypatch.setattr(RocksEngine, "compact", compact)
    shared = SharedResources()
    attach(shared, tmp_path, SPECS, layout="shared")
    database: SharedDatabase = shared.database
    merging = threading.Thread(target=database.compact, args=(["0_1", "0_2"],))
    merging.start()
    assert begun.wait(PATIENCE_S)
    closing = threading.Thread(target=shared.close)
    closing.start()
    while not database._closing:
        closing.join(0.001)
    go_on.set()
    for thread in (merging, closing):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert merged == [b"0_1/"]
    assert found(tmp_path, "shared") == EXPECTED


def test_a_closed_task_says_nothing_about_the_database(tmp_path: Path) -> None:
    """Its use is an error of the caller, after which no other task has to be closed."""
    with resources(tmp_path) as shared:
        part = shared.database.take("0_0", tmp_path / "0_0", None)
        part.close()
        with pytest.raises(StateError, match=r"task 0_0: the state in .* cannot be used"):
            part.get(b"k")
        assert not shared.database.failed


def test_a_task_whose_directory_refuses_its_time_can_be_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time only says how long the task has not been used."""

    def utime(*_: object) -> None:
        raise PermissionError("this is not yours")

    with resources(tmp_path) as shared:
        stores = opened(tmp_path, "0_0", shared)
        monkeypatch.setattr(os, "utime", utime)
        for _ in range(2):
            stores.close(clean=True)
            stores.open()
        stores.close(clean=True)


# --- the two layouts ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layouts", [("task", "shared"), ("shared", "task")], ids=" to ".join)
def test_state_of_the_other_layout_is_converted(tmp_path: Path, layouts: tuple[str, str]) -> None:
    """Task by task as they open, with nothing restored; the other place is empty then."""
    before, now = layouts
    fill(tmp_path, before)
    with resources(tmp_path, now) as shared:
        assert stored_offsets(tmp_path / "0_1", shared) == {"s": 2 * ROWS}
    assert found(tmp_path, now) == EXPECTED
    own = [path.parent.name for path in tmp_path.glob("*/rocksdb")]
    assert sorted(own) == ([] if now == "shared" else ["0_0", "0_1", "0_2"])
    assert (tmp_path / "shared").exists() == (now == "shared")
    assert found(tmp_path, now) == found(tmp_path, before) == found(tmp_path, now) == EXPECTED


@pytest.mark.parametrize("layouts", [("task", "shared"), ("shared", "task")], ids=" to ".join)
def test_a_conversion_that_is_killed_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layouts: tuple[str, str]) -> None:
    """At any step, with either layout at the next start."""
    before, now = layouts
    root = tmp_path / "app"
    fill(root, before)
    images: list[Path] = []

    def watch(owner: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            result = real(*args, **options)
            images.append(tmp_path / f"image {len(images)}")
            copy_as_is(root, images[-1])
            return result

        monkeypatch.setattr(owner, name, watched)

    monkeypatch.setattr("ks_actors.state.disk._shared_database.SLICE", 7)
    with monkeypatch.context() as patch:
        for owner, name in ((RocksEngine, "write"), (RocksEngine, "flush"), (Path, "rename")):
            watch(owner, name)
        found(root, now)
        patch.undo()
    monkeypatch.undo()
    assert len(images) > 15
    for image in images:
        for layout in layouts:
            again = shutil.copytree(image, tmp_path / "again")
            assert found(again, layout) == EXPECTED, (image, layout)
            shutil.rmtree(again)


def test_a_conversion_says_why_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first error is raised, not one of what was closed before it; the next opening converts."""

    def rename(*_: object) -> None:
        raise PermissionError("this is not yours")

    fill(tmp_path, "task")
    with resources(tmp_path) as shared:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", rename)
            with pytest.raises(StateError, match=r"task 0_0: the state in .* cannot be used: this is not yours"):
                opened(tmp_path, "0_0", shared)
        opened(tmp_path, "0_0", shared).close(clean=True)
    assert found(tmp_path, "shared") == EXPECTED


def test_what_a_killed_conversion_leaves_is_deleted(tmp_path: Path) -> None:
    """When the task opens, since its rows are in the database of all tasks by then."""
    fill(tmp_path, "shared")
    left = tmp_path / "0_1" / "rocksdb.ingest"
    left.mkdir()
    (left / "000001.sst").write_text("left")
    assert found(tmp_path, "shared") == EXPECTED
    assert not left.exists()


def test_a_snapshot_takes_the_place_of_the_rows(tmp_path: Path) -> None:
    """It is built beside them, and moved in when the task opens; the only copy of a store is not replaced."""
    fill(tmp_path, "shared", specs=LOCAL)
    with resources(tmp_path, specs=LOCAL) as shared:
        assert unlogged_stores("0_1", tmp_path / "0_1", shared) == only_copies("0_1", tmp_path / "0_1", shared, ()) == ["u"]
        with pytest.raises(StateError, match="cannot be replaced: it has the only copy of store u"):
            Ingest("0_1", tmp_path / "0_1", shared, SPECS)
    shutil.rmtree(tmp_path / "shared")
    fill(tmp_path, "shared")
    with resources(tmp_path) as shared:
        with Ingest("0_1", tmp_path / "0_1", shared, SPECS) as ingest:
            writer = ingest.store(SPECS[0])
            writer.write(Batch([b"000"], [(9).to_bytes(8, "big")], [9]))
            writer.end(9 * ROWS)
            ingest.finish("the test says so")
        assert stored_offsets(tmp_path / "0_1", shared) == {"s": 9 * ROWS}
    assert found(tmp_path, "shared") == [EXPECTED[0], ({9}, 9 * ROWS), EXPECTED[2]]


# --- damage -------------------------------------------------------------------------------------------------------------------------


def test_a_task_that_finds_damage_gets_a_database_of_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The others go on; the next start deletes the damaged one, and keeps what is in the other."""
    fill(tmp_path, "shared")
    with resources(tmp_path) as shared:
        tasks = [opened(tmp_path, f"0_{number}", shared) for number in range(2)]
        engine: Any = tasks[1]._engine
        with pytest.raises(TaskCorrupted, match=r"task 0_1: the state in .* is damaged"):
            engine._refuse(Exception("Corruption: block checksum mismatch"))
        tasks[1].close(clean=True)
        tasks[1].open()
        assert list(tasks[1].store("s").all()) == []
        put(tasks[1], 5)
        put(tasks[0], 4)
        assert rounds(tasks[0]) == {4}
        new = opened(tmp_path, "1_0", shared)
        assert (tmp_path / "1_0" / "rocksdb").exists()
        for stores in (*tasks, new):
            stores.close(clean=True)
    assert found(tmp_path, "shared") == [(set(), None), ({5}, 5 * ROWS), (set(), None)]
    assert "the local state of all tasks, in" in caplog.text
    assert not list(tmp_path.glob("*/rocksdb/CURRENT")) or (tmp_path / "1_0" / "rocksdb").exists()


def damage_a_block(root: Path) -> None:
    """Damage the first rows of some tasks, in a database with one table, and not the rows in front of these."""
    with resources(root) as shared:
        shared.database._engine.compact(b"", b"\xff")
    (table,) = (root / "shared").glob("*.sst")
    data = bytearray(table.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 8] = bytes(byte ^ 255 for byte in data[middle : middle + 8])
    table.write_bytes(data)


@pytest.mark.parametrize("layout", ["shared", "task"])
def test_damage_in_front_of_a_task_stops_no_start(tmp_path: Path, layout: str, caplog: pytest.LogCaptureFixture) -> None:
    """The list of tasks finds it, and the database is deleted and restored; one with an only copy is kept, with an error."""
    fill(tmp_path, "shared", 40)
    damage_a_block(tmp_path)
    with pytest.raises(StateError, match=r"store u has no changelog, and its only copy, in .*shared, cannot be used: .*Corruption"):
        attach(SharedResources(), tmp_path, LOCAL, layout=layout)
    assert found(tmp_path, layout) == [(set(), None)] * 3
    assert "the local state of all tasks, in" in caplog.text


def test_damage_that_the_list_of_tasks_finds_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the next start."""
    with resources(tmp_path) as shared:
        with monkeypatch.context() as patch:
            patch.setattr(RocksEngine, "scan", lambda engine, *_: engine._refuse(Exception("Corruption: block checksum mismatch")))
            with pytest.raises(TaskCorrupted):
                shared.database.tasks()
        assert "checksum" in (tmp_path / "shared" / "DAMAGED").read_text()


def test_a_reopening_that_finds_damage_begins_a_new_database(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As a start does, so the tasks are restored in the same run."""
    fill(tmp_path, "shared")
    with resources(tmp_path) as shared:
        database: SharedDatabase = shared.database
        with pytest.raises(StateFull):
            database._engine._refuse(Exception("IO error: No space left on device"))
        (tmp_path / "shared" / "CURRENT").write_text("nothing")
        stores = opened(tmp_path, "0_0", shared)
        assert rounds(stores) == set()
        put(stores, 7)
        stores.close(clean=True)
        assert (database.failed, database.damage, database.tasks()) == (False, "", ["0_0"])
    assert "the local state of all tasks, in" in caplog.text
    assert found(tmp_path, "shared", 1) == [({7}, 7 * ROWS)]


def test_a_reopening_without_room_leaves_the_offsets_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each next opening of a task tries again, and claims no loss."""

    def full(_: SharedDatabase) -> None:
        raise StateFull("the disk is full")

    fill(tmp_path, "shared")
    with resources(tmp_path) as shared:
        database: SharedDatabase = shared.database
        with pytest.raises(StateFull):
            database._engine._refuse(Exception("IO error: No space left on device"))
        with monkeypatch.context() as patch:
            patch.setattr(SharedDatabase, "_opened", full)
            for _ in range(2):
                with pytest.raises(StateFull, match="the disk is full"):
                    opened(tmp_path, "0_0", shared)
                assert database.offsets("0_1") == {"s": 2 * ROWS}
                assert database.failed
        stores = opened(tmp_path, "0_0", shared)
        assert (rounds(stores), database.failed) == ({1}, False)
        stores.close(clean=True)
    assert "are not on disk" not in caplog.text
    assert found(tmp_path, "shared") == EXPECTED


def test_a_damaged_database_with_an_only_copy_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whether it can be opened or not."""
    fill(tmp_path, "shared", specs=LOCAL)
    marker = tmp_path / "shared" / "DAMAGED"
    marker.write_text("the test says so")
    assert found(tmp_path, "shared", specs=LOCAL) == EXPECTED
    assert "is kept, because it has the only copy of store u" in caplog.text
    marker.unlink()
    (tmp_path / "shared" / "CURRENT").write_text("nothing")
    with pytest.raises(StateError, match=r"store u has no changelog, and its only copy, in .*shared, cannot be used: .*Put back a copy"):
        attach(SharedResources(), tmp_path, LOCAL, layout="shared")


def test_a_manifest_that_is_cut_off_is_damage(tmp_path: Path) -> None:
    """RocksDB would begin an empty database, and delete all tables."""
    fill(tmp_path, "shared", specs=LOCAL)
    (manifest,) = (tmp_path / "shared").glob("MANIFEST-*")
    tables = sorted((tmp_path / "shared").glob("*.sst"))
    assert tables
    manifest.write_bytes(manifest.read_bytes()[:60])
    with pytest.raises(StateError, match="store u has no changelog"):
        attach(SharedResources(), tmp_path, LOCAL, layout="shared")
    assert sorted((tmp_path / "shared").glob("*.sst")) == tables
    shared = SharedResources()
    shared.database = SharedDatabase(tmp_path, shared, SPECS)
    assert shared.database.tasks() == []
    shared.close()
