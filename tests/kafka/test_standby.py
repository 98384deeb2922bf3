"""A member is killed, and the standbys of its tasks take over, on a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING

import pytest

from ks_actors import App, StreamsConfig
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.runtime import RestoreListener, StandbyUpdateListener, SuspendReason
from tests.chaos.app import count_topology
from tests.chaos.checks import EXACTLY_ONCE, Update, check_output, count_of
from tests.kafka.helpers import module_process
from tests.log.helpers import COMMITTED, batch, read_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from ks_actors import TaskId
    from tests.kafka.broker import Broker

PARTITIONS = 2
PATIENCE_S = 60
SESSION_S = 1.5
KEYS = [b"k%d" % number for number in range(2_000)]


class Heard(RestoreListener, StandbyUpdateListener):
    """The places of standbys, restored stores, and the time when a standby became a task."""

    def __init__(self) -> None:
        self.followed: set[int] = set()
        self.loaded: Counter[int] = Counter()
        self.starts: dict[int, int | None] = {}
        self.restored: dict[int, int] = {}
        self.promoted: dict[int, float] = {}
        self.took: dict[int, float] = {}
        self._changed = asyncio.Event()

    def on_update_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        self.followed.add(partition.partition)
        self._changed.set()

    def on_batch_loaded(self, partition: TopicPartition, store: str, task: TaskId, end: int, count: int, current_end: int) -> None:
        self.loaded[partition.partition] += count
        self._changed.set()

    def on_update_suspended(self, partition: TopicPartition, store: str, offset: int, current_end: int, reason: SuspendReason) -> None:
        if reason is SuspendReason.PROMOTED:
            self.promoted[partition.partition] = perf_counter()

    def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        self.starts[partition.partition] = start

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        self.restored[partition.partition] = total
        self.took[partition.partition] = perf_counter() - self.promoted.get(partition.partition, perf_counter())
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

    async def updates(self) -> list[Update]:
        return [
            Update(sink.partition, key or b"", count_of(value), None)
            for sink in self.sinks
            for _, key, value in await read_all(self.log, sink, COMMITTED)
        ]

    async def counted(self) -> list[Update]:
        """Wait until all that was fed is counted, and committed; return all counts."""
        async with asyncio.timeout(PATIENCE_S):
            while len(found := await self.updates()) < self.fed.total():
                await asyncio.sleep(0)
        return found

    def app(self, heard: Heard) -> App:
        """Return the member that survives."""
        config = StreamsConfig(
            application_id=self.app_id, state_dir=self._directory / "heir", processing_guarantee=EXACTLY_ONCE, commit_interval_ms=100,
            session_timeout_ms=int(SESSION_S * 1000), transaction_timeout_ms=10_000, num_standby_replicas=1,
        )  # fmt: skip
        return App(count_topology(self.sources[0].topic, self.sinks[0].topic), config, log=self.log, restore_listener=heard, standby_listener=heard)

    def victim(self) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
        """Run the other member, in a process of its own."""
        told = {
            "bootstrap": self._bootstrap, "guarantee": EXACTLY_ONCE, "input": self.sources[0].topic, "output": self.sinks[0].topic,
            "app-id": self.app_id, "session-timeout": str(SESSION_S), "state-dir": str(self._directory / "victim"), "standbys": "1",
        }  # fmt: skip
        words = [word for name, value in told.items() for word in (f"--{name}", value)]
        return module_process("tests.chaos.app", *words, log=self._directory / "victim.log")


@pytest.mark.timeout(180)
async def test_the_standby_of_a_killed_member_takes_over(kafka_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
            killed = perf_counter()
            victim.kill()
            await heard.until(lambda: moved in heard.restored)
            took = perf_counter() - killed
        for _ in range(2):
            await stage.feed()
            updates = await stage.counted()
        inputs = {key: list(range(count)) for key, count in stage.fed.items()}
        assert check_output(inputs, updates, EXACTLY_ONCE).violations == []
        changelog = TopicPartition(f"{stage.app_id}-counts-changelog", moved)
        length = len(await read_all(log, changelog, COMMITTED))
        assert length >= 6 * len(KEYS) // PARTITIONS
        assert heard.starts[moved]
        # One round was under way when it was killed; at most that is left to be read.
        assert heard.restored[moved] <= len(KEYS) // PARTITIONS
        with capsys.disabled():
            print(  # noqa: T201 - the figure
                f"\nthe standby was a task {took:.2f} s after the kill, {heard.took[moved]:.3f} s after it was told; "
                f"{heard.restored[moved]} of {length} changelog records were read"
            )
        assert heard.took[moved] < 10
        await app.close()
