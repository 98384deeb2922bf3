"""Apps whose tasks share one database, and apps that change to it or back."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from ks_actors import UncaughtResponse
from ks_actors.metrics.exporters import prometheus_text
from ks_actors.state import SharedResources, attach
from ks_actors.state.disk import RocksEngine, SharedDatabase
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import EOS, Load, check_counts, counting, in_virtual_time
from tests.ks_actors.runtime.stores.standbys import Heard, active, all_caught_up, check_places, other, settled, standing, stores_of
from tests.ks_actors.runtime.stores.test_standby_faults import copies, originals

TOPICS = {"in": 4, "out": 1}


def shared_database(harness: AppHarness) -> SharedDatabase:
    """Return the database of a running app."""
    assert harness.app._instance is not None
    shared = harness.app._instance._wiring._shared
    assert shared is not None
    database: SharedDatabase = shared.database
    return database


def tasks_in(harness: AppHarness) -> list[str]:
    """Return the tasks with rows in the database of a closed app."""
    shared = SharedResources()
    attach(shared, harness.state_dir, (), layout="shared")
    database: SharedDatabase = shared.database
    try:
        return database.tasks()
    finally:
        shared.close()


@pytest.mark.parametrize("layouts", [("task", "shared"), ("shared", "task")], ids=" to ".join)
@pytest.mark.parametrize("crash", [False, True], ids=["closed", "killed"])
@in_virtual_time
async def test_the_layout_may_change(guarantee: str, layouts: tuple[str, str], crash: bool) -> None:
    """At each start, after a close or a crash: state is converted, not restored, and each record counts once."""
    heard = Heard()
    options: dict[str, Any] = {"topics": TOPICS, "processing_guarantee": guarantee, "restore_listener": heard}
    async with AppHarness(counting("rocksdb"), state_layout=layouts[0], **options) as harness:
        load = Load(harness, Random(1), keys=100)
        for layout in (layouts[1], layouts[0], layouts[1]):
            await load.through(300)
            await (harness.crash() if crash else harness.close())
            harness.config = harness.config.replace(state_layout=layout)
            heard.told.clear()
            await harness.restart()
            if not crash:
                assert all(start for start in heard.take("restore").values())
        await load.through(100)
        own = {path.parent.name for path in harness.state_dir.glob("*/rocksdb")}
        assert own == (set() if layouts[1] == "shared" else {"0_0", "0_1", "0_2", "0_3"})
        check_counts(await harness.read("out"), load.sent, guarantee)


@in_virtual_time
async def test_an_app_opens_one_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all of its tasks, and to learn their offsets."""
    async with AppHarness(counting("rocksdb"), topics={"in": 20, "out": 1}, state_layout="shared") as harness:
        load = Load(harness, Random(2), keys=100)
        await load.through(300)
        await harness.close()
        names: list[str] = []
        real = RocksEngine.__init__

        def watched(engine: RocksEngine, task: str, *args: object, **options: object) -> None:
            names.append(task)
            real(engine, task, *args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(RocksEngine, "__init__", watched)
        await harness.restart()
        await load.through(100)
        assert names == ["all tasks"] * 2  # to look whether its list of tables is whole, and to use it
        check_counts(await harness.read("out"), load.sent, "at_least_once")


@in_virtual_time
async def test_rows_of_tasks_that_have_gone_are_deleted_in_time() -> None:
    """With their directories, while the others run."""
    async with AppHarness(
        counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS, state_layout="shared", state_cleanup_delay_ms=10_000
    ) as harness:
        load = Load(harness, Random(3))
        await load.through(100)
        async with other(harness) as second:
            await all_caught_up(harness)
            await harness.kit.clock.advance(25)
            await load.through(100)
            here, there = active(harness), active(second)
            assert here
            assert there
            assert set(shared_database(harness).tasks()) == here
        await load.through(20)
        check_counts(await harness.read("out"), load.sent, EOS)
        await harness.close()
        assert tasks_in(harness) == ["0_0", "0_1", "0_2", "0_3"]


@in_virtual_time
async def test_after_an_error_of_the_disk_the_database_is_opened_again(guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB may refuse all writes after one; all tasks are closed for that, standbys too, and go on from what is on disk."""
    errors: list[Exception] = []

    def replace(error: Exception) -> UncaughtResponse:
        errors.append(error)
        return UncaughtResponse.REPLACE_WORKER

    full: set[tuple[Path, str]] = set()
    real = RocksEngine.write

    def write(engine: RocksEngine, rows: Any, *args: Any, **options: Any) -> None:
        if (engine._directory.parent, engine._task) in full:
            full.clear()
            engine._refuse(Exception("IO error: No space left on device"))
        real(engine, rows, *args, **options)

    monkeypatch.setattr(RocksEngine, "write", write)
    async with AppHarness(
        counting("rocksdb"), topics=TOPICS, processing_guarantee=guarantee, state_layout="shared", num_standby_replicas=1, uncaught_handler=replace
    ) as harness:
        load = Load(harness, Random(4), keys=60)
        async with other(harness) as second:
            await load.through(300)
            await settled(harness.kit)
            before, engine = stores_of(second), shared_database(second)._engine
            assert standing(second)
            full.add((second.state_dir, min(active(second))))
            await load.send(300)
            await harness.kit.clock.advance(60)
            await all_caught_up(harness)
            await settled(harness.kit)
            assert not full
            assert len(errors) == 1
            assert shared_database(second)._engine is not engine
            assert not shared_database(second).failed
            after = stores_of(second)
            assert all(after[task] is not before[task] for task in after.keys() & before.keys())
            assert copies(second) == originals(harness)
            check_places(harness, second)
        await load.through(20)
        check_counts(await harness.read("out"), load.sent, guarantee)


@in_virtual_time
async def test_the_metrics_of_the_database_are_there_once() -> None:
    """Under its name in place of a task's; `task_metrics` has them with each task."""
    async with AppHarness(counting("rocksdb"), topics=TOPICS, state_layout="shared") as harness:
        await Load(harness, Random(5)).through(100)
        figures = {str(task): each.rocksdb for task, each in (await harness.app.task_metrics()).items()}
        assert figures.keys() == {"0_0", "0_1", "0_2", "0_3"}
        assert len({id(each) for each in figures.values()}) == 1
        assert figures["0_0"]["estimate-num-keys"] > 0
        prometheus_text(harness.app)  # somebody reads, so the databases are asked
        await harness.kit.clock.advance(25)
        lines = [line for line in prometheus_text(harness.app).decode().splitlines() if "estimate_num_keys{" in line]
        assert len(lines) == 1
        assert 'task_id="shared"' in lines[0]
