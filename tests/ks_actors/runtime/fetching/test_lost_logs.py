"""A partition that loses its log while an app reads it: no record of the new log is passed over."""

from __future__ import annotations

import asyncio
from typing import Any

from ks_actors import BufferConfig, LogError, LogTruncated, Materialized, StreamsBuilder, Suppressed, TaskId, TimeWindows, blocking, serdes
from ks_actors.log import Fetched, IsolationLevel, OffsetAndMetadata, TopicPartition
from ks_actors.records import Batch
from ks_actors.runtime import UncaughtResponse
from ks_actors.runtime.fetching._offset_resets import OffsetResets, Reset
from ks_actors.runtime.fetching._start_policy import StartPolicy
from ks_actors.runtime.messages import PositionReset
from ks_actors.runtime.processing._inputs import Inputs
from ks_actors.task import Position
from ks_actors.testing import AppHarness, TestRecord
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import EOS, STRINGS, STRINGS_OUT, Bomb, counting, echo, feed_all, in_app, in_virtual_time

IN = TopicPartition("in", 0)
SETTINGS: dict[str, Any] = {
    "max_poll_interval_ms": 600_000,
    "transaction_timeout_ms": 120_000,
    "uncaught_handler": lambda error: UncaughtResponse.REPLACE_WORKER,
}


def lose(harness: AppHarness, name: TopicPartition) -> None:
    """Let a partition have no records any more, and begin at offset 0 again."""
    partition = harness.log._broker.partitions[name]
    partition.drop_before(partition.end)
    partition.begin = partition.end = 0
    partition.notify()


async def write(harness: AppHarness, name: str, numbers: range, topic: str = "in") -> None:
    await harness.produce_all(topic, [TestRecord("k", f"{name}{number}", number) for number in numbers])
    await harness.kit.clock.advance(1)


def of(name: str, numbers: range) -> list[str]:
    return [f"{name}{number}" for number in numbers]


async def written(harness: AppHarness) -> list[Any]:
    return [record.value for record in await harness.read("out")]


async def roll_back(harness: AppHarness, bomb: Bomb, guarantee: str) -> None:
    """Let a further record of the new log fail once; check that all ten of the former and twenty of the new one are written."""
    bomb.armed = 1
    await write(harness, "new", range(3, 20))
    assert bomb.exploded == 1
    await harness.caught_up()
    found = await written(harness)
    assert found[:10] == of("old", range(10))
    assert set(found[10:]) == set(of("new", range(20)))
    if guarantee == EOS:
        assert found[10:] == of("new", range(20))


@in_virtual_time
async def test_a_rollback_does_not_go_to_a_position_of_the_former_log(guarantee: str) -> None:
    """It goes to the first record of the new one, although the committed position lies within it by then."""
    bomb = Bomb()
    async with AppHarness(echo(bomb), topics={"in": 1, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=60_000, **SETTINGS) as harness:
        await write(harness, "old", range(10))
        await harness.app.commit()
        lose(harness, IN)
        await write(harness, "new", range(3))
        await roll_back(harness, bomb, guarantee)


@in_virtual_time
async def test_a_commit_under_way_does_not_bring_back_a_position_of_the_former_log(guarantee: str) -> None:
    """A rollback behind it goes to the first record of the new log, too."""
    bomb = Bomb()
    async with AppHarness(echo(bomb), topics={"in": 1, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=60_000, **SETTINGS) as harness:
        await write(harness, "old", range(10))
        held = harness.log.hold("commit" if guarantee == EOS else "commit_offsets")
        committing = asyncio.create_task(harness.app.commit())
        await harness.kit.clock.advance(0.1)
        lose(harness, IN)
        await write(harness, "new", range(3))
        held.set()
        await committing
        await roll_back(harness, bomb, guarantee)


@in_app(echo(), topics={"in": 1, "out": 1}, commit_interval_ms=60_000, **SETTINGS)
async def test_a_restart_begins_with_the_new_log_though_records_of_the_former_one_are_buffered(harness: AppHarness, guarantee: str) -> None:
    """Their offsets are not committed: in the new log other records have them."""
    await write(harness, "old", range(10))
    await harness.app.commit()
    await harness.app.pause()
    await write(harness, "old", range(10, 20))
    lose(harness, IN)
    await write(harness, "new", range(3))
    await write(harness, "new", range(3, 25))
    await harness.app.commit()
    assert harness.log._groups.get("app").committed()[IN].offset == 0
    await harness.close()
    await harness.start()
    await harness.caught_up()
    found = await written(harness)
    assert found[:10] == of("old", range(10))
    assert found[-25:] == of("new", range(25))


@in_virtual_time
async def test_a_rollback_during_the_look_up_of_the_new_position_does_not_void_it(guarantee: str) -> None:
    """Otherwise the app would go on at the last commit's position, in the new log."""
    bomb = Bomb()

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).merge(builder.stream("other", STRINGS).peek(bomb)).to("out", STRINGS_OUT)
    topics = {"in": 1, "other": 1, "out": 1}
    async with AppHarness(builder.build(), topics=topics, processing_guarantee=guarantee, commit_interval_ms=60_000, **SETTINGS) as harness:
        await write(harness, "old", range(10))
        await harness.app.commit()
        await write(harness, "old", range(10, 15))
        held = harness.log.hold("begin_offsets")
        lose(harness, IN)
        await write(harness, "new", range(3))
        bomb.armed = 1
        await write(harness, "x", range(1), "other")
        assert bomb.exploded == 1
        await write(harness, "new", range(3, 20))
        held.set()
        await harness.kit.clock.advance(5)
        await harness.caught_up()
        assert [value for value in await written(harness) if value[:3] == "new"] == of("new", range(20))
        await harness.app.commit()
        assert committed(harness) == 20


def committed(harness: AppHarness) -> int:
    return harness.log._groups.get("app").committed()[IN].offset


@in_app(echo(), topics={"in": 1, "out": 1}, commit_interval_ms=60_000, **SETTINGS)
async def test_a_commit_under_way_is_followed_by_one_of_the_new_position(harness: AppHarness, guarantee: str) -> None:
    """At once: until then a start would go to a position of the former log."""
    await write(harness, "old", range(10))
    held = harness.log.hold("commit" if guarantee == EOS else "commit_offsets")
    committing = asyncio.create_task(harness.app.commit())
    await harness.kit.clock.advance(0.1)
    lose(harness, IN)
    await write(harness, "new", range(3))
    held.set()
    await committing
    await harness.kit.clock.advance(1)
    assert committed(harness) == 3


@in_virtual_time
async def test_a_commit_under_way_does_not_bring_back_a_position_before_the_log() -> None:
    """With auto_offset_reset latest, a rollback would lead to another reset, which passes over records that were read since the first one."""
    bomb = Bomb()

    settings = {**SETTINGS, "auto_offset_reset": "latest", "processing_guarantee": EOS, "commit_interval_ms": 60_000, "poll_ms": 100}
    async with AppHarness(echo(bomb), topics={"in": 1, "out": 1}, **settings) as harness:
        await write(harness, "old", range(10))
        held = harness.log.hold("commit")
        committing = asyncio.create_task(harness.app.commit())
        reading = harness.log.hold("fetch")
        await harness.kit.clock.advance(0.5)
        await write(harness, "gone", range(5))
        await harness.log.delete_records({IN: 15})
        reading.set()
        await harness.kit.clock.advance(1)
        held.set()
        await committing
        await write(harness, "new", range(3))
        bomb.armed = 1
        await write(harness, "new", range(3, 6))
        assert bomb.exploded == 1
        await harness.caught_up()
        assert await written(harness) == of("old", range(10)) + of("new", range(6))


@in_app(echo(), topics={"in": 1, "out": 1})
async def test_a_reset_outlives_a_rewind_that_did_not_know_of_it(harness: AppHarness) -> None:
    """The partition goes to the new position once more, and no further than the rewind asks for; a rewind that knew of it goes where it says."""
    await write(harness, "v", range(50))
    fetcher = harness.log.fetcher(client_id="reader", isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign({IN: 40})
    topics = harness.app._shared_parts().topics
    start = StartPolicy(harness.log, topics, lambda: 0)
    resets = OffsetResets(fetcher, start, stopped=(), assigned=lambda: {IN: 0})
    error = LogTruncated(IN, 40, 0, 50, 20)
    search = resets.begin(error)
    assert search is not None
    assert resets.begin(error) is None
    assert resets.end(error, await search) == Reset(IN, 20, 0, 1)
    assert fetcher.position(IN) == 20
    assert resets.rewind({IN: 30}, 0) == [Reset(IN, 20, 0, 2)]
    assert resets.rewind({IN: 10}, 1) == [Reset(IN, 10, 0, 3)]
    assert fetcher.position(IN) == 10
    assert resets.rewind({IN: 30}, 3) == []
    assert fetcher.position(IN) == 30
    # During a look-up.
    error = LogTruncated(IN, 30, 5, 50, 20)
    for wanted, found in ((25, 20), (15, 15), (3, 20)):
        fetcher.seek(IN, 30)
        search = resets.begin(error)
        assert search is not None
        assert resets.rewind({IN: wanted}, 99) == []
        assert fetcher.position(IN) == 30
        reset = resets.end(error, await search)
        assert reset is not None
        assert (reset.position, fetcher.position(IN)) == (found, found)
    # Assigned anew during a look-up, it is another partition's reader: its own rewinds count.
    fetcher.seek(IN, 30)
    search = resets.begin(error)
    assert search is not None
    fetcher.assign({IN: 45})
    assert resets.rewind({IN: 40}, 99) == []
    assert resets.end(error, await search) is None
    assert fetcher.position(IN) == 40
    await fetcher.close()


@in_virtual_time
async def test_a_move_that_waits_for_a_thread_is_ahead_of_the_commit() -> None:
    """The position to commit is that of the former log still; the next rollback does not go there."""

    def same(value: str) -> str:
        return value

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(blocking(same)).to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics={"in": 1, "out": 1}) as harness:
        task = harness.app._metrics.tasks[TaskId(0, 0)]
        leased = {task.id}
        inputs = Inputs(100, 10**6, leased)
        inputs.begin(task, {IN: Position(10)})
        inputs.move(PositionReset(IN, 0, 0, 1, 0))
        inputs.begin_commit()
        assert inputs.note_committed({IN: OffsetAndMetadata(15)})
        assert inputs.committed[IN].offset == 0
        leased.clear()
        inputs.taken_back([task])
        # Other work that waits says nothing of a move that is done.
        leased.add(task.id)
        inputs.add([Fetched(IN, Batch([], [], []), 6, 6)], 0)
        inputs.begin_commit()
        assert not inputs.note_committed({IN: OffsetAndMetadata(5)})
        assert inputs.committed[IN].offset == 5
        # One that leaves takes its moves along.
        inputs.move(PositionReset(IN, 0, 0, 2, 0))
        inputs.end(task)
        inputs.begin(task, {IN: Position(7)})
        inputs.begin_commit()
        assert not inputs.note_committed({IN: OffsetAndMetadata(8)})
        assert inputs.committed[IN].offset == 8


@in_app(counting("in_memory"), topics={"in": 1, "out": 1})
async def test_a_restore_ends_where_the_changelog_ends_now(harness: AppHarness, guarantee: str) -> None:
    """A changelog that loses its records behind the look-up of its end would never reach it."""
    await write(harness, "v", range(10))
    await harness.close()
    held = harness.log.hold("fetch")
    starting = asyncio.create_task(harness.start())
    await harness.kit.clock.advance(5)
    lose(harness, TopicPartition("app-counts-changelog", 0))
    held.set()
    await harness.kit.clock.advance(30)
    await starting
    await write(harness, "v", range(1))
    assert (await written(harness))[-1] == 1


@in_app(counting("rocksdb"), topics={"in": 1, "out": 1}, processing_guarantee="at_least_once", commit_interval_ms=100)
async def test_a_store_beyond_a_changelog_that_was_lost_is_no_result_of_a_restore(harness: AppHarness) -> None:
    """Also when its end is looked up again before a fetch fails: the store is deleted, and has what the changelog has."""
    await feed_all(harness, "in", [TestRecord(f"k{number}", "v", number) for number in range(5)])
    await harness.app.commit()
    await harness.close()
    changelog = TopicPartition("app-counts-changelog", 0)
    await harness.produce_all(changelog.topic, [TestRecord(f"x{number}".encode(), bytes(8), number) for number in range(5)])
    held = harness.log.hold("fetch")
    starting = asyncio.create_task(harness.start())
    await harness.kit.clock.advance(5)
    lose(harness, changelog)
    await harness.kit.clock.advance(30)
    assert not starting.done()
    held.set()
    await harness.kit.clock.advance(30)
    await starting
    assert [row async for row in harness.app.store("counts").all()] == []


@in_virtual_time
async def test_a_start_fills_a_global_table_with_what_its_topic_has_now() -> None:
    """A topic that loses its records behind the look-up of its end does not hold the start up for ever; nor does a log that is away in between."""
    builder = StreamsBuilder()
    builder.global_table("rows", STRINGS, Materialized("rows", serdes.STRING, serdes.STRING))
    builder.stream("in", STRINGS).to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics={"rows": 1, "in": 1, "out": 1}, start=False) as harness:
        await write(harness, "v", range(10), "rows")
        held = harness.log.hold("fetch")
        starting = asyncio.create_task(harness.start())
        await harness.kit.clock.advance(5)
        lose(harness, TopicPartition("rows", 0))
        held.set()
        harness.fail("end_offsets", LogError("not now"))
        await harness.kit.clock.advance(30)
        await starting
        assert [row async for row in harness.app.store("rows").all()] == []


@in_virtual_time
async def test_windows_close_by_the_wall_clock_in_the_new_log() -> None:
    """The end of the former log, which the task has asked for, is beyond what the new one has."""
    async with AppHarness(silent(), topics={"in": 1, "out": 1}, commit_interval_ms=100, poll_ms=100) as harness:
        await write(harness, "v", range(10))
        held = harness.log.hold("fetch")
        await harness.kit.clock.advance(0.5)
        await write(harness, "v", range(10, 20))
        await harness.kit.clock.advance(5)
        lose(harness, IN)
        held.set()
        await write(harness, "v", range(3))
        await harness.kit.clock.advance(30)
        assert [str(value) for value in await written(harness)] == ["13"]


def silent() -> Topology:
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_and_grace(1_000, 1_000)
    counts = builder.stream("in", STRINGS).group_by_key().windowed_by(windows).count(Materialized("counts", serdes.STRING, serdes.LONG))
    final = counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded(), idle_after_ms=2_000)).to_stream()
    final.map(lambda window, count: (window.key, str(count))).to("out", STRINGS_OUT)
    return builder.build()
