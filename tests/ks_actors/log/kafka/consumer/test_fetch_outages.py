"""Connections and brokers that fail without a sign, on the simulated Kafka: partitions are read on, and no error is told that is none."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from ks_actors import UnknownTopicOrPartition
from ks_actors.log import IsolationLevel
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client._connections import MAIN
from ks_actors.log.kafka.wire import MetadataRequest
from ks_actors.records import TopicPartition
from tests.ks_actors.log.kafka.consumer.scripted import in_virtual_time
from tests.simulation.batches import template
from tests.simulation.cluster import Cluster, Manners
from tests.simulation.handlers import HANDLERS
from tests.simulation.network import PORT, Place
from tests.simulation.seams import simulated
from tests.simulation.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.simulation.network import Line

assert HANDLERS
FIRST, SECOND = TopicPartition("a", 0), TopicPartition("a", 1)
MANNERS: Final = Manners(lag=0.002, replication=0.002, fencing=1.0, loading=0.0, sessions=10, first_join=0.0, transaction_look=10.0)
UNKNOWN: Final = 3
# A request without an answer is late after 3 s and at the next look, which comes each second.
LATE_S: Final = 5.0
# One that has begun is late when no more of it has come for 10 s.
STUCK_S: Final = 12.0
# The timeout of a request, its wait on the broker, and some time to connect again.
TIMEOUT_S: Final = 32.0


class Run:
    """A log with a topic of two partitions, and a fetcher; `read` has what each partition's offsets were."""

    def __init__(self, cluster: Cluster, log: KafkaLog) -> None:
        self.cluster, self.log = cluster, log
        self.read: dict[TopicPartition, list[int]] = {FIRST: [], SECOND: []}
        self.fetcher = log.fetcher(client_id="r", isolation=IsolationLevel.READ_UNCOMMITTED)
        self.now = asyncio.get_running_loop().time

    def write(self, name: TopicPartition, batches: int = 1) -> int:
        """Write; return the end of the log."""
        partition = self.cluster.partition(name)
        assert partition is not None
        for _ in range(batches):
            partition.log.append(template(1).raw, partition.epoch)
        self.cluster.replicate(partition)
        partition.log.wake()
        return partition.log.end

    async def fetch(self, seconds: float, until: Callable[[], bool] = lambda: False) -> float:
        """Read for some time; return how long it took until it was so."""
        began = self.now()
        while not until() and self.now() < began + seconds:
            for one in await self.fetcher.fetch(max_wait_ms=50):
                self.read[TopicPartition(*one.partition)] += one.batch.offsets
        return self.now() - began

    async def until_read(self, seconds: float, *names: TopicPartition) -> float:
        """Read to the end of partitions; return how long it took."""
        partitions = {name: self.cluster.partition(name) for name in names}
        took = await self.fetch(seconds, lambda: all(each and self.fetcher.position(name) == each.log.end for name, each in partitions.items()))
        assert {name: self.read[name] for name in names} == {name: [*range(each.log.end)] for name, each in partitions.items() if each}
        return took

    async def use_both(self) -> None:
        """Use both connections: while its owner is busy, the fetcher asks for the other partition; then a second request is due."""
        self.write(FIRST)
        await asyncio.sleep(0.1)
        await self.fetch(1.0)

    async def connections(self) -> tuple[Line, Line]:
        """Return the connections of fetches, the idle one first."""
        await self.use_both()
        (broker,) = self.fetcher._fetching._brokers.values()
        ready, lines = self.log._client._connections._ready, self.cluster.network.lines
        idle, used = sorted(broker.lines, key=lambda line: line.out)
        assert (idle.out, used.out) == (False, True)
        found = [next(line for line in lines if line.protocol is ready[1, each.channel]) for each in (idle, used)]
        return found[0], found[1]


def simulated_run(test: Callable[[Run], Awaitable[None]], *, brokers: int = 1) -> None:
    """Test with a fetcher on simulated brokers, in virtual time."""

    async def main() -> None:
        cluster = Cluster(brokers, Random(1), Trace(asyncio.get_running_loop().time), MANNERS)
        cluster.make("a", 2, brokers)
        cluster.settle()
        with simulated(cluster.network, Random(2)):
            servers = ",".join(f"{Place(1, node).host}:{PORT}" for node in cluster.brokers)
            log = KafkaLog(servers, options=KafkaOptions(), client_id="r")
            try:
                await log.start()
                await test(Run(cluster, log))
            finally:
                await log.close()
                await cluster.close()

    in_virtual_time(main)


@pytest.mark.parametrize("idle", [True, False])
def test_a_dead_connection_stops_no_partition_for_long(idle: bool) -> None:
    """Its request is late after some seconds, and the other connection fetches all partitions; the timeout of the request ends it."""

    async def test(run: Run) -> None:
        run.fetcher.assign({FIRST: 0, SECOND: 0})
        connections = await run.connections()
        dead = connections[not idle]
        dead.hollow = True
        await run.use_both()
        assert dead.used
        run.write(FIRST)
        run.write(SECOND)
        await run.until_read(LATE_S, FIRST, SECOND)
        # From here on as if there was no dead connection, whose request is still open.
        assert dead in run.cluster.network.lines
        for name in (FIRST, SECOND) * 5:
            run.write(name)
            assert await run.until_read(LATE_S, name) < 0.2
        requests = run.cluster.trace.requests["Fetch"]
        await run.fetch(10.0)
        # An idle fetcher has two requests a second, then as well.
        assert run.cluster.trace.requests["Fetch"] - requests <= 21
        await run.fetch(TIMEOUT_S)
        assert dead not in run.cluster.network.lines
        run.write(FIRST)
        await run.until_read(LATE_S, FIRST, SECOND)

    simulated_run(test)


def test_records_that_come_late_on_a_slow_connection_come_once() -> None:
    """They were read on the other connection meanwhile."""

    async def test(run: Run) -> None:
        loop = asyncio.get_running_loop()
        run.fetcher.assign({FIRST: 0, SECOND: 0})
        slow, _ = await run.connections()
        answer, answered = slow.answer, list[float]()

        def answer_late(data: bytes) -> None:
            answered.append(run.now())
            loop.call_later(10.0, answer, data)

        slow.answer = answer_late  # type: ignore[method-assign]
        for _ in range(20):
            await run.use_both()
            run.write(SECOND)
            await run.fetch(1.0)
        assert len(answered) > 2
        await run.until_read(LATE_S, FIRST, SECOND)

    simulated_run(test)


def test_an_answer_that_arrives_slowly_is_not_asked_for_again() -> None:
    """The network is busy enough with it."""

    async def test(run: Run) -> None:
        loop = asyncio.get_running_loop()
        run.fetcher.assign({FIRST: 0, SECOND: 0})
        _, slow = await run.connections()
        answer = slow.answer

        def answer_slowly(data: bytes) -> None:
            for second in range(10):
                loop.call_later(second, answer, data[second : second + 1])
            loop.call_later(10.0, answer, data[10:])

        slow.answer = answer_slowly  # type: ignore[method-assign]
        run.write(FIRST)
        requests = run.cluster.trace.requests["Fetch"]
        await run.fetch(9.0)
        assert run.cluster.trace.requests["Fetch"] - requests <= 1
        await run.until_read(LATE_S, FIRST)

    simulated_run(test)


@pytest.mark.parametrize("waits", [False, True])
def test_a_dead_connection_for_metadata_delays_one_lookup(waits: bool) -> None:
    """It is replaced, or, as long as another request waits for an answer there, the other brokers are asked; fetches go on meanwhile."""

    async def test(run: Run) -> None:
        run.fetcher.assign({FIRST: 0, SECOND: 0})
        run.write(FIRST)
        await run.fetch(1.0)
        client = run.log._client
        node = client.leader(FIRST)
        assert node is not None
        for each in client.nodes:
            await client.send(each, MetadataRequest([]))
        ready, lines = client._connections._ready, run.cluster.network.lines
        dead = next(line for line in lines if line.protocol is ready[node, MAIN])
        dead.hollow = True
        reading = asyncio.create_task(run.fetch(90.0))
        waiting = asyncio.create_task(client.send(node, MetadataRequest([]))) if waits else None
        await asyncio.sleep(2.5)
        took = list[float]()
        for _ in range(9):
            began = run.now()
            await client.refresh(["a"])
            took.append(run.now() - began)
            await asyncio.sleep(0.5)
        assert sum(each > 0.1 for each in took) == (not waits)
        assert (dead in lines) == waits
        for task in (reading, waiting):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])

    simulated_run(test, brokers=3)


@pytest.mark.parametrize("got", [1, 10])
def test_a_connection_that_dies_within_an_answer_stops_no_partition_for_long(got: int) -> None:
    """No more of the answer comes, so the other connection fetches all partitions, too."""

    async def test(run: Run) -> None:
        run.fetcher.assign({FIRST: 0, SECOND: 0})
        _, dead = await run.connections()
        answer = dead.answer

        def answer_in_part(data: bytes) -> None:
            answer(data[:got])
            dead.served = False

        dead.answer = answer_in_part  # type: ignore[method-assign]
        run.write(FIRST)
        await run.until_read(STUCK_S, FIRST, SECOND)
        run.write(SECOND)
        assert await run.until_read(STUCK_S, FIRST, SECOND) < 0.2

    simulated_run(test)


@pytest.mark.parametrize(("brokers", "cut_off"), [(2, 1), (3, 1), (5, 2)])
@pytest.mark.parametrize("epoch", [1, -1])
def test_a_leader_that_is_cut_off_is_not_asked_for_the_range(brokers: int, cut_off: int, epoch: int) -> None:
    """A committed offset behind the end of its log is in the log of its successor, whom other brokers know."""

    async def test(run: Run) -> None:
        cluster, fetcher = run.cluster, run.fetcher
        fetcher.assign({SECOND: 0})
        run.write(FIRST, 4)
        await run.fetch(0.5)
        partition = cluster.partition(FIRST)
        assert partition is not None
        old = partition.leader
        cut = [old, *(node for node in cluster.brokers if node != old)][:cut_off]
        for node in cut:
            cluster.brokers[node].isolate()
        await asyncio.sleep(5.0)
        end = run.write(FIRST, 6)
        await asyncio.sleep(1.0)
        assert partition.leader not in cut
        assert run.log._client.leader(FIRST) == old
        run.log._client.epochs.note_committed(FIRST, end - 40, epoch)
        fetcher.assign({SECOND: 0, FIRST: end - 40})
        await run.fetch(10.0, lambda: fetcher.position(FIRST) == end)
        assert run.read[FIRST] == [*range(end - 40, end)]

    simulated_run(test, brokers=brokers)


def test_two_answers_far_apart_do_not_tell_that_a_topic_is_missing() -> None:
    """A leader may not know its partition for a moment, now and again; the topic that brokers do not list is missing."""

    async def test(run: Run) -> None:
        run.fetcher.assign({FIRST: 0})
        for _ in range(3):
            run.cluster.codes["Fetch partition"].append(UNKNOWN)
            run.write(FIRST)
            await run.fetch(0.05)
            run.fetcher.pause([FIRST])
            await asyncio.sleep(5.0)
            run.cluster.codes["Fetch partition"].append(UNKNOWN)
            run.fetcher.resume([FIRST])
            await run.until_read(1.0, FIRST)
            assert not run.cluster.codes["Fetch partition"]
        run.cluster.delete("a")
        began = run.now()
        with pytest.raises(UnknownTopicOrPartition, match="a-0 does not exist"):
            await run.fetch(LATE_S)
        assert 1.0 <= run.now() - began < 3.0

    simulated_run(test)


@pytest.mark.parametrize(
    ("request_name", "code", "reason"),
    [
        ("Fetch", -1, "broker 1 answered UNKNOWN_SERVER_ERROR"),
        ("Fetch", 70, "broker 1 answered FETCH_SESSION_ID_NOT_FOUND"),
        ("Fetch partition", -1, "Kafka answered UNKNOWN_SERVER_ERROR for a-0"),
        ("Fetch partition", 6, "Kafka answered NOT_LEADER_OR_FOLLOWER for a-0"),
        ("Fetch partition", 56, "Kafka answered KAFKA_STORAGE_ERROR for a-0"),
    ],
)
def test_a_broker_that_refuses_fetches_is_an_outage(request_name: str, code: int, reason: str) -> None:
    """It answers, but the app cannot go on: the outage has the error, and ends when fetches are served."""

    async def test(run: Run) -> None:
        run.fetcher.assign({FIRST: 0})
        codes = run.cluster.codes[request_name]
        codes.append(code)
        run.write(FIRST)
        await run.fetch(1.0)
        assert not codes
        assert not run.log.outages()
        codes += [code] * 1_000
        await run.fetch(15.0)
        (outage,) = run.log.outages()
        assert (outage.reason, outage.refused) == (reason, True)
        assert outage.seconds > 13
        codes.clear()
        run.write(FIRST)
        await run.until_read(LATE_S, FIRST)
        assert not run.log.outages()

    simulated_run(test)


def test_a_partition_without_a_leader_is_an_outage() -> None:
    """The other brokers answer all the time."""

    async def test(run: Run) -> None:
        run.cluster.make("alone", 1, 1)
        run.cluster.settle()
        alone = TopicPartition("alone", 0)
        partition = run.cluster.partition(alone)
        assert partition is not None
        run.read[alone] = []
        run.fetcher.assign({alone: 0, FIRST: 0})
        await run.fetch(1.0)
        broker = run.cluster.brokers[partition.leader]
        broker.kill()
        await run.fetch(30.0)
        (outage,) = [each for each in run.log.outages() if each.refused]
        assert outage.reason == "alone-0 has no leader at this time"
        broker.start()
        await run.fetch(5.0)
        assert not run.log.outages()

    simulated_run(test, brokers=3)
