"""What a producer asks for before its first records are out: after a start or an outage every answer is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ks_actors._errors import Fenced, LogError, NotAuthorized
from ks_actors.log import GroupMetadata, OffsetAndMetadata, TransactionScope
from ks_actors.log.kafka._connections import PRODUCE
from tests.kafka.helpers import connect
from tests.kafka.tampering import Tampering, error_code
from tests.log.helpers import COMMITTED, group_name, join, new_topic, values_of, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ks_actors.log import TopicPartition
    from ks_actors.log.kafka import KafkaLog
    from tests.kafka.broker import Broker

NOBODY = GroupMetadata("nobody", -1, "")
NOT_COORDINATOR = 16
GROUP_AUTHORIZATION_FAILED = 30


@pytest.fixture
async def log(kafka_broker: Broker) -> AsyncIterator[KafkaLog]:
    made = await connect(kafka_broker)
    yield made
    await made.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Tampering:
    return Tampering(monkeypatch)


async def test_a_transaction_into_described_topics_asks_only_for_what_is_its_own(log: KafkaLog, asked: Tampering) -> None:
    """Who leads, how large records may be, and where the brokers are was told when the topics were described."""
    (partition,) = await new_topic(log)
    await log.describe_topics([partition.topic])
    asked.asked.clear()
    scope = TransactionScope(topics=frozenset({partition.topic}))
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000, scope=scope)
    await write(producer, partition, b"a")
    await producer.commit({}, NOBODY)
    kinds = [name.split("Request")[0] for name in asked.asked]
    assert "Metadata" not in kinds
    assert "DescribeConfigs" not in kinds
    assert kinds.index("InitProducerId") < kinds.index("AddPartitionsToTxn") < kinds.index("Produce") < kinds.index("EndTxn")
    assert await values_of(log, partition, COMMITTED) == [b"a"]


async def test_limits_are_learned_while_a_producer_gets_its_id(log: KafkaLog, asked: Tampering) -> None:
    """A description without configs does not tell them, and first records are not to wait for that."""
    (partition,) = await new_topic(log)
    await log.set_configs({partition.topic: {"max.message.bytes": "2000"}})
    asked.asked.clear()
    await log.describe_topics(configs=False)
    assert [name for name in asked.asked if name.startswith("DescribeConfigs")] == []
    scope = TransactionScope(topics=frozenset({partition.topic}))
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000, scope=scope)
    assert log._admin.known_limit(partition.topic) == 2_000
    asked.asked.clear()
    await write(producer, partition, b"a")
    assert [name for name in asked.asked if name.startswith("DescribeConfigs")] == []
    await producer.abort()


async def test_a_producer_without_transactions_learns_limits_and_ways_as_well(log: KafkaLog, asked: Tampering) -> None:
    """If it is told where it is going to write to."""
    (partition,) = await new_topic(log)
    await log.set_configs({partition.topic: {"max.message.bytes": "2000"}})
    await log.describe_topics(configs=False)
    producer = await log.producer(client_id="p", topics=[partition.topic, "not-there-yet"])
    assert log._admin.known_limit(partition.topic) == 2_000
    connections, leader = producer._client._connections, await producer._client.find_leader(partition)
    opening = connections._opening.get((leader, PRODUCE))
    if opening is not None:
        await opening
    assert connections.connected(leader, PRODUCE)
    asked.asked.clear()
    await write(producer, partition, b"a")
    assert _count(asked, "DescribeConfigs") == _count(asked, "Metadata") == 0


async def test_limits_that_cannot_be_learned_do_not_keep_a_producer_from_its_id(log: KafkaLog, asked: Tampering) -> None:
    """They are asked for again with the first records."""
    (partition,) = await new_topic(log)
    asked.add("DescribeConfigs", LogError("not now"))
    scope = TransactionScope(topics=frozenset({partition.topic}))
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000, scope=scope)
    assert asked.left == 0
    assert log._admin.known_limit(partition.topic) is None
    await write(producer, partition, b"a")
    assert log._admin.known_limit(partition.topic) == 1_048_588
    await producer.abort()


async def test_offsets_are_part_of_a_transaction_when_its_records_are(log: KafkaLog, asked: Tampering) -> None:
    """Who says which group it is for does not wait for that at each commit; a transaction without records has only its offsets."""
    (partition,) = await new_topic(log)
    group = group_name()
    scope = TransactionScope(topics=frozenset({partition.topic}), group_id=group, sources=frozenset({partition.topic}))
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000, scope=scope)
    alone = GroupMetadata(group, -1, "")
    assert await _committed(log, group, partition) is None  # a broker's first group takes it some attempts
    for number in range(2):
        asked.asked.clear()
        await write(producer, partition, b"a")
        assert _count(asked, "AddOffsetsToTxn") == 1
        await write(producer, partition, b"b")
        await producer.commit({partition: OffsetAndMetadata(number + 1)}, alone)
        assert _count(asked, "AddOffsetsToTxn") == 1
        assert await _committed(log, group, partition) == number + 1
    await producer.commit({partition: OffsetAndMetadata(7)}, alone)
    assert await _committed(log, group, partition) == 7
    await write(producer, partition, b"c")
    await producer.abort()
    assert await _committed(log, group, partition) == 7
    assert await values_of(log, partition, COMMITTED) == [b"a", b"b", b"a", b"b"]


async def test_a_group_that_cannot_be_part_of_a_transaction_is_told_of_by_the_commit(log: KafkaLog, asked: Tampering) -> None:
    """Records are written all the same; what does not last is not even noticed."""
    (partition,) = await new_topic(log)
    group = group_name()
    scope = TransactionScope(topics=frozenset({partition.topic}), group_id=group, sources=frozenset({partition.topic}))
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000, scope=scope)
    offsets, alone = {partition: OffsetAndMetadata(1)}, GroupMetadata(group, -1, "")
    asked.add("AddOffsetsToTxn", error_code(GROUP_AUTHORIZATION_FAILED))
    await write(producer, partition, b"a")
    assert asked.left == 0
    await producer.commit(offsets, alone)
    assert await _committed(log, group, partition) == 1
    asked.add("AddOffsetsToTxn", error_code(GROUP_AUTHORIZATION_FAILED), error_code(GROUP_AUTHORIZATION_FAILED))
    await write(producer, partition, b"b")
    with pytest.raises(NotAuthorized):
        await producer.commit({partition: OffsetAndMetadata(2)}, alone)
    assert await _committed(log, group, partition) == 1
    assert await values_of(log, partition, COMMITTED) == [b"a"]


async def test_who_is_fenced_hears_it_though_offsets_are_asked_for_first(log: KafkaLog) -> None:
    """Whichever of the two answers comes first."""
    (partition,) = await new_topic(log)
    name, group = group_name(), group_name()
    scope = TransactionScope(topics=frozenset({partition.topic}), group_id=group, sources=frozenset({partition.topic}))
    former = await log.transactional_producer(name, client_id="t", timeout_ms=10_000, scope=scope)
    await log.transactional_producer(name, client_id="t", timeout_ms=10_000, scope=scope)
    with pytest.raises(Fenced):
        await write(former, partition, b"a")


def _count(asked: Tampering, kind: str) -> int:
    return sum(name.startswith(kind) for name in asked.asked)


async def _committed(log: KafkaLog, group: str, partition: TopicPartition) -> int | None:
    member = await join(log, group, partition.topic)
    found = await member.committed([partition])
    await member.leave()
    return found[partition].offset if partition in found else None


async def test_the_way_to_leaders_is_open_before_there_are_records(log: KafkaLog) -> None:
    """To those of the topics that it is going to write to; topics that are not there yet do no harm."""
    (partition,) = await new_topic(log)
    await log.describe_topics([partition.topic])
    scope = TransactionScope(topics=frozenset({partition.topic, "not-there-yet"}))
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000, scope=scope)
    leader = await producer._client.find_leader(partition)
    connections = producer._client._connections
    opening = connections._opening.get((leader, PRODUCE))
    if opening is not None:
        await opening
    assert connections.connected(leader, PRODUCE)


async def test_a_producer_begins_with_what_is_known_and_learns_what_has_changed(log: KafkaLog, asked: Tampering) -> None:
    """A leader that is none any more is looked up anew, also of a topic that this producer has never asked for."""
    (partition,) = await new_topic(log)
    await log.describe_topics([partition.topic])
    producer = await log.producer(client_id="p")
    for known in (log._client, producer._client):
        topic = known._topics[partition.topic]
        known._topics[partition.topic] = topic._replace(leaders={0: 77})
    assert await write(producer, partition, b"a") == 1
    assert await log.end_offsets([partition], COMMITTED) == {partition: 1}
    asked.add("InitProducerId", error_code(NOT_COORDINATOR))
    other = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000)
    assert asked.left == 0
    await write(other, partition, b"b")
    await other.abort()
    assert await values_of(log, partition, COMMITTED) == [b"a"]


async def test_a_limit_that_was_described_is_kept_to(log: KafkaLog) -> None:
    """Batches are as large as the topic takes, by what its description says."""
    (partition,) = await new_topic(log)
    await log.set_configs({partition.topic: {"max.message.bytes": "2000"}})
    await log.describe_topics([partition.topic])
    assert log._admin.known_limit(partition.topic) == 2_000
    await log.set_configs({partition.topic: {"max.message.bytes": "3000"}})
    assert log._admin.known_limit(partition.topic) is None
