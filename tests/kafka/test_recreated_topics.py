"""Topics that are deleted and created again have other ids (KIP-516): state that was made from the former ones is not taken for theirs."""

from __future__ import annotations

import logging
import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from aiokafka.protocol.types import (  # type: ignore[import-untyped]
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    UnsignedVarInt32,
)
from hypothesis import given
from hypothesis import strategies as st

from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.log.kafka.wire import MetadataRequest
from ks_actors.log.kafka.wire._metadata_request import _MetadataResponse, _Uuid
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.kafka.broker import Broker
from tests.kafka.counting import PARTITIONS, counting
from tests.ks_actors.log.helpers import batch, new_topic

METADATA = 3


class Tags(AbstractType):  # type: ignore[misc]
    """Tagged fields by KIP-482; aiokafka writes them without the lengths."""

    @classmethod
    def encode(cls, fields: dict[int, bytes]) -> bytes:
        number = UnsignedVarInt32.encode
        found: bytes = number(len(fields))
        return found + b"".join(number(tag) + number(len(data)) + data for tag, data in fields.items())


_TAGS = ("tags", Tags)
_TEXT = CompactString("utf-8")
RESPONSE = Schema(
    ("throttle_time_ms", Int32),
    ("brokers", CompactArray(("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT), _TAGS)),
    ("cluster_id", _TEXT),
    ("controller_id", Int32),
    ("topics", CompactArray(
        ("error_code", Int16), ("topic", _TEXT), ("topic_id", _Uuid), ("is_internal", Boolean),
        ("partitions", CompactArray(
            ("error_code", Int16), ("partition", Int32), ("leader", Int32), ("leader_epoch", Int32),
            ("replicas", CompactArray(Int32)), ("isr", CompactArray(Int32)), ("offline", CompactArray(Int32)), _TAGS,
        )),
        ("operations", Int32), _TAGS,
    )),
    ("operations", Int32),
    _TAGS,
)  # fmt: skip


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


PARTITION = st.tuples(
    st.integers(0, 99), st.integers(0, (1 << 31) - 1), st.integers(-1, 99), st.integers(-1, 99),
    st.lists(st.integers(0, 99), max_size=200), st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)),
)  # fmt: skip
TAGS = st.dictionaries(st.integers(0, 300), st.binary(max_size=200), max_size=2)


@given(
    brokers=st.lists(st.tuples(st.integers(0, 99), st.text(max_size=300), st.integers(0, 65_535), st.none() | st.text(), TAGS)),
    topics=st.lists(st.tuples(st.integers(0, 99), st.text(), st.binary(min_size=16, max_size=16), st.booleans(), st.lists(PARTITION), TAGS)),
    cluster=st.none() | st.text(),
    tags=TAGS,
)
def test_a_response_is_read_as_aiokafka_would(
    brokers: list[tuple[int, str, int, str | None, dict[int, bytes]]], topics: list[Any], cluster: str | None, tags: dict[int, bytes]
) -> None:
    """With any tags; and one that is cut off anywhere is an error."""
    encoded = [(*topic, [(*partition, tags) for partition in partitions], -(1 << 31), its_tags) for *topic, partitions, its_tags in topics]
    raw = RESPONSE.encode((7, brokers, cluster, 3, encoded, -(1 << 31), tags))
    found = _MetadataResponse.decode(BytesIO(raw))
    assert found.brokers == [(node, host, port) for node, host, port, *_ in brokers]
    assert found.controller_id == 3
    epochs = [{number: epoch for _, number, _, epoch, *_ in partitions} for *_, partitions, _ in topics]
    leaders = [{number: leader for _, number, leader, *_ in partitions} for *_, partitions, _ in topics]
    assert found.topics == [(*topic[:4], *its) for topic, *its in zip(topics, epochs, leaders, strict=True)]
    # The last fields are the cluster's operations and tags, which nobody reads.
    for cut in range(3, len(raw) - len(Tags.encode(tags)) - 4, max(1, len(raw) // 20)):
        with pytest.raises((struct.error, UnicodeDecodeError)):
            _MetadataResponse.decode(BytesIO(raw[:cut]))


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, pytest.param(AT_LEAST_ONCE, marks=pytest.mark.extended)])
async def test_an_app_restores_its_stores_from_a_changelog_that_was_made_anew(
    kafka_broker: Broker, tmp_path: Path, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Although their offsets lie within it."""
    caplog.set_level(logging.WARNING)
    async with counting(kafka_broker, guarantee, tmp_path) as here:
        async with here.app("app"):
            await here.through()
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
