"""A producer under a lease, on a simulated broker in virtual time: behind the end of the lease it writes nothing, whatever its requests wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from ks_actors import LogClosed, ProduceFailed
from ks_actors._errors import IllegalGeneration
from ks_actors.log import Lease
from ks_actors.log.kafka import KafkaLog
from ks_actors.log.kafka.client import PRODUCE
from ks_actors.records import TopicPartition
from tests.ks_actors.log.helpers import write
from tests.simulation.cluster import Cluster, Manners
from tests.simulation.network import PORT, Place
from tests.simulation.running import run_virtual
from tests.simulation.seams import simulated
from tests.simulation.trace import Trace

_PARTITION = TopicPartition("t", 0)
_WAY = Place(1, 1)
_LEASE_S = 45.0


class World:
    """A producer that has written a record, under a lease from then on."""

    plan = "leased writes"

    def __init__(self, body: Callable[[World], Awaitable[None]]) -> None:
        self._body = body
        self.loop = asyncio.get_running_loop()
        self.trace = Trace(self.loop.time)
        self.cluster = Cluster(1, Random(1), self.trace, Manners(0.002, 0.0, 1.0, 0.0, 10, 0.0, 1.0))
        self.cluster.make("t", 1, 1)
        self.cluster.settle()
        self.lease = Lease(self.loop.time)

    async def main(self) -> None:
        with simulated(self.cluster.network, Random(2)):
            log = KafkaLog(f"{_WAY.host}:{PORT}")
            await log.start()
            self.producer = await log.producer(client_id="p", lease=self.lease)
            self.extend()
            await self._body(self)
            await log.close()
            await self.cluster.close()

    def extend(self) -> None:
        self.lease.extend(self.loop.time() + _LEASE_S)

    def write(self, value: bytes) -> asyncio.Future[int]:
        return asyncio.ensure_future(write(self.producer, _PARTITION, value))

    @property
    def written(self) -> int:
        return self.cluster.partition(_PARTITION).log.end  # type: ignore[union-attr]  # it exists

    def connected(self) -> bool:
        """Whether the producer keeps its connection for records."""
        return self.producer._client._connections.connected(1, PRODUCE)

    def throttle(self) -> None:
        """Have the broker mute the connection for 20 seconds behind the next answer."""
        self.cluster.codes["throttle"].append(20_000)

    def connect_late(self) -> None:
        """Have the next connections begin after 8 seconds, as when a SYN is sent again."""
        self.producer._client.disconnect(PRODUCE)
        loop: Any = self.loop
        connect = loop.sock_connect

        async def late(*arguments: Any) -> None:
            await asyncio.sleep(8)
            await connect(*arguments)

        loop.sock_connect = late


@pytest.mark.parametrize("ends", ["lease", "abandoned", "both"])
@pytest.mark.parametrize("wait", ["throttle", "connect_late"])
def test_a_request_that_has_waited_is_not_written_behind_the_end_of_the_lease(wait: str, ends: str) -> None:
    """It may wait for a throttle or a connection for longer than the lease holds, and after that its records were dropped."""

    async def body(world: World) -> None:
        if wait == "throttle":
            world.throttle()
        assert await world.write(b"a") == 1
        if wait == "connect_late":
            world.connect_late()
        late = world.write(b"b")
        await asyncio.sleep(1)
        if ends != "abandoned":
            world.lease.end()
        if ends != "lease":
            world.producer.abandon()
            with pytest.raises(ProduceFailed) as failed:
                await late
            assert isinstance(failed.value.errors[_PARTITION], IllegalGeneration)
            assert world.written == 1
        await asyncio.sleep(60)
        assert world.written == 1
        world.extend()
        if ends == "lease":
            assert await late == 2
        assert await world.write(b"c") == (3 if ends == "lease" else 2)

    run_virtual(lambda: World(body), 1)


def test_the_end_of_the_lease_resets_connections_with_requests_in_flight() -> None:
    """Otherwise the kernel would send what it has of them when the network is back; a lease that is extended in time changes nothing."""

    async def body(world: World) -> None:
        await world.write(b"a")
        began = world.loop.time()
        await asyncio.sleep(_LEASE_S / 2)
        world.extend()
        await asyncio.sleep(_LEASE_S - 10)
        world.cluster.network.cut(_WAY)
        repeated = world.write(b"b")
        await asyncio.sleep(began + 1.5 * _LEASE_S - 0.1 - world.loop.time())
        assert world.connected()
        await asyncio.sleep(0.2)
        assert not world.connected()
        world.cluster.network.mend(_WAY)
        await asyncio.sleep(60)
        assert world.written == 1
        world.extend()
        assert await repeated == 2

    run_virtual(lambda: World(body), 1)


@pytest.mark.parametrize("leaving", ["abandon", "close"])
def test_a_producer_that_is_given_up_resets_connections_with_requests_in_flight(leaving: str) -> None:
    """The lease may still hold: the member gives its tasks up next. A connection without such requests stays, or is closed as usual."""

    async def body(world: World) -> None:
        aborted = list[object]()
        await world.write(b"a")
        connections: Any = world.producer._client._connections
        abort = connections._abort

        def note(*told: object) -> None:
            aborted.append(told)
            abort(*told)

        connections._abort = note
        if leaving == "abandon":
            world.producer.abandon()
            assert (world.connected(), aborted) == (True, [])
        world.cluster.network.cut(_WAY)
        lost = world.write(b"b")
        await asyncio.sleep(0.1)
        if leaving == "abandon":
            world.producer.abandon()
        else:
            await world.producer.close()
        assert (world.connected(), len(aborted)) == (False, 1)
        with pytest.raises(ProduceFailed if leaving == "abandon" else LogClosed):
            await lost

    run_virtual(lambda: World(body), 1)
