"""Clients leave brokers that the cluster no longer lists, and no others, in virtual time with three brokers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaConnectionError  # type: ignore[import-untyped]

from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.client._connection import Connection
from ks_actors.log.kafka.client._connections import MAIN, PRODUCE, Connections, Unavailable
from tests.ks_actors.runtime.helpers import in_virtual_time, provided

ALL = (1, 2, 3)


class Cluster3:
    """The brokers, those of them that are frozen, and the seconds that the others take for an answer."""

    def __init__(self) -> None:
        self.frozen: set[int] = set()
        self.listed: set[int] = set(ALL)
        self.slowness_s = 0.01
        self.metadata_asked: list[int] = []
        self.aborted: set[tuple[int, str]] = set()

    def client(self) -> KafkaClient:
        """Return a client that is connected to all."""
        client = KafkaClient("b1:1", KafkaOptions(), client_id="test")
        client.outages.clock = asyncio.get_running_loop().time
        client._cluster.list("", {node: (f"b{node}", node) for node in ALL}, 3)
        for node in ALL:
            for channel in (MAIN, PRODUCE):
                client._connections._ready[node, channel] = cast("Connection", Socket(client._connections, self, node, channel))
        return client


class Socket:
    """Take the place of a connection."""

    outlived = young = False

    def __init__(self, connections: Connections, cluster: Cluster3, node: int, channel: str) -> None:
        self._connections = connections
        self.host, self.port = f"b{abs(node)}", abs(node)
        self._cluster, self._channel = cluster, channel
        self._open = True
        self._waiting: set[asyncio.Future[Any]] = set()

    @property
    def connected(self) -> bool:
        return self._open

    def owing(self, _: float) -> bool:
        """Never be taken for dead."""
        return False

    def hears(self, _: float) -> bool:
        """Be no sign that the broker works."""
        return False

    def send(self, request: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.add(answer)
        if type(request).__name__ == "MetadataRequest":
            self._cluster.metadata_asked.append(self.port)
        if self.port not in self._cluster.frozen:
            loop.call_later(self._cluster.slowness_s, self._answer, answer)
        return answer

    def _answer(self, answer: asyncio.Future[Any]) -> None:
        if not answer.done():
            answer.set_result(SimpleNamespace(brokers=[(node, f"b{node}", node) for node in self._cluster.listed], controller_id=3, topics=[]))

    def close(self) -> asyncio.Future[None]:
        self._open = False
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # As a connection does; the transport is this object, too.
        self._connections._note_closing(closed, cast("asyncio.WriteTransport", self))
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(KafkaConnectionError("closed"))
        asyncio.get_running_loop().call_soon(closed.set_result, None)
        return closed

    def get_extra_info(self, _: str) -> None:
        """It has no socket."""

    def abort(self) -> None:
        self._cluster.aborted.add((self.port, self._channel))


class Produce:
    """A request that any broker may get."""


async def told_after(client: KafkaClient, node: int) -> float:
    """Return the seconds after which a request to a broker is given up."""
    began = asyncio.get_running_loop().time()
    with pytest.raises(Unavailable):
        await client.send(node, Produce(), channel=PRODUCE)
    return asyncio.get_running_loop().time() - began


def with_cluster(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @in_virtual_time
    async def run(**given: Any) -> None:
        cluster = Cluster3()
        client = cluster.client()
        try:
            await test(cluster, client, **given)
        finally:
            await client.close()

    return provided(test, run, 2)


# The order in which brokers are asked is drawn anew each time.
@pytest.mark.parametrize("draw", range(20))
@with_cluster
async def test_a_frozen_broker_is_left_though_another_one_is_frozen_as_well(cluster: Cluster3, client: KafkaClient, draw: int) -> None:
    """The client may ask the second one first, which owes it nothing yet: it does not wait for it for long."""
    cluster.frozen, cluster.listed = {1, 2}, {3}
    assert await told_after(client, 1) <= 10
    assert (1, PRODUCE) in cluster.aborted
    assert client.nodes == (3,)


@with_cluster
async def test_a_broker_that_always_owes_an_answer_is_asked_all_the_same(cluster: Cluster3, client: KafkaClient) -> None:
    """With the others' work it may always have a request that is seconds old."""
    cluster.frozen, cluster.listed = {1}, {3}
    client._cluster.list("", {node: (f"b{node}", node) for node in (1, 3)}, 3)
    unanswered = client._connections._unanswered
    line = client._connections._line(("b3", 3), "other")

    async def busy() -> None:
        with unanswered.until_answered(line, "OffsetCommitRequest", 0.0):
            await asyncio.sleep(60)

    working = asyncio.create_task(busy())
    await asyncio.sleep(2)
    assert await told_after(client, 1) <= 10
    working.cancel()


@pytest.mark.parametrize("left", [{3}, {2, 3}])
@with_cluster
async def test_a_broker_that_another_client_knows_to_be_gone_is_left_without_asking(cluster: Cluster3, client: KafkaClient, left: set[int]) -> None:
    """Clients of a log share the list of brokers, and one broker that is left may be the whole list."""
    cluster.frozen = {1, 2, 3}
    waiting = asyncio.create_task(told_after(client, 1))
    await asyncio.sleep(1)
    client._cluster.list("", {node: (f"b{node}", node) for node in left}, 3)
    assert await waiting <= 5


@with_cluster
async def test_a_bootstrap_server_stays_though_the_cluster_lists_no_such_address(cluster: Cluster3, client: KafkaClient) -> None:
    """The user may name it in another way than the cluster, and it may be slow."""
    cluster.slowness_s = 8.0
    client._cluster.list("", {node: (f"b{node}", node) for node in (2, 3)}, 3)
    client._connections._ready[-1, MAIN] = cast("Connection", Socket(client._connections, cluster, -1, MAIN))
    await client.send(-1, Produce())
    assert client._connections.connected(-1, MAIN)


@with_cluster
async def test_brokers_that_are_slow_stay(cluster: Cluster3, client: KafkaClient) -> None:
    """All take longer for an answer than the client waits for the list, and none of their connections is closed."""
    cluster.slowness_s = 8.0
    for _ in range(3):
        await client.send(1, Produce(), channel=PRODUCE)
    assert cluster.metadata_asked
    assert all(client._connections.connected(node, channel) for node in ALL for channel in (MAIN, PRODUCE))
    assert cluster.aborted == set()


@with_cluster
async def test_a_broker_that_is_still_listed_has_the_time_of_a_request(cluster: Cluster3, client: KafkaClient) -> None:
    """Its cluster waits for it, and so does the client; the others are asked every few seconds at most."""
    cluster.frozen = {1}
    assert await told_after(client, 1) == pytest.approx(30, abs=0.1)
    assert len(cluster.metadata_asked) <= 30 / 2
    # Bytes that the silent broker has not taken must not reach it when it goes on.
    assert cluster.aborted == {(1, PRODUCE)}


@with_cluster
async def test_a_lone_broker_is_not_asked_about_itself(cluster: Cluster3, client: KafkaClient) -> None:
    """It could not answer."""
    cluster.frozen = {1}
    client._cluster.list("", {1: ("b1", 1)}, 1)
    assert await told_after(client, 1) == pytest.approx(30, abs=0.1)
    assert cluster.metadata_asked == []
