"""Output that waits for a broker while its tasks are rolled back, lost or handed over: it is void, and not written behind that of the next owner."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from ks_actors import App, StreamsConfig
from ks_actors.log import Outgoing
from ks_actors.log._delegating_log import DelegatedMembership, _TransactionalProducer
from ks_actors.records import Batch, TopicPartition
from ks_actors.runtime import InstanceState
from ks_actors.runtime.membership._handover import Handover
from ks_actors.testing._app_kit import AppKit
from tests.ks_actors.runtime.helpers import ALOS, EOS, Asked, echo
from tests.simulation.apps import Author
from tests.simulation.cluster import NO_LEADER, Cluster, Manners
from tests.simulation.groups import find
from tests.simulation.network import PORT, Place
from tests.simulation.reading import expected_of
from tests.simulation.running import run_virtual
from tests.simulation.seams import simulated
from tests.simulation.trace import Trace
from tests.simulation.transactions import expire

_OUT: Final = TopicPartition("out", 0)
_PARTITIONS: Final = 2


class World:
    """Apps on two brokers in virtual time: the second one leads the partition of their output, and coordinates nothing."""

    plan = "given-up output"

    def __init__(self, body: Callable[[World], Awaitable[None]], guarantee: str, **options: int) -> None:
        self._body, self._guarantee, self._options = body, guarantee, options
        self.trace = Trace(asyncio.get_running_loop().time)
        cluster = self.cluster = Cluster(2, Random(1), self.trace, Manners(0.002, 0.0, 1.0, 0.0, 10, 0.0, 1.0))
        cluster.make("in", _PARTITIONS, 2)
        cluster.elect(cluster.partitions(), 1)
        cluster.make("out", 1, 2)
        cluster.elect(cluster.topics["out"].partitions, 2)
        cluster.settle()
        self.asked = Asked()
        self._author = Author(self.cluster, 0)
        self._apps: list[App] = []

    async def main(self) -> None:
        with simulated(self.cluster.network, Random(2)), TemporaryDirectory() as disk:
            self._disk = Path(disk)
            self.cluster.begin(expire(self.cluster))
            async with AppKit(seed=1) as self._kit:
                await self._body(self)
                for app in self._apps:
                    await app.close()
            await self.cluster.close()

    async def start(self) -> App:
        number = len(self._apps)
        config = StreamsConfig.of({
            "application_id": "app",
            "client_id": f"c{number}",
            "bootstrap_servers": f"{Place(number + 1, 1).host}:{PORT}",
            "request_timeout_ms": 3_000,
            "default_api_timeout_ms": 3_000,
            "state_dir": str(self._disk / str(number)),
            "processing_guarantee": self._guarantee,
            "commit_interval_ms": 100,
            **self._options,
        })  # fmt: skip
        app = App(echo(), config, system=self._kit, uncaught_handler=self.asked)
        self._apps.append(app)
        await app.start()
        return app

    async def feed(self, value: bytes) -> None:
        """Write a record to each partition."""
        await self._author.send([Outgoing(TopicPartition("in", number), Batch([b"k"], [value], [0])) for number in range(_PARTITIONS)])

    def lead(self, *, on: bool) -> None:
        """Have the partition of the output have a leader, or none."""
        (partition,) = self.cluster.topics["out"].partitions
        if on:
            self.cluster.elect([partition], 2)
        else:
            self.cluster._lead(partition, NO_LEADER, unclean=False)
            self.cluster.spread(["out"])

    def remove_members(self) -> None:
        """Have the group forget its members."""
        _, group = find(self.cluster.brokers[1], "app")
        assert group is not None
        for member in tuple(group.members.values()):
            group.remove(member)

    def written(self) -> Counter[bytes]:
        """Return how often each value is in the output."""
        log = self.cluster.partition(_OUT).log  # type: ignore[union-attr]  # it exists
        return Counter(value for *_, value, _ in expected_of(log, log.start, log.end, committed=True))


def run(body: Callable[[World], Awaitable[None]], guarantee: str, **options: int) -> None:
    run_virtual(lambda: World(body, guarantee, **options), 1)


def test_output_that_an_app_has_given_up_waiting_for_is_written_once() -> None:
    """The rollback voids it: the producer drops it, though it has longer than task_timeout_ms, and the repeated work writes it."""

    async def body(world: World) -> None:
        app = await world.start()
        await world.feed(b"1")
        await asyncio.sleep(2)
        world.lead(on=False)
        await world.feed(b"2")
        await asyncio.sleep(15)
        assert world.asked
        world.lead(on=True)
        await asyncio.sleep(15)
        assert app.state is InstanceState.RUNNING
        assert world.written() == {b"1": 2, b"2": 2}

    run(body, ALOS, task_timeout_ms=10_000)


@pytest.mark.parametrize("guarantee", [pytest.param(ALOS, marks=pytest.mark.extended), EOS])
def test_a_lost_membership_does_not_wait_for_a_broker_that_is_out_of_reach(guarantee: str) -> None:
    """A member that the group has removed drops the output that it cannot send, and is back after a request timeout."""

    async def body(world: World) -> None:
        app = await world.start()
        await world.feed(b"1")
        await asyncio.sleep(2)
        world.cluster.network.cut(Place(1, 2))
        await world.feed(b"2")
        await asyncio.sleep(2)
        world.remove_members()
        await asyncio.sleep(8)
        assert app.state is InstanceState.RUNNING
        world.cluster.network.mend(Place(1, 2))
        await asyncio.sleep(8)
        assert (app.state, world.asked) == (InstanceState.RUNNING, [])
        assert world.written() == {b"1": 2, b"2": 2}

    run(body, guarantee)


@pytest.mark.parametrize("guarantee", [pytest.param(ALOS, marks=pytest.mark.extended), EOS])
def test_an_app_survives_a_lost_membership_while_its_output_has_no_leader(guarantee: str) -> None:
    """Nor can the transaction end then. That may take longer than max_poll_interval_ms, as nobody waits for a removed member."""

    async def body(world: World) -> None:
        app = await world.start()
        await world.feed(b"1")
        await asyncio.sleep(2)
        world.lead(on=False)
        await world.feed(b"2")
        await asyncio.sleep(2)
        world.remove_members()
        await asyncio.sleep(15)
        world.lead(on=True)
        await asyncio.sleep(10)
        assert (app.state, world.asked) == (InstanceState.RUNNING, [])
        assert world.written() == {b"1": 2, b"2": 2}

    run(body, guarantee, max_poll_interval_ms=10_000)


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_a_handover_is_not_over_before_its_commit_is(guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the commit takes longer than max_poll_interval_ms, its output is given up: only the next owner writes it."""

    async def body(world: World) -> None:
        before, times = Handover.before_rebalance, 0

        async def then_lose_the_leader(handover: Handover) -> None:
            nonlocal times
            await before(handover)
            times += 1
            if times == 1:
                world.lead(on=False)
                await world.feed(b"2")
                await asyncio.sleep(1)

        monkeypatch.setattr(Handover, "before_rebalance", then_lose_the_leader)
        first = await world.start()
        await world.feed(b"1")
        await asyncio.sleep(2)
        second = await world.start()
        await asyncio.sleep(26)
        world.lead(on=True)
        await asyncio.sleep(20)
        assert (first.state, second.state, world.asked) == (InstanceState.RUNNING, InstanceState.RUNNING, [])
        assert world.written() == {b"1": 2, b"2": 2}

    run(body, guarantee, max_poll_interval_ms=10_000, transaction_timeout_ms=60_000, commit_interval_ms=5_000)


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_a_handover_that_waits_too_long_for_a_commit_leaves_no_failure_behind(guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its output is written, the commit may still succeed: nothing is rolled back then, not even later."""
    before, times = Handover.before_rebalance, 0
    kind, name = (DelegatedMembership, "commit") if guarantee == ALOS else (_TransactionalProducer, "commit")
    commit, slow = getattr(kind, name), [0.0]

    async def slowly(one: Any, *arguments: Any) -> None:
        await asyncio.sleep(slow.pop() if slow else 0)
        await commit(one, *arguments)

    async def body(world: World) -> None:
        async def then_commit_slowly(handover: Handover) -> None:
            nonlocal times
            await before(handover)
            times += 1
            if times == 1:
                slow.append(14.0)
                await world.feed(b"2")
                await asyncio.sleep(1)

        monkeypatch.setattr(Handover, "before_rebalance", then_commit_slowly)
        monkeypatch.setattr(kind, name, slowly)
        first = await world.start()
        await world.feed(b"1")
        await asyncio.sleep(2)
        await world.start()
        await asyncio.sleep(60)
        await world.feed(b"3")
        await asyncio.sleep(10)
        assert not slow
        assert first.metrics()["rolled-back-total"] == 0
        assert world.written() == {b"1": 2, b"2": 2, b"3": 2}

    run(body, guarantee, max_poll_interval_ms=10_000, transaction_timeout_ms=60_000, commit_interval_ms=5_000)
