"""A whole app on a real Kafka that counts per key, its input, and its expected output."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ks_actors import App, StreamsConfig
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.runtime.shared._uncaught import shut_down
from tests.chaos.app import count_topology
from tests.chaos.checks import Update, check_output, count_of
from tests.log.helpers import batch, group_name, read_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ks_actors import InstanceState
    from ks_actors.runtime.shared._uncaught import UncaughtHandler
    from ks_actors.topology import Topology
    from tests.kafka.broker import Broker
    from tests.kafka.cluster import Cluster

PARTITIONS = 2
PATIENCE_S = 40


class Counting:
    """A pair of topics, their input, and apps that count it."""

    def __init__(self, log: KafkaLog, guarantee: str, directory: Path) -> None:
        self.log = log
        self.guarantee = guarantee
        self.name = group_name()
        self.source, self.sink, self.changelog = f"in-{self.name}", f"out-{self.name}", f"{self.name}-counts-changelog"
        self.fed: Counter[bytes] = Counter()
        self._directory = directory

    async def create(self) -> None:
        await self.log.create_topics([NewTopic(self.source, PARTITIONS), NewTopic(self.sink, PARTITIONS)])

    async def feed(self, count: int = 10, value: bytes = b"v") -> None:
        """Write records to each partition."""
        producer = await self.log.producer(client_id="feeder")
        for number in range(PARTITIONS):
            key = b"k%d" % number
            await producer.send([Outgoing(TopicPartition(self.source, number), batch(*[value] * count, keys=[key] * count))])
            self.fed[key] += count
        await producer.close()

    def app(
        self,
        who: str,
        states: list[InstanceState] | None = None,
        *,
        log: KafkaLog | None = None,
        own_log: bool = False,
        topology: Topology | None = None,
        uncaught: UncaughtHandler = shut_down,
        **settings: Any,
    ) -> App:
        """Return an app with state of its own, which notes the states that it goes through; with `own_log` it finds Kafka by its settings."""
        config = StreamsConfig.of(
            {
                "application_id": self.name, "client_id": who, "state_dir": str(self._directory / who), "processing_guarantee": self.guarantee,
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
        )

    async def updates(self) -> list[Update]:
        """Return the committed output."""
        found: list[Update] = []
        for number in range(PARTITIONS):
            records = await read_all(self.log, TopicPartition(self.sink, number))
            found += [Update(number, key or b"", count_of(value), None) for _, key, value in records]
        return found

    async def counted(self) -> None:
        """Wait until all is counted, and committed; check that it was counted as is promised."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                finals: Counter[bytes] = Counter()
                updates = await self.updates()
                for update in updates:
                    finals[update.key] = max(finals[update.key], update.total or 0)
                if all(finals[key] >= count for key, count in self.fed.items()):
                    break
                await asyncio.sleep(0)
        assert check_output({key: list(range(count)) for key, count in self.fed.items()}, updates, self.guarantee).violations == []


@asynccontextmanager
async def counting(broker: Broker | Cluster, guarantee: str, directory: Path) -> AsyncIterator[Counting]:
    async with KafkaLog(broker.bootstrap) as log:
        made = Counting(log, guarantee, directory)
        await made.create()
        yield made


async def ended(app: App) -> Exception | None:
    """Wait until an app ends by itself; return its error."""
    async with asyncio.timeout(PATIENCE_S):
        (outcome,) = await asyncio.gather(app.run(), return_exceptions=True)
    assert outcome is app.error
    return app.error
