"""The number of requests and their times: against a broker in memory, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from ks_actors.log import TopicPartition
from ks_actors.log.kafka import KafkaOptions
from tests.ks_actors.log.kafka.consumer.scripted import WAY_S, ScriptedBroker, fetching, partitions
from tests.ks_actors.log.kafka.consumer.test_fetch_fairness import RECORD, Reader, now, trickle
from tests.ks_actors.runtime.helpers import in_virtual_time

AT_ONCE = 3 * WAY_S


async def lone(broker: ScriptedBroker, reader: Reader, partition: TopicPartition) -> float:
    """Write a record; return how long it takes until it is read."""
    broker.append(partition, RECORD)
    began = now()
    await reader.until(lambda: reader.next.get(partition) == broker.end(partition))
    return now() - began


@pytest.mark.parametrize("count", [1, 4, 60])
@pytest.mark.parametrize("paused", [False, True])
@in_virtual_time
async def test_nothing_to_read_costs_two_requests_a_second(count: int, paused: bool) -> None:
    """However many partitions there are, and though one of them is paused."""
    every = partitions(count + 1)
    broker = ScriptedBroker()
    fetcher = fetching(broker)
    fetcher.assign(dict.fromkeys(every, 0))
    await asyncio.sleep(1)
    if paused:
        fetcher.pause(every[:1])
    else:
        fetcher.assign({partition: 0 for partition in every if partition.partition})
    await asyncio.sleep(1)
    broker.seen.clear()
    broker.answered.clear()
    await asyncio.sleep(100)
    assert len(broker.seen) <= 200
    assert not any(seen.asked or seen.forgotten for seen in broker.seen)
    assert not any(broker.answered)
    await fetcher.close()


@in_virtual_time
async def test_a_lone_record_is_never_put_off() -> None:
    """It comes as soon as the broker has it; the next one behind it may be put off by `linger_ms`."""
    one, two = partitions(2)
    broker = ScriptedBroker(KafkaOptions(linger_ms=10))
    fetcher = fetching(broker)
    fetcher.assign({one: 0, two: 0})
    reader = Reader(fetcher)
    for pause_ms in (1_000, 700, 511, 100, 50, 20):
        await asyncio.sleep(pause_ms / 1000)
        assert await lone(broker, reader, one) <= AT_ONCE
        assert await lone(broker, reader, two) <= AT_ONCE + 0.01
    await reader.close()


@pytest.mark.parametrize(("linger_ms", "least", "most"), [(10, 90, 101), (50, 19, 21), (0, 250, 500)])
@in_virtual_time
async def test_records_that_trickle_are_gathered(linger_ms: int, least: int, most: int) -> None:
    """There is a request each `linger_ms`, for any partitions with records; 0 does not put any off."""
    every = partitions(4)
    broker = ScriptedBroker(KafkaOptions(linger_ms=linger_ms))
    fetcher = fetching(broker)
    fetcher.assign(dict.fromkeys(every, 0))
    reader = Reader(fetcher)
    flows = [asyncio.ensure_future(trickle(broker, partition, 0.0037)) for partition in every]
    await asyncio.sleep(1)
    broker.seen.clear()
    await asyncio.sleep(1)
    assert least <= len(broker.seen) <= most
    for flow in flows:
        flow.cancel()
    await reader.close()


@pytest.mark.parametrize(("count", "linger_ms", "least", "most"), [(10, 20, 48, 51), (60, 20, 28, 34), (60, 100, 8, 9)])
@in_virtual_time
async def test_records_of_many_partitions_are_gathered_for_longer(count: int, linger_ms: int, least: int, most: int) -> None:
    """After an answer with records of more than 10 partitions `linger_ms` is up to twice as long, but no more than 20 ms longer."""
    every = partitions(count)
    broker = ScriptedBroker(KafkaOptions(linger_ms=linger_ms))
    fetcher = fetching(broker)
    fetcher.assign(dict.fromkeys(every, 0))
    reader = Reader(fetcher)
    flows = [asyncio.ensure_future(trickle(broker, partition, 0.019)) for partition in every]
    await asyncio.sleep(1)
    broker.seen.clear()
    await asyncio.sleep(1)
    assert least <= len(broker.seen) <= most
    for flow in flows:
        flow.cancel()
    await reader.close()


@pytest.mark.parametrize("linger_ms", [0, 10, 1_000])
@in_virtual_time
async def test_a_backlog_is_read_as_fast_as_the_broker_answers(linger_ms: int) -> None:
    """Nothing is put off while there is more, though other partitions are quiet, and no byte comes twice."""
    every = partitions(6)
    broker = ScriptedBroker(KafkaOptions(linger_ms=linger_ms, max_partition_fetch_bytes=12_000))
    for partition in every[:2]:
        for _ in range(200):
            broker.append(partition, *[RECORD] * 50)
    fetcher = fetching(broker)
    fetcher.assign(dict.fromkeys(every, 0))
    reader = Reader(fetcher)
    await reader.until(lambda: all(reader.next.get(partition) == 10_000 for partition in every[:2]))
    assert now() <= 110 * 2 * WAY_S
    assert sum(len(answered) for answered in broker.answered) <= 2 * 105 + 6
    await reader.close()


@in_virtual_time
async def test_much_at_a_time_is_not_gathered() -> None:
    """Where each answer has 64 KiB and more, gathering would save nothing."""
    (partition,) = partitions(1)
    broker = ScriptedBroker(KafkaOptions(linger_ms=1_000))
    fetcher = fetching(broker)
    fetcher.assign({partition: 0})
    reader = Reader(fetcher)
    for _ in range(50):
        await asyncio.sleep(0.01)
        broker.append(partition, b"v" * 70_000)
        began = now()
        await reader.until(lambda: reader.next.get(partition) == broker.end(partition))
        assert now() - began <= AT_ONCE
    await reader.close()
