"""What a producer asks for before its first records are out: after a start or an outage every answer is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ks_actors.log import GroupMetadata, TransactionScope
from ks_actors.log.kafka._connections import PRODUCE
from tests.kafka.helpers import connect
from tests.kafka.tampering import Tampering, error_code
from tests.log.helpers import COMMITTED, group_name, new_topic, values_of, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ks_actors.log.kafka import KafkaLog
    from tests.kafka.broker import Broker

NOBODY = GroupMetadata("nobody", -1, "")
NOT_COORDINATOR = 16


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


async def test_the_way_to_leaders_is_open_before_there_are_records(log: KafkaLog) -> None:
    """To those of the topics that it is going to write to; topics that are not there yet do no harm."""
    (partition,) = await new_topic(log)
    await log.describe_topics([partition.topic])
    scope = TransactionScope(topics=frozenset({partition.topic, "not there yet"}))
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
