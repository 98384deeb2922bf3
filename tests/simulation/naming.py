"""Make, grow and delete topics with the real client while brokers hear of it late: what a call has done, the next call can count on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ks_actors import TopicExists
from ks_actors._errors import ProduceFailed
from ks_actors.log import IsolationLevel, NewTopic, Outgoing
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.records import Batch, TopicPartition
from tests.simulation.cluster import Cluster, Manners, draw_manners
from tests.simulation.faults import Faults
from tests.simulation.network import PORT, Place
from tests.simulation.reading import Wrong
from tests.simulation.running import run_virtual
from tests.simulation.seams import simulated
from tests.simulation.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

FAULTS: Final = ("move", "gather", "kill", "vanish", "freeze", "cut", "hollow", "reset", "lose", "lose", "slow", "throttle", "controller codes")
_NAMES: Final = ("a", "b", "c")
_BOUND_S: Final = 5.0


@dataclass(frozen=True)
class NamingPlan:
    """The draw of a seed."""

    seed: int
    brokers: int
    manners: Manners
    options: dict[str, Any]
    healthy_at: float
    faults: tuple[str, ...]
    steps: int


def draw_naming(seed: int) -> NamingPlan:
    """Return the plan of a seed."""
    random = Random(f"naming {seed}")
    faults = tuple(sorted(random.sample(FAULTS, random.choice([2, 5])))) if random.random() < 0.5 else ()
    return NamingPlan(
        seed=seed,
        brokers=random.choice([1, 2, 3]),
        manners=draw_manners(random)._replace(lag=random.choice([0.002, 0.1, 0.6])),
        options={
            "request_timeout_ms": random.choice([1_000, 3_000]),
            "connect_timeout_ms": random.choice([500, 2_000]),
            # Longer than any broker lags.
            "missing_topic_wait_ms": 14_000,
        },
        healthy_at=random.choice([0.5, 3.0]) if faults else 0.5,
        faults=faults,
        steps=random.choice([5, 12]),
    )


class Naming:
    """One run: a process that makes and deletes topics, and writes to those that there are."""

    def __init__(self, plan: NamingPlan) -> None:
        self.plan = plan
        self.trace = Trace(asyncio.get_running_loop().time)
        self.cluster = Cluster(plan.brokers, Random(f"cluster {plan.seed}"), self.trace, plan.manners)
        # What there is: the number of records in each partition.
        self.topics: dict[str, list[int]] = {}
        self._random = Random(f"owner {plan.seed}")
        self._faults = Faults(self.cluster, Random(f"faults {plan.seed}"), plan.faults, until=plan.healthy_at, sites=(1,))
        # Topics created during a fault: the call does not wait for a broker whose connection failed, so that one may not know them yet.
        self._unsure: set[str] = set()
        self._log: Any = None
        self._producer: Any = None

    async def main(self) -> None:
        """Do it. Raises Wrong, and what the client should not raise."""
        plan, loop, faults = self.plan, asyncio.get_running_loop(), self._faults
        with simulated(self.cluster.network, Random(f"seams {plan.seed}")):
            servers = ",".join(f"{Place(1, node).host}:{PORT}" for node in self.cluster.brokers)
            self._log = KafkaLog(servers, options=KafkaOptions(**plan.options), client_id="n")
            work = [asyncio.ensure_future(faults.befall()), asyncio.ensure_future(faults.heal())] if plan.faults else []
            try:
                await self._log.start()
                self._producer = await self._log.producer(client_id="n")
                done = 0
                while done < plan.steps or loop.time() < plan.healthy_at:
                    await self._step()
                    done += 1
                    await asyncio.sleep(self._random.choice([0, 0, 0.05]))
                for name in tuple(self.topics):
                    await self._look(name)
                for one in work:
                    await one
            finally:
                for one in work:
                    one.cancel()
                await asyncio.gather(*work, return_exceptions=True)
                await self._log.close()
                await self.cluster.close()

    async def _step(self) -> None:
        name = self._random.choice(_NAMES)
        if name not in self.topics:
            await self._create(name)
            return
        step = self._random.choices([self._write, self._grow, self._delete, self._look, self._create_again], [5, 1, 2, 2, 1])[0]
        await step(name)

    async def _call(self, what: str, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Make a call that has to succeed in time."""
        loop = asyncio.get_running_loop()
        began, healthy = loop.time(), self.plan.healthy_at
        self.trace.note("call", what)
        found = await work()
        slack = 2 * (self.plan.options["request_timeout_ms"] + self.plan.options["connect_timeout_ms"]) / 1000
        # Brokers may hear of a change late: `Cluster.tell`.
        bound = _BOUND_S + 20 * self.plan.manners.lag + (max(0.0, healthy - began) + 3 * slack if self.plan.faults else 0.0)
        if loop.time() - began > bound:
            raise Wrong(f"{what} took {loop.time() - began:.1f} s, and may take {bound:.1f}")
        return found

    async def _create(self, name: str) -> None:
        count, faults = self._random.choice([1, 3]), self._faults.count
        await self._call(f"create {name}", lambda: self._log.create_topics([NewTopic(name, count, {"retention.ms": "77"})]))
        if self._faults.count > faults:
            self._unsure.add(name)
        self.topics[name] = [0] * count
        await self._look(name)
        if self._random.random() < 0.7:
            await self._write(name)

    async def _create_again(self, name: str) -> None:
        try:
            await self._log.create_topics([NewTopic(name, 1)])
        except TopicExists:
            return
        raise Wrong(f"{name} was made, though it is there")

    async def _grow(self, name: str) -> None:
        count = len(self.topics[name]) + self._random.choice([1, 2])
        await self._call(f"grow {name}", lambda: self._log.create_partitions({name: count}))
        self.topics[name] += [0] * (count - len(self.topics[name]))
        await self._write(name)

    async def _delete(self, name: str) -> None:
        await self._call(f"delete {name}", lambda: self._log.delete_topics([name]))
        del self.topics[name]
        self._unsure.discard(name)
        if name in await self._log.describe_topics():
            raise Wrong(f"{name} is listed, though it was deleted")

    async def _write(self, name: str) -> None:
        counts = self.topics[name]
        number = self._random.randrange(len(counts))
        count = self._random.choice([1, 10])
        batch = Batch([None] * count, [b"%d" % (counts[number] + index) for index in range(count)], [0] * count)
        try:
            (end,) = await self._call(f"write to {name}-{number}", lambda: self._producer.send([Outgoing(TopicPartition(name, number), batch)]))
        except ProduceFailed as error:
            raise Wrong(f"a write: {dict(error.errors)}") from error
        counts[number] += count
        if end != counts[number]:
            raise Wrong(f"{name}-{number} ends at {end}, behind {counts[number]} records")

    async def _look(self, name: str) -> None:
        """Look at a topic: it has the partitions and records that were made."""
        counts = self.topics[name]
        # A broker that does not know the topic yet has no configs of it.
        heard = name not in self._unsure or all(name in broker.image.topics for broker in self.cluster.brokers.values())
        described = (await self._call(f"describe {name}", lambda: self._log.describe_topics([name]))).get(name)
        if described is None or described.partitions != len(counts):
            raise Wrong(f"{name} has {len(counts)} partitions, and was described as {described}")
        if described.configs.get("retention.ms") != "77" and (heard or described.configs):
            raise Wrong(f"{name} was created with retention.ms=77, and was described as {described}")
        names = [TopicPartition(name, number) for number in range(len(counts))]
        ends = await self._call(f"look at {name}", lambda: self._log.end_offsets(names, IsolationLevel.READ_UNCOMMITTED))
        found = [ends[each] for each in names]
        if found != counts:
            raise Wrong(f"{name} has {counts} records, and the log says {found}")


def name_seed(seed: int) -> Naming:
    """Run a seed. Raises its error, with the plan and the last events as notes."""
    return run_virtual(lambda: Naming(draw_naming(seed)), seed)
