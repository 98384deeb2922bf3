"""Leaders that lose what they know, or do not say what they did: each batch is written once, in its order, and none waits for good."""

from __future__ import annotations

import asyncio

import pytest

from ks_actors._errors import NotAuthorized, ProduceFailed
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.admin import Admin
from ks_actors.log.kafka.producer import Identity, KafkaProducer
from tests.examples_of import examples
from tests.ks_actors.log.helpers import batch
from tests.ks_actors.log.kafka.producer.modelled import Cluster
from tests.ks_actors.log.kafka.producer.produce_run import run_produce_seed
from tests.ks_actors.runtime.helpers import in_virtual_time

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
# Those that have found something.
FOUND = (31, 36, 58, 114, 179, 221, 274, 347, 836, 888, 1682, 1737, 3107)


class World:
    """A producer that has written one record to each partition, which are led by brokers of their own."""

    def __init__(self, options: KafkaOptions | None = None) -> None:
        self.cluster = Cluster([FIRST, SECOND], brokers=2)
        for node, part in enumerate(self.cluster.partitions.values(), start=1):
            part.leader = node
        self.first = self.cluster.partitions[FIRST]
        client = self.cluster.connect(options or KafkaOptions())
        self.producer = KafkaProducer(client, Admin(client), "p", lambda _: None)

    async def begin(self) -> World:
        await self.producer.start()
        await self.send(FIRST, b"a")
        await self.send(SECOND, b"a")
        return self

    async def send(self, place: TopicPartition, *values: bytes) -> int:
        async with asyncio.timeout(10):
            (end,) = await self.producer.send([Outgoing(place, batch(*values))])
        return end

    async def send_together(self, *values: bytes) -> list[int]:
        """Send each value to the first partition, in batches that are in flight together."""
        return await asyncio.gather(*(self.send(FIRST, value) for value in values))

    def answer(self, *codes: object) -> None:
        self.cluster.codes["Produce"] += codes  # type: ignore[arg-type]

    @property
    def epoch(self) -> int:
        return self.producer._sender._queues[FIRST].identity.epoch


@pytest.mark.parametrize("code", [6, 7, 10, 13, 19, 45])
@in_virtual_time
async def test_a_batch_behind_one_that_a_leader_cannot_place_goes_with_it(code: int) -> None:
    """However it ends itself: it was not written, as leaders take batches in order, so both go out by the next epoch."""
    world = await World().begin()
    world.answer(45, code)
    assert [*await asyncio.gather(world.send(FIRST, b"b"), world.send(FIRST, b"c", b"d"))] == [2, 4]
    assert (world.first.values(), world.epoch) == ([b"a", b"b", b"c", b"d"], 1)


@in_virtual_time
async def test_a_gap_holds_up_its_own_partition_alone() -> None:
    """It goes on with the next epoch, though another partition has a batch of which nothing is heard."""
    world = await World().begin()
    world.cluster.freeze(2)
    unheard = asyncio.create_task(world.send(SECOND, b"b"))
    world.answer(45)
    assert await world.send(FIRST, b"b") == 2
    world.cluster.thaw(2)
    assert await unheard == 2


@in_virtual_time
async def test_a_batch_that_was_written_is_not_written_in_parts() -> None:
    """The answer was lost, and the topic's limit is lower by the time of the next attempt: the parts are found in what is there."""
    world = await World().begin()
    world.answer(20, lambda: setattr(world.cluster, "limit", 200))
    values = [b"%d" % number for number in range(20)]
    assert await world.send(FIRST, *values) == 21
    assert world.first.values() == [b"a", *values]


@in_virtual_time
async def test_a_batch_is_looked_for_where_it_may_be() -> None:
    """A later one was acknowledged before it: its leader, which has been restarted since, knows that one alone."""
    world = await World().begin()
    world.answer(20, 0, lambda: world.cluster.forget(FIRST, last=1))
    assert await world.send_together(b"b", b"c") == [2, 3]
    assert world.first.values() == [b"a", b"b", b"c"]


@in_virtual_time
async def test_a_batch_that_followers_lack_is_waited_for() -> None:
    """A leader that knows the last batch alone shows none of them before its followers have them."""
    world = await World().begin()
    world.first.lag(5)
    world.answer(0, 0, lambda: world.cluster.forget(FIRST, last=1))
    assert await world.send_together(b"b", b"c") == [2, 3]
    assert world.first.values() == [b"a", b"b", b"c"]


@pytest.mark.parametrize("deleted", [False, True])
@in_virtual_time
async def test_a_repeated_batch_is_written_though_its_place_is_gone(deleted: bool) -> None:
    """The leader has lost what was acknowledged, or retention has deleted it, and more, since: there is nothing to look at."""
    world = await World().begin()
    await world.send(FIRST, b"b")

    def lose() -> int:
        if not deleted:
            world.cluster.lose_records(FIRST, 1)
            return 0
        world.cluster.delete_records(FIRST)
        return 59

    world.answer(20 if deleted else 6, lose)
    assert await world.send(FIRST, b"c") == (4 if deleted else 2)
    assert world.first.values()[-1] == b"c"


@in_virtual_time
async def test_epochs_that_are_used_up_are_followed_by_a_new_id() -> None:
    """It is asked for until the time of the batches is over; a final refusal is theirs."""
    world = await World(KafkaOptions(api_timeout_ms=500)).begin()
    queue = world.producer._sender._queues[FIRST]
    for codes in ([14] * 9, [31]):
        queue.renew(Identity(queue.identity.producer_id, 2**15 - 1))
        world.cluster.codes["InitProducerId"] += codes
        world.answer(45)
        if 31 in codes:
            with pytest.raises(ProduceFailed) as failed:
                await world.send(FIRST, b"c")
            assert isinstance(failed.value.errors[FIRST], NotAuthorized)
        else:
            assert await world.send(FIRST, b"b") == 2
            assert world.epoch == 0
    assert await world.send(FIRST, b"d") == 3


def test_nothing_is_lost_repeated_or_left() -> None:
    """Leaders and connections may come and go; each batch that waits has a timer or a request before it."""
    for seed in (*FOUND, *range(100_000, 100_000 + examples(20))):
        run_produce_seed(seed)
