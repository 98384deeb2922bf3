"""A whole app on a real Kafka that counts per key, its input, and its expected output."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from ks_actors import App, InstanceState, StreamsConfig
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.runtime import StandbyUpdateListener
from ks_actors.runtime.shared._uncaught import UncaughtHandler, shut_down
from ks_actors.topology import Topology
from tests.chaos.app import count_topology
from tests.chaos.checks import Update, check_output, count_of
from tests.kafka.broker import Broker
from tests.kafka.cluster import Cluster
from tests.ks_actors.log.helpers import COMMITTED, Read, batch, group_name, read_all, read_until
from tests.waiting import soon

PARTITIONS = 2


async def read_updates(log: KafkaLog, partitions: Sequence[TopicPartition], enough: Callable[[list[Read]], object] = lambda _: True) -> list[Update]:
    """Return the committed output, once there is enough."""
    return [Update(each.partition.partition, each.key or b"", count_of(each.value), None) for each in await read_until(log, partitions, enough)]


def reached(fed: Mapping[bytes, int]) -> Callable[[list[Read]], bool]:
    """Return whether each key has its count, or more."""

    def there(found: list[Read]) -> bool:
        finals: Counter[bytes] = Counter()
        for each in found:
            key = each.key or b""
            finals[key] = max(finals[key], count_of(each.value) or 0)
        return finals >= Counter(fed)

    return there


class Counting:
    """A pair of topics, their input, and apps that count it."""

    keys: Sequence[bytes] = (b"k0", b"k1")
    partitions: int = PARTITIONS

    def __init__(self, log: KafkaLog, bootstrap: str, guarantee: str, directory: Path) -> None:
        self.log = log
        self.bootstrap = bootstrap
        self.guarantee = guarantee
        self.name = group_name()
        self.source, self.sink, self.changelog = f"in-{self.name}", f"out-{self.name}", f"{self.name}-counts-changelog"
        self.fed: Counter[bytes] = Counter()
        self.directory = directory

    async def create(self) -> None:
        await self.log.create_topics([NewTopic(self.source, self.partitions), NewTopic(self.sink, self.partitions)])

    async def feed(self, count: int = 10, value: bytes = b"v") -> None:
        """Write so many records of each key."""
        producer = await self.log.producer(client_id="feeder")
        for number in range(self.partitions):
            keys = [key for key in self.keys if int(key[1:]) % self.partitions == number] * count
            await producer.send([Outgoing(TopicPartition(self.source, number), batch(*[value] * len(keys), keys=keys))])
            self.fed.update(keys)
        await producer.close()

    async def through(self, count: int = 10, value: bytes = b"v") -> None:
        """Write records, and wait until all are counted."""
        await self.feed(count, value)
        await self.counted()

    def app(
        self,
        who: str,
        states: list[InstanceState] | None = None,
        *,
        log: KafkaLog | None = None,
        own_log: bool = False,
        topology: Topology | None = None,
        uncaught: UncaughtHandler = shut_down,
        listener: Any = None,
        **settings: Any,
    ) -> App:
        """Return an app with state of its own, which notes the states that it goes through; with `own_log` it finds Kafka by its settings."""
        config = StreamsConfig.of(
            {
                "application_id": self.name, "client_id": who, "state_dir": str(self.directory / who), "processing_guarantee": self.guarantee,
                "commit_interval_ms": 50, "session_timeout_ms": 30_000, **settings,
            }
        )  # fmt: skip
        noted = [] if states is None else states
        given = None if own_log else log or self.log
        return App(
            topology or count_topology(self.source, self.sink),
            config,
            log=given,
            on_state=lambda new, _: noted.append(new),
            uncaught_handler=uncaught,
            restore_listener=listener,
            standby_listener=listener if isinstance(listener, StandbyUpdateListener) else None,
        )

    def words(self, who: str, **options: object) -> list[str]:
        """Return the command line of a member in a process of its own."""
        told = {
            "bootstrap": self.bootstrap, "guarantee": self.guarantee, "input": self.source, "output": self.sink, "app-id": self.name,
            "state-dir": self.directory / who, **{name.replace("_", "-"): value for name, value in options.items()},
        }  # fmt: skip
        return [word for name, value in told.items() for word in (f"--{name}", str(value))]

    def _sinks(self) -> list[TopicPartition]:
        return [TopicPartition(self.sink, number) for number in range(self.partitions)]

    async def updates(self, isolation: IsolationLevel = COMMITTED) -> list[Update]:
        """Return the output."""
        found = [(sink.partition, row) for sink in self._sinks() for row in await read_all(self.log, sink, isolation)]
        return [Update(number, key or b"", count_of(value), None) for number, (_, key, value) in found]

    async def counted(self) -> None:
        """Wait until all is counted, and committed; check that it was counted as is promised."""
        updates = await read_updates(self.log, self._sinks(), reached(self.fed))
        assert check_output({key: list(range(count)) for key, count in self.fed.items()}, updates, self.guarantee).violations == []


C = TypeVar("C", bound=Counting)


@asynccontextmanager
async def counting_as(kind: type[C], broker: Broker | Cluster, guarantee: str, directory: Path) -> AsyncIterator[C]:
    async with KafkaLog(broker.bootstrap) as log:
        made = kind(log, broker.bootstrap, guarantee, directory)
        await made.create()
        yield made


def counting(broker: Broker | Cluster, guarantee: str, directory: Path) -> AbstractAsyncContextManager[Counting]:
    return counting_as(Counting, broker, guarantee, directory)


async def ended(app: App) -> Exception | None:
    """Wait until an app ends by itself; return its error."""
    (outcome,) = await soon(asyncio.gather(app.run(), return_exceptions=True))
    assert outcome is app.error
    return app.error
