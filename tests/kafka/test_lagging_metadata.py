"""Brokers whose metadata lag behind those of others: a topic that one does not know may be new."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ks_actors import MissingSourceTopics, UnknownTopicOrPartition
from ks_actors.log import IsolationLevel, OffsetAndMetadata, TopicPartition
from ks_actors.log.kafka.wire import topics_of
from tests.chaos.checks import EXACTLY_ONCE
from tests.kafka.counting import counting
from tests.log.helpers import group_name, new_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ks_actors.log.kafka import KafkaLog
    from tests.kafka.broker import Broker
    from tests.kafka.tampering import Tampering

UNKNOWN = 3


def without(*topics: str) -> Callable[[Any], Any]:
    """Metadata of a broker that does not know these topics: a listing lacks them, and a request for them is told so."""

    def fault(response: Any) -> Any:
        rows = [tuple(row) for row in response.topics]
        listing = any(name.startswith("__") for _, name, *_ in topics_of(response))
        response.topics = [
            (UNKNOWN, *row[1:]) if name in topics else row
            for row, (_, name, *_) in zip(rows, topics_of(response), strict=True)
            if not (listing and name in topics)
        ]
        return response

    return fault


async def test_a_topic_that_one_broker_does_not_know_is_described(log: KafkaLog, tampering: Tampering) -> None:
    """The brokers are asked for a moment before it counts as missing, and for no other topic meanwhile."""
    (lagging,), (known,) = await new_topic(log), await new_topic(log)
    tampering.add("Metadata", without(lagging.topic), without(lagging.topic))
    assert set(await log.describe_topics([lagging.topic, known.topic], configs=False)) == {lagging.topic, known.topic}
    assert tampering.left == 0


async def test_offsets_of_a_partition_that_one_broker_does_not_know_are_found(log: KafkaLog, tampering: Tampering) -> None:
    """Its leader is looked up again."""
    (partition,) = await new_topic(log)
    log._client._topics.found.pop(partition.topic, None)
    tampering.add("Metadata", without(partition.topic), without(partition.topic))
    assert await log.end_offsets([partition], IsolationLevel.READ_UNCOMMITTED) == {partition: 0}
    assert tampering.left == 0


async def test_a_partition_that_stays_unknown_is_told_each_time(log: KafkaLog) -> None:
    """Each call waits for `missing_topic_wait_ms` of its own."""
    missing = TopicPartition(f"topic-{group_name()}", 0)
    began = asyncio.get_running_loop().time()
    for calls in (1, 2):
        with pytest.raises(UnknownTopicOrPartition, match=f"{missing} does not exist"):
            await log.begin_offsets([missing])
        assert asyncio.get_running_loop().time() - began >= calls * log._client.options.missing_topic_wait_s
    assert await log.describe_topics([missing.topic]) == {}


@pytest.mark.timeout(120)
async def test_an_app_starts_beside_a_broker_that_does_not_know_its_topics_yet(kafka_broker: Broker, tmp_path: Path, tampering: Tampering) -> None:
    """They may have been created a moment before: a listing without them does not end the start."""
    async with counting(kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        # Kafka's own topics exist from now on, which tell a listing from other requests.
        await here.log.set_group_offsets(group_name(), {TopicPartition(here.source, 0): OffsetAndMetadata(0)})
        tampering.add("Metadata", *[without(here.source, here.sink)] * 3)
        async with here.app("app"):
            await here.feed()
            await here.counted()
        assert tampering.left == 0


async def test_an_app_without_its_topics_ends_with_their_names(kafka_broker: Broker, tmp_path: Path) -> None:
    """After all brokers have been asked for a moment."""
    async with counting(kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        here.source = f"topic-{group_name()}"
        with pytest.raises(MissingSourceTopics, match=here.source):
            await here.app("app").start()
