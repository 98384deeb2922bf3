"""Topics, producing and fetching: the duties of each log."""

from __future__ import annotations

import asyncio

import pytest

from ks_actors._errors import LogClosed, OffsetOutOfRange, ProduceFailed, RecordTooLarge, TopicExists, UnknownTopicOrPartition
from ks_actors.log import Fetcher, Log, NewTopic, Outgoing, TopicPartition
from ks_actors.records._batch import Batch
from tests.ks_actors.log.helpers import COMMITTED, PATIENCE_MS, UNCOMMITTED, batch, fetch_one, new_topic, outgoing, read_all, values_of, write
from tests.waiting import soon


def reader(log: Log, *partitions: TopicPartition) -> Fetcher:
    fetcher = log.fetcher(client_id="reader", isolation=COMMITTED)
    fetcher.assign(dict.fromkeys(partitions, 0))
    return fetcher


async def test_topics_are_described_as_they_were_created(log: Log) -> None:
    """Partitions and configs come back; topics that are not there are left out."""
    (first, *_) = await new_topic(log, 3, cleanup_policy="compact")
    described = await log.describe_topics([first.topic, "nowhere"])
    assert set(described) == {first.topic}
    assert described[first.topic].name == first.topic
    assert described[first.topic].partitions == 3
    assert described[first.topic].configs["cleanup.policy"] == "compact"
    assert first.topic in await log.describe_topics()
    without = await log.describe_topics([first.topic], configs=False)
    assert (without[first.topic].partitions, without[first.topic].configs) == (3, {})


async def test_of_topics_to_be_created_only_those_that_exist_fail(log: Log) -> None:
    """TopicExists names them, and all others are there afterwards."""
    (first,) = await new_topic(log)
    others = [NewTopic(f"{first.topic}-a", 1), NewTopic(first.topic, 2), NewTopic(f"{first.topic}-b", 2)]
    with pytest.raises(TopicExists, match=first.topic):
        await log.create_topics(others)
    described = await log.describe_topics([topic.name for topic in others])
    assert [topic.partitions for topic in described.values()] == [1, 1, 2]


async def test_a_topic_begins_anew_after_it_was_deleted(log: Log) -> None:
    """Records of a topic do not turn up in another one of the same name."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await write(producer, partition, b"old")
    await log.delete_topics([partition.topic])
    assert partition.topic not in await log.describe_topics()
    await log.create_topics([NewTopic(partition.topic, 1)])
    await write(producer, partition, b"new")
    assert await read_all(log, partition) == [(0, b"k", b"new")]


async def test_missing_topics_cannot_be_deleted(log: Log) -> None:
    """Others of the same call are deleted."""
    (partition,) = await new_topic(log)
    with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
        await log.delete_topics(["nowhere", partition.topic])
    assert await log.describe_topics([partition.topic]) == {}


async def test_records_come_back_as_they_were_sent(log: Log) -> None:
    """Keys, values, timestamps and headers, null where they were null."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    headers: list[tuple[tuple[str, bytes | None], ...]] = [(), (("a", b"1"), ("a", None)), (("b", b""),)]
    sent = Batch([b"k", None, b""], [None, b"v", b""], [5, 3, 4], headers)
    assert list(await producer.send([Outgoing(partition, sent)])) == [3]
    fetched = await fetch_one(reader(log, partition))
    assert (fetched.partition, fetched.next_offset, fetched.end_offset) == (partition, 3, 3)
    got = fetched.batch
    assert (got.keys, got.values, got.timestamps, got.headers) == (sent.keys, sent.values, sent.timestamps, headers)
    assert list(got.offsets) == [0, 1, 2]


async def test_send_returns_the_end_of_each_batch(log: Log) -> None:
    """Per batch in the order of the call, also when several are for one partition."""
    one, two = await new_topic(log, 2)
    producer = await log.producer(client_id="p")
    assert list(await producer.send([outgoing(one, b"a", b"b"), outgoing(two, b"c"), outgoing(one, b"d")])) == [2, 1, 3]
    assert await values_of(log, one) == [b"a", b"b", b"d"]
    assert await values_of(log, two) == [b"c"]


async def test_a_refused_batch_does_not_take_others_with_it(log: Log) -> None:
    """ProduceFailed has the error of each partition that failed; the others' records are written."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    nowhere = TopicPartition(partition.topic, 7)
    with pytest.raises(ProduceFailed) as failed:
        await producer.send([outgoing(nowhere, b"a"), outgoing(partition, b"b")])
    assert set(failed.value.errors) == {nowhere}
    assert isinstance(failed.value.errors[nowhere], UnknownTopicOrPartition)
    assert await values_of(log, partition) == [b"b"]


async def test_a_record_may_be_no_larger_than_its_topic_says(log: Log) -> None:
    """max.message.bytes is of one record, however many are sent together; the error tells which ones are larger, through all batches of the call."""
    (partition,) = await new_topic(log, max_message_bytes="500")
    producer = await log.producer(client_id="p")
    await write(producer, partition, *[b"x" * 100] * 20)
    with pytest.raises(ProduceFailed) as failed:
        await producer.send([outgoing(partition, b"x", b"x" * 1000), outgoing(partition, b"x" * 600, b"x", b"x" * 600)])
    error = failed.value.errors[partition]
    assert isinstance(error, RecordTooLarge)
    assert error.records == {1, 2, 4}
    assert len(await values_of(log, partition)) == 20


async def test_fetch_returns_as_soon_as_there_is_something(log: Log) -> None:
    """It waits for records, not for its time to be up."""
    (partition,) = await new_topic(log)
    fetcher = reader(log, partition)
    waiting = asyncio.ensure_future(fetch_one(fetcher))
    await asyncio.sleep(0)
    await write(await log.producer(client_id="p"), partition, b"a")
    assert (await soon(waiting)).batch.values == [b"a"]


async def test_fetch_returns_nothing_when_its_time_is_up(log: Log) -> None:
    """The next fetch goes on at the same position."""
    (partition,) = await new_topic(log)
    fetcher = reader(log, partition)
    assert list(await fetcher.fetch(max_wait_ms=0)) == []
    assert list(await fetcher.fetch(max_wait_ms=1)) == []
    await write(await log.producer(client_id="p"), partition, b"a")
    assert (await fetch_one(fetcher)).batch.values == [b"a"]


async def test_fetch_takes_no_more_than_it_was_asked_for(log: Log) -> None:
    """max_records is per partition; the rest comes next."""
    one, two = await new_topic(log, 2)
    producer = await log.producer(client_id="p")
    await producer.send([outgoing(one, *[b"%d" % i for i in range(5)]), outgoing(two, b"x")])
    await write(producer, one, b"5")
    fetcher = reader(log, one, two)
    got: dict[TopicPartition, list[bytes | None]] = {one: [], two: []}
    while len(got[one]) < 6 or len(got[two]) < 1:
        for fetched in await fetcher.fetch(max_wait_ms=PATIENCE_MS, max_records=2):
            assert len(fetched.batch) <= 2
            assert fetched.end_offset == (6 if fetched.partition == one else 1)
            assert fetcher.position(fetched.partition) == fetched.next_offset
            got[fetched.partition] += fetched.batch.values
    assert got == {one: [b"0", b"1", b"2", b"3", b"4", b"5"], two: [b"x"]}


async def test_a_cancelled_fetch_loses_nothing(log: Log) -> None:
    """Positions move with returned records, and with nothing else."""
    (partition,) = await new_topic(log)
    fetcher = reader(log, partition)
    waiting = asyncio.ensure_future(fetcher.fetch(max_wait_ms=PATIENCE_MS))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await write(await log.producer(client_id="p"), partition, b"a")
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await fetch_one(fetcher)).batch.values == [b"a"]


async def test_seek_reads_on_from_there(log: Log) -> None:
    """Forward and back, also within a batch."""
    (partition,) = await new_topic(log)
    await write(await log.producer(client_id="p"), partition, b"a", b"b", b"c")
    fetcher = reader(log, partition)
    fetcher.seek(partition, 2)
    assert (await fetch_one(fetcher)).batch.values == [b"c"]
    fetcher.seek(partition, 1)
    assert fetcher.position(partition) == 1
    assert (await fetch_one(fetcher)).batch.values == [b"b", b"c"]


async def test_paused_partitions_are_left_out(log: Log) -> None:
    """Until they are resumed, from where they were; an assignment does not change that."""
    one, two = await new_topic(log, 2)
    producer = await log.producer(client_id="p")
    fetcher = reader(log, one, two)
    fetcher.pause([one])
    await producer.send([outgoing(one, b"a"), outgoing(two, b"b")])
    assert (await fetch_one(fetcher)).partition == two
    fetcher.assign({one: 0, two: 1})
    assert list(await fetcher.fetch(max_wait_ms=0)) == []
    waiting = asyncio.ensure_future(fetch_one(fetcher))
    await asyncio.sleep(0)
    fetcher.resume([one])
    assert (await soon(waiting)).batch.values == [b"a"]


@pytest.mark.parametrize("way", ["assign", "seek"])
async def test_a_fetch_that_waits_notices_new_positions(log: Log, way: str) -> None:
    """It returns the records of a partition that is assigned or moved meanwhile, before its time is up."""
    one, two = await new_topic(log, 2)
    await write(await log.producer(client_id="p"), two, b"a")
    fetcher = log.fetcher(client_id="reader", isolation=COMMITTED)
    fetcher.assign({one: 0} if way == "assign" else {one: 0, two: 1})
    waiting = asyncio.ensure_future(fetch_one(fetcher))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if way == "assign":
        fetcher.assign({one: 0, two: 0})
    else:
        fetcher.seek(two, 0)
    assert (await soon(waiting)).batch.values == [b"a"]


async def test_only_assigned_partitions_are_read(log: Log) -> None:
    """The position of another partition cannot be told."""
    one, two = await new_topic(log, 2)
    await (await log.producer(client_id="p")).send([outgoing(one, b"a"), outgoing(two, b"b")])
    fetcher = reader(log, one, two)
    fetcher.assign({two: 0})
    assert (await fetch_one(fetcher)).partition == two
    with pytest.raises(KeyError):
        fetcher.position(one)


async def test_a_position_outside_of_the_log_is_told(log: Log) -> None:
    """With the range that there is, below it and above; after a seek reading goes on."""
    (partition,) = await new_topic(log)
    await write(await log.producer(client_id="p"), partition, b"a", b"b", b"c")
    await log.delete_records({partition: 1})
    fetcher = reader(log, partition)
    for position in (0, 9):
        fetcher.seek(partition, position)
        with pytest.raises(OffsetOutOfRange) as raised:
            await fetch_one(fetcher)
        error = raised.value
        assert (error.partition, error.position, error.begin, error.end) == (partition, position, 1, 3)
    fetcher.seek(partition, 1)
    assert (await fetch_one(fetcher)).batch.values == [b"b", b"c"]


async def test_a_partition_that_is_not_there_cannot_be_fetched(log: Log) -> None:
    """Questions about it are refused as well."""
    (partition,) = await new_topic(log)
    nowhere = TopicPartition(partition.topic, 1)
    with pytest.raises(UnknownTopicOrPartition):
        await fetch_one(reader(log, nowhere))
    with pytest.raises(UnknownTopicOrPartition):
        await log.begin_offsets([partition, nowhere])
    with pytest.raises(UnknownTopicOrPartition):
        await log.end_offsets([nowhere], COMMITTED)
    with pytest.raises(UnknownTopicOrPartition):
        await log.delete_records({nowhere: 0})


async def test_fetch_hears_of_a_deleted_topic(log: Log) -> None:
    """A reader that waits for its records gets an error."""
    (partition,) = await new_topic(log)
    waiting = asyncio.ensure_future(fetch_one(reader(log, partition)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await log.delete_topics([partition.topic])
    with pytest.raises(UnknownTopicOrPartition):
        await soon(waiting)


async def test_deleted_records_are_gone(log: Log) -> None:
    """The partition begins at the offset that was given; a lower one does not bring them back."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    for value in (b"a", b"b", b"c"):
        await write(producer, partition, value)
    await log.delete_records({partition: 2})
    await log.delete_records({partition: 1})
    assert await log.begin_offsets([partition]) == {partition: 2}
    assert await log.end_offsets([partition], UNCOMMITTED) == {partition: 3}
    assert await read_all(log, partition) == [(2, b"k", b"c")]
    await log.delete_records({partition: 3})
    assert await log.begin_offsets([partition]) == {partition: 3}
    assert await write(producer, partition, b"d") == 4
    with pytest.raises(OffsetOutOfRange):
        await log.delete_records({partition: 5})


async def test_offsets_are_found_by_time(log: Log) -> None:
    """The first record at or after it, in order of offsets; the end if there is none."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await producer.send([Outgoing(partition, batch(b"a", b"b", timestamps=[10, 30]))])
    await producer.send([Outgoing(partition, batch(b"c", b"d", timestamps=[20, 40]))])
    expected = {5: 0, 10: 0, 11: 1, 31: 3, 41: 4}
    assert {time: (await log.offsets_for_times({partition: time}))[partition] for time in expected} == expected
    await log.delete_records({partition: 1})
    assert await log.offsets_for_times({partition: 5}) == {partition: 1}
    await log.delete_records({partition: 2})
    await producer.send([Outgoing(partition, batch(b"e", timestamps=[50]))])
    await log.delete_records({partition: 3})
    assert await log.offsets_for_times({partition: 20}) == {partition: 3}
    await producer.send([Outgoing(partition, batch(b"f", b"g", timestamps=[70, 60]))])
    await log.delete_records({partition: 6})
    assert await log.offsets_for_times({partition: 65}) == {partition: 7}


async def test_closed_objects_raise(log: Log) -> None:
    """A waiting fetch ends, and all calls after a close raise LogClosed; closing twice is closing once."""
    (partition,) = await new_topic(log)
    fetcher = reader(log, partition)
    waiting = asyncio.ensure_future(fetch_one(fetcher))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await fetcher.close()
    await fetcher.close()
    with pytest.raises(LogClosed):
        await soon(waiting)
    producer = await log.producer(client_id="p")
    await producer.close()
    await producer.close()
    with pytest.raises(LogClosed):
        await write(producer, partition, b"a")


async def test_a_log_ends_all_that_was_made_from_it(log: Log) -> None:
    """Readers and writers raise LogClosed, and so does the log."""
    (partition,) = await new_topic(log)
    fetcher, producer = reader(log, partition), await log.producer(client_id="p")
    waiting = asyncio.ensure_future(fetch_one(fetcher))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await log.close()
    await log.close()
    with pytest.raises(LogClosed):
        await soon(waiting)
    with pytest.raises(LogClosed):
        await write(producer, partition, b"a")
    with pytest.raises(LogClosed):
        await log.describe_topics()
