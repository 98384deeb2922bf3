"""Ends of transactions that a broker has not written everywhere, though it says so: the next producer completes them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ks_actors import LogTimeout
from ks_actors.log import GroupMetadata, NewMember, OffsetAndMetadata, TopicPartition, TransactionScope
from ks_actors.log.kafka import KafkaLog
from ks_actors.log.kafka.admin._committed_offsets import fetch_committed, fetch_unstable
from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.group._local_members import LocalMembers
from ks_actors.log.kafka.producer._partition_queue import Identity
from ks_actors.log.kafka.producer._send_call import SendCall
from ks_actors.log.kafka.producer._sender import EpochRefused
from ks_actors.log.kafka.transactions import _transaction_coordinator, _transactional_producer
from ks_actors.log.kafka.transactions._hanging_transactions import Ended, HangingTransactions
from ks_actors.log.kafka.transactions._transaction_coordinator import TransactionCoordinator
from ks_actors.log.kafka.transactions._transactional_producer import KafkaTransactionalProducer
from ks_actors.runtime.shared._state_directory import StateDirectory
from tests.chaos.checks import EXACTLY_ONCE
from tests.kafka.broker import Broker, require_kafka
from tests.kafka.counting import PARTITIONS, counting
from tests.kafka.helpers import connect
from tests.kafka.tampering import Tampering
from tests.ks_actors.log.helpers import COMMITTED, UNCOMMITTED, assigned, by_turns, group_name, new_topic, outgoing, values_of, write
from tests.waiting import soon, until


@pytest.fixture(scope="module")
def believing_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka that accepts transactional requests without asking its coordinator: so parts can stay pending behind its end."""
    require_kafka()
    broker = Broker(tmp_path_factory.mktemp("believing") / "broker", settings={"transaction.partition.verification.enable": "false"})
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
async def log(believing_broker: Broker) -> AsyncIterator[KafkaLog]:
    made = await connect(believing_broker)
    yield made
    await made.close()


class Left:
    """A transactional id with an ended last transaction, as its coordinator says, and a record and an offset pending."""

    def __init__(self, log: KafkaLog, name: str, group: str, one: TopicPartition, two: TopicPartition) -> None:
        self.log, self.name, self.group, self.one, self.two = log, name, group, one, two
        self.scope = TransactionScope(topics=frozenset({one.topic, "of nobody"}), group_id=group, sources=frozenset({one.topic}))

    async def leave(self, producer: KafkaTransactionalProducer, *, commit: bool) -> None:
        group = GroupMetadata(self.group, -1, "")
        await write(producer, self.one, b"seen")
        await producer._commit_offsets(producer._sender.identity, {self.one: OffsetAndMetadata(3)}, group)
        await (producer.commit({}, group) if commit else producer.abort())
        send_call = SendCall(producer._admin, [outgoing(self.two, b"pending")])
        await send_call.encode(producer._encoder)
        await producer._sender.wait_for(send_call.put(producer._sender))
        await producer._coordination.commit_offsets(producer._sender.identity, group, {self.one: OffsetAndMetadata(7)})
        assert await self.unstable() == {self.one}
        assert await self.log.end_offsets([self.two], COMMITTED) != await self.log.end_offsets([self.two], UNCOMMITTED)

    async def unstable(self) -> set[TopicPartition]:
        return await fetch_unstable(self.log._client, self.group, [self.one, self.two])

    async def ended(self) -> None:
        """Wait until each partition has its marker: the offsets' one may be there before."""
        places = [self.one, self.two]

        async def marked() -> bool:
            return await self.log.end_offsets(places, COMMITTED) == await self.log.end_offsets(places, UNCOMMITTED)

        await until(marked)

    async def check(self, *, commit: bool) -> None:
        """Wait until it is ended, and see that it is so as the rest was."""
        found = await soon(fetch_committed(self.log._client, self.group, [self.one]))
        assert found == ({self.one: OffsetAndMetadata(7)} if commit else {})
        await soon(self.ended())
        assert [await values_of(self.log, each) for each in (self.one, self.two)] == ([[b"seen"], [b"pending"]] if commit else [[], []])


async def left(log: KafkaLog, *, commit: bool, timeout_ms: int = 60_000) -> Left:
    found = Left(log, group_name(), group_name(), *await new_topic(log, 2))
    await found.leave(await log.transactional_producer(found.name, client_id="t", timeout_ms=timeout_ms), commit=commit)
    return found


@pytest.mark.parametrize("commit", [True, False])
async def test_a_new_owner_of_an_id_ends_pending_parts_as_the_rest_was(log: KafkaLog, commit: bool) -> None:
    """With the producer's start; topics that are not there, or any more, are no hindrance."""
    found = await left(log, commit=commit)
    await log.transactional_producer(found.name, client_id="t", timeout_ms=60_000, scope=found.scope)
    await found.check(commit=commit)


@pytest.mark.extended
@pytest.mark.heavy("a broker of its own")
@pytest.mark.parametrize("most_ms", [10_000, 60_000])
async def test_pending_parts_are_ended_with_the_timeouts_that_brokers_allow(tmp_path: Path, caplog: pytest.LogCaptureFixture, most_ms: int) -> None:
    """A low transaction.max.timeout.ms neither costs warnings after a kill nor leaves parts pending."""
    require_kafka()
    settings = {"transaction.partition.verification.enable": "false", "transaction.max.timeout.ms": str(most_ms)}
    broker = Broker(tmp_path / "broker", settings=settings)
    broker.start()
    log = await connect(broker)
    try:
        for commit in (True, False):
            found = await left(log, commit=commit, timeout_ms=most_ms)
            producer = await log.transactional_producer(found.name, client_id="t", timeout_ms=most_ms, scope=found.scope)
            await found.check(commit=commit)
            await write(producer, found.one, b"open")  # and is never ended, as after a kill
            await log.transactional_producer(found.name, client_id="t", timeout_ms=most_ms, scope=found.scope)
            await soon(found.ended())
            coordinator = TransactionCoordinator(log._client, found.name, most_ms)
            identity = await coordinator.begin_completing((await coordinator.describe()).identity, commit=commit)
            await coordinator.add_partitions(identity, [found.one])
            described = await coordinator.describe()
            assert (described.completing, described.to_commit) == (True, commit)
    finally:
        await log.close()
        broker.kill()
    assert "could not find out" not in caplog.text


@pytest.mark.parametrize("commit", [True, False])
async def test_local_members_end_the_pending_transaction_of_a_dead_process(
    log: KafkaLog, believing_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    """The members end also the transaction of a process that had left the group before."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = await left(log, commit=commit)
    died = LocalMembers(believing_broker.bootstrap, found.group, "died", found.name)
    died.enter()
    died.leave(known=False)
    member = await log.join(
        found.group,
        NewMember(
            client_id="stays",
            topics=[found.one.topic],
            user_data=b"",
            assignor=by_turns,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            takes_over=True,
            transactional_id=group_name(),
            transaction_scope=found.scope,
        ),
    )
    await assigned(member)
    await found.check(commit=commit)
    await member.close()


@pytest.mark.parametrize("step", ["add_partitions", "end"])
@pytest.mark.parametrize("commit", [True, False])
async def test_a_new_owner_of_an_id_goes_on_with_the_completion_of_another(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch, commit: bool, step: str
) -> None:
    """A producer that is overtaken at it, or has died at it, has left the decision to the coordinator."""
    found = await left(log, commit=commit)
    overtaken = TransactionCoordinator(log._client, found.name, 60_000)
    last = await overtaken.describe()
    real = getattr(TransactionCoordinator, step)

    async def overtake(self: TransactionCoordinator, *arguments: Any, **options: Any) -> Any:
        if self is overtaken:
            await log.transactional_producer(found.name, client_id="t", timeout_ms=60_000, scope=found.scope)
        return await real(self, *arguments, **options)

    monkeypatch.setattr(TransactionCoordinator, step, overtake)
    with pytest.raises(EpochRefused):
        await HangingTransactions(log._client, overtaken, found.scope).complete_last(last, last.identity)
    await found.check(commit=commit)


async def test_a_producer_that_is_overtaken_while_it_starts_starts_again(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours may be at the same."""
    found = await left(log, commit=True)
    real, refused = TransactionCoordinator.end, [EpochRefused("by a neighbour")]

    async def end(self: TransactionCoordinator, identity: Identity, *, commit: bool) -> None:
        await real(self, identity, commit=commit)
        if refused:
            raise refused.pop()

    monkeypatch.setattr(TransactionCoordinator, "end", end)
    producer = await log.transactional_producer(found.name, client_id="t", timeout_ms=60_000, scope=found.scope)
    assert refused == []
    await write(producer, found.two, b"next")
    await producer.abort()
    await found.check(commit=True)


async def test_metadata_that_is_not_told_at_once_is_asked_for_again(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks again, because it would find nothing to end otherwise."""
    found = await left(log, commit=True)
    real, faults = KafkaClient.refresh, [Unavailable("once"), Unavailable("twice")]

    async def refresh(self: KafkaClient, topics: Iterable[str] = ()) -> None:
        if faults:
            raise faults.pop()
        await real(self, topics)

    monkeypatch.setattr(KafkaClient, "refresh", refresh)
    await log.transactional_producer(found.name, client_id="t", timeout_ms=60_000, scope=found.scope)
    assert faults == []
    await found.check(commit=True)


@pytest.mark.parametrize("answer", ["lost", "refused"])
async def test_a_former_pending_transaction_keeps_no_producer_from_writing(log: KafkaLog, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """It may have been another instance's transaction, which is ended by now: there is nothing to end then."""
    one, two = await new_topic(log, 2)
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=60_000)
    other = await log.transactional_producer(group_name(), client_id="o", timeout_ms=60_000)
    await write(other, one, b"other's")
    real, lost = TransactionCoordinator.add_partitions, [LogTimeout("away")] if answer == "lost" else []

    async def add(self: TransactionCoordinator, identity: Identity, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        asked = list(partitions)
        if asked == [one] and lost:
            raise lost.pop()
        return {one: 29} if asked == [one] else await real(self, identity, asked)

    monkeypatch.setattr(TransactionCoordinator, "add_partitions", add)
    producer._unconfirmed = Ended({one}, {}, commit=True)
    if answer == "lost":
        with pytest.raises(LogTimeout):
            await producer._confirm()
        await other.commit({}, GroupMetadata("", -1, ""))
    await write(producer, two, b"mine")
    await producer.commit({}, GroupMetadata("", -1, ""))
    assert await values_of(log, two) == [b"mine"]
    await other.abort()


@pytest.mark.parametrize("commit", [True, False])
async def test_ones_own_pending_parts_are_ended_without_another_transaction(log: KafkaLog, commit: bool) -> None:
    """Others may wait for it, and there may be nothing to do for a while."""
    found = Left(log, group_name(), group_name(), *await new_topic(log, 2))
    producer = await log.transactional_producer(found.name, client_id="t", timeout_ms=60_000)
    await found.leave(producer, commit=commit)
    producer._added |= {found.one, found.two}
    producer._groups[found.group] = {found.one}
    await producer._ended(commit=commit, smoothly=False)  # as it is when its coordinator was away
    producer._clear()
    await found.check(commit=commit)
    await write(producer, found.two, b"next")
    await producer.commit({}, GroupMetadata("", -1, ""))
    assert (await values_of(log, found.two))[-1] == b"next"
    await producer.close()


@pytest.mark.parametrize("commit", [True, False])
async def test_an_end_with_a_lost_answer_is_looked_at_once_more(log: KafkaLog, monkeypatch: pytest.MonkeyPatch, commit: bool) -> None:
    """Whichever end it is: its coordinator may have been away between the request and the markers."""
    (one,) = await new_topic(log)
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=60_000)
    real, completed = TransactionCoordinator.end, []

    async def end(self: TransactionCoordinator, identity: Identity, *, commit: bool) -> None:
        self._client._connections.lost += 1
        await real(self, identity, commit=commit)

    async def complete(_: HangingTransactions, __: Identity, ended: Ended) -> None:
        completed.append(ended)

    await write(producer, one, b"a")
    monkeypatch.setattr(TransactionCoordinator, "end", end)
    monkeypatch.setattr(HangingTransactions, "complete", complete)
    await (producer.commit({}, GroupMetadata("", -1, "")) if commit else producer.abort())
    assert producer._confirming is not None
    await soon(producer._confirming)
    assert completed == [Ended(frozenset({one}), {}, commit)]


async def test_a_closed_producer_looks_at_its_last_end_no_more(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is its own end that was not smooth, and no broker answers that could tell."""
    (one,) = await new_topic(log)
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=60_000)
    real = TransactionCoordinator.end

    async def end(self: TransactionCoordinator, identity: Identity, *, commit: bool) -> None:
        self._client._connections.lost += 1
        await real(self, identity, commit=commit)

    async def complete(_: HangingTransactions, __: Identity, ended: Ended) -> None:
        raise LogTimeout(f"{ended}")

    await write(producer, one, b"a")
    monkeypatch.setattr(TransactionCoordinator, "end", end)
    monkeypatch.setattr(HangingTransactions, "complete", complete)
    await soon(producer.close())
    assert producer._unconfirmed is not None
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("end of a transaction")] == []


@pytest.mark.parametrize("then", ["send", "commit offsets", "close"])
async def test_the_next_transaction_waits_until_the_last_one_is_ended_everywhere(log: KafkaLog, then: str) -> None:
    """Pending parts of the last transaction would otherwise end as parts of the next one."""
    found = Left(log, group_name(), group_name(), *await new_topic(log, 2))
    producer = await log.transactional_producer(found.name, client_id="t", timeout_ms=60_000)
    await found.leave(producer, commit=True)
    producer._unconfirmed = Ended({found.one, found.two}, {found.group: {found.one}}, commit=True)
    match then:
        case "send":
            await write(producer, found.two, b"void")
            await producer.abort()
        case "commit offsets":
            await producer.commit({found.two: OffsetAndMetadata(1)}, GroupMetadata(found.group, -1, ""))
    await producer.close()
    await found.check(commit=True)


async def test_pending_parts_are_looked_for_only_when_the_coordinator_was_away(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second look finds nothing, and ends nothing."""
    (one,) = await new_topic(log, 1)
    group = GroupMetadata(group_name(), -1, "")
    for module in (_transaction_coordinator, _transactional_producer):
        monkeypatch.setattr(module, "PROMPT_S", 60)  # however slow the machine is
    producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=60_000)
    tampering = Tampering(monkeypatch)
    looked = []
    for number, faults in enumerate(([], [LogTimeout("away")], [])):
        tampering.add("DescribeTransactions", *faults)
        await write(producer, one, b"%d" % number)
        await producer.commit({one: OffsetAndMetadata(number)}, group)
        looked.append(sum(name.startswith("OffsetFetch") for name in tampering.asked))
        if producer._confirming is not None:
            await producer._confirming
    assert looked == [0, 0, 1]
    assert sum(name.startswith("EndTxn") for name in tampering.asked) == 3
    await producer.close()


async def test_an_app_gets_on_whose_former_self_left_offsets_pending(believing_broker: Broker, tmp_path: Path) -> None:
    """Its committed offsets would never be told else."""
    async with counting(believing_broker, EXACTLY_ONCE, tmp_path) as here:
        async with here.app("one"):
            await here.through()
        directory = StateDirectory(tmp_path / "one" / here.name)
        coordination = TransactionCoordinator(here.log._client, f"{here.name}-{directory.open()}-1", 60_000)
        directory.close()
        partitions = [TopicPartition(here.source, number) for number in range(PARTITIONS)]
        offsets = await fetch_committed(here.log._client, here.name, partitions)
        last = await coordination.describe()
        await coordination.commit_offsets(last.identity, GroupMetadata(here.name, -1, ""), offsets)
        assert await fetch_unstable(here.log._client, here.name, partitions) == set(partitions)
        async with here.app("one"):
            await here.through()
