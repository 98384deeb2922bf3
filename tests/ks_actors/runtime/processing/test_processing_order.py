"""The order of processing: waits for other inputs, pauses, full buffers, priorities, time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import LogError, Processor, Record, TaskId, serdes
from ks_actors.dsl import Produced, StreamsBuilder
from ks_actors.log import TopicPartition
from ks_actors.processors import PunctuationType
from ks_actors.runtime import InstanceState
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, counting, echo, feed, feed_all, in_app, in_virtual_time


def merged() -> Topology:
    builder = StreamsBuilder()
    builder.stream("left", STRINGS).merge(builder.stream("right", STRINGS)).to("out", STRINGS_OUT)
    return builder.build()


async def values(harness: AppHarness) -> list[Any]:
    return [record.value for record in await harness.read("out")]


LEFT_AND_RIGHT = {"left": 1, "right": 1, "out": 1}


# --- several inputs -------------------------------------------------------------------------------------------------------------


@in_app(merged(), topics=LEFT_AND_RIGHT)
async def test_records_of_several_topics_come_by_their_time(harness: AppHarness) -> None:
    """A task takes the record with the smallest timestamp of all its partitions, in any order of writing."""
    await harness.app.pause()
    await harness.produce_all("left", [TestRecord("a", f"l{time}", time) for time in (1, 4, 5, 9)])
    await harness.produce_all("right", [TestRecord("a", f"r{time}", time) for time in (2, 3, 4, 7)])
    await harness.kit.clock.advance(1)
    await harness.app.resume()
    await harness.caught_up()
    assert await values(harness) == ["l1", "r2", "r3", "l4", "r4", "l5", "r7", "l9"]


@pytest.mark.parametrize(("idle_ms", "waits"), [(-1, 0), (0, 0), (5_000, 5)])
@in_virtual_time
async def test_a_task_waits_for_its_other_inputs(idle_ms: int, waits: int) -> None:
    """With max_task_idle_ms a partition without data is waited for so long; later records of it are processed out of order."""
    async with AppHarness(merged(), topics=LEFT_AND_RIGHT, max_task_idle_ms=idle_ms) as harness:
        await harness.kit.clock.advance(1)
        await harness.produce("left", "a", "l10", 10)
        await harness.kit.clock.advance(max(0, waits - 0.1))
        assert harness.app.metrics()["process-total"] == (0 if waits else 1)
        await harness.kit.clock.advance(0.3)
        assert harness.app.metrics()["process-total"] == 1
        assert (harness.app.metrics()["enforced-processing-total"] > 0) == (idle_ms >= 0)
        await feed(harness, "right", "a", "r5", 5)
        assert await values(harness) == ["l10", "r5"]


@in_app(merged(), topics=LEFT_AND_RIGHT, max_task_idle_ms=5_000)
async def test_a_task_that_waits_goes_on_when_the_data_comes(harness: AppHarness) -> None:
    """Records within max_task_idle_ms are processed in their order."""
    await harness.produce("left", "a", "l10", 10)
    await harness.kit.clock.advance(1)
    await feed(harness, "right", "a", "r5", 5)
    assert await values(harness) == ["r5", "l10"]


@in_app(merged(), topics=LEFT_AND_RIGHT, max_task_idle_ms=5_000)
async def test_a_clock_that_is_set_back_does_not_make_a_task_wait_for_longer(harness: AppHarness) -> None:
    """A task waits for the data of an empty partition for max_task_idle_ms, begun anew at most, and not until the wall clock is where it was."""
    await harness.produce("left", "a", "l10", 10)
    await harness.kit.clock.advance(1)
    harness.kit.set_clock_back(3_600)
    await harness.kit.clock.advance(10)
    assert harness.app.metrics()["process-total"] == 1


@in_app(merged(), topics=LEFT_AND_RIGHT, max_task_idle_ms=100)
async def test_a_task_that_has_waited_for_empty_partitions_rests_when_it_has_no_records(harness: AppHarness) -> None:
    """The end of a wait wakes an app once: without records it handles few messages, with any max_task_idle_ms."""
    await feed(harness, "left", "a", "l10", 10)
    before = harness.kit._dispatch.steps
    await harness.kit.clock.advance(10)
    assert harness.kit._dispatch.steps - before < 1_000


# --- standing still -------------------------------------------------------------------------------------------------------------


class Ticking(Processor[str, str, str, str]):
    """Forward records, and the time every second of the wall clock, and every ten of stream time."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(1_000, PunctuationType.WALL_CLOCK_TIME, lambda now: self.tick("wall", now))
        context.schedule(10_000, PunctuationType.STREAM_TIME, lambda now: self.tick("stream", now))

    def tick(self, kind: str, now: int) -> None:
        self.context.forward(Record(kind, f"{now // 1000}", now))

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


def ticking() -> Topology:
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_processor("ticking", Ticking, "source")
    topology.add_sink("sink", "out", "ticking", key=serdes.STRING, value=serdes.STRING)
    return topology


@in_app(ticking(), topics={"in": 1, "out": 1})
async def test_a_paused_app_does_nothing(harness: AppHarness) -> None:
    """While it is paused no record is processed and no punctuator called; it stays RUNNING and keeps its tasks; then it goes on."""
    await harness.app.pause()
    await harness.produce("in", "a", "1")
    await harness.kit.clock.advance(100)
    assert harness.app.state is InstanceState.RUNNING
    assert harness.app.metrics()["process-total"] == 0
    assert await values(harness) == []
    await harness.app.resume()
    await harness.kit.clock.advance(1.1)
    await harness.app.commit()
    found = await harness.read("out")
    assert [record.value for record in found if record.key == "a"] == ["1"]
    assert len([record for record in found if record.key == "wall"]) == 2


@in_app(ticking(), topics={"in": 1, "out": 1})
async def test_punctuators_follow_their_clocks(harness: AppHarness) -> None:
    """Wall-clock punctuators come with the (virtual) time, without any record; those of stream time with the timestamps of records."""
    await harness.kit.clock.advance(3.2)
    await harness.produce_all("in", [TestRecord("a", f"{time}", time * 1000) for time in (1, 5, 12, 13, 45)])
    await harness.kit.clock.advance(0.5)
    await harness.app.commit()
    found = await harness.read("out")
    assert [record.value for record in found if record.key == "wall"] == ["1", "2", "3"]
    assert [record.value for record in found if record.key == "stream"] == ["1", "12", "45"]


# --- full buffers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"buffered_records_per_partition": 20}, {"input_buffer_max_bytes": 20 * 130}])
@in_virtual_time
async def test_fetching_pauses_when_the_buffers_are_full(limits: dict[str, Any]) -> None:
    """Unprocessed records wait in the log, not in memory; when the buffers have drained, fetching goes on by itself."""
    async with AppHarness(echo(), topics={"in": 2, "out": 1}, **limits) as harness:
        app = harness.app
        await harness.app.pause()
        for number in range(200):
            await harness.produce("in", f"k{number % 7}", str(number))
            await harness.turns(10)
        await harness.kit.clock.advance(5)
        assert 20 <= app.metrics()["active-buffer-count"] <= 60
        await harness.app.resume()
        await harness.caught_up()
        assert app.metrics()["active-buffer-count"] == 0
        assert sorted(map(int, await values(harness))) == list(range(200))


@in_app(echo(), topics={"in": 2, "out": 1}, input_buffer_max_bytes=1000)
async def test_a_buffer_that_goes_away_makes_room(harness: AppHarness) -> None:
    """When a task that filled the buffers is given up, partitions that waited for room are fetched again."""
    await harness.app.pause()
    await harness.produce_all("in", [TestRecord("x" * 100, "y" * 100, 0) for _ in range(100)], partition=1)
    await harness.produce_all("in", [TestRecord("x" * 100, "y" * 100, 0) for _ in range(100)], partition=0)
    await harness.kit.clock.advance(1)
    async with harness.another(client_id="second") as second:
        await harness.kit.clock.advance(1)
        await harness.app.resume()
        await harness.caught_up()
        assert len(await values(harness)) == 200
        assert second.app.metrics()["process-total"] == 100


@in_virtual_time
async def test_processing_waits_for_the_output(guarantee: str) -> None:
    """When a lot of output waits to be written, no more is processed until it has been."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).flat_map_values(lambda value: [value] * 10).to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics={"in": 1, "out": 1}, processing_guarantee=guarantee) as harness:
        count = 30_000
        await feed_all(harness, "in", [TestRecord("k", "v", 0) for _ in range(count)])
        assert len(await harness.read("out")) == 10 * count


# --- order of tasks -------------------------------------------------------------------------------------------------------------


def test_the_fullest_task_comes_first() -> None:
    """Of two tasks that are ready the one with more buffered records comes first, unless `task_priority` says otherwise."""

    def order(priority: Callable[[TaskId], int] | None) -> str:
        async def test(harness: AppHarness) -> str:
            await harness.app.pause()
            for partition, number in ((0, 1), (1, 50), (2, 10)):
                await harness.produce_all("in", [TestRecord("k", str(partition), 0)] * number, partition=partition)
            await harness.kit.clock.advance(1)
            await harness.app.resume()
            await harness.caught_up()
            found: list[str] = await values(harness)
            return "".join(dict.fromkeys(found))

        return run_app(test, echo(), topics={"in": 3, "out": 1}, task_priority=priority, worker_slice_ms=1000)

    assert order(None) == "120"
    assert order(lambda task: -task.partition) == "012"


# --- repartition topics ---------------------------------------------------------------------------------------------------------


@in_app(counting(repartition=True), topics={"in": 1, "out": 1}, repartition_purge_interval_ms=1_000, commit_interval_ms=100)
async def test_repartition_topics_keep_only_unprocessed_records(harness: AppHarness) -> None:
    """Records of a repartition topic are deleted once they are processed and committed; failing that, it is tried again."""
    harness.fail("delete_records", LogError("not now"))
    for _ in range(40):
        await harness.produce("in", "k", "v")
        await harness.kit.clock.advance(0.1)
    await harness.caught_up()
    partition = harness.log._broker.partitions[TopicPartition("app-by-value-repartition", 0)]
    assert partition.begin >= 20
    assert partition.end == 40
    assert harness.log._broker.partitions[TopicPartition("in", 0)].begin == 0
    assert (await values(harness))[-1] == 40


@in_app(counting(repartition=True), topics={"in": 3, "out": 1})
async def test_sizes_of_repartition_topics(harness: AppHarness) -> None:
    """A repartition topic has as many partitions as the largest topic upstream; with that many tasks behind it."""
    assert (await harness.log.describe_topics(["app-by-value-repartition"]))["app-by-value-repartition"].partitions == 3
    assert (await harness.log.describe_topics(["app-counts-changelog"]))["app-counts-changelog"].partitions == 3
    assert len(harness.app._metrics.tasks) == 6


# --- topics that come later -----------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_records_for_a_topic_that_was_made_later_are_partitioned() -> None:
    """A topic that did not exist at the start is written to by its real number of partitions, in order."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to(lambda key, value, context: value, Produced(serdes.STRING, serdes.STRING))

    from ks_actors.log import IsolationLevel  # noqa: PLC0415 - of this test alone

    READ = IsolationLevel.READ_UNCOMMITTED  # noqa: N806 - a constant
    async with AppHarness(builder.build(), topics={"in": 1}) as harness:
        from ks_actors.log import NewTopic  # noqa: PLC0415 - made later

        await harness.log.create_topics([NewTopic("late", 4)])
        for _ in range(3):
            await harness.produce_all("in", [TestRecord(f"k{number}", "late", number) for number in range(50)])
            await harness.turns(20)
        await harness.caught_up()
        found = await harness.read("late")
        assert len(found) == 150
        sizes = [len(await harness._batches(TopicPartition("late", number), 0, READ)) for number in range(4)]
        assert all(sizes)
        for number in range(50):
            assert [record.timestamp for record in found if record.key == f"k{number}".encode()] == [number] * 3


@in_app(echo(), topics={"in": 1, "out": 1})
async def test_a_topic_that_is_deleted_under_the_app_is_named(harness: AppHarness) -> None:
    """When an input topic is gone the app ends with an error that says so."""
    await harness.log.delete_topics(["in"])
    await asyncio.sleep(0.1)
    error = await harness.ended()
    assert "in" in str(error)
    assert error is not None
