"""Topics that are read, and that get more partitions while the app runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ks_actors import InstanceState, MissingSourceTopics, StreamsConfig, TopologyError, UncaughtResponse
from ks_actors.dsl import Consumed, Grouped, Joined, Materialized, Produced, Repartitioned, StreamsBuilder, TableJoined
from ks_actors.log import TopicPartition
from ks_actors.serdes import LONG, STRING
from ks_actors.testing import AppHarness
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import EOS, STRINGS, STRINGS_OUT, counting, echo, feed, in_app, in_virtual_time


def handler_that_counts(asked: list[Exception]) -> Any:
    def handle(error: Exception) -> UncaughtResponse:
        asked.append(error)
        return UncaughtResponse.REPLACE_WORKER

    return handle


async def committed(harness: AppHarness) -> dict[TopicPartition, int]:
    return {partition: offset.offset for partition, offset in harness.log._groups.get("app").committed().items()}


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@in_virtual_time
async def test_a_partition_that_is_added_is_read_from_its_first_record(guarantee: str, reset: str) -> None:
    """Where there is no state the app goes on, and nothing of the new partition is left out, with any auto_offset_reset."""
    async with AppHarness(echo(), topics={"in": 2, "out": 1}, processing_guarantee=guarantee, auto_offset_reset=reset) as harness:
        async with harness.another():
            await asyncio.sleep(1)
            for number in range(2):
                await harness.produce("in", "a", f"of {number}", partition=number)
            await harness.caught_up()
            harness.create_partitions({"in": 5})
            for number in range(2, 5):
                await harness.produce("in", "a", f"of {number}", partition=number)
            await harness.caught_up()
            assert sorted([str(record.value) for record in await harness.read("out")]) == [f"of {number}" for number in range(5)]
            await harness.crash()
            await harness.produce("in", "a", "of 3 again", partition=3)
            await harness.restart()
            await harness.caught_up()
        assert len(await harness.read("out")) == 6


def merged() -> Topology:
    """Count by another key, in a repartition topic as large as the input."""
    return counting(repartition=True)


def inner_join() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("names", STRINGS, Materialized("names", STRING, STRING))
    builder.stream("in", STRINGS).join(table, lambda left, right: left + right, Joined(STRING, STRING, STRING)).to("out", STRINGS_OUT)
    return builder.build()


def foreign_key_join(name: str | None) -> Topology:
    builder = StreamsBuilder()
    table, other = builder.table("in", STRINGS), builder.table("names", STRINGS)
    joined = table.join(other, lambda left, right: left + right, foreign_key=lambda value: value, joined=TableJoined(name=name))
    joined.to_stream().to("out", STRINGS_OUT)
    return builder.build()


@pytest.mark.parametrize("name", [None, "of-names"])
@pytest.mark.parametrize("grown", ["in", "names"])
@in_virtual_time
async def test_a_table_of_a_foreign_key_join_that_grows_has_the_reset_for_a_remedy(name: str | None, grown: str) -> None:
    """Its partner need not grow with it: the app's own topics between the two, which the error names, are too small."""
    async with AppHarness(foreign_key_join(name), topics={"in": 2, "names": 2, "out": 1}) as harness:
        await harness.produce("names", "n", "v")
        await harness.caught_up()
        harness.create_partitions({grown: 3})
        error = await harness.ended()
        assert isinstance(error, TopologyError)
        for part in (f"{grown} has 3", "has 2", "topic", "ks-actors reset"):
            assert part in str(error)
        assert "joined need the same number" not in str(error)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (counting, ["app-counts-changelog has 2 partitions and needs 3, as many as in has"]),
        (merged, ["app-by-value-repartition has 2 partitions and needs 3, as many as in has", "app-counts-changelog has 2 partitions and needs 3"]),
        (inner_join, ["in has 3, names has 2"]),
    ],
)
@in_virtual_time
async def test_an_input_with_state_that_grows_ends_every_member_committed(guarantee: str, make: Any, told: list[str]) -> None:
    """By one error, of which the handler hears once, and which names the topics, both numbers, and the remedy; so does each later start."""
    asked: list[Exception] = []

    topics = {"in": 2, "names": 2, "out": 1}
    async with AppHarness(
        make(), topics=topics, processing_guarantee=guarantee, commit_interval_ms=10_000, uncaught_handler=handler_that_counts(asked)
    ) as harness:
        async with harness.another() as second:
            # Nobody commits these but the end.
            for number in range(20):
                await harness.produce("in", f"k{number}", f"v{number}", partition=number % 2)
            await asyncio.sleep(1)
            harness.create_partitions({"in": 3})
            errors = [await each.ended() for each in (harness, second)]
        assert {type(error) for error in errors} == {TopologyError}
        assert len({str(error) for error in errors}) == 1
        assert [str(error) for error in asked] == [str(errors[0])] * 2
        for part in (*told, "repartition"):
            assert part in str(errors[0])
        places = await committed(harness)
        assert sum(offset for partition, offset in places.items() if partition.topic == "in") == 20
        assert len(await harness.read("out")) == (20 if make is not inner_join else 0)
        if make is not inner_join:
            assert "ks-actors reset" in str(errors[0])
        with pytest.raises(TopologyError) as again:
            await harness.restart()
        for part in told if make is not inner_join else ["in has 3", "names has 2"]:
            assert part in str(again.value)


@in_virtual_time
async def test_state_stays_whole_when_an_input_without_a_share_in_it_grows() -> None:
    """A repartition topic that is told its number keeps it: the new partition is read, and counted in the old state."""

    def topology() -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream("in", STRINGS).repartition(Repartitioned(STRING, STRING, name="fixed", partitions=2))
        stream.group_by_key(Grouped(STRING, STRING)).count(Materialized("counts", STRING, LONG)).to_stream().to("out", Produced(STRING, LONG))
        return builder.build()

    async with AppHarness(topology(), topics={"in": 2, "out": 1}) as harness:
        await feed(harness, "in", "a", "1", partition=0)
        harness.create_partitions({"in": 4})
        await feed(harness, "in", "a", "2", partition=3)
        await harness.restart()
        await feed(harness, "in", "a", "3", partition=2)
        assert [record.value for record in await harness.read("out")] == [1, 2, 3]


@in_app(counting(topics=("in", "small")), topics={"in": 2, "small": 1, "out": 1})
async def test_a_smaller_topic_of_a_task_grows(harness: AppHarness) -> None:
    """As long as there are as many tasks as before, the state of each goes on with the partition that is added to it."""
    await feed(harness, "in", "a", "1", partition=1)
    harness.create_partitions({"small": 2})
    await feed(harness, "small", "a", "2", partition=1)
    assert [record.value for record in await harness.read("out")] == [1, 2]


@pytest.mark.parametrize("grown", [2, 3])
@in_virtual_time
async def test_a_task_that_begins_again_with_more_partitions_asks_for_no_other_assignment(grown: int) -> None:
    """It was given up for nobody else."""
    builder = StreamsBuilder()
    builder.stream(["in", "small"], STRINGS).to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics={"in": 3, "small": 1, "out": 1}) as harness:
        before = harness.log._groups.get("app").generation
        harness.create_partitions({"small": grown})
        await harness.produce("small", "a", "new", partition=grown - 1)
        await harness.caught_up()
        await harness.kit.clock.advance(5)
        assert harness.log._groups.get("app").generation == before + 1
        assert [record.value for record in await harness.read("out")] == ["new"]


def table_by_its_topic() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("names", Consumed(STRING, STRING), Materialized("names", STRING, STRING))
    table.to_stream().to("out", STRINGS_OUT)
    return builder.build(StreamsConfig(application_id="app", topology_optimization="reuse.ktable.source.topics"))


@pytest.mark.parametrize("replicas", [0, 1])
@in_virtual_time
async def test_rows_of_a_table_that_is_restored_from_its_topic_are_kept_when_that_grows(guarantee: str, replicas: int) -> None:
    """The rows of the new partition are restored from it, as others are from theirs, also where the disk is gone."""

    async def rows(harness: AppHarness, other: AppHarness) -> dict[str, str]:
        found: dict[str, str] = {}
        for each in (harness, other):
            if each._app is not None:
                found.update(dict(await each.app.store("names").all()))
        return found

    async with (
        AppHarness(
            table_by_its_topic(),
            topics={"names": 2, "out": 1},
            processing_guarantee=guarantee,
            topology_optimization="reuse.ktable.source.topics",
            num_standby_replicas=replicas,
        ) as harness,
        harness.another() as other,
    ):
        await feed(harness, "names", "a", "anne", partition=0)
        harness.create_partitions({"names": 3})
        await feed(harness, "names", "b", "bob", partition=2)
        await other.crash()
        other.wipe_state()
        await other.restart()
        await harness.crash()
        harness.wipe_state()
        await harness.produce("names", "c", "carl", partition=2)
        await asyncio.sleep(60)  # the group notices the crash
        await other.caught_up()
        assert await rows(harness, other) == {"a": "anne", "b": "bob", "c": "carl"}


@pytest.mark.parametrize("topic", ["in", "app-by-value-repartition"])
@in_app(counting(repartition=True), topics={"in": 2, "out": 1})
async def test_an_input_that_is_deleted_ends_every_member(harness: AppHarness, guarantee: str, topic: str) -> None:
    """A deleted input topic ends every member by MissingSourceTopics, which names it."""
    async with harness.another() as second:
        await feed(harness, "in", "a", "1")
        harness.delete_topics(topic)
        for each in (harness, second):
            error = await each.ended()
            assert isinstance(error, MissingSourceTopics), repr(error)
            assert topic in str(error)


@in_app(counting(), topics={"in": 2, "out": 1}, processing_guarantee=EOS)
async def test_a_member_that_joins_while_the_input_grows_gets_the_same_error(harness: AppHarness) -> None:
    """Whether it comes before the growth or after it."""
    harness.create_partitions({"in": 3})
    async with harness.another(start=False) as late:
        with pytest.raises(TopologyError, match="app-counts-changelog has 2 partitions and needs 3, as many as in has"):
            await late.start()
    assert isinstance(await harness.ended(), TopologyError)
    assert harness._app is None or harness.app.state is InstanceState.ERROR
    await asyncio.sleep(0)


@in_virtual_time
async def test_a_global_table_whose_topic_grows_warns(caplog: pytest.LogCaptureFixture) -> None:
    """Once, and names the topic and both numbers; after a restart it has the rows of all partitions."""
    builder = StreamsBuilder()
    names = builder.global_table("names", STRINGS, Materialized("names", STRING, STRING))
    builder.stream("in", STRINGS).join(names, lambda key, _: key, lambda left, right: left + right).to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics={"in": 1, "names": 2, "out": 1}, metadata_max_age_ms=5_000) as harness:
        harness.create_partitions({"names": 3})
        await harness.produce("names", "a", "anne", partition=2)
        await asyncio.sleep(30)
        (warning,) = [record.getMessage() for record in caplog.records if "names" in record.getMessage()]
        assert "names has 3 partitions now, but the global table of this instance reads only the first 2: restart the instance" in warning
        await harness.restart()
        await feed(harness, "in", "a", "1 ")
        assert [record.value for record in await harness.read("out")] == ["1 anne"]
