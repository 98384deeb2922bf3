"""State on disk that turns out to be damaged while the app runs: it is deleted and restored, and the app goes on. No handler is asked."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from ks_actors import InstanceState, Materialized, Produced, StateError, StreamsBuilder, TaskCorrupted, UncaughtResponse
from ks_actors.serdes import STRING
from ks_actors.state.disk._rocksdb import RocksEngine
from ks_actors.testing import AppHarness, TestRecord
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, by_key, counting, feed_all, in_app, in_virtual_time
from tests.ks_actors.runtime.stores.test_custom_stores import counting as counting_custom
from tests.ks_actors.runtime.stores.test_discarded_state import counting as counting_in
from tests.ks_actors.runtime.stores.test_discarded_state import given_up, store
from tests.ks_actors.state.custom.test_custom import OnDisk
from tests.layouts import LAYOUT, OWN, database_of, state_of

TOPICS = {"in": 1, "out": 1}
KEYS = 2_000


async def count(harness: AppHarness, keys: Iterable[int] = range(KEYS)) -> None:
    """Send a record of each key, and wait until all are counted."""
    await feed_all(harness, "in", [TestRecord(f"k{key}", "v", 0) for key in keys])


async def counts(harness: AppHarness) -> set[int]:
    """Return the last counts of all keys, each once."""
    return {found[-1] for found in by_key(await harness.read("out")).values()}


def damage_tables(directory: Path) -> None:
    """Overwrite rows of all tables of a database; the middle of a small table is no row, but is read when it is opened."""
    tables = [table for table in directory.rglob("*.sst") if table.stat().st_size > 4_096]
    assert tables
    for table in tables:
        data = bytearray(table.read_bytes())
        for at in range(len(data) // 3, len(data) * 2 // 3, 500):
            data[at : at + 300] = b"\xff" * 300
        table.write_bytes(data)


def looking_up() -> Topology:
    """Return a join with a global table on disk."""
    builder = StreamsBuilder()
    table = builder.global_table("names", STRINGS, Materialized("names", STRING, STRING, store_type="rocksdb"))
    builder.stream("in", STRINGS).join(table, lambda key, _: key, lambda _, name: name).to("out", Produced(STRING, STRING))
    return builder.build()


class Asked:
    """An uncaught handler that should not be asked."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def __call__(self, error: Exception) -> UncaughtResponse:
        self.errors.append(error)
        return UncaughtResponse.SHUTDOWN_CLIENT


@pytest.mark.parametrize("what", ["task", "app", "state_dir"])
@in_virtual_time
async def test_an_app_whose_directory_is_deleted_goes_on(guarantee: str, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """By one that cleans up temporary files, say. All is counted right, and one warning says it."""
    asked = Asked()
    async with AppHarness(counting("rocksdb"), topics=TOPICS, processing_guarantee=guarantee, uncaught_handler=asked) as harness:
        await count(harness)
        task = harness.state_dir / "0_0"
        shutil.rmtree({"task": task, "app": task.parent, "state_dir": task.parent.parent}[what])
        for _ in range(4):
            await count(harness)
            await harness.kit.clock.advance(60)
        assert await counts(harness) == {5}
        assert harness.app.state is InstanceState.RUNNING
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        told = [line for line in warnings if "is damaged" in line]
        if LAYOUT == "task":
            (line,) = told
            assert f"the state in {database_of(task)}" in line
        else:  # the task's directory has no rows there
            assert all(f"in {database_of(task)}" in line for line in told)
            assert bool(told) == (what != "task")
        await harness.restart()
        await count(harness)
        assert await counts(harness) == {6}
        assert not asked.errors


@in_virtual_time
async def test_a_table_that_cannot_be_read_is_restored(guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """Although the database can be opened with it: RocksDB reads a block when it is asked for."""
    asked = Asked()
    async with AppHarness(counting("rocksdb"), topics=TOPICS, processing_guarantee=guarantee, uncaught_handler=asked) as harness:
        await count(harness)
        await harness.restart()
        damage_tables(state_of(harness.state_dir / "0_0"))
        await count(harness)
        assert await counts(harness) == {2}
        (line,) = given_up(caplog)
        assert "store counts of task 0_0" in line
        assert "checksum mismatch" in line
        await count(harness)
        await harness.restart()
        await count(harness)
        assert await counts(harness) == {4}
        # A database of all tasks is deleted at the next start, and made anew.
        assert len(given_up(caplog)) == (1 if LAYOUT == "task" else 2)
        assert not asked.errors


@in_app(counting("rocksdb"), topics=TOPICS)
async def test_a_close_that_finds_damage_loses_nothing(harness: AppHarness, caplog: pytest.LogCaptureFixture) -> None:
    """It deletes what is damaged, and raises no error: the changelog has it all."""
    await count(harness)
    shutil.rmtree(database_of(harness.state_dir / "0_0"))
    await harness.close()
    assert len(given_up(caplog)) == 1
    await harness.restart()
    await count(harness)
    assert await counts(harness) == {2}


@in_app(counting_in(store("a"), store("local", logging=False)), topics=TOPICS)
async def test_the_only_copy_of_a_store_is_not_deleted(harness: AppHarness, guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """The app ends, by an error that names the store, its directory, and the remedy."""
    await count(harness)
    await harness.restart()
    directory = state_of(harness.state_dir / "0_0")
    damage_tables(directory)
    before = sorted(directory.rglob("*.sst"))
    with pytest.raises(StateError):
        await count(harness)
    assert harness.app.state is InstanceState.ERROR
    assert f"store local of task 0_0 has no changelog, and its only copy, in {directory}, cannot be used" in caplog.text
    assert not given_up(caplog)
    assert sorted(directory.rglob("*.sst")) == before
    with pytest.raises(StateError):
        await harness.close()


@in_virtual_time
async def test_a_global_table_is_filled_anew_at_the_next_start() -> None:
    """All tasks read it, so the handler decides; that it is asked again and again is no way out."""
    asked = Asked()

    topics = {**TOPICS, "names": 1}
    async with AppHarness(looking_up(), topics=topics, processing_guarantee="exactly_once_v2", uncaught_handler=asked) as harness:
        names = [TestRecord(f"k{key}", f"name {key}", 0) for key in range(KEYS)]
        await harness.produce_all("names", names)
        await harness.restart()
        await harness.close()
        damage_tables(harness.state_dir / "global")
        await harness.restart()
        with pytest.raises(TaskCorrupted, match="task global"):
            await count(harness)
        assert len(asked.errors) == 1
        with pytest.raises(TaskCorrupted):
            await harness.close()
        await harness.restart()
        await harness.caught_up()
        assert {record.value for record in await harness.read("out")} == {f"name {key}" for key in range(KEYS)}


@in_virtual_time
async def test_damage_that_a_store_of_ones_own_tells_of_again_and_again_goes_to_the_handler() -> None:
    """Opening the task again does not help there."""
    asked = Asked()

    class Broken(OnDisk):
        def put(self, key: bytes, value: bytes | None) -> None:
            raise TaskCorrupted(f"the row of {key!r} is damaged: {value!r}")

    async with AppHarness(counting_custom(Broken), topics=TOPICS, uncaught_handler=asked) as harness:
        await harness.produce("in", "k", "v")
        with pytest.raises(TaskCorrupted, match="the row of b'k' is damaged"):
            await harness.caught_up()
        assert len(asked.errors) == 1
        with pytest.raises(TaskCorrupted):
            await harness.close()


@OWN
@in_virtual_time
async def test_damage_again_and_again_goes_to_the_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """When nothing is committed in between: the disk may be at fault."""
    asked = Asked()

    def get(engine: RocksEngine, key: bytes) -> bytes | None:
        del key
        engine._refuse(Exception("Corruption: block checksum mismatch"))

    async with AppHarness(counting("rocksdb"), topics=TOPICS, uncaught_handler=asked) as harness:
        await count(harness, range(100))
        await harness.restart()
        monkeypatch.setattr(RocksEngine, "get", get)
        monkeypatch.setattr(RocksEngine, "get_many", lambda engine, keys: [get(engine, key) for key in keys])
        with pytest.raises(TaskCorrupted):
            await count(harness, range(100))
        assert len(asked.errors) == 1
        monkeypatch.undo()
        with pytest.raises(TaskCorrupted):
            await harness.close()
        await harness.restart()
        await harness.caught_up()
        assert await counts(harness) == {2}
