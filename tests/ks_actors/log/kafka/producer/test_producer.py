"""Writing to a real Kafka: batches, order, failures."""

from __future__ import annotations

import asyncio
import math
import random
import time

import pytest
from aiokafka import codec  # type: ignore[import-untyped]

from ks_actors._errors import (
    ConfigError,
    IllegalGeneration,
    InvalidRecord,
    LogClosed,
    LogTimeout,
    OffsetOutOfRange,
    ProduceFailed,
    RecordTooLarge,
    TopicExists,
    UnknownTopicOrPartition,
)
from ks_actors.log import Lease, NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.producer import Identity
from ks_actors.log.kafka.wire._batch_header import HEADER
from ks_actors.log.kafka.wire._batch_writer import Encoder
from ks_actors.records._batch import Batch
from tests.kafka.broker import Broker
from tests.kafka.helpers import connect, until_configured
from tests.kafka.tampering import Tampering, setting
from tests.ks_actors.log.helpers import NOBODY, batch, group_name, new_topic, outgoing, read_all, values_of, write
from tests.waiting import soon, until

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


# --- batches --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
async def test_records_of_any_codec_come_back(kafka_broker: Broker, codec: str) -> None:
    """Whether they can be made smaller or not."""
    log = await connect(kafka_broker, KafkaOptions(compression=codec))  # type: ignore[arg-type]
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    values = [b"the same over and over again"] * 500 + [random.randbytes(50) for _ in range(20)]
    assert await write(producer, partition, *values) == 520
    assert await write(producer, partition, b"x") == 521
    assert await values_of(log, partition) == [*values, b"x"]
    await log.close()


def test_batches_are_cut_by_size() -> None:
    """None is larger than the topic allows, and no record is lost between two of them."""
    encoder = Encoder(KafkaOptions(batch_bytes=10_000), transactional=False)
    records = batch(*[b"%d" % index * 50 for index in range(1000)])
    for limit in (1_000, 10_000, 1_000_000):
        made = encoder.encode(records, limit)
        assert sum(each.count for each in made) == 1000
        assert max(each.size for each in made) <= min(limit, 10_000)
        assert len(made) > 1
    assert encoder.encode(batch(), 1000) == []


def test_one_record_may_be_larger_than_a_batch_and_not_than_the_topic_takes() -> None:
    """batch_bytes is no limit of records; max.message.bytes is, with the header of 61 bytes."""
    encoder = Encoder(KafkaOptions(batch_bytes=100), transactional=False)
    assert [each.count for each in encoder.encode(batch(b"a", b"x" * 5000, b"b"), 10_000)] == [1, 1, 1]
    fitting = encoder.encode(batch(b"x" * 100), 10_000)[0].size
    assert encoder.encode(batch(b"x" * 100), fitting)
    assert fitting > HEADER.size + 100
    with pytest.raises(RecordTooLarge, match=f"record 1 of the batch takes {fitting} bytes"):
        encoder.encode(batch(b"a", b"x" * 100), fitting - 1)


def test_a_record_that_compresses_well_is_not_too_large() -> None:
    """The size at the broker counts."""
    encoder = Encoder(KafkaOptions(compression="gzip"), transactional=False)
    (made,) = encoder.encode(batch(b"x" * 100_000), 1_000)
    assert made.size < 1_000


def test_incompressible_records_go_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A codec that is not installed is told by name."""
    encoder = Encoder(KafkaOptions(compression="gzip"), transactional=False)
    plain = Encoder(KafkaOptions(), transactional=False)
    (made,) = encoder.encode(batch(b"x"), 1_000)
    assert made.stamped(1, 2, 3) == plain.encode(batch(b"x"), 1_000)[0].stamped(1, 2, 3)
    monkeypatch.setattr(codec, "has_lz4", lambda: False)
    with pytest.raises(ConfigError, match="cramjam"):
        Encoder(KafkaOptions(compression="lz4"), transactional=False)


def test_stamping_again_is_as_good_as_stamping_once() -> None:
    """The checksum is right, from any producer."""
    encoder = Encoder(KafkaOptions(), transactional=True)
    (one,), (two,) = encoder.encode(batch(b"a"), 1000), encoder.encode(batch(b"a"), 1000)
    one.stamped(1, 1, 1)
    assert bytes(one.stamped(7, 8, 9)) == bytes(two.stamped(7, 8, 9))


async def test_values_that_are_no_bytes_are_refused_before_anything_is_sent(log: KafkaLog) -> None:
    """TypeError, and all of the call is not written."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    with pytest.raises(TypeError):
        await producer.send([outgoing(partition, b"a"), Outgoing(partition, Batch(["k"], [b"v"], [0]))])
    assert await write(producer, partition, b"b") == 1


async def test_a_call_without_records_is_answered_all_the_same(log: KafkaLog) -> None:
    """Empty batches end where the partition does."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    assert list(await producer.send([])) == []
    await write(producer, partition, b"a")
    assert list(await producer.send([outgoing(partition), outgoing(partition, b"b")])) == [2, 2]


# --- order, and all that goes on at the same time ---------------------------------------------------------------------------


async def test_calls_at_the_same_time_keep_their_order(log: KafkaLog) -> None:
    """Per partition records are in the order of calls, though several requests are in flight."""
    partitions = await new_topic(log, 3)
    producer = await log.producer(client_id="p")
    sends = [producer.send([outgoing(each, b"%d" % number) for each in partitions]) for number in range(200)]
    ends = await soon(asyncio.gather(*sends))
    assert [list(each) for each in ends] == [[number + 1] * 3 for number in range(200)]
    for partition in partitions:
        assert await values_of(log, partition) == [b"%d" % number for number in range(200)]


async def test_large_calls_are_cut_and_keep_their_order(kafka_broker: Broker) -> None:
    """One call may be many batches of one partition, several of them in flight."""
    log = await connect(kafka_broker, KafkaOptions(batch_bytes=2_000))
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    values = [b"%05d" % number for number in range(5_000)]
    assert await write(producer, partition, *values) == 5_000
    assert await values_of(log, partition) == values
    await log.close()


async def test_a_cancelled_send_does_not_harm_the_next_one(log: KafkaLog) -> None:
    """Its records may be there or not; never twice."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    sending = asyncio.ensure_future(write(producer, partition, b"a"))
    for _ in range(3):
        await asyncio.sleep(0)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await write(producer, partition, b"b")
    assert await values_of(log, partition) in ([b"a", b"b"], [b"b"])


# --- what goes wrong ------------------------------------------------------------------------------------------------------


@pytest.mark.everyday
async def test_nothing_is_lost_and_nothing_doubled_when_the_broker_is_killed(own_broker: Broker) -> None:
    """Sends that are under way go on when it is back: each record is there once, in order."""
    log = await connect(own_broker)
    partitions = await new_topic(log, 3)
    producer = await log.producer(client_id="p")
    sent = 0
    stop = asyncio.Event()

    async def send_on() -> None:
        nonlocal sent
        waiting: list[asyncio.Future[object]] = []
        while not stop.is_set():
            # Brokers forget producers of old records when they restart.
            records = batch(b"%d" % sent, timestamps=[time.time_ns() // 1_000_000])
            waiting.append(asyncio.ensure_future(producer.send([Outgoing(each, records) for each in partitions])))
            sent += 1
            if len(waiting) == 10:
                await waiting.pop(0)
        await asyncio.gather(*waiting)

    sending = asyncio.ensure_future(send_on())
    for kill in (True, False):
        before = sent
        await until(lambda before=before: sent >= before + 100)  # type: ignore[misc]
        await asyncio.to_thread(lambda kill=kill: own_broker.restart(kill=kill))  # type: ignore[misc]
    stop.set()
    await soon(sending)
    for partition in partitions:
        assert await values_of(log, partition) == [b"%d" % number for number in range(sent)]
    await log.close()


async def test_a_producer_goes_on_after_a_refused_batch(log: KafkaLog) -> None:
    """Records sent before and behind it are there, at the same time and later, though a sequence number is gone."""
    one, two = await new_topic(log, 2, cleanup_policy="compact")
    producer = await log.producer(client_id="p")
    await write(producer, one, b"a")
    keyless = Outgoing(one, Batch([None], [b"no key"], [0]))
    results = await soon(
        asyncio.gather(
            *(
                producer.send([item])
                for item in (outgoing(one, b"b"), keyless, outgoing(one, b"c"), outgoing(two, b"x"), keyless, outgoing(one, b"d"))
            ),
            return_exceptions=True,
        )
    )
    failed = [result for result in results if isinstance(result, BaseException)]
    assert len(failed) == 2
    for error in failed:
        assert isinstance(error, ProduceFailed)
        assert isinstance(error.errors[one], InvalidRecord)
    await write(producer, one, b"e")
    await write(producer, two, b"y")
    assert await values_of(log, one) == [b"a", b"b", b"c", b"d", b"e"]
    assert await values_of(log, two) == [b"x", b"y"]


async def test_a_topic_that_takes_less_than_before_gets_smaller_batches(log: KafkaLog) -> None:
    """A batch that was made for the old limit is split; a record that is too large for the new one is refused."""
    (partition,) = await new_topic(log, max_message_bytes="100000")
    producer, other = await log.producer(client_id="p"), await log.producer(client_id="o")
    await write(producer, partition, b"first")
    entry = log._admin._limits[partition.topic]
    await log.set_configs({partition.topic: {"max.message.bytes": "300"}})
    await until_configured(log, partition.topic, "max.message.bytes", "300")
    log._admin._limits[partition.topic] = entry
    values = [b"%d" % number * 20 for number in range(64)]
    assert await soon(write(producer, partition, *values)) == 65
    with pytest.raises(ProduceFailed) as failed:
        await soon(write(producer, partition, b"x" * 1000))
    assert isinstance(failed.value.errors[partition], RecordTooLarge)
    await write(producer, partition, b"last")
    await write(other, partition, b"other")
    assert await values_of(log, partition) == [b"first", *values, b"last", b"other"]


async def test_a_broker_that_stays_away_ends_in_a_timeout(own_broker: Broker) -> None:
    """ProduceFailed says that the outcome is unknown; when it is back the producer goes on, and does not send them again."""
    options = KafkaOptions(delivery_timeout_ms=3_000, request_timeout_ms=1_000)
    log = await connect(own_broker, options)
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await write(producer, partition, b"a")
    own_broker.kill()
    with pytest.raises(ProduceFailed) as failed:
        await soon(write(producer, partition, b"b"))
    assert isinstance(failed.value.errors[partition], LogTimeout)
    await asyncio.to_thread(own_broker.start)
    assert await soon(write(producer, partition, b"c")) == 2
    assert await values_of(log, partition) == [b"a", b"c"]
    await log.close()


async def test_a_topic_that_is_deleted_while_it_is_written_to_is_told(log: KafkaLog) -> None:
    """The next topic of that name is written from its beginning, and other topics are not held up."""
    (partition,) = await new_topic(log)
    (other,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await producer.send([outgoing(partition, b"a"), outgoing(other, b"a")])
    await log.delete_topics([partition.topic])
    with pytest.raises(ProduceFailed) as failed:
        await soon(producer.send([outgoing(partition, b"b"), outgoing(other, b"b")]))
    assert isinstance(failed.value.errors[partition], UnknownTopicOrPartition)
    assert set(failed.value.errors) == {partition}
    await log.create_topics([NewTopic(partition.topic, 1)])
    assert await soon(write(producer, partition, b"c")) == 1
    assert await values_of(log, other) == [b"a", b"b"]


@pytest.mark.parametrize("name", ["no topic's name", "x" * 250])
async def test_a_topic_of_a_name_that_none_can_have_is_told_alone(log: KafkaLog, name: str) -> None:
    """It is the only one that fails; records for others sent with it are written, the first time and later."""
    (other,) = await new_topic(log)
    nowhere = TopicPartition(name, 0)
    producer = await log.producer(client_id="p")
    for value in (b"a", b"b"):
        with pytest.raises(ProduceFailed) as failed:
            await soon(producer.send([outgoing(nowhere, b"lost"), outgoing(other, value)]))
        assert set(failed.value.errors) == {nowhere}
        assert isinstance(failed.value.errors[nowhere], UnknownTopicOrPartition)
    assert await values_of(log, other) == [b"a", b"b"]


async def test_in_a_transaction_a_name_that_no_topic_can_have_is_told_alone(log: KafkaLog) -> None:
    """Nothing of the transaction is seen; the next one without it is committed."""
    (other,) = await new_topic(log)
    nowhere = TopicPartition("no topic's name", 0)
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=60_000)
    with pytest.raises(ProduceFailed) as failed:
        await soon(producer.send([outgoing(nowhere, b"lost"), outgoing(other, b"a")]))
    assert set(failed.value.errors) == {nowhere}
    await soon(producer.abort())
    await soon(write(producer, other, b"b"))
    await soon(producer.commit({}, NOBODY))
    assert await values_of(log, other) == [b"b"]


async def test_closing_ends_waiting_callers(own_broker: Broker) -> None:
    """They hear LogClosed, though the broker says nothing."""
    log = await connect(own_broker)
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await write(producer, partition, b"a")
    own_broker.pause()
    waiting = [asyncio.ensure_future(write(producer, partition, b"b")) for _ in range(6)]
    for _ in range(5):
        await asyncio.sleep(0)
    await soon(producer.close())
    for each in waiting:
        with pytest.raises(LogClosed):
            await soon(each)
    own_broker.resume()
    await log.close()


# --- under a lease --------------------------------------------------------------------------------------------------------


async def test_queued_records_wait_for_the_lease(log: KafkaLog) -> None:
    """As long as the owner of the partitions is not certain nothing leaves; then all of it, in order."""
    (partition,) = await new_topic(log)
    lease = Lease()
    producer = await log.producer(client_id="p", lease=lease)
    waiting = [asyncio.ensure_future(write(producer, partition, value)) for value in (b"a", b"b")]
    other = await log.producer(client_id="other")
    await soon(write(other, partition, b"meanwhile"))
    assert not any(each.done() for each in waiting)
    lease.extend(math.inf)
    assert await soon(asyncio.gather(*waiting)) == [2, 3]
    assert await values_of(log, partition) == [b"meanwhile", b"a", b"b"]


async def test_abandoned_records_are_not_written_when_the_broker_is_back(own_broker: Broker) -> None:
    """Waiting callers get it at once, while the broker is away; later records are written."""
    log = await connect(own_broker)
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await write(producer, partition, b"a")
    own_broker.kill()
    waiting = [asyncio.ensure_future(write(producer, partition, b"late")) for _ in range(6)]
    for _ in range(5):
        await asyncio.sleep(0)
    producer.abandon()
    for each in waiting:
        with pytest.raises(ProduceFailed) as failed:
            await soon(each)
        assert isinstance(failed.value.errors[partition], IllegalGeneration)
    later = asyncio.ensure_future(write(producer, partition, b"b"))
    await asyncio.to_thread(own_broker.start)
    assert await soon(later) == 2
    assert await values_of(log, partition) == [b"a", b"b"]
    await log.close()


# --- topics ---------------------------------------------------------------------------------------------------------------


async def test_configs_are_set_one_by_one(log: KafkaLog) -> None:
    """Others stay as they were; an unknown config is named."""
    (partition,) = await new_topic(log, cleanup_policy="compact")
    await log.set_configs({partition.topic: {"retention.ms": "12345"}})

    await until_configured(log, partition.topic, "retention.ms", "12345")
    assert (await log.describe_topics([partition.topic]))[partition.topic].configs["cleanup.policy"] == "compact"
    with pytest.raises(ConfigError, match=partition.topic):
        await log.set_configs({partition.topic: {"retention.ms": "much"}})
    with pytest.raises(UnknownTopicOrPartition):
        await log.set_configs({"nowhere": {"retention.ms": "1"}})


async def test_topics_that_cannot_be_are_told(log: KafkaLog) -> None:
    """By name, and with Kafka's reason; the others of the call are there."""
    (existing,) = await new_topic(log)
    good = f"{existing.topic}-good"
    with pytest.raises(ConfigError, match=r"retention\.ms"):
        await log.create_topics([NewTopic(f"{existing.topic}-bad", 1, {"retention.ms": "much"}), NewTopic(good, 2), NewTopic(existing.topic, 1)])
    assert set(await log.describe_topics([good, f"{existing.topic}-bad"])) == {good}
    with pytest.raises(TopicExists, match=good):
        await log.create_topics([NewTopic(good, 1)])
    await log.create_topics([])
    await log.delete_topics([])


async def test_a_topic_that_another_client_has_just_created_is_waited_for(kafka_broker: Broker, tampering: Tampering) -> None:
    """The controller may know it before the brokers do: when TopicExists is raised, it can be read and written."""
    first, second = await connect(kafka_broker), await connect(kafka_broker)
    (partition,) = await new_topic(first)
    tampering.add("Metadata", *[setting(topics=[])] * 3)
    with pytest.raises(TopicExists, match=partition.topic):
        await second.create_topics([NewTopic(partition.topic, 1)])
    assert tampering.left == 0
    assert await second.begin_offsets([partition]) == {partition: 0}
    await first.close()
    await second.close()


async def test_kafkas_own_topics_are_not_listed(log: KafkaLog) -> None:
    """They are nobody's business."""
    await log.transactional_producer("some-id", client_id="t", timeout_ms=1000)
    assert not [name for name in await log.describe_topics() if name.startswith("__")]


async def test_topics_survive_a_broker_that_dies_while_they_are_made(own_broker: Broker) -> None:
    """An answer that got lost does not make a topic somebody else's, nor a deleted one unknown."""
    log = await connect(own_broker)
    making = asyncio.ensure_future(log.create_topics([NewTopic("made", 1)]))
    for _ in range(random.randrange(30)):
        await asyncio.sleep(0)
    await asyncio.to_thread(lambda: own_broker.restart(kill=True))
    await soon(making)
    deleting = asyncio.ensure_future(log.delete_topics(["made"]))
    for _ in range(random.randrange(30)):
        await asyncio.sleep(0)
    await asyncio.to_thread(lambda: own_broker.restart(kill=True))
    await soon(deleting)
    await log.close()


async def test_records_of_partitions_of_several_leaders_are_deleted_together(log: KafkaLog) -> None:
    """An offset that is not there yet is told with the range."""
    one, two = await new_topic(log, 2)
    producer = await log.producer(client_id="p")
    await producer.send([outgoing(one, b"a", b"b"), outgoing(two, b"c")])
    await log.delete_records({one: 1, two: 1})
    assert await log.begin_offsets([one, two]) == {one: 1, two: 1}
    with pytest.raises(OffsetOutOfRange) as raised:
        await log.delete_records({one: 9})
    assert (raised.value.position, raised.value.begin, raised.value.end) == (9, 1, 2)
    assert await read_all(log, one) == [(1, b"k", b"b")]
    assert await log.offsets_for_times({TopicPartition(one.topic, 0): -5}) == {one: 1}


# --- the sender alone -----------------------------------------------------------------------------------------------------


async def test_a_producer_that_brokers_have_forgotten_takes_the_next_epoch(log: KafkaLog) -> None:
    """A batch with a sequence number that its leader does not expect is not there, and goes out again; behind the last epoch by a new id."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await write(producer, partition, b"a")
    queue, (number, epoch) = producer._sender._queues[partition], producer._sender.identity
    queue.next_sequence += 5
    assert await soon(write(producer, partition, b"b")) == 2
    assert queue.identity == (number, epoch + 1)
    queue.renew(Identity(number, 2**15 - 1))
    queue.next_sequence += 5
    assert await soon(write(producer, partition, b"c")) == 3
    assert queue.identity.producer_id != number
    assert await values_of(log, partition) == [b"a", b"b", b"c"]


async def test_batches_in_flight_behind_a_refused_sequence_are_written_once(log: KafkaLog) -> None:
    """The refused batch and those behind it go out by the next epoch, in their order."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await write(producer, partition, b"a")
    producer._sender._queues[partition].next_sequence += 5
    await soon(asyncio.gather(*(write(producer, partition, b"%d" % number) for number in range(8))))
    assert await values_of(log, partition) == [b"a", *[b"%d" % number for number in range(8)]]


async def test_a_bug_in_sending_reaches_waiting_callers(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not leave them waiting."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr("ks_actors.log.kafka.producer._sender.ProduceRequest", broken)
        with pytest.raises(ProduceFailed, match="a bug"):
            await soon(write(producer, partition, b"a"))
    assert await soon(write(producer, partition, b"b")) == 1
