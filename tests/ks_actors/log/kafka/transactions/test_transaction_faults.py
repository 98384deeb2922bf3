"""Coordinators that lose transactions, refuse their ends or answer nobody: a producer goes on, and tells what became of its records."""

from __future__ import annotations

import asyncio

import pytest

from ks_actors._errors import LogClosed, LogError, LogTimeout, ProduceFailed, TransactionAborted
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.transactions import KafkaTransactionalProducer
from tests.examples_of import examples
from tests.ks_actors.log.helpers import NOBODY, batch
from tests.ks_actors.log.kafka.producer.modelled import Cluster
from tests.ks_actors.log.kafka.transactions.transaction_run import run_transaction_seed, transactional
from tests.ks_actors.runtime.helpers import in_virtual_time

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
# Those that have found something.
FOUND = (2, 3, 4, 13, 17, 81, 98, 107, 135, 143)


class World:
    """A producer that has committed one record, and has another one in its open transaction."""

    producer: KafkaTransactionalProducer

    def __init__(self, options: KafkaOptions | None = None) -> None:
        self.cluster = Cluster([FIRST, SECOND], brokers=2)
        self.cluster.coordinator = 1
        for node, part in enumerate(self.cluster.partitions.values(), start=1):
            part.leader = node
        self.options = options or KafkaOptions()

    async def begin(self) -> World:
        self.producer = await transactional(self.cluster, self.options)
        await self.send(b"a")
        await self.commit()
        await self.send(b"void")
        return self

    async def send(self, value: bytes, place: TopicPartition = FIRST) -> None:
        async with asyncio.timeout(30):
            await self.producer.send([Outgoing(place, batch(value))])

    async def commit(self) -> None:
        async with asyncio.timeout(30):
            await self.producer.commit({}, NOBODY)

    async def goes_on(self, *values: bytes, ended: bool = True) -> None:
        """Commit another record, and assert that these are all that readers see; in the end no transaction is open."""
        await self.send(b"z")
        await self.commit()
        await self.cluster.rest()
        part = self.cluster.partitions[FIRST]
        assert part.values() == [*values, b"z"]
        assert any(entry.state == "open" for entry in part.entries) is not ended


@pytest.mark.parametrize("call", ["commit", "abort"])
@pytest.mark.parametrize("lost", ["transaction", "id"])
@in_virtual_time
async def test_a_transaction_that_its_coordinator_has_lost_is_void(call: str, lost: str) -> None:
    """It is aborted by a new epoch, which ends what of it is pending; under another producer id nobody can."""
    world = await World().begin()
    if lost == "id":
        world.cluster.transactions.clear()
    world.cluster.lose_transactions()
    if call == "abort":
        await world.producer.abort()
    else:
        with pytest.raises(TransactionAborted):
            await world.commit()
    await world.goes_on(b"a", ended=lost != "id")


@pytest.mark.parametrize("code", [-1, 42, 48, 53, 59, 120])
@in_virtual_time
async def test_a_commit_that_is_refused_is_an_abort(code: int) -> None:
    """For any reason: nothing of it is seen, and the next transaction begins."""
    world = await World().begin()
    world.cluster.codes["EndTxn"] += [code]
    with pytest.raises(LogError):
        await world.commit()
    await world.goes_on(b"a")


@pytest.mark.parametrize("code", [-1, 42, 48, 59, 120])
@in_virtual_time
async def test_an_abort_that_is_refused_takes_a_new_epoch(code: int) -> None:
    """The coordinator aborts what it has open then."""
    world = await World().begin()
    world.cluster.codes["EndTxn"] += [code]
    await world.producer.abort()
    await world.goes_on(b"a")


@in_virtual_time
async def test_a_commit_that_has_taken_effect_succeeds() -> None:
    """Its answer was lost, and the next attempt is refused for another reason: records are not sent again."""
    world = await World().begin()
    world.cluster.codes["EndTxn"] += [lambda: world.cluster.break_connections(1), 48]
    await world.commit()
    await world.goes_on(b"a", b"void")


@pytest.mark.parametrize("code", [47, 48, 90])
@in_virtual_time
async def test_a_leader_that_refuses_an_epoch_which_its_coordinator_has_is_no_rival(code: int) -> None:
    """It does not know of the transaction, as behind a coordinator that is new: that is aborted, and the id stays."""
    world = await World().begin()
    world.cluster.codes["Produce"] += [code]
    with pytest.raises(TransactionAborted):
        await world.send(b"void too")
    await world.producer.abort()
    await world.goes_on(b"a")


@in_virtual_time
async def test_a_refusal_that_nobody_explains_voids_the_transaction() -> None:
    """The coordinator is asked for the reason, and does not answer in time: a commit without the refused records would be in part."""
    world = await World(KafkaOptions(api_timeout_ms=1_000, request_timeout_ms=1_000)).begin()
    world.cluster.codes["AddPartitionsToTxn"] += [47]
    world.cluster.codes["DescribeTransactions"] += [14] * 100
    with pytest.raises(LogTimeout):
        await world.send(b"void too", SECOND)
    world.cluster.mend()
    with pytest.raises(TransactionAborted):
        await world.commit()
    await world.goes_on(b"a")


@in_virtual_time
async def test_an_abort_waits_for_no_leader() -> None:
    """Batches that are to be repeated are void as well, also while the client does not hear of a new leader."""
    world = await World().begin()
    away = asyncio.Event()

    def leave() -> None:
        world.cluster.lagging_metadata = True
        world.cluster.take_away(2)
        world.cluster.lead(SECOND, 1)
        away.set()

    world.cluster.codes["Produce"] += [leave]
    sending = asyncio.create_task(world.send(b"void too", SECOND))
    await away.wait()
    async with asyncio.timeout(10):
        await world.producer.abort()
    with pytest.raises(ProduceFailed):
        await sending
    world.cluster.mend()
    await world.goes_on(b"a")


@in_virtual_time
async def test_a_send_ends_when_the_producer_is_closed_while_it_looks_for_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed sender takes no batches, so nobody would answer for them."""
    world = await World().begin()

    async def lookup(_: object) -> None:
        await asyncio.wait([asyncio.create_task(world.producer.close())])

    monkeypatch.setattr(world.producer._admin, "known_limit", lambda _: None)
    monkeypatch.setattr(world.producer._admin, "learn_limits", lookup)
    with pytest.raises(LogClosed):
        await world.send(b"w")


@in_virtual_time
async def test_abandoned_records_void_their_transaction() -> None:
    """Those that wait for a leader end at once, those of a call that waits for the coordinator are not sent; a commit without them is an abort."""
    world = await World().begin()
    world.cluster.take_away(2)
    waiting = asyncio.create_task(world.send(b"void too", SECOND))
    await asyncio.sleep(1)
    world.producer.abandon()
    with pytest.raises(ProduceFailed) as failed:
        await waiting
    assert isinstance(failed.value.errors[SECOND], TransactionAborted)
    world.cluster.mend()
    with pytest.raises(TransactionAborted):
        await world.commit()
    world.cluster.codes["AddPartitionsToTxn"] += [lambda: world.producer.abandon()]
    with pytest.raises(TransactionAborted):
        await world.send(b"void as well")
    with pytest.raises(TransactionAborted):
        await world.commit()
    await world.goes_on(b"a")
    assert not world.cluster.partitions[SECOND].values()


@pytest.mark.parametrize("answer", ["lost", "lost with the request", "there"])
@in_virtual_time
async def test_a_commit_of_written_records_is_not_abandoned(answer: str) -> None:
    """Its outcome may not be known yet, and is what the coordinator says."""
    world = await World().begin()

    def abandon() -> int | None:
        world.producer.abandon()
        if answer != "there":
            world.cluster.break_connections(1)
        return 14 if answer == "lost with the request" else None

    world.cluster.codes["EndTxn"] += [abandon]
    await world.commit()
    await world.goes_on(b"a", b"void")


@in_virtual_time
async def test_an_id_that_was_idle_for_too_long_is_taken_anew() -> None:
    """The brokers have forgotten it, which is no other producer: its next transaction says so, and the one after that is seen."""
    world = await World().begin()
    await world.producer.abort()
    world.cluster.transactions.clear()
    with pytest.raises(TransactionAborted, match=r"transactional\.id\.expiration\.ms"):
        await world.send(b"void")
    await world.producer.abort()
    await world.goes_on(b"a")


def test_transactions_are_whole_and_end() -> None:
    """Leaders, coordinators, connections and calls may fail; readers see the outcome that the producer was told."""
    for seed in (*FOUND, *range(100_000, 100_000 + examples(10))):
        run_transaction_seed(seed)
