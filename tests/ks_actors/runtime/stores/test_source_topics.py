"""Tables with source topics as their changelogs (`reuse.ktable.source.topics`)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from ks_actors import Batch, ConfigError, StreamsConfig, serdes
from ks_actors.dsl import Joined, Materialized, Produced, Stream, StreamsBuilder
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.query import FailureReason, KeyQuery, Position, PositionBound, StateQueryRequest
from ks_actors.records._partitioner import partition as partition_of
from ks_actors.testing import AppHarness, TestRecord
from ks_actors.topology import Topology
from tests.ks_actors.query.helpers import UNCOMMITTED
from tests.ks_actors.runtime.helpers import STRINGS, feed, feed_all, in_app, in_virtual_time
from tests.ks_actors.runtime.stores.standbys import Heard, active, other, settled, standing

STORES = ("rocksdb", "in_memory")
REUSE = "reuse.ktable.source.topics"
TOPICS = {"table": 2, "in": 2, "out": 1}
OPTIONS: dict[str, Any] = {"topics": TOPICS, "wall_clock_ms": 1_000_000}


def joined(store: Any, **options: Any) -> Topology:
    """A table, and a stream that is joined with it."""
    builder = StreamsBuilder()
    table = builder.table("table", STRINGS, Materialized("rows", serdes.STRING, serdes.STRING, store_type=store, **options))
    both = builder.stream("in", STRINGS).left_join(table, lambda value, row: f"{value}:{row}", Joined(serdes.STRING, serdes.STRING))
    both.to("out", Produced(serdes.STRING, serdes.STRING))
    return builder.build(StreamsConfig(application_id="app", topology_optimization=REUSE))


async def write(harness: AppHarness, rows: Mapping[str, str | None], since: int = 0) -> None:
    for number, (key, value) in enumerate(rows.items()):
        await harness.produce("table", key, value, since + number)


async def rows_of(*harnesses: AppHarness) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for harness in harnesses:
        async for key, value in harness.app.store("rows", timestamped=True, stale=True).all():
            found[key] = (value.value, value.timestamp)
    return found


async def topics(harness: AppHarness) -> set[str]:
    return set(await harness.log.describe_topics())


@pytest.mark.parametrize("store", STORES)
@in_virtual_time
async def test_a_table_is_restored_from_its_topic(store: str, guarantee: str) -> None:
    """No changelog is made; a wiped store comes back from the topic, up to the commit, the rest is processed. Deletions and nulls count."""
    heard = Heard()
    async with AppHarness(joined(store), processing_guarantee=guarantee, topology_optimization=REUSE, restore_listener=heard, **OPTIONS) as harness:
        await write(harness, {f"k{number}": f"v{number}" for number in range(40)})
        await write(harness, {f"k{number}": None for number in range(5)}, 100)
        await feed(harness, "table", None, "nobody's", 5)
        assert await topics(harness) == set(TOPICS)
        before = await rows_of(harness)
        assert before == {f"k{number}": (f"v{number}", number) for number in range(5, 40)}
        await harness.close()
        await write(harness, {"k39": "after", "new": "after"}, 200)
        harness.wipe_state()
        heard.told.clear()
        await harness.start()
        assert heard.count("running") == 46  # what was committed, and no more
        await harness.caught_up()
        assert await rows_of(harness) == before | {"k39": ("after", 200), "new": ("after", 201)}
        await harness.produce("in", "k39", "x", 300)
        await feed(harness, "in", "k0", "y", 301)
        assert sorted(str(record.value) for record in await harness.read("out")) == ["x:after", "y:None"]
        lags = (await harness.app.store_lags())["rows"]
        assert {number: lag.offset_lag for number, lag in lags.items()} == {0: 0, 1: 0}
        assert await topics(harness) == set(TOPICS)


@in_virtual_time
async def test_a_crash_restores_a_tail(guarantee: str) -> None:
    """The offset in the topic is on disk with the rows; uncommitted records are processed again, and have not been restored."""
    heard = Heard()
    async with AppHarness(
        joined("rocksdb"), processing_guarantee=guarantee, topology_optimization=REUSE, restore_listener=heard, commit_interval_ms=5_000, **OPTIONS
    ) as harness:
        await write(harness, {f"k{number}": "a" for number in range(30)})
        await harness.caught_up()
        await harness.close()
        await harness.start()
        await write(harness, {f"k{number}": "b" for number in range(10)}, 100)
        await harness.caught_up()
        await harness.app.commit()
        heard.told.clear()
        await write(harness, {f"k{number}": "c" for number in range(5)}, 200)
        await harness.crash()
        await harness.start()
        starts = heard.take("restore")
        assert sum(start or 0 for start in starts.values()) == 30
        assert heard.count("running") == 10
        await harness.caught_up()
        expected = {f"k{number}": "c" if number < 5 else "b" if number < 10 else "a" for number in range(30)}
        assert {key: value for key, (value, _) in (await rows_of(harness)).items()} == expected


@pytest.mark.parametrize("store", STORES)
@in_app(lambda store: joined(store), topology_optimization=REUSE, num_standby_replicas=1, commit_interval_ms=5_000, **OPTIONS)
async def test_a_standby_follows_the_topic_as_far_as_it_is_committed(harness: AppHarness, store: str) -> None:
    """It never has records that the task has not processed: else the task that it becomes would not notice their changes."""
    async with other(harness) as second:
        await settled(harness.kit)
        assert len(active(harness)) == len(active(second)) == len(standing(harness)) == len(standing(second)) == 1
        await write(harness, {f"k{number}": "a" for number in range(20)})
        await harness.caught_up()
        for one in (harness, second):
            await one.app.commit()
        await harness.kit.clock.advance(12)
        everything = {f"k{number}": ("a", number) for number in range(20)}
        assert await rows_of(harness) == await rows_of(second) == everything
        await write(harness, {f"k{number}": "b" for number in range(20)}, 100)
        await harness.kit.clock.advance(1)
        copies = [await rows_of(one) for one in (harness, second)]
        for key in everything:
            assert sorted(copy[key][0] for copy in copies) == ["a", "b"]
        await harness.kit.clock.advance(12)
        assert await rows_of(harness) == await rows_of(second) == {f"k{number}": ("b", 100 + number) for number in range(20)}
        await second.crash()
        await harness.caught_up()
        assert await rows_of(harness) == {f"k{number}": ("b", 100 + number) for number in range(20)}


@in_app(joined("rocksdb"), topology_optimization=REUSE, num_standby_replicas=1, commit_interval_ms=5_000, **OPTIONS)
async def test_a_position_is_that_of_the_topic(harness: AppHarness) -> None:
    """A standby, and a store that is restored, know how far they are in the topic without being told."""
    async with other(harness) as second:
        await settled(harness.kit)
        await write(harness, {f"k{number}": "a" for number in range(20)})
        await harness.caught_up()
        await harness.kit.clock.advance(12)
        ends = await harness.log.end_offsets([TopicPartition("table", number) for number in range(2)], UNCOMMITTED)
        for one, (partition, end) in product((harness, second), ends.items()):
            number = partition.partition
            for at, failure in ((end - 1, None), (end, FailureReason.NOT_UP_TO_BOUND)):
                bound = PositionBound.at(Position.of({"table": {number: at}}))
                answer = await one.app.query(StateQueryRequest(store="rows", query=KeyQuery("k0"), bound=bound))
                assert answer.partition_results[number].failure is failure


@in_app(joined("in_memory"), topology_optimization=REUSE, auto_offset_reset="latest", start=False, **OPTIONS)
async def test_without_a_committed_offset_nothing_is_restored(harness: AppHarness) -> None:
    """A table that begins at the topic's end has no earlier records; a partition is restored when something of it was committed."""
    await write(harness, {f"k{number}": "a" for number in range(20)})
    await harness.start()
    assert await rows_of(harness) == {}
    await write(harness, {"k3": "b"}, 50)
    await harness.kit.clock.advance(2)
    assert await rows_of(harness) == {"k3": ("b", 50)}
    await harness.close()
    await harness.start()
    found = await rows_of(harness)
    assert found["k3"] == ("b", 50)
    assert {partition_of(key.encode(), 2) for key in found} == {partition_of(b"k3", 2)}


@in_virtual_time
async def test_a_topic_with_fewer_partitions_fills_fewer_stores() -> None:
    """Tasks beyond its partitions have an empty table, and read nothing for it."""
    builder = StreamsBuilder()
    table = builder.table("table", STRINGS, Materialized("rows", serdes.STRING, serdes.STRING))
    stream: Stream[str, Any] = builder.stream("in", STRINGS)
    stream.merge(table.to_stream()).to("out", Produced(serdes.STRING, serdes.STRING))
    topology = builder.build(StreamsConfig(application_id="app", topology_optimization=REUSE))
    async with AppHarness(topology, topics={"table": 1, "in": 3, "out": 1}, topology_optimization=REUSE) as harness:
        await write(harness, {"a": "1"})
        await feed_all(harness, "in", [TestRecord(f"k{number}", "x", 0) for number in range(9)])
        harness.wipe_state() if harness.app.state.name == "NOT_RUNNING" else None
        assert await rows_of(harness) == {"a": ("1", 0)}
        await harness.close()
        harness.wipe_state()
        await harness.start()
        assert await rows_of(harness) == {"a": ("1", 0)}
        assert len(await harness.read("out")) == 10


@in_app(joined("rocksdb"), topology_optimization=REUSE, topics={**TOPICS, "table": 1, "in": 1}, wall_clock_ms=1_000_000)
async def test_a_topic_that_has_been_cut_is_restored_from_its_beginning(harness: AppHarness) -> None:
    """A store that is behind the begin of the topic is wiped, and has the content of the topic."""
    await write(harness, {f"k{number}": "a" for number in range(10)})
    await harness.caught_up()
    await harness.close()
    harness.wipe_state()
    ends = await harness.log.end_offsets([TopicPartition("table", 0)], UNCOMMITTED)
    await harness.log.delete_records({TopicPartition("table", 0): ends[TopicPartition("table", 0)] - 2})
    await harness.start()
    await harness.caught_up()
    assert await rows_of(harness) == {"k8": ("a", 8), "k9": ("a", 9)}


@in_app(joined("rocksdb"), topology_optimization=REUSE, topics={**TOPICS, "table": 1, "in": 1}, wall_clock_ms=1_000_000)
async def test_only_visible_records_are_restored_from_a_topic_with_transactions(harness: AppHarness) -> None:
    """At least once a table has aborted records, too: so it does after it was restored."""
    producer = await harness.log.transactional_producer("other", client_id="other", timeout_ms=60_000)
    await producer.send([Outgoing(TopicPartition("table", 0), Batch([b"a"], [b"1"], [7]))])
    await producer.abort()
    await producer.close()
    await harness.caught_up()
    before = await rows_of(harness)
    await harness.close()
    harness.wipe_state()
    await harness.start()
    assert await rows_of(harness) == before == {"a": ("1", 7)}


@in_virtual_time
async def test_an_optimization_that_was_not_built_in_is_an_error() -> None:
    """The setting is not ignored: a topology that was built without it is refused. One by hand has nothing to be optimized."""
    builder = StreamsBuilder()
    builder.table("table", STRINGS, Materialized("rows", serdes.STRING, serdes.STRING))
    async with AppHarness(builder.build(), topology_optimization=REUSE, start=False, **OPTIONS) as harness:
        with pytest.raises(
            ConfigError, match=r"topology_optimization has reuse\.ktable\.source\.topics, but the topology was built without: pass the config to"
        ):
            await harness.start()
