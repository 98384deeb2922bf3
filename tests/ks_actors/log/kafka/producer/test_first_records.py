"""A producer's requests before its first records: after a start or an outage, each one delays them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from ks_actors._errors import LogTimeout, ProduceFailed, RecordTooLarge
from ks_actors.log import GroupMetadata, TopicPartition, TransactionScope
from ks_actors.log.kafka import KafkaLog
from ks_actors.log.kafka.admin._admin import Admin
from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.client._connections import PRODUCE
from tests.kafka.broker import Broker
from tests.kafka.helpers import until_configured
from tests.kafka.tampering import Fault, Tampering, error_code
from tests.ks_actors.log.helpers import COMMITTED, group_name, new_topic, values_of, write
from tests.waiting import until

NOBODY = GroupMetadata("nobody", -1, "")
NONE, NOT_COORDINATOR, NOT_AUTHORIZED, UNKNOWN_SERVER_ERROR = 0, 16, 29, -1


async def test_a_transaction_into_described_topics_asks_only_for_its_own_parts(kafka_broker: Broker, log: KafkaLog, tampering: Tampering) -> None:
    """Leaders, record sizes, and brokers' addresses came with the description of the topics."""
    # A broker that is not ready for a new topic, or for its first transaction, is asked again who is: another client has written before.
    async with KafkaLog(kafka_broker.bootstrap) as other:
        (partition,) = await new_topic(other)
        scope = TransactionScope(topics=frozenset({partition.topic}))
        first = await other.transactional_producer(group_name(), client_id="o", timeout_ms=10_000, scope=scope)
        await write(first, partition, b"first")
        await first.commit({}, NOBODY)
    await log.describe_topics([partition.topic])
    tampering.asked.clear()
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000, scope=scope)
    await write(producer, partition, b"a")
    await producer.commit({}, NOBODY)
    kinds = [name.split("Request")[0] for name in tampering.asked]
    assert "Metadata" not in kinds
    assert "DescribeConfigs" not in kinds
    assert kinds.index("InitProducerId") < kinds.index("AddPartitionsToTxn") < kinds.index("Produce") < kinds.index("EndTxn")
    assert await values_of(log, partition, COMMITTED) == [b"first", b"a"]


async def limit(log: KafkaLog, partition: TopicPartition) -> None:
    """Set the topic's limit to 2,000 bytes. A broker learns of it from the controller, a moment later."""
    await log.set_configs({partition.topic: {"max.message.bytes": "2000"}})
    await until_configured(log, partition.topic, "max.message.bytes", "2000")


async def test_limits_are_learned_while_a_producer_gets_its_id(log: KafkaLog, tampering: Tampering) -> None:
    """A description without configs does not tell them, and first records are not to wait for that."""
    (partition,) = await new_topic(log)
    await limit(log, partition)
    log._admin._limits.clear()
    tampering.asked.clear()
    await log.describe_topics(configs=False)
    assert tampering.count("DescribeConfigs") == 0
    scope = TransactionScope(topics=frozenset({partition.topic}))
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000, scope=scope)
    assert log._admin.known_limit(partition.topic) == 2_000
    tampering.asked.clear()
    await write(producer, partition, b"a")
    assert tampering.count("DescribeConfigs") == 0
    await producer.abort()


async def test_a_producer_without_transactions_learns_limits_and_ways_as_well(log: KafkaLog, tampering: Tampering) -> None:
    """If it is told where it is going to write to."""
    (partition,) = await new_topic(log)
    await limit(log, partition)
    log._admin._limits.clear()
    await log.describe_topics(configs=False)
    producer = await log.producer(client_id="p", topics=[partition.topic, "not-there-yet"])
    assert log._admin.known_limit(partition.topic) == 2_000
    assert log._admin.known_limit("not-there-yet") is None
    connections, leader = producer._client._connections, await producer._client.find_leader(partition)
    await until(lambda: connections.connected(leader, PRODUCE))
    tampering.asked.clear()
    await write(producer, partition, b"a")
    assert tampering.count("DescribeConfigs") == tampering.count("Metadata") == 0


@pytest.mark.parametrize("transactional", [True, False])
async def test_a_producer_whose_start_is_cancelled_is_closed(log: KafkaLog, monkeypatch: pytest.MonkeyPatch, transactional: bool) -> None:
    """The producer is closed also when it has its id already and waits for limits alone."""
    learning, clients = asyncio.Event(), list[KafkaClient]()
    closed = KafkaClient.close

    async def learn(_: Admin, topics: Collection[str]) -> None:
        assert list(topics) == [partition.topic]
        learning.set()
        await asyncio.Event().wait()

    async def close(self: KafkaClient) -> None:
        clients.append(self)
        await closed(self)

    (partition,) = await new_topic(log)
    monkeypatch.setattr(Admin, "learn_limits", learn)
    monkeypatch.setattr(KafkaClient, "close", close)
    scope = TransactionScope(topics=frozenset({partition.topic}))
    starting: asyncio.Task[object] = asyncio.create_task(
        log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000, scope=scope)
        if transactional
        else log.producer(client_id="t", topics=[partition.topic])
    )
    await learning.wait()
    for _ in range(3):
        await log.end_offsets([partition], COMMITTED)  # by then it has what it asked for
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert len(clients) == 1
    assert not log._parts


def described(code: int) -> Fault:
    """An answer about topics with this code, and without any of their configs."""

    def fault(response: Any) -> Any:
        response.resources = [(code, None, *resource[2:-1], []) for resource in response.resources]
        return response

    return fault


@pytest.mark.parametrize("fault", [described(NOT_AUTHORIZED), described(NONE), described(UNKNOWN_SERVER_ERROR), LogTimeout("not now")])
@pytest.mark.parametrize("transactional", [True, False])
async def test_an_unknown_limit_is_the_leaders_to_keep(log: KafkaLog, tampering: Tampering, fault: Fault, transactional: bool) -> None:
    """Whether the user may not see it, or the lookup fails: it is not asked for again with each write, and refuses no record."""
    (partition,) = await new_topic(log, max_message_bytes="3000000")
    await until_configured(log, partition.topic, "max.message.bytes", "3000000")
    log._admin._limits.clear()
    tampering.asked.clear()
    tampering.add("DescribeConfigs", fault)
    topics = frozenset({partition.topic})
    producer = (
        await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000, scope=TransactionScope(topics=topics))
        if transactional
        else await log.producer(client_id="t", topics=topics)
    )
    values = [b"a", b"x" * 2_000_000, b"b"]
    for value in values:
        await write(producer, partition, value)
    with pytest.raises(ProduceFailed) as failed:
        await write(producer, partition, b"x" * 4_000_000)
    assert isinstance(failed.value.errors[partition], RecordTooLarge)
    assert tampering.count("DescribeConfigs") == 1


async def test_the_way_to_leaders_is_open_before_there_are_records(log: KafkaLog) -> None:
    """To those of the topics that it is going to write to; topics that are not there yet do no harm."""
    (partition,) = await new_topic(log)
    await log.describe_topics([partition.topic])
    scope = TransactionScope(topics=frozenset({partition.topic, "not-there-yet"}))
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000, scope=scope)
    leader = await producer._client.find_leader(partition)
    connections = producer._client._connections
    await until(lambda: connections.connected(leader, PRODUCE))


async def test_a_producer_begins_with_known_metadata_and_learns_changes(log: KafkaLog, tampering: Tampering) -> None:
    """A leader that is none any more is looked up anew, also of a topic that this producer has never asked for."""
    (partition,) = await new_topic(log)
    await log.describe_topics([partition.topic])
    producer = await log.producer(client_id="p")
    for known in (log._client, producer._client):
        topic = known._topics.found[partition.topic]
        known._topics.found[partition.topic] = topic._replace(leaders={0: 77})
    assert await write(producer, partition, b"a") == 1
    assert await log.end_offsets([partition], COMMITTED) == {partition: 1}
    tampering.add("InitProducerId", error_code(NOT_COORDINATOR))
    other = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000)
    assert tampering.left == 0
    await write(other, partition, b"b")
    await other.abort()
    assert await values_of(log, partition, COMMITTED) == [b"a"]


async def test_a_limit_that_was_described_is_kept_to(log: KafkaLog) -> None:
    """Batches are as large as the topic's description allows."""
    (partition,) = await new_topic(log)
    await limit(log, partition)
    assert log._admin.known_limit(partition.topic) == 2_000
    await log.set_configs({partition.topic: {"max.message.bytes": "3000"}})
    assert log._admin.known_limit(partition.topic) is None
