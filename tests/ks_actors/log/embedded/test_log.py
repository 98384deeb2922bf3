"""The embedded log by itself: its life, its aids for tests, and how little it copies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ks_actors._errors import ConfigError, Fenced, LogClosed, LogError, ProduceFailed, StorageFull, TransactionAborted, UnknownTopicOrPartition
from ks_actors.log import NewTopic, OffsetAndMetadata, Outgoing, TopicPartition, open_log
from ks_actors.log.embedded import EmbeddedLog, Operation
from ks_actors.records._batch import Batch, Headers
from tests.ks_actors.log.helpers import (
    COMMITTED,
    NOBODY,
    UNCOMMITTED,
    assigned,
    batch,
    fetch_one,
    join,
    new_topic,
    outgoing,
    read_all,
    values_of,
    write,
)


async def test_logs_are_opened_by_url(tmp_path: Path) -> None:
    """memory:// is a new log each time, embedded:// one in a directory."""
    for url, expected in (
        ("memory://", "<EmbeddedLog in memory, not started>"),
        ("embedded:///a/b%20c", "<EmbeddedLog in /a/b c, not started>"),
    ):
        assert repr(open_log(url)) == expected
    assert open_log("memory://") is not open_log("memory://")
    log = open_log(f"embedded://{tmp_path}/log")
    await log.start()
    await log.close()
    assert (tmp_path / "log").is_dir()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://name", "logs in memory have none"),
        ("embedded://relative/path", "use three slashes"),
        ("embedded://", "use three slashes"),
        ("embedded:///path?x=1", "use three slashes"),
        ("kafka://", "names no servers: use 'kafka://host:port,host:port'"),
        ("kafka://host:9092/topic", "names no servers: use 'kafka://host:port,host:port'"),
        ("host:9092", "kafka://host:port"),
        ("", "is not the URL of a log"),
    ],
)
def test_other_urls_are_refused(url: str, message: str) -> None:
    """The error names the URL, and the possible ones."""
    with pytest.raises(ConfigError, match=message) as raised:
        open_log(url)
    assert repr(url) in str(raised.value)


def test_a_directory_is_a_path() -> None:
    """Text may be meant as a URL, which `open_log` takes."""
    with pytest.raises(TypeError, match=r"directory is 'data': give a pathlib.Path, or None for a log in memory"):
        EmbeddedLog("data")  # type: ignore[arg-type]


async def test_a_log_lives_once() -> None:
    """Before start and after close its calls raise LogClosed; it is started once."""
    log = EmbeddedLog()
    with pytest.raises(LogClosed, match=r"the log is not started: await start\(\), or use `async with`"):
        await log.producer(client_id="p")
    await log.start()
    with pytest.raises(LogError, match="started only once, and this one is started"):
        await log.start()
    await log.close()
    with pytest.raises(LogClosed, match="the log is closed"):
        log.fetcher(client_id="r", isolation=COMMITTED)
    with pytest.raises(LogError, match="started only once, and this one is closed"):
        await log.start()
    unused = EmbeddedLog()
    await unused.close()
    with pytest.raises(LogError, match="this one is closed"):
        await unused.start()


async def test_batches_in_memory_are_not_copied() -> None:
    """A reader gets the very columns that were sent, when they are all it may take."""
    async with EmbeddedLog() as log:
        (partition,) = await new_topic(log)
        sent = batch(b"a", b"b")
        await (await log.producer(client_id="p")).send([Outgoing(partition, sent)])
        fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
        fetcher.assign({partition: 0})
        got = (await fetch_one(fetcher)).batch
        assert got.keys is sent.keys
        assert got.values is sent.values
        assert got.timestamps is sent.timestamps
        assert got.offsets == range(2)


async def test_small_batches_come_together(embedded: EmbeddedLog) -> None:
    """As many as a fetch may take, with headers where there are some."""
    (partition,) = await new_topic(embedded)
    producer = await embedded.producer(client_id="p")
    headers: list[Headers] = [(("h", b"1"),)]
    for index in range(5):
        await producer.send([Outgoing(partition, Batch([None], [b"%d" % index], [index], headers if index == 1 else None))])
    await producer.send([outgoing(partition)])
    fetcher = embedded.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 0})
    fetched = await fetch_one(fetcher, max_records=3)
    assert (fetched.batch.values, fetched.next_offset, fetched.end_offset) == ([b"0", b"1", b"2"], 3, 5)
    assert fetched.batch.headers == [(), (("h", b"1"),), ()]
    assert fetched.batch.offsets == range(3)
    assert (await fetch_one(fetcher)).batch.headers is None


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (Batch(["k"], [b"v"], [0]), TypeError, "keys of records in a log must be bytes or None, not str: serialize them first"),
        (Batch([b"k", None], [1, 1.5], [0, 0]), TypeError, "values of records in a log must be bytes or None, not float, int"),
        (Batch([b"k"], [b"v"], []), ValueError, "1 keys, 1 values, 0 timestamps"),
    ],
)
async def test_only_bytes_are_written(embedded: EmbeddedLog, wrong: Batch, error: type[Exception], message: str) -> None:
    """A caller that forgot to serialize gets an error at once, and a transaction is void."""
    (partition,) = await new_topic(embedded)
    producer = await embedded.transactional_producer("x", client_id="p", timeout_ms=60_000)
    with pytest.raises(error, match=message):
        await producer.send([outgoing(partition, b"good"), Outgoing(partition, wrong)])
    with pytest.raises(TransactionAborted, match="a batch failed"):
        await producer.commit({}, NOBODY)
    assert await read_all(embedded, partition, UNCOMMITTED) == []


async def test_a_partition_with_a_refused_batch_gets_nothing_of_the_send(embedded: EmbeddedLog) -> None:
    """The errors of ProduceFailed are therefore complete for a partition."""
    one, two = await new_topic(embedded, 2, max_message_bytes="10")
    producer = await embedded.producer(client_id="p")
    with pytest.raises(ProduceFailed, match=f"{one}: record 1 of a batch for {one} has 21 bytes, max.message.bytes is 10"):
        await producer.send([outgoing(one, b"a"), outgoing(two, b"b"), outgoing(one, b"c", b"x" * 20), outgoing(one, b"d")])
    assert await values_of(embedded, one) == []
    assert await values_of(embedded, two) == [b"b"]


async def test_headers_count_for_the_size_of_a_record(embedded: EmbeddedLog) -> None:
    """Names and values, null as nothing."""
    (partition,) = await new_topic(embedded, max_message_bytes="10")
    producer = await embedded.producer(client_id="p")
    await producer.send([Outgoing(partition, Batch([None], [b"12345"], [0], [(("abc", b"12"), ("", None))]))])
    with pytest.raises(ProduceFailed, match="has 11 bytes"):
        await producer.send([Outgoing(partition, Batch([None], [b"12345"], [0], [(("abcd", b"12"),)]))])


async def test_one_fetch_waits_at_a_time(embedded: EmbeddedLog) -> None:
    """A second one is an error, as it would steal from the first."""
    (partition,) = await new_topic(embedded)
    fetcher = embedded.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 0})
    waiting = asyncio.ensure_future(fetch_one(fetcher))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(LogError, match="waiting in another fetch"):
        await fetcher.fetch(max_wait_ms=1000)
    with pytest.raises(ValueError, match="max_records is 0: give 1 or more"):
        await fetcher.fetch(max_wait_ms=0, max_records=0)
    await write(await embedded.producer(client_id="p"), partition, b"a")
    assert (await waiting).batch.values == [b"a"]


@pytest.mark.usefixtures("actors_seed")
async def test_waking_in_vain_does_not_make_a_fetch_wait_longer(embedded: EmbeddedLog) -> None:
    """It times out at its time, with any events in between."""
    one, two = await new_topic(embedded, 2)
    fetcher = embedded.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({one: 0, two: 0})
    loop = asyncio.get_running_loop()
    begin = loop.time()
    waiting = asyncio.ensure_future(fetcher.fetch(max_wait_ms=1000))
    loop.call_later(0.5, fetcher.seek, one, 0)
    loop.call_later(1.0, fetcher.seek, one, 0)
    assert list(await waiting) == []
    assert loop.time() - begin == pytest.approx(1)


async def test_an_open_transaction_does_not_wake_committed_readers(embedded: EmbeddedLog) -> None:
    """A reader behind the last stable offset waits for the end of the transaction."""
    (partition,) = await new_topic(embedded)
    producer = await embedded.transactional_producer("x", client_id="p", timeout_ms=60_000)
    await write(producer, partition, b"a")
    fetcher = embedded.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 1})
    waiting = asyncio.ensure_future(fetch_one(fetcher))
    await write(producer, partition, b"b")
    assert not waiting.done()
    await producer.commit({}, NOBODY)
    assert (await waiting).batch.values == [b"b"]


async def test_only_assigned_partitions_are_sought_paused_and_resumed(embedded: EmbeddedLog) -> None:
    """All others are named in an error, and nothing is changed."""
    one, two = await new_topic(embedded, 2)
    fetcher = embedded.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({one: 0})
    calls: list[Callable[[], None]] = [lambda: fetcher.seek(two, 0), lambda: fetcher.pause([one, two]), lambda: fetcher.resume([two])]
    for call in calls:
        with pytest.raises(LogError, match=f"fetcher r is not assigned {two}: assign"):
            call()
    await write(await embedded.producer(client_id="p"), one, b"a")
    assert (await fetch_one(fetcher)).partition == one


async def test_a_cancelled_send_may_have_written(embedded: EmbeddedLog) -> None:
    """As on any log: a caller that does not wait for the answer does not know."""
    (partition,) = await new_topic(embedded)
    producer = await embedded.producer(client_id="p")
    sending = asyncio.ensure_future(write(producer, partition, b"a"))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert await values_of(embedded, partition) == [b"a"]


async def test_errors_can_be_ordered(embedded: EmbeddedLog) -> None:
    """The next calls of the operation raise them and do nothing; then all is as before."""
    (partition,) = await new_topic(embedded)
    producer, transactional = await embedded.producer(client_id="p"), await embedded.transactional_producer("x", client_id="p", timeout_ms=60_000)
    member = await join(embedded, "g", partition.topic)
    await assigned(member)
    fetcher = embedded.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 0})

    async def leave() -> None:
        await (await join(embedded, "a group of its own")).leave()

    calls: dict[Operation, Callable[[], Awaitable[object]]] = {
        "abort": transactional.abort,
        "begin_offsets": lambda: embedded.begin_offsets([partition]),
        "commit": lambda: transactional.commit({}, NOBODY),
        "commit_offsets": lambda: member.commit({partition: OffsetAndMetadata(1)}),
        "committed": lambda: member.committed([partition]),
        "create_partitions": lambda: embedded.create_partitions({partition.topic: 2}),
        "create_topics": lambda: embedded.create_topics([NewTopic("new", 1)]),
        "delete_records": lambda: embedded.delete_records({partition: 0}),
        "delete_topics": lambda: embedded.delete_topics(["new"]),
        "describe_topics": embedded.describe_topics,
        "end_offsets": lambda: embedded.end_offsets([partition], COMMITTED),
        "fetch": lambda: fetcher.fetch(max_wait_ms=0),
        "join": lambda: join(embedded, "other"),
        "leave": leave,
        "offsets_for_times": lambda: embedded.offsets_for_times({partition: 0}),
        "producer": lambda: embedded.producer(client_id="q"),
        "send": lambda: write(producer, partition, b"a"),
        "transactional_producer": lambda: embedded.transactional_producer("y", client_id="q", timeout_ms=1000),
    }
    for operation, call in calls.items():
        embedded.inject(operation, StorageFull("no room"), times=2)
        for _ in range(2):
            await embedded.describe_topics() if operation != "describe_topics" else None
            with pytest.raises(StorageFull, match="no room"):
                await call()
        await call()
    assert await values_of(embedded, partition) == [b"a"]


async def test_errors_can_be_ordered_for_afterwards(embedded: EmbeddedLog) -> None:
    """Everything is done then, and the caller cannot know: an answer that was lost."""
    (partition,) = await new_topic(embedded)
    producer, transactional = await embedded.producer(client_id="p"), await embedded.transactional_producer("x", client_id="p", timeout_ms=60_000)
    member = await join(embedded, "g", partition.topic)
    await assigned(member)
    lost = LogError("lost")
    embedded.inject("send", lost, after=True)
    with pytest.raises(LogError, match="lost"):
        await write(producer, partition, b"a")
    await write(transactional, partition, b"b")
    embedded.inject("commit", lost, after=True)
    with pytest.raises(LogError, match="lost"):
        await transactional.commit({}, NOBODY)
    await write(transactional, partition, b"c")
    embedded.inject("abort", lost, after=True)
    with pytest.raises(LogError, match="lost"):
        await transactional.abort()
    embedded.inject("commit_offsets", lost, after=True)
    with pytest.raises(LogError, match="lost"):
        await member.commit({partition: OffsetAndMetadata(4)})
    assert await values_of(embedded, partition) == [b"a", b"b"]
    assert await member.committed([partition]) == {partition: OffsetAndMetadata(4)}


async def test_a_send_that_was_made_to_fail_makes_its_transaction_void(embedded: EmbeddedLog) -> None:
    """Like any other failed batch."""
    (partition,) = await new_topic(embedded)
    producer = await embedded.transactional_producer("x", client_id="p", timeout_ms=60_000)
    await write(producer, partition, b"a")
    embedded.inject("send", StorageFull("no room"))
    with pytest.raises(StorageFull):
        await write(producer, partition, b"b")
    with pytest.raises(TransactionAborted, match="no room"):
        await producer.commit({}, NOBODY)
    assert await values_of(embedded, partition) == []


async def test_deleting_a_topic_takes_it_out_of_open_transactions(embedded: EmbeddedLog) -> None:
    """Records elsewhere are committed; without any left, nothing is open."""
    (one,), (two,) = await new_topic(embedded), await new_topic(embedded)
    producer = await embedded.transactional_producer("x", client_id="p", timeout_ms=60_000)
    await producer.send([outgoing(one, b"a"), outgoing(two, b"b")])
    await embedded.delete_topics([one.topic])
    await producer.commit({}, NOBODY)
    assert await values_of(embedded, two) == [b"b"]
    await write(producer, two, b"c")
    await embedded.delete_topics([two.topic])
    await producer.commit({}, NOBODY)


async def test_unknown_partitions_are_named_with_the_known_ones(embedded: EmbeddedLog) -> None:
    """The list lets a reader tell a wrong number from a wrong name."""
    (partition,) = await new_topic(embedded)
    with pytest.raises(UnknownTopicOrPartition, match=f"no {partition.topic}-5: topic '{partition.topic}' has partitions 0 to 0"):
        await embedded.begin_offsets([TopicPartition(partition.topic, 5)])
    with pytest.raises(UnknownTopicOrPartition, match="no x-0: no topic 'x'"):
        await embedded.begin_offsets([TopicPartition("x", 0)])


async def test_a_log_aborts_open_transactions_when_it_is_closed(tmp_path: Path) -> None:
    """Producers that were fenced have nothing to abort."""
    async with EmbeddedLog(tmp_path) as log:
        (partition,) = await new_topic(log)
        await log.transactional_producer("x", client_id="p", timeout_ms=60_000)
        producer = await log.transactional_producer("x", client_id="p", timeout_ms=60_000)
        await write(producer, partition, b"a")
    async with EmbeddedLog(tmp_path) as log:
        assert await log.end_offsets([partition], COMMITTED) == {partition: 2}
        assert await values_of(log, partition) == []
    with pytest.raises((Fenced, LogClosed)):
        await producer.abort()
