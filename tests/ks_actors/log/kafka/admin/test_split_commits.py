"""Commits of so many offsets that a coordinator would refuse one request for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ks_actors._errors import LogError
from ks_actors.log import GroupMetadata, NewTopic, OffsetAndMetadata, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.log.kafka.admin import commit_split
from tests.kafka.tampering import Tampering
from tests.ks_actors.log.helpers import group_name

# As much as Kafka takes for an offset: 300 of them are more than a batch may have.
METADATA = "m" * 4_000


async def many(log: KafkaLog) -> dict[TopicPartition, OffsetAndMetadata]:
    topic = group_name()
    await log.create_topics([NewTopic(topic, 300)])
    return {TopicPartition(topic, number): OffsetAndMetadata(number, METADATA) for number in range(300)}


@pytest.mark.parametrize("way", ["offsets", "transaction"])
async def test_offsets_larger_than_a_batch_are_committed_by_several_requests(log: KafkaLog, tampering: Tampering, way: str) -> None:
    """All of them are committed, with and without a transaction."""
    group, offsets = group_name(), await many(log)
    if way == "offsets":
        await log.set_group_offsets(group, offsets)
    else:
        producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000)
        await producer.commit(offsets, GroupMetadata(group, -1, ""))
        await producer.close()
    assert await log.group_offsets(group) == offsets
    assert tampering.count("OffsetCommit" if way == "offsets" else "TxnOffsetCommit") > 1


@pytest.mark.parametrize("code", [-1, 10, 18, 28])
async def test_a_refused_commit_is_repeated_in_halves(code: int) -> None:
    """A coordinator that writes smaller batches gets smaller ones, and each offset once; one that refuses a single offset is asked no more."""
    offsets = {TopicPartition("in", number): OffsetAndMetadata(number) for number in range(10)}
    most, made = 3, list[list[int]]()

    async def send(part: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        made.append([partition.partition for partition in part])
        return dict.fromkeys(part, code if len(part) > most else 0)

    assert await commit_split("group", offsets, send) == dict.fromkeys(offsets, 0)
    assert [number for part in made if len(part) <= most for number in part] == list(range(10))
    most = 0
    made.clear()
    assert set((await commit_split("group", offsets, send)).values()) == {0, code}
    assert [len(part) for part in made] == [10, 5, 2, 1]


async def test_an_offset_that_is_too_large_alone_names_the_remedy(log: KafkaLog) -> None:
    """The error names the limit of the brokers, and what is too large."""
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000)
    topic = group_name()
    await log.create_topics([NewTopic(topic, 1)])
    offsets = {TopicPartition(topic, 0): OffsetAndMetadata(1, METADATA * 2)}
    with pytest.raises(LogError, match=rf"{topic}-0.*OFFSET_METADATA_TOO_LARGE.*offset\.metadata\.max\.bytes"):
        await producer.commit(offsets, GroupMetadata(group_name(), -1, ""))
    await producer.close()
