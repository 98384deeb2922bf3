"""Addresses that lead to brokers of another cluster, or to other brokers, while an app runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pytest

from ks_actors import App, ConfigError, HealthBounds, StreamsConfig
from ks_actors.dsl import Consumed, Produced, StreamsBuilder
from ks_actors.log import Outgoing
from ks_actors.records import Batch, TopicPartition
from ks_actors.runtime.shared import CLUSTER_FILE
from ks_actors.serdes import STRING
from ks_actors.testing._app_kit import AppKit
from tests.examples_of import examples
from tests.simulation.apps import Author
from tests.simulation.cluster import Cluster, draw_manners
from tests.simulation.network import PORT, Place
from tests.simulation.reading import expected_of
from tests.simulation.running import run_virtual
from tests.simulation.seams import simulated
from tests.simulation.trace import Trace
from tests.simulation.transactions import expire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ks_actors import Topology
    from tests.simulation.network import Line

pytestmark = pytest.mark.unmeasured

_PROBES: Final = frozenset({"ApiVersions", "Metadata", "answer"})
_PATIENCE_S: Final = 120.0


def _topology() -> Topology:
    builder = StreamsBuilder()
    counted = builder.stream("in", Consumed(STRING, STRING)).group_by_key().count()
    counted.map_values(str).to_stream().to("out", Produced(STRING, STRING))
    return builder.build()


class Misled:
    """A run: brokers go away, and their addresses lead to others; later they are back, there or elsewhere."""

    def __init__(self, seed: int) -> None:
        random = self._random = Random(f"other clusters {seed}")
        self.plan: str = f"other clusters {seed}"
        self.trace = Trace(asyncio.get_running_loop().time)
        count = random.choice([1, 2, 3])
        versions = random.choice([(0, 5), (0, 4)])
        self.first = Cluster(count, Random(f"first {seed}"), self.trace, draw_manners(random))
        self.other = Cluster(count, Random(f"other {seed}"), Trace(asyncio.get_running_loop().time), draw_manners(random))
        self.other.id = "another"
        self.others: Counter[str] = self.other.trace.requests
        for cluster in (self.first, self.other):
            cluster.api_versions = versions
        self._elsewhere: bool = random.random() < 0.5
        # Older brokers do not tell a client that it has come to another one.
        self._swaps: bool = count > 1 and versions == (0, 5) and random.random() < 0.3
        self._exactly_once: bool = random.random() < 0.5
        self.problems: set[str] = set()

    async def main(self) -> None:
        first, other, random = self.first, self.other, self._random
        partitions = random.choice([1, 3])
        for name in ("in", "out"):
            first.make(name, partitions, random.choice([1, 3]))
            if random.random() < 0.8:
                other.make(name, partitions, 1)
        for cluster in (first, other):
            cluster.settle()
        author, stranger = Author(first, 0), Author(other, 0)
        with simulated(first.network, random), TemporaryDirectory() as disk:
            first.begin(expire(first))
            async with AppKit(seed=1) as kit, App(_topology(), self._config(Path(disk)), system=kit) as app:
                await self._feed(author, partitions, 20)
                if "in" in other.topics:
                    await self._feed(stranger, partitions, 20)
                if random.random() < 0.7:
                    await self._caught_up()
                for _ in range(random.choice([1, 2])):
                    await self._mislead(app)
                    await self._feed(author, partitions, 10)
                await self._caught_up()
            await first.close()
            await other.close()

    def _config(self, disk: Path) -> StreamsConfig:
        places = [Place(1, node).host_in(subnet) for node in self.first.brokers for subnet in (0, 1)]
        self._random.shuffle(places)
        return StreamsConfig.of({
            "application_id": "app",
            "bootstrap_servers": ",".join(f"{host}:{PORT}" for host in places),
            "state_dir": str(disk),
            "processing_guarantee": "exactly_once_v2" if self._exactly_once else "at_least_once",
            "default_dsl_store": "in_memory",
            "commit_interval_ms": 200,
            "request_timeout_ms": 3_000,
            "transaction_timeout_ms": 20_000,
            "metadata_max_age_ms": self._random.choice([5_000, 300_000]),
        })  # fmt: skip

    async def _feed(self, author: Author, partitions: int, count: int) -> None:
        for _ in range(count):
            number = self._random.randrange(partitions)
            batch = Batch([b"%d" % number], [b"v"], [0])
            await author.send([Outgoing(TopicPartition("in", number), batch)])

    async def _mislead(self, app: App) -> None:
        first, random = self.first, self._random
        nodes = list(first.brokers)
        gone = random.sample(nodes, random.choice([1, len(nodes)]))
        for node in gone:
            first.brokers[node].kill()
            first.network.others[Place(1, node).host_in(first.subnet)] = self._accepts(node, nodes)
        for _ in range(random.choice([1, 5, 20])):
            await asyncio.sleep(random.random())
            self.problems.update(each.text for each in app.health(HealthBounds(outage_ms=0)).problems)
        if self._elsewhere and len(gone) == len(nodes):
            first.subnet = 1 - first.subnet
            others = first.network.others
            for node in nodes:
                others.pop(Place(1, node).host_in(first.subnet), None)
        else:
            first.network.others.clear()
        for node in gone:
            first.network.reset_all(node)
        for node in gone:
            first.brokers[node].start()

    def _accepts(self, node: int, nodes: list[int]) -> Callable[[Line], None]:
        if self._swaps:
            return self.first.brokers[nodes[nodes.index(node) - 1]].host.accept
        return self.other.brokers[node].host.accept

    async def _caught_up(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + _PATIENCE_S
        while (found := self._results()) != (expected := Counter(key for key, _ in self._rows("in"))):
            assert loop.time() < end, f"{found} of {expected}"
            await asyncio.sleep(0.1)

    def _results(self) -> dict[bytes, int]:
        """Return the newest count of each key."""
        return {key: int(value) for key, value in self._rows("out")}

    def _rows(self, topic: str) -> Iterator[tuple[bytes, bytes]]:
        for partition in self.first.topics[topic].partitions:
            for _, _, key, value, _ in expected_of(partition.log, partition.log.start, partition.log.end, committed=True):
                yield key, value


def _misled(seed: int) -> Misled:
    return run_virtual(partial(Misled, seed), seed, "other clusters")


@pytest.mark.parametrize("seed", range(examples(8)))
def test_nothing_is_read_or_written_in_another_cluster(seed: int) -> None:
    """A broker of another cluster at an address of the first one is asked who it is, and nothing else; the app goes on with the first one."""
    run = _misled(seed)
    assert run.others.keys() <= _PROBES


def test_a_broker_of_another_cluster_is_a_problem_with_its_address() -> None:
    """Health names the address, the cluster that is there, and the one that is meant."""
    problems = set().union(*(_misled(seed).problems for seed in range(3)))
    assert any("10.1.0." in each and "it belongs to cluster 'another', but this client uses cluster 'simulated'" in each for each in problems)


class Moved:
    """A run: an app on a cluster, and then with the same disk on another one."""

    def __init__(self) -> None:
        self.plan: str = "moved"
        self.trace = Trace(asyncio.get_running_loop().time)
        self.clusters: list[Cluster] = []
        for name in ("one", "two"):
            cluster = Cluster(1, Random(1), self.trace, draw_manners(Random(1)))
            cluster.id = name
            cluster.make("in", 1, 1)
            cluster.make("out", 1, 1)
            cluster.settle()
            self.clusters.append(cluster)

    async def main(self) -> None:
        with TemporaryDirectory() as disk:
            one, two = self.clusters
            await self._run(one, disk)
            with pytest.raises(ConfigError, match=r"is of cluster 'one', and the bootstrap servers are of cluster 'two'"):
                await self._run(two, disk)
            assert two.topics.keys() == {"in", "out", "__consumer_offsets", "__transaction_state"}
            await self._run(one, disk)
            # The way out for a cluster that was replaced.
            (Path(disk) / "app" / CLUSTER_FILE).unlink()
            await self._run(two, disk)
            with pytest.raises(ConfigError):
                await self._run(one, disk)
            for cluster in self.clusters:
                await cluster.close()

    async def _run(self, cluster: Cluster, disk: str) -> None:
        config = StreamsConfig(application_id="app", bootstrap_servers=f"{Place(1, 1).host}:{PORT}", state_dir=Path(disk))
        with simulated(cluster.network, Random(1)):
            async with AppKit(seed=1) as kit, App(_topology(), config, system=kit) as app:
                await app.wait_until_caught_up()


def test_state_of_one_cluster_is_not_used_with_another() -> None:
    """The start is refused before anything is made there; the file with the cluster's id is the documented way out."""
    run_virtual(Moved, 0, "moved")
