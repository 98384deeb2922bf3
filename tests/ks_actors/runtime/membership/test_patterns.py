"""Patterns follow the topics: those that come are read within a bound, those that go leave, and there may be none at the start."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from ks_actors import App, Consumed, Grouped, Materialized, Produced, StreamsBuilder, StreamsConfig, TopologyError
from ks_actors.log import NewTopic, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.serdes import LONG, STRING
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import in_app, in_virtual_time

STRINGS = Consumed(STRING, STRING)
AGE_MS = 20_000
OUT = {"out": 1}


def following(*, counted: bool = False, by_value: bool = False) -> Topology:
    """Read all topics with names that begin with `in-`."""
    builder = StreamsBuilder()
    stream = builder.stream(re.compile("in-.*"), STRINGS)
    if counted:
        stream.group_by_key().count(Materialized("counts", STRING, LONG)).to_stream().to("out", Produced(STRING, LONG))
    elif by_value:
        table = stream.group_by(lambda _, value: value, Grouped(STRING, STRING, name="by-value")).count(Materialized("values", STRING, LONG))
        table.to_stream().to("out", Produced(STRING, LONG))
    else:
        stream.to("out", Produced(STRING, STRING))
    return builder.build()


async def send(harness: AppHarness, topic: str, *values: str, partition: int = 0) -> None:
    for value in values:
        await harness.produce(topic, value.encode(), value.encode(), partition=partition)


async def values(harness: AppHarness) -> list[object]:
    return sorted((record.value for record in await harness.read("out")), key=str)


async def until_read(harness: AppHarness, count: int, within_ms: int) -> None:
    """Wait until so many records have come out."""
    async with asyncio.timeout(within_ms / 1000):
        while len(await harness.read("out")) < count:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("members", [1, 2])
@in_app(following(), topics={"in-a": 1, **OUT}, metadata_max_age_ms=AGE_MS)
async def test_topics_that_come_are_read_within_the_age_of_metadata(harness: AppHarness, guarantee: str, members: int) -> None:
    """Records that were there before are read, too; tasks that get a partition more are begun anew, and nothing comes twice."""
    async with harness.another(start=members > 1):
        await send(harness, "in-a", "1", "2")
        await harness.caught_up()
        await harness.log.create_topics([NewTopic("in-b", 3), NewTopic("other", 1)])
        await send(harness, "in-b", "3", partition=2)
        await send(harness, "in-b", "4")
        await until_read(harness, 4, 3 * AGE_MS)
        await send(harness, "in-a", "5")
        await send(harness, "in-b", "6", partition=1)
        await until_read(harness, 6, AGE_MS)
        await harness.caught_up()
        assert await values(harness) == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("counted", ["", "counted", "by_value"])
@in_virtual_time
async def test_an_app_may_start_before_any_topic_matches(guarantee: str, counted: str) -> None:
    """It reads the topics when they come, and makes its own topics then, with as many partitions as these need."""
    topology = following(**({counted: True} if counted else {}))
    async with AppHarness(topology, topics=OUT, processing_guarantee=guarantee, metadata_max_age_ms=AGE_MS) as harness:
        assert harness.app.state.name == "RUNNING"
        await harness.log.create_topics([NewTopic("in-a", 3)])
        await send(harness, "in-a", "x", partition=2)
        await until_read(harness, 1, 3 * AGE_MS)
        assert await values(harness) == ([1] if counted else ["x"])
        topics = await harness.log.describe_topics()
        internal = {name: topic.partitions for name, topic in topics.items() if name.startswith("app-")}
        assert set(internal.values()) <= {3}
        assert bool(internal) == bool(counted)


@in_app(following(), topics={"in-a": 1, "in-b": 1, **OUT}, metadata_max_age_ms=AGE_MS)
async def test_topics_that_are_deleted_leave(harness: AppHarness, guarantee: str) -> None:
    """The app goes on with the others, and a topic that comes again by that name is read from its begin."""
    await send(harness, "in-a", "1")
    await send(harness, "in-b", "2")
    await harness.caught_up()
    await harness.log.delete_topics(["in-b"])
    await send(harness, "in-a", "3")
    await until_read(harness, 3, 3 * AGE_MS)
    async with asyncio.timeout(3 * AGE_MS / 1000):
        while any(partition.topic == "in-b" for task in harness.app._metrics.tasks.values() for partition in task.group.queues):
            await asyncio.sleep(0.1)
    await send(harness, "in-a", "4")
    await until_read(harness, 4, AGE_MS)
    assert harness.app.state.name == "RUNNING"


@in_app(following(counted=True), topics={"in-a": 1, **OUT}, metadata_max_age_ms=AGE_MS)
async def test_a_topic_that_the_state_does_not_fit_ends_the_app(harness: AppHarness, guarantee: str) -> None:
    """A changelog has as many partitions as there were tasks: the error names it, and both numbers."""
    await send(harness, "in-a", "1")
    await harness.caught_up()
    await harness.log.create_topics([NewTopic("in-b", 2)])
    error = await harness.ended(3 * AGE_MS)
    assert isinstance(error, TopologyError)
    assert "app-counts-changelog has 1 partition and needs 2" in str(error)
    assert [record.value for record in await harness.read("out")] == [1]


def joined() -> Topology:
    """Join the topics of a pattern with a table."""
    builder = StreamsBuilder()
    table = builder.table("table", STRINGS)
    builder.stream(re.compile("in-.*"), STRINGS).join(table, lambda one, two: f"{one}{two}").to("out", Produced(STRING, STRING))
    return builder.build()


UNEQUAL = "topics that are joined must have the same number of partitions, but in-a has 2, in-b has 1, table has 2: repartition one of them"


async def never(harness: AppHarness) -> None:
    raise AssertionError(f"the app has started: {harness.app.state}")


@pytest.mark.parametrize("table", [2, 1])
def test_joined_topics_of_a_pattern_need_equal_numbers_of_partitions(table: int) -> None:
    """A key would meet the rows of another partition: the app does not start, and the error names all topics with their numbers."""
    with pytest.raises(TopologyError, match=UNEQUAL.replace("table has 2", f"table has {table}")):
        run_app(never, joined(), topics={"in-a": 2, "in-b": 1, "table": table, **OUT})


def test_a_backfill_refuses_joined_topics_of_a_pattern_with_unequal_numbers_of_partitions(tmp_path: Path) -> None:
    """As the app does, before it reads anything."""

    async def filled_back() -> None:
        async with EmbeddedLog() as log:
            await log.create_topics([NewTopic("in-a", 2), NewTopic("in-b", 1), NewTopic("table", 2), NewTopic("out", 1)])
            config = StreamsConfig(application_id="app", state_dir=tmp_path / "state")
            await App(joined(), config, log=log).backfill(directory=tmp_path)

    with pytest.raises(TopologyError, match=UNEQUAL):
        asyncio.run(filled_back())


@in_app(joined(), topics={"in-a": 2, "table": 2, **OUT}, metadata_max_age_ms=AGE_MS)
async def test_a_joined_topic_that_comes_with_another_number_of_partitions_ends_the_app(harness: AppHarness) -> None:
    """As one that the state does not fit does."""
    await harness.log.create_topics([NewTopic("in-b", 1)])
    error = await harness.ended(3 * AGE_MS)
    assert isinstance(error, TopologyError)
    assert UNEQUAL in str(error)


@in_app(following(counted=True), topics={"in-a": 1, "in-b": 3, **OUT})
async def test_topics_of_a_pattern_that_are_not_joined_may_have_any_number_of_partitions(harness: AppHarness) -> None:
    """Each partition of the largest has its task."""
    await send(harness, "in-b", "1", partition=2)
    await until_read(harness, 1, AGE_MS)


@in_virtual_time
async def test_patterns_never_match_internal_topics() -> None:
    """Patterns leave out Kafka's own topics too: nobody wants to read one's own changelog."""
    builder = StreamsBuilder()
    builder.stream(re.compile(".*n.*"), STRINGS).group_by_key().count(Materialized("counts", STRING, LONG))
    topology = builder.build()
    async with AppHarness(topology, topics={"in": 1, "__internal": 1}, metadata_max_age_ms=AGE_MS) as harness:
        await send(harness, "in", "1")
        await harness.caught_up()
        read = {partition for task in harness.app._metrics.tasks.values() for partition in task.group.queues}
        assert read == {TopicPartition("in", 0)}


@pytest.mark.parametrize("turns", range(0, 60, 4))
@in_app(following(), topics={"in-a": 1, "in-b": 1, **OUT}, metadata_max_age_ms=AGE_MS)
async def test_a_topic_that_comes_again_at_once_is_read(harness: AppHarness, guarantee: str, turns: int) -> None:
    """Whether the app has noticed that it was gone or not: nothing else makes the group assign anew then."""
    await send(harness, "in-a", "1")
    await harness.caught_up()
    await harness.log.delete_topics(["in-b"])
    await harness.turns(turns)
    await harness.log.create_topics([NewTopic("in-b", 1)])
    await send(harness, "in-b", "2")
    await until_read(harness, 2, AGE_MS // 2)
    assert await values(harness) == ["1", "2"]


@in_app(
    following(),
    topics={"in-a": 1, "in-b": 1, **OUT},
    metadata_max_age_ms=AGE_MS,
    commit_interval_ms=100 * AGE_MS,
    transaction_timeout_ms=200 * AGE_MS,
)
async def test_topics_that_are_gone_may_be_in_a_commit(harness: AppHarness, guarantee: str) -> None:
    """It fails, and the app goes on without them."""
    await send(harness, "in-a", "1")
    await send(harness, "in-b", "2")
    await asyncio.sleep(1)
    await harness.app.pause()
    await harness.log.delete_topics(["in-b"])
    await asyncio.sleep(3 * AGE_MS / 1000)
    await harness.app.resume()
    await send(harness, "in-a", "4")
    async with asyncio.timeout(3 * AGE_MS / 1000):
        while "4" not in await values(harness):
            await asyncio.sleep(5)
            await harness.app.commit()
    assert harness.app.state.name == "RUNNING"
