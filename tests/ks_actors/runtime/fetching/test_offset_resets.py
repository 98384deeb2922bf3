"""Tasks with several inputs of which one is read on from somewhere else."""

from __future__ import annotations

from typing import Any

import pytest

from ks_actors import Repartitioned, UnknownTopicOrPartition, serdes
from ks_actors.dsl import StreamsBuilder
from ks_actors.log import OffsetAndMetadata, TopicPartition
from ks_actors.runtime import UncaughtResponse, blocking
from ks_actors.testing import AppHarness, TestRecord
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, feed, feed_all, in_app, in_virtual_time

TOPICS = {"left": 1, "right": 1, "out": 1}
RIGHT = TopicPartition("right", 0)


@blocking
def in_thread(value: str) -> str:
    return value


def merged(*, threads: bool = False) -> Topology:
    builder = StreamsBuilder()
    both = builder.stream("left", STRINGS).merge(builder.stream("right", STRINGS))
    (both.map_values(in_thread) if threads else both).to("out", STRINGS_OUT)
    return builder.build()


def committed(harness: AppHarness, partition: TopicPartition) -> int:
    return harness.log._groups.get("app").committed()[partition].offset


async def values(harness: AppHarness) -> list[Any]:
    return [record.value for record in await harness.read("out")]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("threads", [False, True])
@in_virtual_time
async def test_a_task_goes_on_when_one_input_is_reset_to_an_empty_log(guarantee: str, reset: str, threads: bool) -> None:
    """The other input is processed, and the new position is committed in place of the one that the log does not have."""
    async with AppHarness(
        merged(threads=threads),
        topics=TOPICS,
        processing_guarantee=guarantee,
        auto_offset_reset=reset,
        buffered_records_per_partition=20,
        commit_interval_ms=100,
    ) as harness:
        await harness.app.pause()
        for number in range(60):
            await harness.produce("right", "a", f"r{number}", number)
            await harness.turns(10)
        await harness.kit.clock.advance(1)
        await harness.log.delete_records({RIGHT: 60})
        await harness.produce_all("left", [TestRecord("a", f"l{number}", 1000 + number) for number in range(30)])
        await harness.app.resume()
        await harness.caught_up()
        found = await values(harness)
        assert [value for value in found if value[0] == "l"] == [f"l{number}" for number in range(30)]
        assert 20 <= len(found) - 30 < 60
        assert committed(harness, RIGHT) == 60


@in_app(merged(), topics=TOPICS, commit_interval_ms=100)
async def test_a_start_behind_the_beginning_of_the_log_is_committed_anew(harness: AppHarness, guarantee: str) -> None:
    """A committed position that the log does not have any more is replaced though no record ever comes, and the other input is processed."""
    await feed_all(harness, "right", [TestRecord("a", f"r{number}", number) for number in range(9)])
    await harness.close()
    harness.log._broker.offsets["app"][RIGHT] = OffsetAndMetadata(2, "")
    await harness.log.delete_records({RIGHT: 9})
    await harness.start()
    await harness.produce("left", "a", "l", 100)
    await harness.kit.clock.advance(5)
    assert (await values(harness))[-1] == "l"
    assert committed(harness, RIGHT) == 9


@in_virtual_time
async def test_a_rollback_does_not_go_back_to_a_position_that_the_log_does_not_have() -> None:
    """With auto_offset_reset latest, records behind a reset are processed again after a rollback, not passed over by another reset."""
    failures = [RuntimeError("boom")]

    def fail_once(key: str, value: str) -> None:
        if value == "r9" and failures:
            raise failures.pop()

    async def fill(harness: AppHarness) -> int:
        for number in range(60):
            await harness.produce("right", "a", f"old{number}", 0)
            await harness.turns(10)
        return 60

    builder = StreamsBuilder()
    builder.stream("right", STRINGS).peek(fail_once).to("out", STRINGS_OUT)
    async with AppHarness(
        builder.build(),
        topics={"right": 1, "out": 1},
        processing_guarantee="exactly_once_v2",
        auto_offset_reset="latest",
        buffered_records_per_partition=20,
        commit_interval_ms=60_000,
        max_poll_interval_ms=600_000,
        transaction_timeout_ms=120_000,
        uncaught_handler=lambda error: UncaughtResponse.REPLACE_WORKER,
    ) as harness:
        await harness.app.pause()
        await harness.log.delete_records({RIGHT: await fill(harness)})
        await harness.app.resume()
        await harness.kit.clock.advance(2)
        for number in range(10):
            await harness.produce("right", "a", f"r{number}", number)
        await harness.kit.clock.advance(1)
        assert not failures
        await harness.caught_up()
        assert (await values(harness))[-10:] == [f"r{number}" for number in range(10)]


@in_app(merged(), topics=TOPICS, buffered_records_per_partition=20)
async def test_a_position_is_searched_for_again_when_the_search_has_failed(harness: AppHarness, guarantee: str) -> None:
    """A broker may not know of a partition for a moment: it is read on when it does."""
    await harness.app.pause()
    for number in range(60):
        await harness.produce("right", "a", f"r{number}", number)
        await harness.turns(10)
    await harness.kit.clock.advance(1)
    await harness.log.delete_records({RIGHT: 60})
    harness.log.inject("begin_offsets", UnknownTopicOrPartition("this broker does not lead right-0 yet"))
    await harness.app.resume()
    await harness.kit.clock.advance(1)
    await feed(harness, "right", "a", "last", 60)
    assert (await values(harness))[-1] == "last"


@in_app(merged(), topics={"left": 2, "right": 2, "out": 1}, buffered_records_per_partition=20, commit_interval_ms=100)
async def test_a_position_is_searched_for_after_tasks_have_been_given_to_others(harness: AppHarness, guarantee: str) -> None:
    """A partition with a full buffer when another member joined is read on when its position is not in the log any more."""
    await harness.app.pause()
    for partition in range(2):
        for number in range(60):
            await harness.produce("right", f"{number}", f"r{number}", number, partition=partition)
            await harness.turns(10)
    await harness.kit.clock.advance(1)
    async with harness.another():
        await harness.kit.clock.advance(10)
    await harness.kit.clock.advance(1)
    await harness.log.delete_records({TopicPartition("right", number): 60 for number in range(2)})
    await harness.app.resume()
    for partition in range(2):
        await harness.produce("right", "last", f"last{partition}", 60, partition=partition)
    await harness.caught_up()
    assert {"last0", "last1"} <= set(await values(harness))


@in_app(merged(), topics=TOPICS)
async def test_an_empty_input_is_known_to_be_empty_when_the_first_look_has_failed(harness: AppHarness, guarantee: str) -> None:
    """Nothing else tells, and the other input of the task waits for it."""
    await harness.close()
    harness.log.inject("end_offsets", UnknownTopicOrPartition("this broker does not lead right-0 yet"))
    await harness.restart()
    await feed_all(harness, "left", [TestRecord("a", "l", 1)])
    assert await values(harness) == ["l"]


@pytest.mark.parametrize("reset", ["latest", "none"])
@in_virtual_time
async def test_a_repartition_topic_is_read_from_its_first_record(guarantee: str, reset: str) -> None:
    """Where nothing is committed, whatever auto_offset_reset says: the app has written what waits there, and may have died before it read that."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).repartition(Repartitioned(serdes.STRING, serdes.STRING, name="through", partitions=2)).to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics={"in": 1, "out": 1}, processing_guarantee=guarantee) as harness:
        await feed(harness, "in", "a", "v", partition=0)
        await harness.close()
        topic = "app-through-repartition"
        (other,) = {0, 1} - {number for number in (0, 1) if TopicPartition(topic, number) in harness.log._groups.get("app").committed()}
        await harness.produce(topic, b"b", b"w", partition=other)
        await harness.restart(auto_offset_reset=reset)
        await harness.caught_up()
        assert sorted(await values(harness)) == ["v", "w"]
