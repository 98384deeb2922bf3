"""The directories of tasks that have left, and the known facts about them."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ks_actors.runtime import InstanceState
from ks_actors.runtime.stores._task_directories import TaskDirectories
from ks_actors.state import SharedResources, attach
from ks_actors.testing import AppHarness
from ks_actors.topology._stores import StoreSpec
from tests.ks_actors.runtime.helpers import EOS, Load, check_counts, counting, in_app, in_virtual_time
from tests.ks_actors.runtime.stores.standbys import Heard, active, all_caught_up, keeper, other, settled, standing
from tests.ks_actors.state.disk.test_shared_database import LOCAL, SPECS, fill, resources

TOPICS = {"in": 4, "out": 1}
LATE_MS = 4_000_000_000_000  # behind the times of any file


def directories(harness: AppHarness) -> set[str]:
    return {path.name for path in harness.state_dir.iterdir() if path.is_dir() and path.name != "shared"}


@in_app(counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS, state_cleanup_delay_ms=10_000)
async def test_directories_of_tasks_that_have_gone_are_deleted_in_time(harness: AppHarness) -> None:
    """When they were not used for the delay; those of tasks and of standbys are kept, at any age."""
    load = Load(harness, Random(1))
    await load.through(100)
    assert directories(harness) == {"0_0", "0_1", "0_2", "0_3"}
    async with other(harness) as second:
        await all_caught_up(harness)
        assert directories(harness) == {"0_0", "0_1", "0_2", "0_3"}
        await harness.kit.clock.advance(25)
        assert directories(harness) == active(harness)
        assert directories(second) == active(second)
        await load.through(100)
    await load.through(20)
    assert active(harness) == directories(harness) == {"0_0", "0_1", "0_2", "0_3"}
    check_counts(await harness.read("out"), load.sent, EOS)


@in_virtual_time
async def test_a_task_that_comes_back_in_time_finds_its_directory() -> None:
    """The state on disk is used again, and its time begins anew."""
    heard = Heard()
    async with AppHarness(counting("rocksdb"), topics=TOPICS, state_cleanup_delay_ms=10_000, restore_listener=heard) as harness:
        load = Load(harness, Random(2), keys=100)
        await load.through(200)
        for _ in range(3):
            async with other(harness):
                await harness.caught_up()
                await harness.kit.clock.advance(6)
            heard.told.clear()
            await harness.caught_up()
            assert all(start for start in heard.take("restore").values())
        assert directories(harness) == active(harness)


@in_app(counting("rocksdb"), topics=TOPICS, num_standby_replicas=1, state_cleanup_delay_ms=10_000)
async def test_directories_of_standbys_are_kept_and_deleted_when_they_migrate(harness: AppHarness) -> None:
    """A standby is somebody's use of a directory; when it is none any more the delay begins."""
    async with other(harness) as second:
        await harness.kit.clock.advance(60)
        assert directories(second) == active(second) | standing(second) == {"0_0", "0_1", "0_2", "0_3"}
        async with other(harness) as third:
            await settled(harness.kit)
            await harness.kit.clock.advance(60)
            for one in (harness, second, third):
                assert directories(one) == active(one) | standing(one) != {"0_0", "0_1", "0_2", "0_3"}


@in_app(counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS, state_cleanup_delay_ms=10_000)
async def test_a_task_that_comes_back_while_its_directory_is_deleted_begins_anew(
    harness: AppHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The directory is out of the way at once, and is never used again; when it cannot be deleted that is told, and done on the next start."""
    refused: list[Path] = []

    real = shutil.rmtree

    def rmtree(path: Path, **options: Any) -> None:
        if str(path).endswith(".deleted"):
            refused.append(path)
            raise PermissionError("this is not yours")
        real(path, **options)

    load = Load(harness, Random(3))
    await load.through(100)
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    async with other(harness) as second:
        await harness.caught_up()
        gone = active(second)
        await harness.kit.clock.advance(25)
        assert refused
        assert "could not delete the directory of a task that has left: this is not yours" in caplog.text
        assert not directories(harness) & gone
    monkeypatch.setattr(shutil, "rmtree", real)
    await load.through(100)
    assert directories(harness) >= gone
    assert harness.app.state is InstanceState.RUNNING
    assert {name for name in directories(harness) if name.endswith(".deleted")}
    await harness.close()
    await harness.restart()
    assert not {name for name in directories(harness) if name.endswith(".deleted")}
    check_counts(await harness.read("out"), load.sent, EOS)


@in_virtual_time
async def test_old_state_is_deleted_on_start() -> None:
    """Directories that have not changed for `state_cleanup_dir_max_age_ms`; without it, none."""
    heard = Heard()
    async with AppHarness(
        counting("rocksdb"),
        topics=TOPICS,
        processing_guarantee=EOS,
        wall_clock_ms=LATE_MS,
        state_cleanup_dir_max_age_ms=3_600_000,
        restore_listener=heard,
    ) as harness:
        load = Load(harness, Random(4), keys=100)
        await load.through(100)
        await harness.close()
        fresh = LATE_MS / 1000 - 60
        os.utime(harness.state_dir / "0_1", (fresh, fresh))
        heard.told.clear()
        await harness.restart()
        starts = heard.take("restore")
        assert {number for number, start in starts.items() if start} == {1}
        assert starts.keys() == {0, 1, 2, 3}
        await load.check(EOS)


@in_app(counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS)
async def test_state_on_disk_is_known_before_anything_is_opened(harness: AppHarness) -> None:
    """For each task the offsets of its stores, also after a crash; for unreadable ones, nothing."""
    load = Load(harness, Random(5), keys=100)
    await load.through(300)
    expected = {task: stores.offset_sum for task, stores in keeper(harness)._stores.items()}
    await harness.close()
    await harness.restart()
    await harness.crash()
    (harness.state_dir / "0_9").mkdir()
    (harness.state_dir / "0_8" / "rocksdb").mkdir(parents=True)
    (harness.state_dir / "0_8" / "rocksdb" / "CURRENT").write_text("nonsense")
    (harness.state_dir / "0_7").write_text("no directory")
    (harness.state_dir / "notes").mkdir()
    disk = TaskDirectories(harness.state_dir, harness.kit.wall_time_ms, lambda _: ())
    shared = SharedResources()
    attach(shared, harness.state_dir, (), layout="task")
    disk.remember(shared, -1)
    shared.close()
    assert disk.offsets == expected
    assert len(disk.offsets) == 4
    assert {str(task) for task in disk.old(0)} == {"0_0", "0_1", "0_2", "0_3", "0_8", "0_9"}
    await harness.restart()
    await harness.turns(10)


@pytest.mark.parametrize("specs", [LOCAL, None, SPECS], ids=["the topology's", "a former topology's", "logged"])
def test_rows_outlast_their_directory(tmp_path: Path, specs: list[StoreSpec] | None, caplog: pytest.LogCaptureFixture) -> None:
    """A user who deletes a directory in a running app deletes no rows: they are the only copy of a store, or go with a warning."""
    fill(tmp_path, "shared", 1, SPECS if specs is SPECS else LOCAL)
    disk = TaskDirectories(tmp_path, lambda: LATE_MS, lambda _: specs)
    with resources(tmp_path, specs=specs or []) as shared:
        disk.remember(shared, -1)
        shutil.rmtree(tmp_path / "0_0")
        assert disk.set_old_aside(0, disk.look(disk.old(0))) == []
        assert shared.database.tasks() == ([] if specs is SPECS else ["0_0"])
    said = "is deleted; its changelog has all of it" if specs is SPECS else "has the only copy of store u"
    assert said in caplog.text


def test_a_merge_amid_a_start_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of the database of all tasks may be gone once it is looked at: the others tell when the state was written."""
    fill(tmp_path, "shared", 1)
    disk = TaskDirectories(tmp_path, lambda: LATE_MS, lambda _: SPECS)
    real = Path.glob

    def glob(path: Path, pattern: str) -> list[Path]:
        return [*real(path, pattern), *([path / "merged.sst"] if pattern == "*.sst" else [])]

    with resources(tmp_path) as shared:
        monkeypatch.setattr(Path, "glob", glob)
        disk.remember(shared, -1)
    assert {str(task) for task in disk.offsets} == {"0_0"}


@in_virtual_time
async def test_an_app_that_starts_without_any_records(tmp_path: Path) -> None:
    """A state directory is made, and nothing is known of any task."""
    async with AppHarness(counting("rocksdb"), topics=TOPICS, state_dir=tmp_path / "new") as harness:
        assert directories(harness) == active(harness)
        await asyncio.sleep(0)
