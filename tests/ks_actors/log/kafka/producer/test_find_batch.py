"""Records that a leader has written and then forgotten to have: its answers got lost, and then it was restarted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from ks_actors import ProduceFailed
from ks_actors.log import Outgoing, Producer, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.transactions._transactional_producer import KafkaTransactionalProducer
from tests.kafka.broker import Broker
from tests.kafka.helpers import connect
from tests.kafka.tampering import Tampering, fetch_code
from tests.ks_actors.log.helpers import NOBODY, batch, group_name, new_topic, values_of
from tests.waiting import soon, until

_NOT_AUTHORIZED = 29


def lost(_: Any) -> Any:
    """An answer that does not arrive: the request was done."""
    raise Unavailable("the connection has been lost")


async def write_now(producer: Producer | KafkaTransactionalProducer, partition: TopicPartition, *values: bytes) -> Sequence[int]:
    """Write records of this time: brokers forget producers of old ones when they restart."""
    return await producer.send([Outgoing(partition, batch(*values, timestamps=[time.time_ns() // 1_000_000] * len(values)))])


async def forgotten(
    log: KafkaLog, broker: Broker, tampering: Tampering, producer: Producer | KafkaTransactionalProducer
) -> tuple[TopicPartition, list[asyncio.Task[Sequence[int]]]]:
    """Have three batches written of which the producer does not hear, and the broker know the last of them alone.

    However long the broker takes to start, the caller's patience with the producer begins behind that.
    """
    (partition,) = await new_topic(log)
    await soon(write_now(producer, partition, b"a"))
    tampering.add("Produce", lost, lost, lost, *[Unavailable("not now")] * 10_000)
    sending = [asyncio.ensure_future(write_now(producer, partition, value, value)) for value in (b"b", b"c", b"d")]
    await until(lambda: tampering.left <= 10_000)
    await asyncio.to_thread(broker.restart)
    tampering.clear()
    return partition, sending


@pytest.mark.parametrize("transactional", [False, True])
async def test_written_batches_are_found_though_their_leader_has_forgotten_the_producer(
    own_broker: Broker, tampering: Tampering, transactional: bool
) -> None:
    """It is refused when it is repeated, as if something before it were missing, and yet it is there once, with its offset."""
    log = await connect(own_broker)
    once = await log.transactional_producer(group_name(), client_id="t", timeout_ms=60_000) if transactional else None
    producer: Producer | KafkaTransactionalProducer = await log.producer(client_id="p") if once is None else once
    partition, sending = await forgotten(log, own_broker, tampering, producer)
    assert await soon(asyncio.gather(*sending)) == [[3], [5], [7]]
    assert tampering.count("Fetch") > 0
    assert await soon(write_now(producer, partition, b"e")) == [8]
    if once is not None:
        await soon(once.commit({}, NOBODY))
    assert await values_of(log, partition) == [b"a", b"b", b"b", b"c", b"c", b"d", b"d", b"e"]
    await log.close()


async def test_a_missing_right_to_look_for_records_is_reported(own_broker: Broker, tampering: Tampering) -> None:
    """A writer may lack the right to read: it gets an error, nothing is written twice, and later records are written."""
    log = await connect(own_broker)
    producer = await log.producer(client_id="p")
    partition, sending = await forgotten(log, own_broker, tampering, producer)
    tampering.add("Fetch", fetch_code(_NOT_AUTHORIZED), fetch_code(_NOT_AUTHORIZED))
    for refused in sending[:2]:
        with pytest.raises(ProduceFailed, match=r"OUT_OF_ORDER_SEQUENCE_NUMBER.*not known.*AUTHORIZATION"):
            await soon(refused)
    assert tampering.left == 0
    assert await soon(sending[2]) == [7]
    assert await soon(write_now(producer, partition, b"e")) == [8]
    assert await values_of(log, partition) == [b"a", b"b", b"b", b"c", b"c", b"d", b"d", b"e"]
    await log.close()


async def test_repeated_batches_that_are_not_there_are_written_by_the_next_epoch(log: KafkaLog, tampering: Tampering) -> None:
    """Their leader has lost the records before them, and has none of these: they go out again by the next epoch, in order, once."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await soon(write_now(producer, partition, b"a"))
    producer._sender._queues[partition].next_sequence += 5
    tampering.add("Produce", *[Unavailable("not now")] * 3)
    sending = asyncio.gather(*(write_now(producer, partition, value) for value in (b"b", b"c", b"d")))
    assert await soon(sending) == [[2], [3], [4]]
    assert tampering.count("OffsetRequest") > 0
    assert await values_of(log, partition) == [b"a", b"b", b"c", b"d"]
