"""State is found on disk or in the changelogs, and global tables in their topics."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from ks_actors import Batch, LogError, TaskCorrupted, serdes
from ks_actors.dsl import Consumed, Materialized, Produced, StreamsBuilder, TimeWindows
from ks_actors.log import GroupMetadata, Outgoing, TopicPartition
from ks_actors.runtime import InstanceState, RestoreListener, UncaughtResponse
from ks_actors.state.core._memory_budget import MemoryBudget, TaskMemory
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import EOS, STRINGS, STRINGS_OUT, by_key, counting, feed, feed_all, in_app, in_virtual_time
from tests.ks_actors.runtime.stores.standbys import restart_empty
from tests.layouts import state_of

TOPICS = {"in": 1, "out": 1}


class Heard(RestoreListener):
    """Keep each call."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str, int | None]] = []

    def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        self.told.append(("start", str(partition), store, start))

    def on_batch_restored(self, partition: TopicPartition, store: str, end: int, count: int) -> None:
        self.told.append(("batch", str(partition), store, count))

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        self.told.append(("end", str(partition), store, total))


def records(*keys: str) -> list[TestRecord[str, str]]:
    return [TestRecord(key, "v", number) for number, key in enumerate(keys)]


@pytest.mark.parametrize(("store", "restored"), [("rocksdb", 0), ("in_memory", 3)])
@in_virtual_time
async def test_after_a_close_the_disk_has_it_all(store: str, restored: int, guarantee: str) -> None:
    """A store on disk that was closed restores nothing; one in memory restores its whole changelog. The listener hears it either way."""
    heard = Heard()
    async with AppHarness(counting(store), topics=TOPICS, processing_guarantee=guarantee, restore_listener=heard) as harness:
        assert heard.told == [("start", "app-counts-changelog-0", "counts", None), ("end", "app-counts-changelog-0", "counts", 0)]
        await feed_all(harness, "in", records("a", "b", "a", "c"))
        await harness.close()
        heard.told.clear()
        await harness.restart()
        assert heard.told[0][:3] == ("start", "app-counts-changelog-0", "counts")
        assert heard.told[-1] == ("end", "app-counts-changelog-0", "counts", restored)
        assert sum(count or 0 for what, *_, count in heard.told if what == "batch") == restored
        await feed_all(harness, "in", records("a", "c"))
        assert by_key(await harness.read("out")) == {"a": [1, 2, 3], "b": [1], "c": [1, 2]}


@in_virtual_time
async def test_after_a_crash_only_the_tail_is_restored(guarantee: str) -> None:
    """State written to disk before a crash is not restored again: only the rest of the changelog."""
    heard = Heard()
    async with AppHarness(counting("rocksdb"), topics=TOPICS, processing_guarantee=guarantee, restore_listener=heard) as harness:
        await feed_all(harness, "in", records(*(f"k{number}" for number in range(500))))
        await harness.close()
        await harness.restart()
        await feed_all(harness, "in", records("k1", "k2", "k3"))
        await harness.crash()
        heard.told.clear()
        await harness.restart()
        assert heard.told[-1][0] == "end"
        assert heard.told[-1][3] in {0, 3}
        assert heard.told[0][3] is not None
        assert heard.told[0][3] >= 500
        await feed_all(harness, "in", records("k1"))
        assert by_key(await harness.read("out"))["k1"] == [1, 2, 3]


@in_virtual_time
async def test_a_state_directory_that_is_gone_is_restored(guarantee: str) -> None:
    """Without its directory a store is restored from the beginning of its changelog."""
    heard = Heard()
    async with AppHarness(counting("rocksdb"), topics={"in": 1, "out": 1}, processing_guarantee=guarantee, restore_listener=heard) as harness:
        await feed_all(harness, "in", records(*(f"k{number % 50}" for number in range(500))))
        await restart_empty(harness, heard)
        assert heard.told[0][3] is None
        assert (heard.told[-1][3] or 0) >= 50
        await feed_all(harness, "in", records("k1"))
        assert by_key(await harness.read("out"))["k1"] == list(range(1, 12))


@pytest.mark.parametrize("seed", range(5))
@in_app(counting("in_memory"), topics={"in": 8, "out": 1}, processing_guarantee="exactly_once_v2")
async def test_many_tasks_restore_side_by_side(harness: AppHarness, seed: int) -> None:
    """However the reads of several changelogs mix, nothing of any of them is left out."""
    await feed_all(harness, "in", records(*(f"k{number % 300}" for number in range(3000))))
    await harness.crash()
    harness.wipe_state()
    await harness.restart()
    await feed_all(harness, "in", records(*(f"k{number}" for number in range(300))))
    assert set(map(tuple, by_key(await harness.read("out")).values())) == {tuple(range(1, 12))}


def test_restored_rows_are_bounded_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changelogs are read as fast as they can be written where memory is short: only records on their way come on top of the limit."""
    used: list[int] = []
    note = MemoryBudget.note

    def noted(budget: MemoryBudget, task: TaskMemory, amount: int) -> None:
        note(budget, task, amount)
        used.append(budget.used)

    async def test(harness: AppHarness) -> None:
        await harness.close()
        harness.wipe_state()
        producer = await harness.log.producer(client_id="test")
        for partition in range(2):
            changelog = TopicPartition("app-counts-changelog", partition)
            for start in range(0, 60_000, 10_000):
                keys: list[bytes | None] = [b"key-%d-%d" % (partition, number) for number in range(start, start + 10_000)]
                await producer.send([Outgoing(changelog, Batch(keys, [(1).to_bytes(8, "big")] * 10_000, [0] * 10_000))])
        await producer.close()
        monkeypatch.setattr(MemoryBudget, "note", noted)
        await harness.restart()
        assert await harness.app.store("counts").get("key-1-59999") == 1
        assert len(await harness.app.store("counts").all()) == 120_000

    run_app(test, counting("rocksdb"), topics={"in": 2, "out": 1}, statestore_memory_max_bytes=1 << 20)
    assert 1 << 20 < max(used) < 10 << 20


@in_virtual_time
async def test_a_windowed_store_is_restored() -> None:
    """Window stores go on where they were, too."""
    builder = StreamsBuilder()
    counts = (
        builder.stream("in", STRINGS)
        .group_by_key()
        .windowed_by(TimeWindows.of_size_and_grace(1000, 0))
        .count(Materialized("windows", serdes.STRING, serdes.LONG, store_type="rocksdb"))
    )
    counts.to_stream(lambda windowed, _: f"{windowed.key}@{windowed.window.start}").to("out", Produced(serdes.STRING, serdes.LONG))
    async with AppHarness(builder.build(), topics=TOPICS) as harness:
        for _ in range(2):
            await feed_all(harness, "in", [TestRecord("a", "v", 100), TestRecord("a", "v", 200), TestRecord("a", "v", 1100)])
            await harness.crash()
            harness.wipe_state()
            await harness.restart()
        assert by_key(await harness.read("out"))["a@1000"] == [1, 2]


@in_app(counting("rocksdb"), topics=TOPICS)
async def test_a_store_that_cannot_be_trusted_is_restored(harness: AppHarness) -> None:
    """When the state on disk is corrupt it is deleted and restored from the changelog, without an action of the user."""
    await feed_all(harness, "in", records("a", "a", "b"))
    await harness.close()
    (current,) = state_of(harness.state_dir / "0_0").rglob("CURRENT")
    current.write_text("MANIFEST-nonsense\n")
    await harness.restart()
    await feed_all(harness, "in", records("a"))
    assert by_key(await harness.read("out")) == {"a": [1, 2, 3], "b": [1]}


@in_app(counting("rocksdb"), topics=TOPICS)
async def test_a_state_that_cannot_be_opened_is_an_error(harness: AppHarness) -> None:
    """State that cannot be opened for another reason is an error, and not deleted; the next app starts when it is mended."""
    await feed_all(harness, "in", records("a", "a"))
    await harness.close()
    task = harness.state_dir / "0_0"
    shutil.move(task, task.with_suffix(".away"))
    task.write_text("in the way")
    with pytest.raises(Exception, match="0_0"):
        await harness.restart()
    assert harness.app.state is InstanceState.ERROR
    assert not isinstance(harness.app.error, TaskCorrupted)
    task.unlink()
    shutil.move(task.with_suffix(".away"), task)
    await harness.restart()
    await feed_all(harness, "in", records("a"))
    assert by_key(await harness.read("out")) == {"a": [1, 2, 3]}


@in_app(counting("in_memory"), topics=TOPICS, uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER)
async def test_restoring_that_fails_is_tried_again(harness: AppHarness) -> None:
    """When the changelog cannot be read the handler decides; with REPLACE_WORKER the tasks begin anew."""
    await feed_all(harness, "in", records(*(f"k{number}" for number in range(100))))
    await harness.close()
    for _ in range(2):
        harness.fail("fetch", LogError("away"))
        harness.fail("begin_offsets", LogError("away"))
        await harness.restart()
        await harness.close()
    await harness.restart()
    await feed_all(harness, "in", records("k1"))
    assert by_key(await harness.read("out"))["k1"] == [1, 2]


@pytest.mark.parametrize(("ends", "counted"), [("commit", 8), ("abort", 2)])
@in_app(counting("in_memory"), topics=TOPICS, processing_guarantee=EOS)
async def test_a_changelog_is_restored_when_all_of_it_is_decided(
    harness: AppHarness, ends: str, counted: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A transaction that is still open there is waited for: the committed offsets may be from it, though the changelog does not know it yet.

    Who waits for long says so.
    """
    await feed_all(harness, "in", records("a"))
    await harness.close()
    harness.wipe_state()
    former = await harness.log.transactional_producer("former", client_id="former", timeout_ms=60_000)
    await former.send([Outgoing(TopicPartition("app-counts-changelog", 0), Batch([b"a"], [(7).to_bytes(8, "big")], [0]))])
    starting = asyncio.ensure_future(harness.restart())
    await harness.kit.clock.advance(9)
    assert "restoring has waited" not in caplog.text
    await harness.kit.clock.advance(21)
    assert not starting.done()
    assert "not committed yet, or the log does not answer: app-counts-changelog-0 of task 0_0 at 2 of 3" in caplog.text
    await (former.commit({}, GroupMetadata("nobody", -1, "")) if ends == "commit" else former.abort())
    await starting
    await former.close()
    await feed_all(harness, "in", records("a"))
    assert by_key(await harness.read("out"))["a"][-1] == counted


# --- global tables --------------------------------------------------------------------------------------------------------------


def looking_up(*tables: str) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    for name in tables:
        table = builder.global_table(name, Consumed(serdes.STRING, serdes.STRING))
        stream = stream.left_join(table, lambda key, _: key, lambda left, right: f"{left}+{right}")
    stream.to("out", STRINGS_OUT)
    return builder.build()


@in_app(looking_up("names"), topics={"in": 1, "out": 1, "names": 3}, start=False)
async def test_global_tables_are_full_before_anything_is_processed(harness: AppHarness, guarantee: str) -> None:
    """All that a global topic holds, in all its partitions, is in the table when the first record is processed; changes follow."""
    await harness.produce_all("names", [TestRecord(f"k{number}", f"n{number}", 0) for number in range(5000)])
    await harness.produce_all("in", [TestRecord(f"k{number}", "v", 0) for number in range(0, 5000, 7)])
    await harness.start()
    await harness.caught_up()
    assert by_key(await harness.read("out")) == {f"k{number}": [f"v+n{number}"] for number in range(0, 5000, 7)}
    await harness.produce("names", "k1", "other")
    await harness.kit.clock.advance(1)
    await feed(harness, "in", "k1", "w")
    assert by_key(await harness.read("out"))["k1"] == ["w+other"]


@in_app(looking_up("names", "other"), topics={"in": 1, "out": 1, "names": 1, "other": 2}, start=False)
async def test_an_empty_global_topic_holds_nobody_up(harness: AppHarness) -> None:
    """Of two global tables one may be empty, and one may get its records only later."""
    await harness.produce("names", "a", "n")
    await harness.produce("in", "a", "v")
    await harness.start()
    await harness.caught_up()
    await harness.produce("other", "a", "o")
    await harness.kit.clock.advance(1)
    await feed(harness, "in", "a", "w")
    assert by_key(await harness.read("out")) == {"a": ["v+n+None", "w+n+o"]}


@in_app(looking_up("names"), topics={"in": 1, "out": 1, "names": 1}, uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER)
async def test_global_tables_go_on_after_a_failure(harness: AppHarness) -> None:
    """When the topics of global tables cannot be read the handler decides; told to go on, the tables follow their topics again."""
    harness.fail("fetch", LogError("away"), 3)
    await harness.kit.clock.advance(1)
    await harness.produce("names", "a", "n")
    await harness.kit.clock.advance(2)
    await feed(harness, "in", "a", "v")
    assert by_key(await harness.read("out")) == {"a": ["v+n"]}
