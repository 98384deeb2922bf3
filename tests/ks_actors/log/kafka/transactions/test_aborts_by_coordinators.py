"""Transactions that the coordinator has aborted: their producer goes on, and never takes it for a newer producer, nor a newer producer for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ks_actors._errors import Fenced, LogTimeout, ProduceFailed, TransactionAborted
from ks_actors.log import GroupMetadata, OffsetAndMetadata, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.producer import Identity
from ks_actors.log.kafka.transactions._transaction_coordinator import TransactionState
from tests.ks_actors.log.helpers import NOBODY, batch
from tests.ks_actors.log.kafka.producer.modelled import Cluster
from tests.ks_actors.log.kafka.transactions.transaction_run import transactional
from tests.ks_actors.runtime.helpers import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ks_actors.log.kafka.transactions import KafkaTransactionalProducer

PLACE = TopicPartition("t", 0)
GROUP = GroupMetadata("g", -1, "")
OFFSETS = {PLACE: OffsetAndMetadata(7)}
TIMEOUT_MS = 3_000
OPTIONS = KafkaOptions(api_timeout_ms=1_000, request_timeout_ms=1_000)
# See `Cluster.fencing`.
BROKERS = {"Kafka 4.4": (1, True), "transaction version 1": (1, False), "Kafka 4.0.0": (2, False)}
of_all_brokers = pytest.mark.parametrize("brokers", BROKERS)


class World:
    """A producer that has committed a record; its coordinator, broker 1, can lose answers."""

    producer: KafkaTransactionalProducer

    def __init__(self, brokers: str) -> None:
        self.cluster = Cluster([PLACE], brokers=2)
        self.cluster.coordinator, self.cluster.partitions[PLACE].leader = 1, 2
        self.cluster.fencing = BROKERS[brokers]

    async def begin(self) -> World:
        self.producer = await self.another()
        await self.send(b"a")
        await self.commit()
        return self

    async def another(self) -> KafkaTransactionalProducer:
        return await transactional(self.cluster, OPTIONS, timeout_ms=TIMEOUT_MS)

    async def send(self, value: bytes = b"void", producer: KafkaTransactionalProducer | None = None) -> None:
        await (producer or self.producer).send([Outgoing(PLACE, batch(value))])

    async def commit(self) -> None:
        await self.producer.commit({}, NOBODY)

    def lose(self, request: str, *, arrives: bool = True) -> None:
        """Have the coordinator do what the next such request asks, or not, and nobody hear of it: the broker is away for the moment."""

        def leave() -> int:
            self.cluster.take_away(1)
            return 0 if arrives else 14

        self.cluster.codes[request] += [leave]

    async def times_out(self) -> None:
        """Wait until the coordinator has aborted what is open, and is there again."""
        await asyncio.sleep(TIMEOUT_MS / 1000 + 0.5)
        self.cluster.mend()
        await self.cluster.rest()

    async def goes_on(self, *values: bytes) -> None:
        """Commit another record; these are all that readers see, and nothing is open."""
        await self.send(b"z")
        await self.commit()
        await self.cluster.rest()
        part = self.cluster.partitions[PLACE]
        assert part.values() == [*values, b"z"]
        assert not any(entry.state == "open" for entry in part.entries)


async def ends_in(call: Awaitable[Any], *errors: type[Exception]) -> None:
    with pytest.raises(errors):
        await call


@of_all_brokers
@pytest.mark.parametrize("request_name", ["AddPartitionsToTxn", "AddOffsetsToTxn"])
@in_virtual_time
async def test_a_transaction_that_has_begun_without_an_answer_may_time_out(brokers: str, request_name: str) -> None:
    """Its first request took effect, and its answer was lost: TransactionAborted, not Fenced, and the next transaction is seen."""
    world = await World(brokers).begin()
    world.lose(request_name)
    call = world.send if request_name == "AddPartitionsToTxn" else partial(world.producer.commit, OFFSETS, GROUP)
    await ends_in(call(), LogTimeout)
    await world.times_out()
    await ends_in(world.producer.commit(OFFSETS, GROUP), TransactionAborted)
    await world.goes_on(b"a")
    assert not world.cluster.offsets


@of_all_brokers
@in_virtual_time
async def test_a_retried_first_request_may_find_its_transaction_timed_out(brokers: str) -> None:
    """Within one call: the coordinator comes back after the timeout, and refuses the repeated request."""
    world = await World(brokers).begin()
    world.lose("AddPartitionsToTxn")
    patient = await transactional(world.cluster, KafkaOptions(request_timeout_ms=1_000), timeout_ms=TIMEOUT_MS)
    sending = asyncio.create_task(world.send(b"void", patient))
    await world.times_out()
    await ends_in(sending, TransactionAborted)
    await patient.abort()
    world.producer = patient
    await world.goes_on(b"a")


@of_all_brokers
@pytest.mark.parametrize("arrives", [True, False])
@in_virtual_time
async def test_an_abort_ends_a_transaction_that_may_have_begun(brokers: str, arrives: bool) -> None:
    """Readers do not wait for its timeout; if it has not begun, the committed one before it is not taken for it."""
    world = await World(brokers).begin()
    world.lose("AddPartitionsToTxn", arrives=arrives)
    await ends_in(world.send(), LogTimeout)
    world.cluster.mend()
    await world.producer.abort()
    await world.cluster.rest()
    assert world.cluster.transactions["id"].state in {"CompleteAbort", "Empty"}
    await world.goes_on(b"a")


@of_all_brokers
@pytest.mark.parametrize("call", ["commit", "abort"])
@in_virtual_time
async def test_a_commit_that_came_too_late_is_an_abort(brokers: str, call: str) -> None:
    """Its request was lost, and the transaction timed out: the outcome is known, and the id stays."""
    world = await World(brokers).begin()
    await world.send()
    world.lose("EndTxn", arrives=False)
    await ends_in(world.commit(), LogTimeout)
    await world.times_out()
    if call == "abort":
        await world.producer.abort()
    else:
        await ends_in(world.commit(), TransactionAborted)
    await world.goes_on(b"a")


@in_virtual_time
async def test_an_abort_that_is_not_written_yet_decides_nothing() -> None:
    """The epoch has risen in the coordinator's memory alone; its successor commits, and the commit without an answer succeeds."""
    world = await World("Kafka 4.0.0").begin()
    await world.send(b"b")
    world.lose("EndTxn", arrives=False)
    await ends_in(world.commit(), LogTimeout)
    world.cluster.mend()
    known = world.cluster.transactions["id"]
    written, known.identity = known.identity, Identity(known.identity.producer_id, known.identity.epoch + 1)
    await ends_in(world.commit(), LogTimeout)
    known.identity = written
    world.cluster.coordinate(2)
    await world.commit()
    await world.goes_on(b"a", b"b")


@pytest.mark.parametrize("committing", [True, False])
def test_an_epoch_that_completes_the_last_transaction_is_a_newer_producers(committing: bool) -> None:
    """Its timeout says so: that it was aborted says nothing about the transaction that it completes."""
    own, timeout_ms = Identity(1, 4), 600_001 if committing else 600_002
    assert TransactionState("CompleteAbort", Identity(1, 5), TIMEOUT_MS).aborts(own)
    assert not TransactionState("CompleteAbort", Identity(1, 5), timeout_ms).aborts(own)
    assert not TransactionState("CompleteAbort", Identity(1, 7), TIMEOUT_MS).aborts(own)
    assert not TransactionState("CompleteAbort", Identity(2, 5), TIMEOUT_MS).aborts(own)


@of_all_brokers
@pytest.mark.parametrize("in_doubt", ["begin", "commit"])
@pytest.mark.parametrize("rounds", [1, 2])
@in_virtual_time
async def test_a_newer_producer_that_aborts_is_not_taken_for_a_timeout(brokers: str, in_doubt: str, rounds: int) -> None:
    """Though a request of the old one has no answer: a commit that took effect must not be called an abort."""
    world = await World(brokers).begin()
    if in_doubt == "commit":
        await world.send(b"b")
        world.lose("EndTxn")
        await ends_in(world.commit(), LogTimeout)
    else:
        world.lose("AddPartitionsToTxn", arrives=False)
        await ends_in(world.send(), LogTimeout)
    world.cluster.mend()
    await world.cluster.rest()
    for _ in range(rounds):
        newer = await world.another()
        await world.send(b"void", newer)
        await newer.abort()
    await ends_in(world.commit(), Fenced)
    world.producer = newer
    await world.goes_on(b"a", *[b"b"] * (in_doubt == "commit"))


@of_all_brokers
@in_virtual_time
async def test_a_new_epoch_follows_an_abort_for_its_own_sake(brokers: str) -> None:
    """A leader refuses the epoch that the coordinator has: the request for the next one aborts the transaction, and gets it."""
    world = await World(brokers).begin()
    await world.send()
    world.cluster.codes["Produce"] += [47]
    await ends_in(world.send(), TransactionAborted)
    await world.producer.abort()
    await world.goes_on(b"a")


@of_all_brokers
@in_virtual_time
async def test_a_request_that_arrives_late_does_not_fence_its_producer(brokers: str) -> None:
    """It begins a transaction behind the end of its own; the new epoch, which is taken for that reason, aborts it."""
    world = await World(brokers).begin()
    await world.send()
    world.lose("EndTxn", arrives=False)
    await ends_in(world.producer.abort(), LogTimeout)
    world.cluster.mend()
    await world.producer.abort()
    await world.cluster.rest()
    known = world.cluster.transactions["id"]
    world.cluster._enter(known)
    known.partitions.add(PLACE)
    await world.goes_on(b"a")


@of_all_brokers
@pytest.mark.parametrize("answered", range(4))
@in_virtual_time
async def test_a_new_epoch_whose_answer_was_lost_is_taken_again(brokers: str, answered: int) -> None:
    """Some requests for it are answered, and the next one is not: another abort goes on from there."""
    world = await World(brokers).begin()
    await world.send()
    world.cluster.codes["Produce"] += [47]
    await ends_in(world.send(), TransactionAborted)
    world.cluster.codes["InitProducerId"] += [0] * answered
    world.lose("InitProducerId")
    with suppress(LogTimeout):
        await world.producer.abort()
    world.cluster.mend()
    await world.producer.abort()
    await world.goes_on(b"a")


@of_all_brokers
@pytest.mark.parametrize("is_open", [True, False])
@in_virtual_time
async def test_a_new_epoch_of_another_coordinator_fences_nobody(brokers: str, is_open: bool) -> None:
    """The answer of the coordinator before was lost, and the new one does not know of its request."""
    world = await World(brokers).begin()
    if is_open:
        await world.send()
        world.cluster.codes["Produce"] += [47]
    else:
        world.cluster.codes["AddPartitionsToTxn"] += [partial(world.cluster.break_connections, 1), 29]
    await ends_in(world.send(), TransactionAborted, ProduceFailed)
    if not is_open:
        await world.producer.abort()
    world.lose("InitProducerId")
    await ends_in(world.producer.abort() if is_open else world.send(), LogTimeout)
    world.cluster.mend()
    await world.cluster.rest()
    world.cluster.coordinate(2)
    await world.producer.abort()
    await world.goes_on(b"a")


@of_all_brokers
@in_virtual_time
async def test_of_producers_that_start_side_by_side_the_last_one_stays(brokers: str) -> None:
    """All start; each but one hears from its first call that it is fenced."""
    world = await World(brokers).begin()
    producers = await asyncio.gather(*(world.another() for _ in range(4)))
    outcomes = await asyncio.gather(*(world.send(b"void", each) for each in producers), return_exceptions=True)
    assert sorted(map(repr, map(type, outcomes))) == sorted(map(repr, [*[Fenced] * 3, type(None)]))
    (world.producer,) = (each for each, outcome in zip(producers, outcomes, strict=True) if outcome is None)
    await world.producer.abort()
    await world.goes_on(b"a")
