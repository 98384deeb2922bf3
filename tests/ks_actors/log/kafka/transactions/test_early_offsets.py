"""Offsets that are made part of a transaction while its records are written: its end waits for that, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ks_actors._errors import Fenced, LogClosed, NotAuthorized
from ks_actors.log import GroupMetadata, OffsetAndMetadata, TopicPartition, TransactionScope
from ks_actors.log.kafka import KafkaLog
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.producer._partition_queue import Identity
from ks_actors.log.kafka.transactions import _transactional_producer
from ks_actors.log.kafka.transactions._transaction_coordinator import TransactionCoordinator
from ks_actors.log.kafka.transactions._transactional_producer import KafkaTransactionalProducer
from tests.kafka.tampering import Tampering, error_code
from tests.ks_actors.log.helpers import COMMITTED, UNCOMMITTED, group_name, join, new_topic, values_of, write
from tests.waiting import soon

GROUP_AUTHORIZATION_FAILED = 30


async def begun(log: KafkaLog, partition: TopicPartition, group: str, name: str = "") -> KafkaTransactionalProducer:
    """Return a producer that commits offsets of a group."""
    scope = TransactionScope(topics=frozenset({partition.topic}), group_id=group, sources=frozenset({partition.topic}))
    return await log.transactional_producer(name or group_name(), client_id="t", timeout_ms=10_000, scope=scope)


def alone(group: str) -> GroupMetadata:
    """A group that has no members."""
    return GroupMetadata(group, -1, "")


async def committed(log: KafkaLog, group: str, partition: TopicPartition) -> int | None:
    member = await join(log, group, partition.topic)
    found = await member.committed([partition])
    await member.leave()
    return found[partition].offset if partition in found else None


@pytest.fixture
def held_back(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Hold back the requests that make offsets part of transactions, until the event is set."""
    opened, real = asyncio.Event(), TransactionCoordinator.add_offsets

    async def add_offsets(self: TransactionCoordinator, identity: Identity, group: str) -> None:
        await opened.wait()
        await real(self, identity, group)

    monkeypatch.setattr(TransactionCoordinator, "add_offsets", add_offsets)
    return opened


async def exchange(log: KafkaLog, partition: TopicPartition) -> None:
    """Ask a broker some questions: all requests on their way have arrived by then."""
    for _ in range(5):
        await log.end_offsets([partition], UNCOMMITTED)


def asking() -> list[str]:
    return [name for task in asyncio.all_tasks() if (name := task.get_name()).startswith("offsets to")]


# --- when it goes well ------------------------------------------------------------------------------------------------------


async def test_offsets_are_part_of_a_transaction_when_its_records_are(log: KafkaLog, tampering: Tampering) -> None:
    """A producer with a known group does not wait for that at each commit; a transaction without records has only its offsets."""
    (partition,) = await new_topic(log)
    group = group_name()
    producer = await begun(log, partition, group)
    assert await committed(log, group, partition) is None  # a broker's first group takes it some attempts
    for number in range(2):
        tampering.asked.clear()
        await write(producer, partition, b"a")
        assert tampering.count("AddOffsetsToTxn") == 1
        await write(producer, partition, b"b")
        await producer.commit({partition: OffsetAndMetadata(number + 1)}, alone(group))
        assert tampering.count("AddOffsetsToTxn") == 1
        assert await committed(log, group, partition) == number + 1
    await producer.commit({partition: OffsetAndMetadata(7)}, alone(group))
    assert await committed(log, group, partition) == 7
    await write(producer, partition, b"c")
    await producer.abort()
    assert await committed(log, group, partition) == 7
    assert await values_of(log, partition, COMMITTED) == [b"a", b"b", b"a", b"b"]


async def test_the_coordinator_of_the_group_is_looked_up_once(log: KafkaLog, tampering: Tampering) -> None:
    """Committed offsets are looked up before there are records: the first commit does not look for the coordinator once more."""
    (partition,) = await new_topic(log)
    group = group_name()
    producer = await begun(log, partition, group)
    assert await committed(log, group, partition) is None
    tampering.asked.clear()
    await write(producer, partition, b"a")
    await producer.commit({partition: OffsetAndMetadata(1)}, alone(group))
    assert tampering.count("FindCoordinator") == 0
    tampering.add("TxnOffsetCommit", Unavailable("it has moved"))
    await write(producer, partition, b"b")
    await producer.commit({partition: OffsetAndMetadata(2)}, alone(group))
    assert tampering.count("FindCoordinator") == 1
    assert await committed(log, group, partition) == 2


# --- when it takes its time -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["commit", "commit offsets", "abort"])
async def test_no_transaction_is_ended_before_its_offsets_are_part_of_it(
    log: KafkaLog, tampering: Tampering, held_back: asyncio.Event, end: str
) -> None:
    """A request after the end would open another one; a caller that is cancelled while it waits for that may call again."""
    (partition,) = await new_topic(log)
    group = group_name()
    producer = await begun(log, partition, group)
    await write(producer, partition, b"a")
    calls: dict[str, Callable[[], Awaitable[None]]] = {
        "commit": lambda: producer.commit({}, alone(group)),
        "commit offsets": lambda: producer.commit({partition: OffsetAndMetadata(3)}, alone(group)),
        "abort": producer.abort,
    }
    given_up = asyncio.ensure_future(calls[end]())
    await exchange(log, partition)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    ending = asyncio.ensure_future(calls[end]())
    await exchange(log, partition)
    assert not ending.done()
    assert tampering.count("EndTxn") == 0
    held_back.set()
    await soon(ending)
    assert tampering.count("AddOffsetsToTxn") == tampering.count("EndTxn") == 1
    assert await values_of(log, partition, COMMITTED) == ([] if end == "abort" else [b"a"])
    assert await committed(log, group, partition) == (3 if end == "commit offsets" else None)
    await write(producer, partition, b"next")
    await producer.commit({}, alone(group))
    assert (await values_of(log, partition, COMMITTED))[-1] == b"next"


@pytest.mark.parametrize("fenced", [True, False])
async def test_a_closing_app_asks_no_more(log: KafkaLog, monkeypatch: pytest.MonkeyPatch, held_back: asyncio.Event, fenced: bool) -> None:
    """Whether it would abort its transaction, and has no more time for that, or is fenced and has nothing to abort."""
    monkeypatch.setattr(_transactional_producer, "_CLOSING_S", 0.01)
    (partition,) = await new_topic(log)
    name = group_name()
    producer = await begun(log, partition, group_name(), name)
    await write(producer, partition, b"void")
    if fenced:
        await log.transactional_producer(name, client_id="t", timeout_ms=10_000)
        with pytest.raises(Fenced):
            await write(producer, partition, b"more")
    assert asking() == [f"offsets to {name}"]
    await producer.close()
    assert asking() == []
    with pytest.raises(LogClosed):
        await write(producer, partition, b"more")
    assert not held_back.is_set()


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_a_wait_for_offsets_ends_with_its_closed_producer(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch, held_back: asyncio.Event, end: str
) -> None:
    """The cancelled caller is not the one that waits; readers see nothing of the transaction."""
    monkeypatch.setattr(_transactional_producer, "_CLOSING_S", 0.01)
    (partition,) = await new_topic(log)
    group, name = group_name(), group_name()
    producer = await begun(log, partition, group, name)
    await write(producer, partition, b"void")
    ending = asyncio.ensure_future(producer.commit({}, alone(group)) if end == "commit" else producer.abort())
    await exchange(log, partition)
    await soon(producer.close())
    with pytest.raises(LogClosed, match=name):
        await soon(ending)
    assert not held_back.is_set()
    await log.transactional_producer(name, client_id="t", timeout_ms=10_000)
    assert await values_of(log, partition, COMMITTED) == []


# --- when it fails ----------------------------------------------------------------------------------------------------------


async def test_a_group_that_cannot_be_part_of_a_transaction_is_told_of_by_the_commit(log: KafkaLog, tampering: Tampering) -> None:
    """Records are written all the same; short failures are not even noticed."""
    (partition,) = await new_topic(log)
    group = group_name()
    producer = await begun(log, partition, group)
    tampering.add("AddOffsetsToTxn", error_code(GROUP_AUTHORIZATION_FAILED))
    await write(producer, partition, b"a")
    assert tampering.left == 0
    await producer.commit({partition: OffsetAndMetadata(1)}, alone(group))
    assert await committed(log, group, partition) == 1
    tampering.add("AddOffsetsToTxn", error_code(GROUP_AUTHORIZATION_FAILED), error_code(GROUP_AUTHORIZATION_FAILED))
    await write(producer, partition, b"b")
    with pytest.raises(NotAuthorized):
        await producer.commit({partition: OffsetAndMetadata(2)}, alone(group))
    assert await committed(log, group, partition) == 1
    assert await values_of(log, partition, COMMITTED) == [b"a"]


async def test_a_producer_fenced_during_a_request_hears_it_from_its_commit(log: KafkaLog, held_back: asyncio.Event) -> None:
    """Readers see nothing of it, and the next owner is not disturbed by the late request."""
    (partition,) = await new_topic(log)
    name, group = group_name(), group_name()
    former = await begun(log, partition, group, name)
    await write(former, partition, b"old")
    owner = await begun(log, partition, group_name(), name)
    held_back.set()
    with pytest.raises(Fenced):
        await former.commit({partition: OffsetAndMetadata(9)}, alone(group))
    await write(owner, partition, b"new")
    await owner.commit({}, alone(group))
    assert await values_of(log, partition, COMMITTED) == [b"new"]
    assert await committed(log, group, partition) is None


async def test_unexpected_errors_are_reported(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no error of the log, so it is not tried once more in silence; the transaction can be aborted."""

    async def add_offsets(_: TransactionCoordinator, identity: Identity, group: str) -> None:
        raise LookupError(f"{group} {identity}")

    monkeypatch.setattr(TransactionCoordinator, "add_offsets", add_offsets)
    (partition,) = await new_topic(log)
    group = group_name()
    producer = await begun(log, partition, group)
    await write(producer, partition, b"a")
    with pytest.raises(LookupError, match=group):
        await producer.commit({}, alone(group))
    await producer.abort()
    assert await values_of(log, partition, COMMITTED) == []
