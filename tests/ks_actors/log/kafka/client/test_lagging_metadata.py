"""Brokers whose metadata lag behind those of others: a topic that one does not know may be new, and one that it knows may be gone."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from actors.testing import TestKit, run
from ks_actors import InstanceState, MissingSourceTopics, NotAuthorized, TopicExists, UnknownTopicOrPartition
from ks_actors.dsl import Consumed, Materialized, Produced, StreamsBuilder
from ks_actors.log import IsolationLevel, NewTopic, TopicDescription, TopicPartition
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.client._known_topics import topics_in
from ks_actors.log.kafka.wire import MetadataRequest
from ks_actors.runtime.shared import unlisted_topics
from ks_actors.serdes import BYTES, LONG
from ks_actors.topology import Topology
from tests.chaos.checks import EXACTLY_ONCE
from tests.kafka.broker import Broker
from tests.kafka.cluster import Cluster, cluster
from tests.kafka.counting import counting
from tests.ks_actors.log.helpers import group_name, new_topic
from tests.ks_actors.log.kafka.client.lagging import UNKNOWN, Lagging
from tests.waiting import until

__all__ = ["cluster"]

SOME = 3


@pytest.fixture
def lagging(monkeypatch: pytest.MonkeyPatch) -> Lagging:
    """Change answers about topics."""
    return Lagging(monkeypatch)


async def until_none_is_left(lagging: Lagging) -> None:
    """Wait until the app has been told wrong things."""
    await until(lambda: not lagging.left)


def count_by_pattern(prefix: str, sink: str) -> Topology:
    """Count the records of all topics with a prefix."""
    builder = StreamsBuilder()
    counts = builder.stream(re.compile(f"{prefix}.*"), Consumed(BYTES, BYTES)).group_by_key().count(Materialized("counts", BYTES, LONG))
    counts.to_stream().to(sink, Produced(BYTES, LONG))
    return builder.build()


async def test_a_topic_that_one_broker_does_not_know_is_described(log: KafkaLog, lagging: Lagging) -> None:
    """The brokers are asked for a moment before it counts as missing, and for no other topic meanwhile."""
    (late,), (known,) = await new_topic(log), await new_topic(log)
    lagging.lacks(late.topic, times=SOME)
    assert set(await log.describe_topics([late.topic, known.topic], configs=False)) == {late.topic, known.topic}
    assert lagging.left == 0


async def test_the_wait_for_a_topic_begins_with_the_first_answer(log: KafkaLog, lagging: Lagging, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that were away for longer than it are still asked more than once."""
    (late,) = await new_topic(log)
    lagging.lacks(late.topic, times=1)
    told, until = KafkaClient.send, asyncio.get_running_loop().time() + 1.5 * log._client.options.missing_topic_wait_s

    async def send(client: KafkaClient, node: int, request: Any, **options: Any) -> Any:
        if asyncio.get_running_loop().time() < until:
            raise Unavailable("away", away=True)
        return await told(client, node, request, **options)

    monkeypatch.setattr(KafkaClient, "send", send)
    assert set(await log.describe_topics([late.topic], configs=False)) == {late.topic}
    assert lagging.left == 0


async def test_offsets_of_a_partition_that_one_broker_does_not_know_are_found(log: KafkaLog, lagging: Lagging) -> None:
    """Its leader is looked up again."""
    (partition,) = await new_topic(log)
    log._client._topics.found.pop(partition.topic, None)
    lagging.lacks(partition.topic, times=SOME)
    assert await log.end_offsets([partition], IsolationLevel.READ_UNCOMMITTED) == {partition: 0}
    assert lagging.left == 0


async def test_callers_wait_for_a_missing_partition_beside_each_other(kafka_broker: Broker) -> None:
    """Each for `missing_topic_wait_ms`, whatever others wait for; then all get the same error, before the deadline of the call."""
    async with KafkaLog(kafka_broker.bootstrap, options=KafkaOptions(api_timeout_ms=30_000)) as log:
        missing = TopicPartition(f"topic-{group_name()}", 0)
        began = asyncio.get_running_loop().time()
        for calls in (1, 2):
            asked = [log.begin_offsets([missing]) for _ in range(60)]
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [UnknownTopicOrPartition] * 60
            assert asyncio.get_running_loop().time() - began >= calls * log._client.options.missing_topic_wait_s
        assert await log.describe_topics([missing.topic]) == {}


async def test_a_topic_is_made_anew_though_a_broker_still_knows_the_deleted_one(log: KafkaLog, lagging: Lagging) -> None:
    """The controller decides whether it exists."""
    (partition,) = await new_topic(log)
    await log.describe_topics([partition.topic])
    await log.delete_topics([partition.topic])
    lagging.still_has(partition.topic, times=1)
    await log.create_topics([NewTopic(partition.topic, 1)])
    assert lagging.left == 0
    assert set(await log.describe_topics([partition.topic])) == {partition.topic}
    with pytest.raises(TopicExists, match=partition.topic):
        await log.create_topics([NewTopic(partition.topic, 1)])


@pytest.mark.timeout(300)
async def test_all_brokers_have_heard_of_a_topic_that_was_created_or_deleted(cluster: Cluster) -> None:
    """So whatever comes next may ask any of them, but a call does not wait for one that is away."""
    async with KafkaLog(cluster.bootstrap) as log:
        topic = f"topic-{group_name()}"

        async def known() -> list[str | None]:
            """Return the id of the topic on each broker, None for none."""
            answers = [await log._client.send(node.number, MetadataRequest([topic])) for node in cluster.nodes if node.runs]
            return [found[topic].id if topic in found else None for found in map(topics_in, answers)]

        ids: set[str | None] = set()
        for _ in range(10):
            await log.create_topics([NewTopic(topic, SOME)])
            made = await known()
            assert len(set(made)) == 1
            ids.update(made)
            await log.create_partitions({topic: SOME + 1})
            await log.delete_topics([topic])
            assert set(await known()) == {None}
        assert len(ids) == 10
        await asyncio.to_thread(cluster.nodes[0].kill)
        await log.create_topics([NewTopic(topic, SOME)])
        assert set(await known()) != {None}


async def test_an_app_starts_beside_a_broker_that_does_not_know_its_topics_yet(kafka_broker: Broker, tmp_path: Path, lagging: Lagging) -> None:
    """They may have been created a moment before: a listing without them does not end the start."""
    async with counting(kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        lagging.lacks(here.source, here.sink, times=SOME)
        async with here.app("app"):
            await here.through()
        assert lagging.left == 0


async def test_an_app_without_its_topics_ends_with_their_names(kafka_broker: Broker, tmp_path: Path) -> None:
    """After the brokers have been asked for a moment."""
    async with counting(kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        here.source = f"topic-{group_name()}"
        with pytest.raises(MissingSourceTopics, match=here.source):
            await here.app("app").start()


async def test_a_group_whose_leader_asks_a_broker_that_lags_goes_on(kafka_broker: Broker, tmp_path: Path, lagging: Lagging) -> None:
    """A topic that exists ends none of its members."""
    async with counting(kafka_broker, EXACTLY_ONCE, tmp_path) as here, here.app("one") as one:
        await here.through()
        # Memberships ask from a thread of their own.
        loop = asyncio.get_running_loop()
        lagging.lacks(here.source, times=SOME, matches=lambda _: asyncio.get_running_loop() is not loop)
        async with here.app("two") as two:
            await until_none_is_left(lagging)
            await here.through()
            assert (one.state, two.state) == (InstanceState.RUNNING, InstanceState.RUNNING)


async def test_an_app_with_a_pattern_starts_with_all_topics_that_match(kafka_broker: Broker, tmp_path: Path, lagging: Lagging) -> None:
    """Its changelog has as many partitions as the largest one, though the first broker that lists topics does not know that one yet."""
    async with counting(kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        await here.log.create_topics([NewTopic(f"{here.source}-larger", 4)])
        lagging.lacks(f"{here.source}-larger", times=1)
        async with here.app("app", topology=count_by_pattern(here.source, here.sink)):
            assert lagging.left == 0
            described = await here.log.describe_topics([here.changelog], configs=False)
            assert described[here.changelog].partitions == 4


async def test_a_topic_that_matches_is_given_up_only_when_no_broker_knows_it(
    kafka_broker: Broker, tmp_path: Path, lagging: Lagging, caplog: pytest.LogCaptureFixture
) -> None:
    """A listing that lacks it changes nothing; a deletion does."""
    async with counting(kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        other = f"{here.source}-other"
        await here.log.create_topics([NewTopic(other, 2)])
        states: list[InstanceState] = []
        topology = count_by_pattern(here.source, here.sink)
        async with here.app("app", states, topology=topology, metadata_max_age_ms=300) as app:
            await here.through()
            states.clear()
            lagging.lacks(other, times=SOME, matches=lambda asked: asked.lists)
            await until_none_is_left(lagging)
            await here.through()
            assert states == []
            assert "no longer exists" not in caplog.text
            caplog.set_level("INFO", "ks_actors")
            await here.log.delete_topics([other])
            await until(lambda: f"topic {other} matches a pattern and no longer exists" in caplog.text)
            assert app.error is None


async def test_a_reset_deletes_a_changelog_that_one_broker_does_not_know(kafka_broker: Broker, tmp_path: Path, lagging: Lagging) -> None:
    """It would be restored else, and its records counted twice."""
    async with counting(kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        async with here.app("app"):
            await here.through()
        lagging.lacks(here.changelog, times=1, matches=lambda asked: asked.lists)
        plan = await here.app("app").reset(execute=True)
        assert lagging.left == 0
        assert plan.internal_topics == (here.changelog,)
        assert await here.log.describe_topics([here.changelog]) == {}


async def test_a_topic_without_a_leader_exists(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """`create_topics` says so at once: only a topic that has just been created is waited for."""
    (partition,) = await new_topic(log)
    found = await log._client.metadata([partition.topic])
    leaderless = {name: topic._replace(leaders={0: -1}) for name, topic in found.items()}

    metadata = AsyncMock(return_value=leaderless)
    monkeypatch.setattr(KafkaClient, "metadata", metadata)
    with pytest.raises(TopicExists, match=partition.topic):
        await log.create_topics([NewTopic(partition.topic, 1)])
    assert metadata.await_count == 1


def test_a_frozen_broker_does_not_hold_up_a_lookup_in_turn() -> None:
    """Those that answer decide: it is passed over after 3 s of virtual time, not after `request_timeout_ms`."""
    frozen, asked = 2, []

    async def test(_: TestKit) -> None:
        loop = asyncio.get_running_loop()
        client = KafkaClient("localhost:1", KafkaOptions(), client_id="c")
        brokers = [(number, "localhost", number) for number in (1, frozen)]
        client._cluster.list("", {number: (host, port) for number, host, port in brokers}, 1)

        async def send(node: int, *_: object, **__: object) -> Any:
            asked.append(node)
            if node == frozen:
                # The first broker may take its time: nobody else has answered yet.
                await asyncio.sleep(client.options.request_timeout_ms / 1_000 if 1 in asked else 0)
                raise Unavailable("no answer")
            return SimpleNamespace(brokers=brokers, controller_id=1, topics=[(UNKNOWN, "t", False, [])])

        client.send = send  # type: ignore[method-assign]
        client._connections.connected = lambda *_: True  # type: ignore[method-assign]
        began = loop.time()
        assert await client.metadata(["t"], patient=True) == {}
        assert frozen in asked
        assert loop.time() - began < 10

    run(test)


async def test_a_topic_that_may_not_be_described_any_more_counts_as_gone() -> None:
    """As in a listing; it keeps no other one from being found."""

    class Refusing:
        async def describe_topics(self, names: list[str], *, configs: bool) -> dict[str, TopicDescription]:
            assert not configs
            if "refused" in names:
                raise NotAuthorized("failed to look up topic refused")
            return {name: TopicDescription(name, 1, {}) for name in names if name != "gone"}

    log: Any = Refusing()
    assert set(await unlisted_topics(log, ["refused", "late", "gone", "listed"], ["listed"])) == {"late"}
    assert await unlisted_topics(log, ["refused"], []) == {}
    assert await unlisted_topics(log, ["listed"], ["listed"]) == {}
