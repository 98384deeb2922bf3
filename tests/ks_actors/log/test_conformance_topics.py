"""Topics that grow: the duties of each log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ks_actors._errors import LogError, OffsetOutOfRange, UnknownTopicOrPartition
from ks_actors.log import NewTopic, OffsetAndMetadata, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.log.kafka import KafkaLog
from tests.ks_actors.log.helpers import COMMITTED, assigned, fetch_one, group_name, join, new_topic, read_all, revoked, write
from tests.waiting import soon

if TYPE_CHECKING:
    AnyLog = EmbeddedLog | KafkaLog


async def test_a_topic_grows(log: AnyLog) -> None:
    """It has as many partitions as were named, the new ones empty, and keeps its records and settings."""
    (first,) = await new_topic(log, cleanup_policy="compact")
    producer = await log.producer(client_id="p")
    await write(producer, first, b"a")
    await log.create_partitions({first.topic: 3})
    described = (await log.describe_topics([first.topic]))[first.topic]
    assert (described.partitions, described.configs["cleanup.policy"]) == (3, "compact")
    last = TopicPartition(first.topic, 2)
    assert await log.end_offsets([first, last], COMMITTED) == {first: 1, last: 0}
    assert await write(producer, last, b"b") == 1
    assert await read_all(log, first) == [(0, b"k", b"a")]
    assert await read_all(log, last) == [(0, b"k", b"b")]


async def test_a_topic_only_grows(log: AnyLog) -> None:
    """A number that is not larger is refused, and so is a topic that is not there; the others of the call grow."""
    (one, _), (two,) = await new_topic(log, 2), await new_topic(log)
    for count in (2, 1, 0):
        with pytest.raises(LogError, match=one.topic):
            await log.create_partitions({one.topic: count, two.topic: 4 - count})
    with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
        await log.create_partitions({"nowhere": 2, one.topic: 3})
    described = await log.describe_topics([one.topic, two.topic])
    assert (described[one.topic].partitions, described[two.topic].partitions) == (3, 4)
    await log.create_partitions({})


async def test_a_fetcher_reads_a_partition_that_came_later(log: AnyLog) -> None:
    """It is assigned like any other; before it is there the fetcher raises UnknownTopicOrPartition."""
    (first,) = await new_topic(log)
    second = TopicPartition(first.topic, 1)
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({first: 0, second: 0})
    with pytest.raises(UnknownTopicOrPartition, match=str(second)):
        await fetch_one(fetcher)
    await log.create_partitions({first.topic: 2})
    fetcher.assign({first: 0, second: 0})
    waiting = asyncio.ensure_future(fetch_one(fetcher))
    await write(await log.producer(client_id="p"), second, b"a")
    assert (await soon(waiting)).partition == second


async def test_a_group_deals_out_partitions_that_come_later(log: AnyLog) -> None:
    """Its members are asked to release, and get the new ones too; committed offsets stay."""
    (first,) = await new_topic(log)
    member = await join(log, group_name(), first.topic)
    assert (await assigned(member)).assignment.partitions == (first,)
    await member.commit({first: OffsetAndMetadata(0, "x")})
    await log.create_partitions({first.topic: 2})
    assert (await revoked(member)).partitions == (first,)
    member.revoked()
    assert (await assigned(member)).assignment.partitions == (first, TopicPartition(first.topic, 1))
    assert await member.committed([first, TopicPartition(first.topic, 1)]) == {first: OffsetAndMetadata(0, "x")}
    await member.close()


async def test_a_group_lets_go_of_a_topic_that_is_deleted(log: AnyLog) -> None:
    """Its members have the partitions of the others; when it is there again they have it again, and nothing is committed of it."""
    (gone,), (stays,) = await new_topic(log), await new_topic(log)
    member = await join(log, group_name(), gone.topic, stays.topic)
    assert set((await assigned(member)).assignment.partitions) == {gone, stays}
    await member.commit({gone: OffsetAndMetadata(0), stays: OffsetAndMetadata(0, "kept")})
    await log.delete_topics([gone.topic])
    await revoked(member)
    member.revoked()
    assert (await assigned(member)).assignment.partitions == (stays,)
    await log.create_topics([NewTopic(gone.topic, 2)])
    await revoked(member)
    member.revoked()
    assert set((await assigned(member)).assignment.partitions) == {gone, TopicPartition(gone.topic, 1), stays}
    assert await member.committed([gone, stays]) == {stays: OffsetAndMetadata(0, "kept")}
    await member.close()


async def test_a_fetcher_that_reads_a_topic_when_it_is_deleted_is_told(log: AnyLog) -> None:
    """The fetcher never reads records of a new topic of the same name until it is assigned anew."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await write(producer, partition, b"old")
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 0})
    assert (await fetch_one(fetcher)).batch.values == [b"old"]
    await log.delete_topics([partition.topic])
    with pytest.raises((UnknownTopicOrPartition, OffsetOutOfRange)):
        await fetch_one(fetcher)
    with pytest.raises(UnknownTopicOrPartition):
        await log.end_offsets([partition], COMMITTED)
