"""Members that freeze, lose their tasks to a new owner, and go on: the broker refuses their work, and no reader sees any of it.

The zombie is a process of its own, stopped at exactly one point; whoever takes over is an app in the test.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, StreamsConfig
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.runtime import RestoreListener
from tests.chaos.app import count_topology
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE, Update, check_output, count_of
from tests.kafka.broker import Broker
from tests.kafka.counting import reached, read_updates
from tests.log.helpers import COMMITTED, UNCOMMITTED, batch, read_all
from tests.waiting import PATIENCE_S, SESSION_MS, until

PARTITIONS = 2

KEYS = [b"k%d" % number for number in range(6)]


class World:
    """A pair of topics, their input, and the counting members."""

    def __init__(self, log: KafkaLog, bootstrap: str, guarantee: str, directory: Path, transaction_ms: int) -> None:
        self.log = log
        self.guarantee = guarantee
        self.app_id = f"app-{uuid.uuid4().hex}"
        self.sources = [TopicPartition(f"in-{self.app_id}", number) for number in range(PARTITIONS)]
        self.sinks = [TopicPartition(f"out-{self.app_id}", number) for number in range(PARTITIONS)]
        self.fed: Counter[bytes] = Counter()
        self._bootstrap = bootstrap
        self._directory = directory
        self._transaction_ms = transaction_ms

    async def create(self) -> None:
        await self.log.create_topics([NewTopic(self.sources[0].topic, PARTITIONS), NewTopic(self.sinks[0].topic, PARTITIONS)])

    async def feed(self, each: int) -> None:
        """Write so many records of each key."""
        producer = await self.log.producer(client_id="feeder")
        for partition in self.sources:
            keys = [key for key in KEYS if int(key[1:]) % PARTITIONS == partition.partition] * each
            await producer.send([Outgoing(partition, batch(*[b"v"] * len(keys), keys=keys))])
            self.fed.update(keys)
        await producer.close()

    async def updates(self, isolation: IsolationLevel = COMMITTED) -> list[Update]:
        found: list[Update] = []
        for sink in self.sinks:
            found += [Update(sink.partition, key or b"", count_of(value), None) for _, key, value in await read_all(self.log, sink, isolation)]
        return found

    async def counted(self) -> None:
        """Wait until all that was fed is counted, and committed."""
        await read_updates(self.log, self.sinks, reached(self.fed))

    async def check(self) -> None:
        """Check that the output is as expected."""
        inputs = {key: list(range(count)) for key, count in self.fed.items()}
        assert check_output(inputs, await self.updates(), self.guarantee).violations == []

    def heir(self, listener: RestoreListener) -> App:
        """Return another member, in this process."""
        config = StreamsConfig(
            application_id=self.app_id, state_dir=self._directory / "heir", processing_guarantee=self.guarantee, commit_interval_ms=100,
            session_timeout_ms=SESSION_MS, transaction_timeout_ms=10_000,
        )  # fmt: skip
        return App(count_topology(self.sources[0].topic, self.sinks[0].topic), config, log=self.log, restore_listener=listener)

    def arguments(self, point: str) -> list[str]:
        """Return the command line of a zombie."""
        told = {
            "point": point, "bootstrap": self._bootstrap, "guarantee": self.guarantee, "input": self.sources[0].topic, "output": self.sinks[0].topic,
            "app-id": self.app_id, "session-timeout": str(SESSION_MS / 1000), "state-dir": str(self._directory / "zombie"),
            "transaction-ms": str(self._transaction_ms),
        }  # fmt: skip
        return [word for name, value in told.items() for word in (f"--{name}", value)]


class Zombie:
    """The process that stands still."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    async def heard(self, word: str) -> None:
        """Wait for its report."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while (line := await self._process.stdout.readline()).strip() != word.encode():
                assert line, f"the process has ended without {word!r}:\n{self.log()}"

    async def frozen(self) -> None:
        """Wait until it stands still."""
        await self.heard("frozen")
        await until(lambda: self._state() == "T")

    def _state(self) -> str:
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def arm(self) -> None:
        self._process.send_signal(signal.SIGUSR1)

    async def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        await self.heard("thawed")

    async def end(self) -> int:
        """Stop it as an operator would."""
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            return await self._process.wait()

    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()


class Taken(RestoreListener):
    """Note that tasks have come."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        self.begun.set()


@asynccontextmanager
async def world(broker: Broker, guarantee: str, directory: Path, *, transaction_ms: int = 10_000) -> AsyncIterator[World]:
    async with KafkaLog(broker.bootstrap) as log:
        made = World(log, broker.bootstrap, guarantee, directory, transaction_ms)
        await made.create()
        yield made


@asynccontextmanager
async def zombie(where: World, point: str, directory: Path) -> AsyncIterator[Zombie]:
    path = directory / f"{point}.log"
    with path.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.kafka.zombie", *where.arguments(point), stdout=asyncio.subprocess.PIPE, stderr=log
        )  # fmt: skip
    made = Zombie(process, path)
    try:
        yield made
    finally:
        made.kill()
        await process.wait()


async def frozen_at(where: World, undead: Zombie) -> None:
    """Have the zombie count for a while, and then stop at its point."""
    await undead.heard("running")
    await where.feed(10)
    await where.counted()
    undead.arm()
    await where.feed(10)
    await undead.frozen()


async def heirs_end(app: App, starting: asyncio.Task[Any]) -> None:
    await starting
    await app.close()


@pytest.mark.parametrize(
    ("guarantee", "point"), [(EXACTLY_ONCE, "commit"), (EXACTLY_ONCE, "keep"), (AT_LEAST_ONCE, "commit"), (AT_LEAST_ONCE, "keep")]
)
async def test_a_member_that_was_overtaken_commits_nothing_more(kafka_broker: Broker, tmp_path: Path, guarantee: str, point: str) -> None:
    """Frozen with work that is written and not committed, or committed and not stored, thawed when another one has counted on: it is refused."""
    async with world(kafka_broker, guarantee, tmp_path, transaction_ms=3_000) as here, zombie(here, point, tmp_path) as undead:
        await frozen_at(here, undead)
        app = here.heir(Taken())
        starting = asyncio.create_task(app.start())
        await here.feed(10)
        await here.counted()
        await here.check()
        await undead.thaw()
        await here.feed(10)
        await here.counted()
        await undead.heard("running")
        await here.feed(10)
        await here.counted()
        assert await undead.end() == 0
        await heirs_end(app, starting)
        await here.check()
        assert "all tasks are given up without a commit" in undead.log()


async def test_a_transaction_of_a_former_generation_is_refused(kafka_broker: Broker, tmp_path: Path) -> None:
    """Thawed while its transaction is still open: it fails by the group's generation, and the new owner has waited for that."""
    async with world(kafka_broker, EXACTLY_ONCE, tmp_path, transaction_ms=60_000) as here, zombie(here, "commit", tmp_path) as undead:
        await frozen_at(here, undead)
        taken = Taken()
        app = here.heir(taken)
        starting = asyncio.create_task(app.start())
        async with asyncio.timeout(PATIENCE_S):
            await taken.begun.wait()
        assert len(await here.updates(UNCOMMITTED)) > len(await here.updates())
        await undead.thaw()
        await here.feed(10)
        await here.counted()
        assert await undead.end() == 0
        await heirs_end(app, starting)
        await here.check()
        assert "cannot be committed for group" in undead.log()


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
async def test_a_member_that_was_thrown_out_in_a_rebalance_has_lost_its_tasks(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """Frozen when it had agreed to a rebalance: it comes back as another member, and commits nothing for the tasks that it had as the former one."""
    async with world(kafka_broker, guarantee, tmp_path) as here, zombie(here, "revoked", tmp_path) as undead:
        await undead.heard("running")
        await here.feed(10)
        await here.counted()
        undead.arm()
        app = here.heir(Taken())
        starting = asyncio.create_task(app.start())
        await undead.frozen()
        await here.feed(10)
        await here.counted()
        await undead.thaw()
        await here.feed(10)
        await undead.heard("running")
        await here.feed(10)
        await here.counted()
        assert await undead.end() == 0
        await heirs_end(app, starting)
        await here.check()
        assert "all tasks are given up without a commit" in undead.log()


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
async def test_a_member_that_was_overtaken_while_it_restored_counts_nothing(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """Its restored state is of no use any more when it is thawed: it begins anew."""
    async with world(kafka_broker, guarantee, tmp_path) as here:
        app = here.heir(Taken())
        await app.start()
        await here.feed(10)
        await here.counted()
        await app.close()
        async with zombie(here, "restore", tmp_path) as undead:
            await undead.frozen()
            app = here.heir(Taken())
            starting = asyncio.create_task(app.start())
            await here.feed(10)
            await here.counted()
            await undead.thaw()
            await here.feed(10)
            await undead.heard("running")
            await here.feed(10)
            await here.counted()
            assert await undead.end() == 0
            await heirs_end(app, starting)
            await here.check()
