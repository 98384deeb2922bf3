"""Compaction and retention of the embedded log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ks_actors._errors import ConfigError, InvalidRecord, LogClosed, LogError, ProduceFailed
from ks_actors.log import NewTopic, Outgoing, TopicPartition, Writer
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records._batch import Batch, Headers
from tests.ks_actors.log.helpers import COMMITTED, NOBODY, UNCOMMITTED, Clock, batch, new_topic, outgoing, read_all, write
from tests.waiting import until


async def put(producer: Writer, partition: TopicPartition, **pairs: str | None) -> None:
    values = [None if value is None else value.encode() for value in pairs.values()]
    await producer.send([Outgoing(partition, batch(*values, keys=[key.encode() for key in pairs]))])


async def test_compaction_keeps_the_last_record_of_each_key(embedded: EmbeddedLog) -> None:
    """With its offset; the end stays where it was, and reading goes on over the gaps."""
    (partition,) = await new_topic(embedded, cleanup_policy="compact")
    producer = await embedded.producer(client_id="p")
    await put(producer, partition, a="1", b="1")
    await put(producer, partition, a="2", c="1")
    await put(producer, partition, a="3")
    await embedded.compact()
    assert await read_all(embedded, partition) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3")]
    assert await embedded.begin_offsets([partition]) == {partition: 0}
    assert await read_all(embedded, partition, start=2) == [(3, b"c", b"1"), (4, b"a", b"3")]
    await put(producer, partition, a="4", c="2")
    await embedded.compact()
    assert await read_all(embedded, partition) == [(1, b"b", b"1"), (5, b"a", b"4"), (6, b"c", b"2")]


async def test_only_compacted_topics_are_compacted(embedded: EmbeddedLog) -> None:
    """All others keep everything."""
    (partition,) = await new_topic(embedded)
    producer = await embedded.producer(client_id="p")
    await put(producer, partition, a="1")
    await put(producer, partition, a="2")
    await embedded.compact()
    assert len(await read_all(embedded, partition)) == 2


async def test_compaction_keeps_timestamps_and_headers(embedded: EmbeddedLog) -> None:
    """Of the records that stay, whether their neighbours have headers or not."""
    (partition,) = await new_topic(embedded, cleanup_policy="compact")
    producer = await embedded.producer(client_id="p")
    headers: list[Headers] = [(("h", b"0"),), (("h", b"1"),)]
    await producer.send([Outgoing(partition, Batch([b"a", b"b"], [b"1", b"1"], [5, 6], headers))])
    await producer.send([Outgoing(partition, Batch([b"a"], [b"2"], [7]))])
    await embedded.compact()
    fetcher = embedded.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 0})
    (fetched,) = await fetcher.fetch(max_wait_ms=0)
    assert (fetched.batch.timestamps, fetched.batch.headers, list(fetched.batch.offsets)) == ([6, 7], [(("h", b"1"),), ()], [1, 2])


async def test_tombstones_stay_for_a_while(embedded: EmbeddedLog, clock: Clock) -> None:
    """Until a compaction that comes delete.retention.ms after the first one that met them."""
    (partition,) = await new_topic(embedded, cleanup_policy="compact", delete_retention_ms="1000")
    producer = await embedded.producer(client_id="p")
    await put(producer, partition, a="1", b="1")
    await put(producer, partition, a=None)
    for _ in range(2):
        await embedded.compact()
        assert await read_all(embedded, partition) == [(1, b"b", b"1"), (2, b"a", None)]
        clock.now += 999
    clock.now += 1
    await put(producer, partition, c=None)
    await embedded.compact()
    assert await read_all(embedded, partition) == [(1, b"b", b"1"), (3, b"c", None)]
    clock.now += 1000
    await embedded.compact()
    assert await read_all(embedded, partition) == [(1, b"b", b"1")]
    assert await embedded.end_offsets([partition], COMMITTED) == {partition: 4}


async def test_everything_may_be_compacted_away(embedded: EmbeddedLog) -> None:
    """Nothing is left to read up to the end, and the end stays where it was."""
    (partition,) = await new_topic(embedded, cleanup_policy="compact", delete_retention_ms="0")
    producer = await embedded.producer(client_id="p")
    await put(producer, partition, a=None)
    await embedded.compact()
    await embedded.compact()
    assert await read_all(embedded, partition) == []
    await put(producer, partition, a="1")
    assert await read_all(embedded, partition) == [(1, b"a", b"1")]


async def test_compaction_knows_transactions(embedded: EmbeddedLog) -> None:
    """Aborted records and markers go, and count for nothing; open transactions, and records behind them, are not touched."""
    (partition,) = await new_topic(embedded, cleanup_policy="compact")
    plain = await embedded.producer(client_id="p")
    bad, good, slow = [await embedded.transactional_producer(name, client_id=name, timeout_ms=60_000) for name in ("bad", "good", "slow")]
    await put(plain, partition, a="1", b="1")
    await put(bad, partition, a="bad")
    await put(good, partition, b="2")
    await good.commit({}, NOBODY)
    await put(slow, partition, c="1")
    await put(plain, partition, b="3")
    await bad.abort()
    await embedded.compact()
    expected = [(0, b"a", b"1"), (3, b"b", b"2")]
    assert await read_all(embedded, partition) == expected
    assert await read_all(embedded, partition, UNCOMMITTED) == [*expected, (5, b"c", b"1"), (6, b"b", b"3")]
    await slow.commit({}, NOBODY)
    await embedded.compact()
    assert await read_all(embedded, partition, start=7) == []
    assert await read_all(embedded, partition, UNCOMMITTED) == [(0, b"a", b"1"), (5, b"c", b"1"), (6, b"b", b"3")]


async def test_a_compacted_topic_takes_no_record_without_a_key(embedded: EmbeddedLog) -> None:
    """It could never be told from others."""
    (partition,) = await new_topic(embedded, cleanup_policy="compact,delete")
    producer = await embedded.producer(client_id="p")
    with pytest.raises(ProduceFailed) as failed:
        await producer.send([Outgoing(partition, batch(b"1", b"2", keys=[b"a", None]))])
    assert isinstance(failed.value.errors[partition], InvalidRecord)


async def test_records_and_topics_may_be_deleted_during_a_compaction(embedded: EmbeddedLog) -> None:
    """It goes on with the remaining ones."""
    one, two = await new_topic(embedded, 2, cleanup_policy="compact")
    producer = await embedded.producer(client_id="p")
    keys = [b"%d" % index for index in range(1000)]
    for partition in (one, two):
        for _ in range(4):
            await producer.send([Outgoing(partition, batch(*keys, keys=keys))])
    compaction = asyncio.ensure_future(embedded.compact())
    for _ in range(6):
        await asyncio.sleep(0)
    await embedded.delete_records({one: 3500})
    await compaction
    assert [offset for offset, _, _ in await read_all(embedded, one)] == list(range(3500, 4000))
    assert [offset for offset, _, _ in await read_all(embedded, two)] == list(range(3000, 4000))
    for _ in range(4):
        await producer.send([Outgoing(one, batch(*keys, keys=keys))])
    compaction = asyncio.ensure_future(embedded.compact())
    await asyncio.sleep(0)
    await embedded.delete_topics([one.topic])
    await compaction


async def test_a_compaction_ends_with_its_log(embedded: EmbeddedLog) -> None:
    """A caller that waits for it gets an error."""
    (partition,) = await new_topic(embedded, cleanup_policy="compact")
    producer = await embedded.producer(client_id="p")
    await put(producer, partition, a="1")
    compaction = asyncio.ensure_future(embedded.compact())
    await asyncio.sleep(0)
    await embedded.close()
    with pytest.raises(LogClosed):
        await compaction


async def test_old_records_are_deleted(embedded: EmbeddedLog, clock: Clock) -> None:
    """Batches with a newest record older than retention.ms, from the beginning; with the markers among them."""
    (partition,) = await new_topic(embedded, retention_ms="1000")
    producer = await embedded.transactional_producer("x", client_id="p", timeout_ms=60_000)
    for age in (5000, 2000, 500, 3000):
        await producer.send([Outgoing(partition, batch(b"%d" % age, timestamps=[clock.now - age]))])
        await producer.commit({}, NOBODY)
    await embedded.clean()
    assert [value for _, _, value in await read_all(embedded, partition)] == [b"500", b"3000"]
    assert await embedded.begin_offsets([partition]) == {partition: 4}
    clock.now += 5000
    await embedded.clean()
    assert await embedded.begin_offsets([partition]) == {partition: 8}
    assert await embedded.end_offsets([partition], COMMITTED) == {partition: 8}


async def test_large_partitions_are_cut(embedded: EmbeddedLog) -> None:
    """No batch stays that retention.bytes can do without."""
    (partition,) = await new_topic(embedded, retention_bytes="250", retention_ms="-1")
    producer = await embedded.producer(client_id="p")
    for _ in range(5):
        await write(producer, partition, b"x" * 99)
    await embedded.clean()
    assert [offset for offset, _, _ in await read_all(embedded, partition)] == [2, 3, 4]


async def test_open_transactions_are_not_cleaned_away(embedded: EmbeddedLog) -> None:
    """Records behind the first record of an open transaction stay too."""
    (partition,) = await new_topic(embedded, retention_bytes="1")
    plain, open_ = await embedded.producer(client_id="p"), await embedded.transactional_producer("x", client_id="p", timeout_ms=60_000)
    await write(plain, partition, b"a")
    await write(open_, partition, b"b")
    await write(plain, partition, b"c")
    await embedded.clean()
    assert await embedded.begin_offsets([partition]) == {partition: 1}
    await open_.commit({}, NOBODY)
    await embedded.clean()
    assert [value for _, _, value in await read_all(embedded, partition)] == [b"c"]


async def test_without_limits_nothing_is_deleted(embedded: EmbeddedLog) -> None:
    """However old it is; and a compacted topic has none unless its policy says delete too."""
    unlimited = await new_topic(embedded), await new_topic(embedded, retention_ms="-1", retention_bytes="-1")
    for (partition,) in (*unlimited, await new_topic(embedded, cleanup_policy="compact", retention_ms="1")):
        await write(await embedded.producer(client_id="p"), partition, b"a")
        await embedded.clean()
        assert len(await read_all(embedded, partition)) == 1


async def test_large_partitions_are_cleaned_without_being_asked(embedded: EmbeddedLog) -> None:
    """After 8 MiB, or 32 on disk; replayed records are not old only because the clock has gone on."""
    assert embedded._broker.storage.growth in {8 << 20, 32 << 20}
    embedded._broker.storage.growth = 8 << 20
    (small,) = await new_topic(embedded, cleanup_policy="compact")
    (large,) = await new_topic(embedded, cleanup_policy="compact,delete", retention_ms="1000")
    producer = await embedded.producer(client_id="p")
    for index in range(12):
        for partition in (small, large):
            value = b"x" * (1 << 20 if partition == large else 1)
            await producer.send([Outgoing(partition, batch(value, keys=[b"%d" % (index % 2)], timestamps=[index]))])

    async def cleaned() -> bool:
        return len(await read_all(embedded, large)) <= 6

    await until(cleaned)
    assert len(await read_all(embedded, small)) == 12
    assert [offset for offset, _, _ in await read_all(embedded, large)] == [6, 7, 8, 9, 10, 11]


async def test_several_partitions_may_be_due_at_once(embedded: EmbeddedLog) -> None:
    """They are cleaned one after the other."""
    embedded._broker.storage.growth = 8 << 20
    partitions = await new_topic(embedded, 2, retention_bytes="2000000")
    producer = await embedded.producer(client_id="p")
    for _ in range(9):
        await producer.send([outgoing(partition, b"x" * (1 << 20)) for partition in partitions])
    for _ in range(9):
        await producer.send([])
    for partition in partitions:
        assert len(await read_all(embedded, partition)) < 5


@pytest.fixture
async def durable(tmp_path: Path) -> AsyncIterator[EmbeddedLog]:
    async with EmbeddedLog(tmp_path / "log") as made:
        yield made


async def test_closing_leaves_off_cleaning(durable: EmbeddedLog, caplog: pytest.LogCaptureFixture) -> None:
    """That is nothing to warn of."""
    caplog.set_level(logging.DEBUG, logger="ks_actors.log")
    durable._broker.storage.growth = 8 << 20
    (partition,) = await new_topic(durable, cleanup_policy="compact")
    producer = await durable.producer(client_id="p")
    for _ in range(8):
        await producer.send([Outgoing(partition, batch(b"x" * (1 << 20)))])
    await durable.close()
    assert "the log was closed during a compaction" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}


async def test_settings_are_checked_before_anything_is_created(embedded: EmbeddedLog) -> None:
    """An impossible topic is refused, with the setting and its value."""
    good = NewTopic("good", 1)
    for bad, message in (
        (NewTopic("bad", 1, {"cleanup.policy": "burn"}), "cleanup.policy must be 'compact', 'delete' or both, not 'burn'"),
        (NewTopic("bad", 1, {"retention.ms": "soon"}), "retention.ms must be a whole number, not 'soon'"),
    ):
        with pytest.raises(ConfigError, match=message):
            await embedded.create_topics([good, bad])
    for name, partitions in (("", 1), ("..", 1), ("a b", 1), ("x" * 250, 1), ("ok", 0)):
        with pytest.raises(LogError):
            await embedded.create_topics([good, NewTopic(name, partitions)])
    assert await embedded.describe_topics() == {}


async def test_aborted_records_may_be_deleted_before_they_are_aborted(embedded: EmbeddedLog) -> None:
    """Nothing is left to be aborted, and reading goes on behind."""
    (partition,) = await new_topic(embedded)
    producer = await embedded.transactional_producer("x", client_id="p", timeout_ms=60_000)
    await producer.send([outgoing(partition, b"a")])
    await producer.send([outgoing(partition, b"b")])
    await embedded.delete_records({partition: 1})
    assert await embedded.end_offsets([partition], COMMITTED) == {partition: 1}
    await producer.abort()
    assert await read_all(embedded, partition) == []


async def test_young_records_are_not_compacted(embedded: EmbeddedLog, clock: Clock) -> None:
    """Later records stay too: `min.compaction.lag.ms` counts from the newest timestamp of the records written together."""
    (partition,) = await new_topic(embedded, cleanup_policy="compact", min_compaction_lag_ms="1000")
    producer = await embedded.producer(client_id="p")
    began = clock()
    for time, value in ((began - 1500, b"1"), (began - 1200, b"2"), (began - 500, b"3"), (began - 1500, b"4")):
        await producer.send([Outgoing(partition, Batch([b"a"], [value], [time]))])
    await embedded.compact()
    assert await read_all(embedded, partition) == [(1, b"a", b"2"), (2, b"a", b"3"), (3, b"a", b"4")]
    clock.now += 600
    await embedded.compact()
    assert await read_all(embedded, partition) == [(3, b"a", b"4")]
