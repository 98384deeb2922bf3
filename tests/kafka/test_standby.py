"""A member is killed, and the standbys of its tasks take over, on a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from ks_actors import App, StreamsConfig, TaskId
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.runtime import RestoreListener, StandbyUpdateListener
from tests.chaos.app import count_topology
from tests.chaos.checks import EXACTLY_ONCE, Update, check_output
from tests.kafka.broker import Broker
from tests.kafka.counting import read_updates
from tests.kafka.helpers import module_process
from tests.log.helpers import COMMITTED, batch, read_all
from tests.waiting import PATIENCE_S, SESSION_MS

PARTITIONS = 2

KEYS = [b"k%d" % number for number in range(2_000)]


class Heard(RestoreListener, StandbyUpdateListener):
    """The places of standbys, and restored stores."""

    def __init__(self) -> None:
        self.followed: set[int] = set()
        self.loaded: Counter[int] = Counter()
        self.starts: dict[int, int | None] = {}
        self.restored: dict[int, int] = {}
        self._changed = asyncio.Event()

    def on_update_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        self.followed.add(partition.partition)
        self._changed.set()

    def on_batch_loaded(self, partition: TopicPartition, store: str, task: TaskId, end: int, count: int, current_end: int) -> None:
        self.loaded[partition.partition] += count
        self._changed.set()

    def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        self.starts[partition.partition] = start

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        self.restored[partition.partition] = total
        self._changed.set()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                self._changed.clear()
                await self._changed.wait()


class Stage:
    """Topics, their input, and the counting members."""

    def __init__(self, log: KafkaLog, bootstrap: str, directory: Path) -> None:
        self.log = log
        self.app_id = f"app-{uuid.uuid4().hex}"
        self.sources = [TopicPartition(f"in-{self.app_id}", number) for number in range(PARTITIONS)]
        self.sinks = [TopicPartition(f"out-{self.app_id}", number) for number in range(PARTITIONS)]
        self.fed: Counter[bytes] = Counter()
        self._bootstrap = bootstrap
        self._directory = directory

    async def feed(self) -> None:
        """Write a record of each key."""
        producer = await self.log.producer(client_id="feeder")
        for partition in self.sources:
            keys = [key for key in KEYS if int(key[1:]) % PARTITIONS == partition.partition]
            await producer.send([Outgoing(partition, batch(*[b"v"] * len(keys), keys=keys))])
            self.fed.update(keys)
        await producer.close()

    async def counted(self) -> list[Update]:
        """Wait until all that was fed is counted, and committed; return all counts."""
        return await read_updates(self.log, self.sinks, lambda found: len(found) >= self.fed.total())

    def app(self, heard: Heard) -> App:
        """Return the member that survives."""
        config = StreamsConfig(
            application_id=self.app_id, state_dir=self._directory / "heir", processing_guarantee=EXACTLY_ONCE, commit_interval_ms=100,
            session_timeout_ms=SESSION_MS, transaction_timeout_ms=10_000, num_standby_replicas=1,
        )  # fmt: skip
        return App(count_topology(self.sources[0].topic, self.sinks[0].topic), config, log=self.log, restore_listener=heard, standby_listener=heard)

    def victim(self) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
        """Run the other member, in a process of its own."""
        told = {
            "bootstrap": self._bootstrap, "guarantee": EXACTLY_ONCE, "input": self.sources[0].topic, "output": self.sinks[0].topic,
            "app-id": self.app_id, "session-timeout": str(SESSION_MS / 1000), "state-dir": str(self._directory / "victim"), "standbys": "1",
        }  # fmt: skip
        words = [word for name, value in told.items() for word in (f"--{name}", value)]
        return module_process("tests.chaos.app", *words, log=self._directory / "victim.log")


async def test_the_standby_of_a_killed_member_takes_over(kafka_broker: Broker, tmp_path: Path) -> None:
    """It reads the records after its last read, not the changelog from its start; each record is counted once, in order."""
    async with KafkaLog(kafka_broker.bootstrap) as log:
        stage, heard = Stage(log, kafka_broker.bootstrap, tmp_path), Heard()
        await log.create_topics([NewTopic(each[0].topic, PARTITIONS) for each in (stage.sources, stage.sinks)])
        app = stage.app(heard)
        await app.start()
        await stage.feed()
        async with stage.victim() as victim:
            # The second member takes one of the tasks, and this one follows it.
            await heard.until(lambda: bool(heard.followed))
            for _ in range(4):
                await stage.feed()
                await stage.counted()
            (moved,) = heard.followed
            await heard.until(lambda: heard.loaded[moved] >= 3 * len(KEYS) // PARTITIONS)
            assert int(app.metrics()["standby-tasks"]) == int(app.metrics()["active-tasks"]) == 1
            heard.restored.clear()
            await stage.feed()
            victim.kill()
            await heard.until(lambda: moved in heard.restored)
        for _ in range(2):
            await stage.feed()
            updates = await stage.counted()
        inputs = {key: list(range(count)) for key, count in stage.fed.items()}
        assert check_output(inputs, updates, EXACTLY_ONCE).violations == []
        changelog = TopicPartition(f"{stage.app_id}-counts-changelog", moved)
        assert len(await read_all(log, changelog, COMMITTED)) >= 6 * len(KEYS) // PARTITIONS
        assert heard.starts[moved]
        # One round was under way when it was killed; at most that is left to be read.
        assert heard.restored[moved] <= len(KEYS) // PARTITIONS
        await app.close()
