"""Settings that brokers do not allow: the errors name them, the brokers' limits, and the remedy."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]

from ks_actors._errors import LogError, LogTimeout
from ks_actors.log import Membership, NewMember
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from tests.kafka.broker import Broker
from tests.kafka.tampering import Tampering, error_code
from tests.ks_actors.log.helpers import by_turns, group_name, new_topic
from tests.waiting import soon


async def enter(log: KafkaLog, group: str, topic: str, *, session_timeout_ms: int = 3_000) -> Membership:
    new = NewMember(
        client_id="c", topics=[topic], user_data=b"", assignor=by_turns, session_timeout_ms=session_timeout_ms, rebalance_timeout_ms=30_000
    )
    member = await log.join(group, new)
    await soon(member.event())
    return member


async def test_a_session_timeout_that_the_broker_refuses_is_named(log: KafkaLog) -> None:
    """The error has the value, and the settings of the broker that limit it."""
    (partition,) = await new_topic(log)
    with pytest.raises(LogError, match=r"session_timeout_ms is 100; .*group\.min\.session\.timeout\.ms"):
        await enter(log, group_name(), partition.topic, session_timeout_ms=100)


async def test_a_group_with_members_of_another_kind_is_named(log: KafkaLog, kafka_broker: Broker) -> None:
    """A consumer in the group of an app has to be closed first, and the error says so."""
    (partition,) = await new_topic(log)
    group = group_name()
    other = AIOKafkaConsumer(partition.topic, bootstrap_servers=kafka_broker.bootstrap, group_id=group)
    await other.start()
    try:
        with pytest.raises(LogError, match=r"INCONSISTENT_GROUP_PROTOCOL.*members of another kind.*application_id"):
            await enter(log, group, partition.topic)
    finally:
        await other.stop()


async def test_a_full_group_is_named(log: KafkaLog, tampering: Tampering) -> None:
    """The error names the broker's limit of members."""
    (partition,) = await new_topic(log)
    tampering.add("JoinGroup", error_code(81))
    with pytest.raises(LogError, match=r"GROUP_MAX_SIZE_REACHED.*fewer instances.*group\.max\.size"):
        await enter(log, group_name(), partition.topic)


async def test_a_transaction_timeout_that_the_broker_refuses_is_named(log: KafkaLog) -> None:
    """The error comes with the first transactional producer, and has the value and the broker's limit."""
    with pytest.raises(LogError, match=r"transaction_timeout_ms is 1000000; .*transaction\.max\.timeout\.ms"):
        await log.transactional_producer(group_name(), client_id="t", timeout_ms=1_000_000)


async def test_a_coordinator_that_cannot_be_made_is_named(kafka_broker: Broker, tampering: Tampering) -> None:
    """Too few brokers for an internal topic look like a coordinator that is away: the error names the setting."""
    async with KafkaLog(kafka_broker.bootstrap, options=KafkaOptions(api_timeout_ms=2_000)) as log:
        tampering.add("FindCoordinator", *[error_code(15)] * 1_000)
        with pytest.raises(LogTimeout, match=r"no coordinator of transactional id .*transaction\.state\.log\.replication\.factor"):
            await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000)
        with pytest.raises(LogTimeout, match=r"no coordinator of group .*offsets\.topic\.replication\.factor"):
            await log.group_offsets(group_name())
