"""Transactions: the duties of each log."""

from __future__ import annotations

import asyncio

import pytest

from ks_actors._errors import Fenced, IllegalGeneration, LogClosed, ProduceFailed, TransactionAborted
from ks_actors.log import GroupMetadata, Log, OffsetAndMetadata, TopicPartition, TransactionalProducer
from tests.ks_actors.log.helpers import (
    COMMITTED,
    NOBODY,
    UNCOMMITTED,
    assigned,
    fetch_one,
    group_name,
    join,
    new_topic,
    outgoing,
    read_all,
    settle,
    values_of,
    write,
)
from tests.waiting import soon


async def transactional(log: Log, name: str, timeout_ms: int = 60_000) -> TransactionalProducer:
    return await log.transactional_producer(name, client_id="p", timeout_ms=timeout_ms)


async def test_a_transaction_is_seen_as_a_whole_or_not_at_all(log: Log) -> None:
    """Committed readers see nothing before the commit and all after it; others see all at once."""
    one, two = await new_topic(log, 2)
    producer = await transactional(log, group_name())
    await producer.send([outgoing(one, b"a"), outgoing(two, b"b")])
    await write(producer, one, b"c")
    assert await values_of(log, one) == await values_of(log, two) == []
    assert await values_of(log, one, UNCOMMITTED) == [b"a", b"c"]
    await producer.commit({}, NOBODY)
    assert await values_of(log, one) == [b"a", b"c"]
    assert await values_of(log, two) == [b"b"]


async def test_the_end_of_a_transaction_takes_an_offset(log: Log) -> None:
    """In each of its partitions, as there is a marker; the next record is behind it."""
    one, two = await new_topic(log, 2)
    producer = await transactional(log, group_name())
    await write(producer, one, b"a")
    await producer.commit({}, NOBODY)
    await write(producer, one, b"b")
    await producer.abort()
    assert await write(producer, one, b"c") == 5
    await producer.commit({}, NOBODY)
    assert await read_all(log, one) == [(0, b"k", b"a"), (4, b"k", b"c")]
    assert await read_all(log, one, UNCOMMITTED) == [(0, b"k", b"a"), (2, b"k", b"b"), (4, b"k", b"c")]
    assert await log.end_offsets([one, two], UNCOMMITTED) == {one: 6, two: 0}


async def test_positions_move_behind_skipped_records(log: Log) -> None:
    """Aborted records and markers are stepped over, so that there is no lag where there is nothing to read."""
    (partition,) = await new_topic(log)
    producer = await transactional(log, group_name())
    await write(producer, partition, b"a")
    await producer.abort()
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 0})
    while fetcher.position(partition) < 2:
        for fetched in await fetcher.fetch(max_wait_ms=1000):
            assert len(fetched.batch) == 0
    assert fetcher.position(partition) == 2


async def test_committed_readers_stop_at_the_first_open_transaction(log: Log) -> None:
    """Readers stop even before committed records behind it, and go on when it ends."""
    (partition,) = await new_topic(log)
    plain, slow = await log.producer(client_id="p"), await transactional(log, group_name())
    await write(plain, partition, b"a")
    await write(slow, partition, b"b")
    await write(plain, partition, b"c")
    assert await log.end_offsets([partition], COMMITTED) == {partition: 1}
    assert await log.end_offsets([partition], UNCOMMITTED) == {partition: 3}
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 0})
    assert (await fetch_one(fetcher)).batch.values == [b"a"]
    waiting = asyncio.ensure_future(fetch_one(fetcher))
    await asyncio.sleep(0)
    await write(plain, partition, b"d")
    assert not waiting.done()
    await slow.commit({}, NOBODY)
    assert (await soon(waiting)).batch.values == [b"b", b"c", b"d"]


async def test_aborted_records_are_left_out_between_others(log: Log) -> None:
    """Records of others that were written meanwhile are not."""
    (partition,) = await new_topic(log)
    plain, bad, good = await log.producer(client_id="p"), await transactional(log, group_name()), await transactional(log, group_name())
    for producer, value in ((plain, b"a"), (bad, b"b"), (good, b"c"), (plain, b"d"), (bad, b"e")):
        await write(producer, partition, value)
    await good.commit({}, NOBODY)
    await bad.abort()
    await write(plain, partition, b"f")
    assert await values_of(log, partition) == [b"a", b"c", b"d", b"f"]
    assert await values_of(log, partition, UNCOMMITTED) == [b"a", b"b", b"c", b"d", b"e", b"f"]


async def test_offsets_are_committed_with_the_records(log: Log) -> None:
    """Neither without the other."""
    (partition,) = await new_topic(log)
    member = await join(log, group_name(), partition.topic)
    await assigned(member)
    producer = await transactional(log, group_name())
    await write(producer, partition, b"a")
    await producer.abort()
    assert await member.committed([partition]) == {}
    await write(producer, partition, b"b")
    await producer.commit({partition: OffsetAndMetadata(7, "note")}, member.group)
    assert await member.committed([partition]) == {partition: OffsetAndMetadata(7, "note")}
    assert await values_of(log, partition) == [b"b"]


async def test_offsets_can_be_committed_without_records(log: Log) -> None:
    """A transaction need not have written anything; a commit of nothing at all does nothing."""
    (partition,) = await new_topic(log)
    member = await join(log, group_name(), partition.topic)
    await assigned(member)
    producer = await transactional(log, group_name())
    await producer.commit({partition: OffsetAndMetadata(3)}, member.group)
    assert await member.committed([partition]) == {partition: OffsetAndMetadata(3)}
    await producer.commit({}, member.group)
    await producer.abort()
    assert await log.end_offsets([partition], UNCOMMITTED) == {partition: 0}


async def test_a_group_that_has_moved_on_refuses_the_transaction(log: Log) -> None:
    """IllegalGeneration: nothing of it becomes visible, and the producer can go on."""
    (partition,) = await new_topic(log)
    group = group_name()
    member = await join(log, group, partition.topic)
    await assigned(member)
    old = member.group
    other = await join(log, group, partition.topic)
    await settle(member, other)
    producer = await transactional(log, group_name())
    for stale in (old, GroupMetadata(group, member.group.generation, "nobody"), GroupMetadata(group, -1, "")):
        await write(producer, partition, b"a")
        with pytest.raises(IllegalGeneration):
            await producer.commit({partition: OffsetAndMetadata(1)}, stale)
    assert await values_of(log, partition) == []
    assert await member.committed([partition]) == {}
    await write(producer, partition, b"b")
    await producer.commit({partition: OffsetAndMetadata(1)}, member.group)
    assert await values_of(log, partition) == [b"b"]


async def test_a_newer_producer_fences_the_older_ones(log: Log) -> None:
    """The old one's open transaction is aborted, and each of its calls raises Fenced."""
    (partition,) = await new_topic(log)
    name = group_name()
    old = await transactional(log, name)
    await write(old, partition, b"a")
    new = await transactional(log, name)
    assert await log.end_offsets([partition], COMMITTED) == {partition: 2}
    await write(new, partition, b"b")
    with pytest.raises(Fenced):
        await write(old, partition, b"c")
    with pytest.raises(Fenced):
        await old.commit({}, NOBODY)
    with pytest.raises(Fenced):
        await old.abort()
    await old.close()
    await new.commit({}, NOBODY)
    assert await values_of(log, partition) == [b"b"]


async def test_transactional_ids_do_not_meddle_with_each_other(log: Log) -> None:
    """Two producers of two ids write side by side."""
    (partition,) = await new_topic(log)
    one, two = await transactional(log, group_name()), await transactional(log, group_name())
    await write(one, partition, b"a")
    await write(two, partition, b"b")
    await two.commit({}, NOBODY)
    assert await values_of(log, partition) == []
    await one.commit({}, NOBODY)
    assert await values_of(log, partition) == [b"a", b"b"]


async def test_a_transaction_has_its_time(log: Log) -> None:
    """After its timeout it is aborted: a commit raises TransactionAborted, and the next transaction is as good as any."""
    (partition,) = await new_topic(log)
    producer = await transactional(log, group_name(), timeout_ms=2_000)
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 0})
    await write(producer, partition, b"a")
    while fetcher.position(partition) < 2:
        assert all(len(fetched.batch) == 0 for fetched in await fetcher.fetch(max_wait_ms=1000))
    with pytest.raises(TransactionAborted):
        await producer.commit({}, NOBODY)
    await write(producer, partition, b"b")
    await producer.commit({}, NOBODY)
    assert await values_of(log, partition) == [b"b"]


async def test_a_void_transaction_takes_no_more_records(log: Log) -> None:
    """Each send raises TransactionAborted until the producer has taken note, so that nothing gets into the next transaction by mistake."""
    (partition,) = await new_topic(log)
    producer = await transactional(log, group_name(), timeout_ms=2_000)
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 0})
    await write(producer, partition, b"a")
    while fetcher.position(partition) < 2:
        await fetcher.fetch(max_wait_ms=1000)
    for _ in range(2):
        with pytest.raises(TransactionAborted):
            await write(producer, partition, b"b")
    await producer.abort()
    await write(producer, partition, b"c")
    await producer.commit({}, NOBODY)
    assert await values_of(log, partition) == [b"c"]


async def test_a_transaction_with_a_failed_batch_cannot_be_committed(log: Log) -> None:
    """Committing would show the transaction without that batch."""
    (partition,) = await new_topic(log)
    producer = await transactional(log, group_name())
    with pytest.raises(ProduceFailed):
        await producer.send([outgoing(partition, b"a"), outgoing(TopicPartition(partition.topic, 1), b"b")])
    with pytest.raises(TransactionAborted):
        await producer.commit({}, NOBODY)
    assert await values_of(log, partition) == []
    await write(producer, partition, b"c")
    await producer.commit({}, NOBODY)
    assert await values_of(log, partition) == [b"c"]


async def test_closing_a_producer_aborts_its_open_transaction(log: Log) -> None:
    """Calls of a closed producer raise LogClosed."""
    (partition,) = await new_topic(log)
    producer = await transactional(log, group_name())
    await write(producer, partition, b"a")
    await producer.close()
    await producer.close()
    assert await log.end_offsets([partition], COMMITTED) == {partition: 2}
    assert await values_of(log, partition) == []
    for call in (producer.send([]), producer.commit({}, NOBODY), producer.abort()):
        with pytest.raises(LogClosed):
            await call
