"""Topics that are deleted and created again have other ids (KIP-516): state that was made from the former ones is not taken for theirs."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

import pytest

from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka.wire import MetadataRequest
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.kafka.counting import PARTITIONS, counting
from tests.log.helpers import batch, new_topic

if TYPE_CHECKING:
    from pathlib import Path

    from ks_actors.log.kafka import KafkaLog
    from tests.kafka.broker import Broker

METADATA = 3


async def test_a_topic_has_another_id_after_it_was_deleted(log: KafkaLog) -> None:
    """As Kafka's tools print it; all lookups of one topic tell the same."""
    (partition,) = await new_topic(log)
    (other,) = await new_topic(log)
    before = await log.describe_topics(configs=False)
    again = await log.describe_topics([partition.topic])
    assert again[partition.topic].id == before[partition.topic].id
    assert len(before[partition.topic].id) == len("6bI3Axm9Q7-dAIFKLKSzRQ")
    assert before[partition.topic].id != before[other.topic].id
    await log.delete_topics([partition.topic])
    await log.create_topics([NewTopic(partition.topic, 1)])
    found = await log.describe_topics([partition.topic], configs=False)
    assert found[partition.topic].id not in {"", before[partition.topic].id}


@pytest.mark.parametrize(("newest", "version"), [(9, 5), (10, 10), (13, 10)])
def test_brokers_without_ids_are_asked_as_before(newest: int, version: int) -> None:
    """Others that speak Kafka's protocol may have older requests only."""
    assert version == MetadataRequest(["topic"]).prepare({METADATA: (0, newest)}).API_VERSION


@pytest.mark.timeout(120)
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, pytest.param(AT_LEAST_ONCE, marks=pytest.mark.extended)])
async def test_an_app_restores_its_stores_from_a_changelog_that_was_made_anew(
    kafka_broker: Broker, tmp_path: Path, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Although their offsets lie within it."""
    caplog.set_level(logging.WARNING)
    async with counting(kafka_broker, guarantee, tmp_path) as here:
        async with here.app("app"):
            await here.feed()
            await here.counted()
        described = (await here.log.describe_topics([here.changelog]))[here.changelog]
        await here.log.delete_topics([here.changelog])
        await here.log.create_topics([NewTopic(here.changelog, PARTITIONS, {"cleanup.policy": described.configs["cleanup.policy"]})])
        producer = await here.log.producer(client_id="another")
        for number in range(PARTITIONS):
            counts = [struct.pack(">q", count) for count in range(100, 200)]
            records = batch(*counts, keys=[b"k%d" % number] * len(counts))
            await producer.send([Outgoing(TopicPartition(here.changelog, number), records)])
        await producer.close()
        async with here.app("app") as app:
            await here.feed(1)
            await app.wait_until_caught_up()
            await app.commit()
        assert sorted(update.total for update in await here.updates() if update.total is not None)[-PARTITIONS:] == [200] * PARTITIONS
        given_up = [record.getMessage() for record in caplog.records if "is deleted, and restored" in record.getMessage()]
        assert len(given_up) == PARTITIONS
        assert all(f"it was made from a topic {here.changelog} with id {described.id}" in line for line in given_up)
