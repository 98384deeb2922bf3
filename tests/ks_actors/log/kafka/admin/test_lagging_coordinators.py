"""Answers that pass: a coordinator whose metadata lag behind, slow replicas of offsets, a fault of a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import UnknownTopicOrPartition
from ks_actors.log import IsolationLevel, OffsetAndMetadata
from ks_actors.log.kafka import KafkaLog
from tests.kafka.tampering import Tampering
from tests.ks_actors.log.helpers import group_name, new_topic, write
from tests.ks_actors.log.kafka.transactions.test_early_offsets import alone, begun, committed


def all_codes(code: int) -> Callable[[Any], Any]:
    """An answer about offsets with one code for each partition."""

    def fault(response: Any) -> Any:
        response.topics = [(topic, [_with_code(entry, code) for entry in entries], *rest) for topic, entries, *rest in response.topics]
        return response

    return fault


def _with_code(entry: tuple[Any, ...], code: int) -> tuple[Any, ...]:
    number, _, *rest = entry
    return number, code, *rest


@pytest.mark.parametrize("code", [3, 7])
async def test_offsets_of_a_transaction_are_written_again(log: KafkaLog, tampering: Tampering, code: int) -> None:
    """Brokers before 4.0 answer 7 when a follower is slow; 3 comes from metadata that lag behind. Kafka's producer repeats both."""
    (partition,) = await new_topic(log)
    group = group_name()
    producer = await begun(log, partition, group)
    tampering.add("TxnOffsetCommit", all_codes(code), all_codes(code))
    await write(producer, partition, b"a")
    await producer.commit({partition: OffsetAndMetadata(1)}, alone(group))
    assert tampering.left == 0
    assert await committed(log, group, partition) == 1


@pytest.mark.parametrize("code", [3, 7])
async def test_offsets_are_committed_again(log: KafkaLog, tampering: Tampering, code: int) -> None:
    """At least once, too."""
    (partition,) = await new_topic(log)
    group = group_name()
    tampering.add("OffsetCommit", all_codes(code), all_codes(code))
    await log.set_group_offsets(group, {partition: OffsetAndMetadata(5)})
    assert tampering.left == 0
    assert await committed(log, group, partition) == 5


async def test_a_topic_that_stays_unknown_is_told(log: KafkaLog, tampering: Tampering) -> None:
    """It has been deleted: the wait is `missing_topic_wait_ms`."""
    (partition,) = await new_topic(log)
    tampering.add("OffsetCommit", *[all_codes(3)] * 1_000)
    with pytest.raises(UnknownTopicOrPartition, match=partition.topic):
        await log.set_group_offsets(group_name(), {partition: OffsetAndMetadata(5)})


async def test_a_fault_of_a_broker_while_offsets_are_looked_up_passes(log: KafkaLog, tampering: Tampering) -> None:
    """UNKNOWN_SERVER_ERROR is asked about again, as by Kafka's consumer."""
    (partition,) = await new_topic(log)
    tampering.add("Offset", all_codes(-1), all_codes(-1))
    assert await log.end_offsets([partition], IsolationLevel.READ_UNCOMMITTED) == {partition: 0}
    assert tampering.left == 0
