"""Transactions on a real Kafka: zombies, timeouts, brokers that die at the wrong moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ks_actors._errors import Fenced, IllegalGeneration, InvalidRecord, LogError, LogTimeout, ProduceFailed, RecordTooLarge, TransactionAborted
from ks_actors.log import GroupMetadata, OffsetAndMetadata, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.producer._partition_queue import Identity
from ks_actors.log.kafka.transactions._transaction_coordinator import EPOCHS_APART
from ks_actors.log.kafka.transactions._transactional_producer import KafkaTransactionalProducer
from ks_actors.records._batch import Batch
from tests.kafka.broker import Broker
from tests.kafka.helpers import connect
from tests.kafka.tampering import Tampering
from tests.ks_actors.log.helpers import COMMITTED, NOBODY, UNCOMMITTED, assigned, group_name, join, new_topic, outgoing, values_of, write
from tests.waiting import soon


async def transactional(log: KafkaLog, name: str | None = None, timeout_ms: int = 60_000) -> KafkaTransactionalProducer:
    return await log.transactional_producer(name or group_name(), client_id="t", timeout_ms=timeout_ms)


async def until_aborted(log: KafkaLog, partition: TopicPartition, end: int) -> None:
    """Wait until the coordinator has aborted open transactions."""
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 0})
    while fetcher.position(partition) < end:
        await fetcher.fetch(max_wait_ms=1_000)
    await fetcher.close()


# --- overtaken, or too slow -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["send", "send to a new partition", "commit", "commit offsets", "abort"])
async def test_a_fenced_producer_hears_it_from_any_call(log: KafkaLog, call: str) -> None:
    """Fenced, and from then on from all calls; nothing of its transaction is seen, and the new one is not disturbed."""
    one, two = await new_topic(log, 2)
    name, group = group_name(), group_name()
    old = await transactional(log, name)
    await write(old, one, b"old")
    new = await transactional(log, name)
    await write(new, one, b"new")
    calls: dict[str, Any] = {
        "send": lambda: write(old, one, b"more"),
        "send to a new partition": lambda: write(old, two, b"more"),
        "commit": lambda: old.commit({}, NOBODY),
        "commit offsets": lambda: old.commit({one: OffsetAndMetadata(1)}, GroupMetadata(group, -1, "")),
        "abort": old.abort,
    }
    with pytest.raises(Fenced, match=name):
        await calls[call]()
    for each in calls.values():
        with pytest.raises(Fenced):
            await each()
    await old.close()
    await new.commit({}, NOBODY)
    assert await values_of(log, one) == [b"new"]
    assert await values_of(log, two) == []


async def test_a_producer_without_an_open_transaction_is_fenced_too(log: KafkaLog) -> None:
    """With the first thing that it wants to write."""
    (partition,) = await new_topic(log)
    name = group_name()
    old = await transactional(log, name)
    new = await transactional(log, name)
    await old.abort()
    await old.commit({}, NOBODY)
    with pytest.raises(Fenced):
        await write(old, partition, b"a")
    await write(new, partition, b"b")
    await new.commit({}, NOBODY)
    assert await values_of(log, partition) == [b"b"]


async def test_a_new_producer_that_aborts_is_not_taken_for_a_timeout(log: KafkaLog) -> None:
    """The old one, which has nothing open or has something open, does not take the id back."""
    (partition,) = await new_topic(log)
    for has_open in (False, True):
        name = group_name()
        old = await transactional(log, name)
        if has_open:
            await write(old, partition, b"old")
        new = await transactional(log, name)
        await write(new, partition, b"new")
        await new.abort()
        with pytest.raises(Fenced):
            await write(old, partition, b"more")
        await write(new, partition, b"newer")
        await new.commit({}, NOBODY)
    assert await values_of(log, partition) == [b"newer", b"newer"]


@pytest.mark.parametrize("call", ["send", "send to a new partition", "commit", "commit offsets", "abort"])
async def test_a_timeout_is_not_the_end(log: KafkaLog, call: str) -> None:
    """TransactionAborted, from any call; afterwards the producer goes on."""
    one, two = await new_topic(log, 2)
    producer = await transactional(log, timeout_ms=2_000)
    await write(producer, one, b"late")
    await until_aborted(log, one, 2)
    group = GroupMetadata(group_name(), -1, "")
    calls: dict[str, Any] = {
        "send": lambda: write(producer, one, b"more"),
        "send to a new partition": lambda: write(producer, two, b"more"),
        "commit": lambda: producer.commit({}, NOBODY),
        "commit offsets": lambda: producer.commit({one: OffsetAndMetadata(1)}, group),
    }
    if call == "abort":
        await producer.abort()
    else:
        with pytest.raises(TransactionAborted, match="2000 ms"):
            await calls[call]()
        if "send" in call:
            with pytest.raises(TransactionAborted):
                await write(producer, one, b"more")
            await producer.abort()
    await write(producer, one, b"good")
    await producer.commit({}, NOBODY)
    assert await values_of(log, one) == [b"good"]
    assert await values_of(log, two) == []


async def test_a_producer_that_timed_out_and_was_fenced_is_fenced(log: KafkaLog) -> None:
    """A newer producer is in charge, also when the transaction was aborted for its time before that."""
    (partition,) = await new_topic(log)
    name = group_name()
    old = await transactional(log, name, timeout_ms=1_000)
    await write(old, partition, b"late")
    await until_aborted(log, partition, 2)
    with pytest.raises(TransactionAborted):
        await write(old, partition, b"more")
    new = await transactional(log, name)
    with pytest.raises(Fenced):
        await old.abort()
    await write(new, partition, b"new")
    await new.commit({}, NOBODY)
    assert await values_of(log, partition) == [b"new"]


async def test_an_id_has_one_owner_however_many_want_it(log: KafkaLog) -> None:
    """Of producers that start at the same time the last one stays, and all others are fenced."""
    (partition,) = await new_topic(log)
    name = group_name()
    producers = await soon(asyncio.gather(*(transactional(log, name) for _ in range(4))))

    async def attempt(producer: KafkaTransactionalProducer) -> bool:
        try:
            await write(producer, partition, b"a")
            await producer.commit({}, NOBODY)
        except Fenced:
            return False
        return True

    assert sum(await soon(asyncio.gather(*map(attempt, producers)))) == 1
    assert await values_of(log, partition) == [b"a"]


# --- batches that fail ----------------------------------------------------------------------------------------------------


async def test_after_a_refused_batch_the_producer_has_a_new_epoch(log: KafkaLog) -> None:
    """A sequence number is gone; readers do not see records sent with the batch, and do see later ones."""
    one, two = await new_topic(log, 2, cleanup_policy="compact")
    producer = await transactional(log)
    keyless = Outgoing(one, Batch([None], [b"no key"], [0]))
    for value in (b"a", b"b"):
        await write(producer, one, b"void")
        before = producer._sender.identity
        results = await asyncio.gather(
            *(producer.send([each]) for each in (outgoing(two, b"x"), keyless, outgoing(one, b"void"))), return_exceptions=True
        )
        assert isinstance(results[1], ProduceFailed)
        assert isinstance(results[1].errors[one], InvalidRecord)
        assert isinstance(results[2], ProduceFailed | TransactionAborted)
        with pytest.raises(TransactionAborted):
            await producer.commit({}, NOBODY)
        identity = producer._sender.identity
        # An abort may take epochs of its own: with Kafka 4.0.0 two.
        assert identity.producer_id == before.producer_id
        assert 0 < identity.epoch - before.epoch <= EPOCHS_APART
        await producer.send([outgoing(one, value), outgoing(two, value)])
        await producer.commit({}, NOBODY)
    assert await values_of(log, one) == await values_of(log, two) == [b"a", b"b"]


async def test_a_record_that_is_too_large_spoils_the_transaction(log: KafkaLog) -> None:
    """Though nothing of it was sent."""
    (partition,) = await new_topic(log, max_message_bytes="500")
    producer = await transactional(log)
    await write(producer, partition, b"a")
    with pytest.raises(ProduceFailed) as failed:
        await write(producer, partition, b"x" * 1000)
    assert isinstance(failed.value.errors[partition], RecordTooLarge)
    with pytest.raises(TransactionAborted):
        await write(producer, partition, b"b")
    await producer.abort()
    await write(producer, partition, b"c")
    await producer.commit({}, NOBODY)
    assert await values_of(log, partition) == [b"c"]


async def test_a_cancelled_send_spoils_the_transaction(log: KafkaLog) -> None:
    """Nobody knows whether its records are in it; after the abort all is well."""
    (partition,) = await new_topic(log)
    producer = await transactional(log)
    for turns in range(6):
        sending = asyncio.ensure_future(write(producer, partition, b"void"))
        for _ in range(turns):
            await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        if turns:
            with pytest.raises(TransactionAborted):
                await producer.commit({}, NOBODY)
    await write(producer, partition, b"good")
    await producer.commit({}, NOBODY)
    assert await values_of(log, partition) == [b"good"]


async def test_a_commit_that_is_cancelled_behind_its_decision_is_repeated(log: KafkaLog, tampering: Tampering) -> None:
    """Until then no record is sent: it would go into a transaction that has ended."""
    (partition,) = await new_topic(log)
    producer = await transactional(log)
    await write(producer, partition, b"a")
    asked_for_its_end = tampering.after(2)
    committing = asyncio.ensure_future(producer.commit({}, NOBODY))
    await asked_for_its_end.wait()
    assert tampering.asked[-1].startswith("DescribeTransactions")
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    with pytest.raises(LogError, match=r"outcome of the last transaction of .* is unknown"):
        await write(producer, partition, b"too early")
    await producer.commit({}, NOBODY)
    await write(producer, partition, b"b")
    await producer.commit({}, NOBODY)
    assert await values_of(log, partition, COMMITTED) == [b"a", b"b"]


async def test_a_commit_waits_for_records_on_their_way(log: KafkaLog) -> None:
    """Records sent before it are in."""
    (partition,) = await new_topic(log)
    producer = await transactional(log)
    sends = [asyncio.ensure_future(write(producer, partition, b"%d" % number)) for number in range(50)]
    await asyncio.sleep(0)
    await producer.commit({}, NOBODY)
    assert await values_of(log, partition) == [b"%d" % number for number in range(50)]
    assert all(send.done() for send in sends)
    await asyncio.gather(*sends)


# --- offsets --------------------------------------------------------------------------------------------------------------


async def test_offsets_of_nobody_are_taken_by_a_group_that_has_nobody(log: KafkaLog) -> None:
    """As Kafka's tools do; once it has members they are theirs, and the transaction is aborted."""
    (partition,) = await new_topic(log)
    producer, group = await transactional(log), group_name()
    await write(producer, partition, b"a")
    await producer.commit({partition: OffsetAndMetadata(5)}, GroupMetadata(group, -1, ""))
    member = await join(log, group, partition.topic)
    await assigned(member)
    assert await member.committed([partition]) == {partition: OffsetAndMetadata(5)}
    await write(producer, partition, b"b")
    with pytest.raises(IllegalGeneration, match="has members"):
        await producer.commit({partition: OffsetAndMetadata(9)}, GroupMetadata(group, -1, ""))
    assert await values_of(log, partition) == [b"a"]
    assert await member.committed([partition]) == {partition: OffsetAndMetadata(5)}


async def test_offsets_that_cannot_be_written_abort_the_transaction(log: KafkaLog) -> None:
    """A note that is too long is told by its name."""
    (partition,) = await new_topic(log)
    producer = await transactional(log)
    await write(producer, partition, b"a")
    with pytest.raises(LogError, match="OFFSET_METADATA_TOO_LARGE"):
        await producer.commit({partition: OffsetAndMetadata(5, "x" * 10_000)}, GroupMetadata(group_name(), -1, ""))
    await write(producer, partition, b"b")
    await producer.commit({}, NOBODY)
    assert await values_of(log, partition) == [b"b"]


# --- a broker that goes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kill", [True, False])
async def test_a_transaction_survives_the_broker(own_broker: Broker, kill: bool) -> None:
    """Sends and the commit that are under way go on when it is back, and all is seen once."""
    log = await connect(own_broker)
    one, two = await new_topic(log, 2)
    producer = await transactional(log)
    await producer.send([outgoing(one, b"a"), outgoing(two, b"a")])
    sending = asyncio.ensure_future(asyncio.gather(*(producer.send([outgoing(one, b"%d" % n), outgoing(two, b"%d" % n)]) for n in range(20))))
    for _ in range(10):
        await asyncio.sleep(0)
    await asyncio.to_thread(lambda: own_broker.restart(kill=kill))
    await soon(sending)
    committing = asyncio.ensure_future(producer.commit({one: OffsetAndMetadata(3)}, GroupMetadata(group_name(), -1, "")))
    for _ in range(8):
        await asyncio.sleep(0)
    await asyncio.to_thread(lambda: own_broker.restart(kill=kill))
    await soon(committing)
    for each in (one, two):
        assert await values_of(log, each) == [b"a", *[b"%d" % n for n in range(20)]]
    await log.close()


async def test_a_commit_without_an_answer_is_found_out_about(own_broker: Broker) -> None:
    """LogTimeout, nothing is sent before it is known; `commit` again says how it ended, `abort` says when it is too late."""
    log = await connect(own_broker, KafkaOptions(api_timeout_ms=10_000, request_timeout_ms=1_000))
    (partition,) = await new_topic(log)
    producer = await transactional(log)
    real = producer._coordination.end
    for last in ("commit", "abort"):
        await write(producer, partition, last.encode())

        async def end_and_lose(identity: Identity, *, commit: bool) -> None:
            await real(identity, commit=commit)
            raise LogTimeout("the answer was lost")

        producer._coordination.end = end_and_lose  # type: ignore[method-assign]
        with pytest.raises(LogTimeout):
            await producer.commit({}, NOBODY)
        producer._coordination.end = real  # type: ignore[method-assign]
        with pytest.raises(LogError, match="is unknown"):
            await write(producer, partition, b"x")
        if last == "commit":
            await producer.commit({}, NOBODY)
        else:
            with pytest.raises(LogError, match="was committed"):
                await producer.abort()
    await write(producer, partition, b"open")
    own_broker.pause()
    with pytest.raises(LogTimeout):
        await soon(producer.commit({}, NOBODY))
    own_broker.resume()
    while True:
        try:
            await producer.commit({}, NOBODY)
            break
        except LogTimeout:
            continue
    assert await values_of(log, partition) == [b"commit", b"abort", b"open"]
    await log.close()


async def test_closing_does_not_wait_for_a_broker_that_is_away(own_broker: Broker) -> None:
    """An open transaction is aborted when the id is taken the next time."""
    log = await connect(own_broker)
    (partition,) = await new_topic(log)
    name = group_name()
    producer = await transactional(log, name)
    await write(producer, partition, b"a")
    own_broker.kill()
    await soon(log.close())
    await asyncio.to_thread(own_broker.start)
    again = await connect(own_broker)
    assert await again.end_offsets([partition], COMMITTED) == {partition: 0}
    await transactional(again, name)
    assert await again.end_offsets([partition], COMMITTED) == await again.end_offsets([partition], UNCOMMITTED) == {partition: 2}
    assert await values_of(again, partition) == []
    await again.close()
