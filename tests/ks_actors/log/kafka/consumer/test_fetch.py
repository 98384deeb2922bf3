"""Fetching from a real Kafka: the cases that other logs do not have."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ks_actors._errors import NotAuthorized
from ks_actors.log import Fetcher, NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.consumer import _fetch_broker
from tests.kafka.broker import STRANGER, STRANGERS_PASSWORD, Broker
from tests.ks_actors.log.helpers import COMMITTED, PATIENCE_MS, batch, fetch_one, group_name, new_topic, write
from tests.waiting import soon


async def read(fetcher: Fetcher, counts: dict[TopicPartition, int], *, max_records: int = 10_000) -> dict[TopicPartition, list[bytes]]:
    """Read so many records of each partition."""
    found: dict[TopicPartition, list[bytes]] = {partition: [] for partition in counts}
    while any(len(found[partition]) < count for partition, count in counts.items()):
        for fetched in await fetcher.fetch(max_wait_ms=PATIENCE_MS, max_records=max_records):
            assert list(fetched.batch.offsets) == list(range(fetched.next_offset - len(fetched.batch), fetched.next_offset))
            found[fetched.partition] += fetched.batch.values
    return found


def numbered(partition: TopicPartition, begin: int, end: int, *, size: int = 10) -> Outgoing:
    return Outgoing(partition, batch(*[b"%0*d" % (size, index) for index in range(begin, end)]))


def numbers(values: Sequence[bytes]) -> list[int]:
    return [int(value) for value in values]


@pytest.mark.parametrize("max_records", [100, 10_000])
async def test_everything_comes_once_and_in_order(kafka_broker: Broker, max_records: int) -> None:
    """The order holds also when there is more than fits into a request or the buffer."""
    options = KafkaOptions(max_partition_fetch_bytes=20_000, fetch_max_bytes=50_000)
    async with KafkaLog(kafka_broker.bootstrap, options=options) as log:
        partitions = await new_topic(log, 3)
        producer = await log.producer(client_id="p")
        for begin in range(0, 3000, 500):
            await producer.send([numbered(partition, begin, begin + 500, size=50) for partition in partitions])
        fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
        fetcher.assign(dict.fromkeys(partitions, 0))
        found = await soon(read(fetcher, dict.fromkeys(partitions, 3000), max_records=max_records))
        assert all(numbers(values) == list(range(3000)) for values in found.values())
        assert list(await fetcher.fetch(max_wait_ms=1)) == []


async def test_records_larger_than_a_fetch_are_read(kafka_broker: Broker) -> None:
    """Of all partitions, though a broker makes an exception for the first one of a request only."""
    async with KafkaLog(kafka_broker.bootstrap, options=KafkaOptions(max_partition_fetch_bytes=1_000)) as log:
        partitions = await new_topic(log, 4)
        producer = await log.producer(client_id="p")
        for number in range(3):
            for partition in partitions:
                await write(producer, partition, b"%d" % number * 5_000)
        fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
        fetcher.assign(dict.fromkeys(partitions, 0))
        found = await soon(read(fetcher, dict.fromkeys(partitions, 3)))
        assert all([value[:1] for value in values] == [b"0", b"1", b"2"] for values in found.values())


async def test_newly_wanted_partitions_do_not_wait_for_idle_ones(kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that waits for records of one partition does not keep another one waiting."""
    monkeypatch.setattr(_fetch_broker, "LONG_MS", 10 * PATIENCE_MS)
    async with KafkaLog(kafka_broker.bootstrap) as log:
        idle, busy, paused = await new_topic(log, 3)
        producer = await log.producer(client_id="p")
        await producer.send([numbered(busy, 0, 10), numbered(paused, 0, 10)])
        fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
        fetcher.assign({idle: 0, paused: 10})
        assert list(await fetcher.fetch(max_wait_ms=100)) == []
        fetcher.assign({idle: 0, busy: 0, paused: 10})
        assert (await soon(fetch_one(fetcher))).partition == busy
        fetcher.pause([paused])
        fetcher.seek(paused, 5)
        fetcher.resume([paused])
        assert (await soon(fetch_one(fetcher))).partition == paused
        for partition in (idle, busy, paused):
            await producer.send([numbered(partition, 10, 11)])
            assert (await soon(fetch_one(fetcher))).partition == partition


async def test_full_buffers_of_paused_partitions_keep_no_other_one_unread(kafka_broker: Broker) -> None:
    """A task that has enough of one side of a join gets the other one, though there is no room to read ahead."""
    options = KafkaOptions(max_partition_fetch_bytes=20_000, fetch_max_bytes=50_000)
    async with KafkaLog(kafka_broker.bootstrap, options=options) as log:
        left, right = await new_topic(log, 6), await new_topic(log, 6)
        producer = await log.producer(client_id="p")
        for begin in range(0, 1_000, 200):
            await producer.send([numbered(partition, begin, begin + 200, size=60) for partition in (*left, *right)])
        fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
        for count in range(1, 7):
            fetcher.assign(dict.fromkeys(left[:count], 0) | {each: fetcher.position(each) for each in left[: count - 1]})
            assert (await soon(fetch_one(fetcher, max_records=10))).partition == left[count - 1]
            fetcher.pause(left[:count])
        assert fetcher._budget.used > options.fetch_max_bytes
        fetcher.assign({each: fetcher.position(each) for each in left} | dict.fromkeys(right, 0))
        found = await soon(read(fetcher, dict.fromkeys(right, 1_000)))
        assert all(numbers(values) == list(range(1_000)) for values in found.values())


async def test_an_assignment_keeps_buffered_records(kafka_broker: Broker) -> None:
    """Of partitions that stay where they are: a rebalance does not fetch it all again."""
    async with KafkaLog(kafka_broker.bootstrap) as log:
        one, two = await new_topic(log, 2)
        await (await log.producer(client_id="p")).send([numbered(one, 0, 100), numbered(two, 0, 10)])
        fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
        fetcher.assign({one: 0})
        assert len((await fetch_one(fetcher, max_records=10)).batch) == 10
        await log.delete_records({one: 100})
        fetcher.assign({one: 10, two: 0})
        found = await soon(read(fetcher, {one: 90, two: 10}))
        assert numbers(found[one]) == list(range(10, 100))


@pytest.mark.parametrize("kill", [False, True])
async def test_a_broker_may_go_and_come_again(own_broker: Broker, kill: bool) -> None:
    """Waiting readers get records when it is back: all of them, once."""
    async with KafkaLog(own_broker.bootstrap) as log:
        (partition,) = await new_topic(log)
        await (await log.producer(client_id="p")).send([numbered(partition, 0, 100)])
        fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
        fetcher.assign({partition: 0})
        assert len((await fetch_one(fetcher, max_records=40)).batch) == 40
        await asyncio.to_thread(own_broker.restart, kill=kill)
        await (await log.producer(client_id="p")).send([numbered(partition, 100, 200)])
        found = await soon(read(fetcher, {partition: 160}))
        assert numbers(found[partition]) == list(range(40, 200))


async def test_a_leader_that_was_remembered_wrongly_is_looked_up(kafka_broker: Broker) -> None:
    """A broker that is not there, or not in charge, is no reason to give up."""
    async with KafkaLog(kafka_broker.bootstrap) as log:
        (partition,) = await new_topic(log)
        await (await log.producer(client_id="p")).send([numbered(partition, 0, 10)])
        await log._client.refresh([partition.topic])
        known = log._client._topics.found[partition.topic]
        log._client._topics.found[partition.topic] = known._replace(leaders={0: 99})
        fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
        fetcher.assign({partition: 0})
        assert len((await soon(fetch_one(fetcher))).batch) == 10


async def test_a_topic_that_is_created_late_is_waited_for(kafka_broker: Broker) -> None:
    """The fetcher waits, because not all brokers know of a new topic at once."""
    async with KafkaLog(kafka_broker.bootstrap, options=KafkaOptions(missing_topic_wait_ms=PATIENCE_MS)) as log:
        partition = TopicPartition(f"late-{group_name()}", 0)
        fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
        fetcher.assign({partition: 0})
        assert list(await fetcher.fetch(max_wait_ms=100)) == []
        await log.create_topics([NewTopic(partition.topic, 1)])
        await (await log.producer(client_id="p")).send([numbered(partition, 0, 10)])
        assert len((await soon(fetch_one(fetcher))).batch) == 10


async def test_forbidden_requests_are_named(secure_broker: Broker) -> None:
    """A reader without the right to a topic gets an error that names it, at each attempt."""
    async with KafkaLog(secure_broker.bootstrap) as owner:
        (partition,) = await new_topic(owner)
    options = KafkaOptions(sasl_mechanism="PLAIN", sasl_username=STRANGER, sasl_password=STRANGERS_PASSWORD)
    async with KafkaLog(secure_broker.address("SASL_PLAINTEXT"), options=options) as log:
        fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
        fetcher.assign({partition: 0})
        for _ in range(2):
            with pytest.raises(NotAuthorized, match=partition.topic):
                await soon(fetch_one(fetcher))
