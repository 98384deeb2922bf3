"""Coordinators of transactions whose metadata lag behind those of other brokers."""

from __future__ import annotations

from typing import Any

import pytest

from ks_actors import ProduceFailed
from ks_actors._errors import UnknownTopicOrPartition
from ks_actors.log.kafka import KafkaLog
from tests.kafka.tampering import Tampering
from tests.ks_actors.log.helpers import COMMITTED, NOBODY, group_name, new_topic, values_of, write
from tests.waiting import soon


def unknown(response: Any) -> Any:
    """An answer of a coordinator that does not know the partitions."""
    response.errors = [(topic, [(number, 3) for number, _ in found]) for topic, found in response.errors]
    return response


async def test_a_coordinator_that_does_not_know_a_partition_yet_is_asked_again(log: KafkaLog, tampering: Tampering) -> None:
    """Other brokers list the partition, so it is no error, and nobody is to decide about its records."""
    (partition,) = await new_topic(log)
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000)
    tampering.add("AddPartitionsToTxn", unknown, unknown)
    await soon(write(producer, partition, b"a"))
    await soon(producer.commit({}, NOBODY))
    assert tampering.count("AddPartitionsToTxn") == 3
    assert await values_of(log, partition, COMMITTED) == [b"a"]


async def test_a_partition_that_is_gone_is_refused(log: KafkaLog) -> None:
    """No broker lists the partition any more: the coordinator is right, and its error is that of the partition."""
    (partition,) = await new_topic(log)
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000)
    await soon(write(producer, partition, b"a"))
    await soon(producer.commit({}, NOBODY))
    await log.delete_topics([partition.topic])
    with pytest.raises(ProduceFailed) as failed:
        await soon(write(producer, partition, b"b"))
    assert isinstance(failed.value.errors[partition], UnknownTopicOrPartition)
    await soon(producer.abort())
