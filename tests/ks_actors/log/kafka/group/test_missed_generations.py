"""Generations that a member misses, and answers to its joins that are lost, on a simulated Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from random import Random
from typing import Any

from actors.testing import VirtualLoop
from ks_actors.log import GroupMetadata, Lease, Membership, NewMember
from ks_actors.log.kafka import KafkaLog
from ks_actors.log.kafka.group import KafkaMembership
from tests.ks_actors.log.helpers import assigned, by_turns, lost, revoked
from tests.simulation.cluster import Cluster, Manners
from tests.simulation.groups import Group
from tests.simulation.handlers import HANDLERS
from tests.simulation.network import PORT, Line, Place
from tests.simulation.running import quiet
from tests.simulation.seams import simulated
from tests.simulation.trace import Trace
from tests.waiting import PATIENCE_S

_MANNERS = Manners(lag=0.01, replication=0.02, fencing=3.0, loading=0.05, sessions=10, first_join=0.0, transaction_look=1.0)
SESSION_S, REBALANCE_S = 45, 10


class Kafka:
    """A broker with a topic of four partitions, and members of one group, each in a process of its own."""

    def __init__(self) -> None:
        self.cluster = Cluster(1, Random(1), Trace(asyncio.get_running_loop().time), _MANNERS)
        self.cluster.make("t", 4, 1)
        self.cluster.settle()
        self.logs: list[KafkaLog] = []

    async def enter(self, instance: str | None = None, lease: Lease | None = None) -> KafkaMembership:
        """Have a process join."""
        log = KafkaLog(f"{Place(len(self.logs) + 1, 1).host}:{PORT}")
        self.logs.append(log)
        await log.start()
        return await log.join(
            "g",
            NewMember(
                client_id="c", topics=["t"], user_data=b"", assignor=by_turns, session_timeout_ms=SESSION_S * 1_000,
                rebalance_timeout_ms=REBALANCE_S * 1_000, instance_id=instance, lease=lease,
            ),
        )  # fmt: skip

    @property
    def group(self) -> Group:
        """The group as its coordinator has it."""
        (group,) = [each for shard in self.cluster.brokers[1].shards.values() for each in shard.live.values()]
        assert isinstance(group, Group)
        return group

    async def until(self, condition: Callable[[], object]) -> None:
        """Have time go on until a condition holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.001)


def on_kafka(test: Callable[[Kafka], Awaitable[None]]) -> Callable[[], None]:
    """Run a test in virtual time."""

    @asynccontextmanager
    async def running() -> AsyncIterator[Kafka]:
        assert HANDLERS
        kafka = Kafka()
        with quiet(), simulated(kafka.cluster.network, Random(1)):
            try:
                yield kafka
            finally:
                for log in kafka.logs:
                    await log.close()
                await kafka.cluster.close()

    async def main() -> None:
        async with running() as kafka:
            await test(kafka)

    @wraps(test)
    def run() -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(main())

    del run.__dict__["__wrapped__"]  # pytest would ask for a fixture
    return run


async def settled(*members: Membership) -> set[int]:
    """Release what is to be released until each has an assignment; return the generations."""

    async def settle(member: Any) -> int:
        while not hasattr(event := await member.event(), "assignment"):
            member.revoked()
        return int(event.group.generation)

    async with asyncio.timeout(PATIENCE_S):
        return set(await asyncio.gather(*map(settle, members)))


@on_kafka
async def test_a_static_member_that_misses_a_generation_loses_its_partitions(kafka: Kafka) -> None:
    """It stays in the group, but others may have its partitions and have committed: it commits in none until its next assignment."""
    lease, losses = Lease(), list[bool]()
    lease.lost = lambda: losses.append(lease.holds())
    late = await kafka.enter("late", lease)
    before = (await assigned(late)).group
    other = await kafka.enter("other")
    await revoked(late)
    # The other one does not wait for it any longer, and it has not heard of that.
    assert len((await assigned(other)).assignment.partitions) == 2
    late.revoked(b"claims")
    assert len((await lost(late)).partitions) == 0  # it had released them
    assert losses == [False]
    assert late.committing == late.group == before
    late.rejoin(b"")
    await revoked(other)
    other.revoked()
    (generation,) = await settled(late, other)
    assert late.committing == late.group == GroupMetadata("g", generation, before.member_id)
    # There is no circle.
    await asyncio.sleep(5)
    assert kafka.group.generation == generation
    assert lease.holds()


@on_kafka
async def test_a_member_that_has_read_no_assignment_loses_none_by_a_missed_generation(kafka: Kafka) -> None:
    """It joins again by itself."""
    late = await kafka.enter("late")
    await kafka.until(lambda: late._events)
    # Its next join does not get through.
    _line(late, "group-join").hollow = True
    other = await kafka.enter("other")
    assert (await assigned(other)).group.generation == 2
    third = await kafka.enter("third")
    await revoked(other)
    other.revoked()
    assert await settled(late, other, third) == {3}
    await asyncio.sleep(5)
    assert kafka.group.generation == 3


@on_kafka
async def test_a_generation_that_a_new_coordinator_repeats_is_not_missed(kafka: Kafka) -> None:
    """A coordinator writes a generation with its assignment: another one counts on from the last one that was written, and nothing is lost."""
    first = await kafka.enter("first")
    await assigned(first)
    second = await kafka.enter("second")
    await revoked(first)
    first.revoked()
    # They have joined, and the leader's assignment is on its way.
    await kafka.until(lambda: first.committing.generation == 2)
    assert kafka.cluster.stored_groups["g"].generation == 1
    kafka.cluster.brokers[1].kill()
    kafka.cluster.brokers[1].start()
    assert (await assigned(first)).group.generation == 2
    assert (await assigned(second)).group.generation == 2


@on_kafka
async def test_a_join_whose_answer_is_lost_in_a_half_open_connection_is_sent_again(kafka: Kafka) -> None:
    """As soon as heartbeats tell that the next generation is there, not only when the session is over; a join that is slow stays."""
    joins = await kafka.enter()
    await assigned(joins)
    other = await kafka.enter()
    await revoked(joins)
    joins.revoked()
    await settled(joins, other)
    third = asyncio.ensure_future(kafka.enter())
    await revoked(joins)
    joins.revoked()
    await revoked(other)
    await asyncio.sleep(REBALANCE_S / 2)
    line = _line(joins, "group-join")
    assert line in kafka.cluster.network.lines
    line.hollow = True
    other.revoked()
    began = asyncio.get_running_loop().time()
    assert await settled(joins, other, await third) == {3}
    assert asyncio.get_running_loop().time() - began < 3


def _line(member: KafkaMembership, channel: str) -> Line:
    assert member._member is not None
    connection: Any = member._member._client._connections._ready[1, channel]
    line = connection._transport
    assert isinstance(line, Line)
    return line
