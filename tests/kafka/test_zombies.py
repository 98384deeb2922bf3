"""Members that freeze, lose their tasks to a new owner, and go on: the broker refuses their work, and no reader sees any of it.

The zombie is a process of its own, stopped at exactly one point; whoever takes over is an app in the test.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App
from ks_actors.log import TopicPartition
from ks_actors.runtime import RestoreListener
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.kafka.broker import Broker
from tests.kafka.counting import Counting, counting_as
from tests.ks_actors.log.helpers import UNCOMMITTED
from tests.waiting import PATIENCE_S, SESSION_MS, until


class World(Counting):
    """A pair of topics, their input, and the counting members."""

    keys = tuple(b"k%d" % number for number in range(6))

    def heir(self, listener: RestoreListener) -> App:
        """Return another member, in this process."""
        settings: dict[str, Any] = {"commit_interval_ms": 100, "session_timeout_ms": SESSION_MS, "transaction_timeout_ms": 10_000}
        return self.app("heir", listener=listener, **settings)


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
async def zombie(where: World, point: str, directory: Path, transaction_ms: int = 10_000) -> AsyncIterator[Zombie]:
    path = directory / f"{point}.log"
    with path.open("ab") as log:
        words = where.words("zombie", point=point, session_timeout=SESSION_MS / 1000, transaction_ms=transaction_ms)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.kafka.zombie", *words, stdout=asyncio.subprocess.PIPE, stderr=log
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
    await where.through()
    undead.arm()
    await where.feed()
    await undead.frozen()


@pytest.mark.parametrize(
    ("guarantee", "point"), [(EXACTLY_ONCE, "commit"), (EXACTLY_ONCE, "keep"), (AT_LEAST_ONCE, "commit"), (AT_LEAST_ONCE, "keep")]
)
async def test_a_member_that_was_overtaken_commits_nothing_more(kafka_broker: Broker, tmp_path: Path, guarantee: str, point: str) -> None:
    """Frozen with work that is written and not committed, or committed and not stored, thawed when another one has counted on: it is refused."""
    async with counting_as(World, kafka_broker, guarantee, tmp_path) as here, zombie(here, point, tmp_path, 3_000) as undead:
        await frozen_at(here, undead)
        app = here.heir(Taken())
        starting = asyncio.create_task(app.start())
        await here.through()
        await undead.thaw()
        await here.through()
        await undead.heard("running")
        await here.through()
        assert await undead.end() == 0
        await starting
        await app.close()
        await here.counted()
        assert "all tasks are closed without a commit" in undead.log()


async def test_a_transaction_of_a_former_generation_is_refused(kafka_broker: Broker, tmp_path: Path) -> None:
    """Thawed while its transaction is still open: it fails by the group's generation, and the new owner has waited for that."""
    async with counting_as(World, kafka_broker, EXACTLY_ONCE, tmp_path) as here, zombie(here, "commit", tmp_path, 60_000) as undead:
        await frozen_at(here, undead)
        taken = Taken()
        app = here.heir(taken)
        starting = asyncio.create_task(app.start())
        async with asyncio.timeout(PATIENCE_S):
            await taken.begun.wait()
        assert len(await here.updates(UNCOMMITTED)) > len(await here.updates())
        await undead.thaw()
        await here.through()
        assert await undead.end() == 0
        await starting
        await app.close()
        await here.counted()
        assert "cannot be committed for group" in undead.log()


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
async def test_a_member_that_was_thrown_out_in_a_rebalance_has_lost_its_tasks(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """Frozen when it had agreed to a rebalance: it comes back as another member, and commits nothing for the tasks that it had as the former one."""
    async with counting_as(World, kafka_broker, guarantee, tmp_path) as here, zombie(here, "revoked", tmp_path) as undead:
        await undead.heard("running")
        await here.through()
        undead.arm()
        app = here.heir(Taken())
        starting = asyncio.create_task(app.start())
        await undead.frozen()
        await here.through()
        await undead.thaw()
        await here.feed()
        await undead.heard("running")
        await here.through()
        assert await undead.end() == 0
        await starting
        await app.close()
        await here.counted()
        assert "all tasks are closed without a commit" in undead.log()


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
async def test_a_member_that_was_overtaken_while_it_restored_counts_nothing(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """Its restored state is of no use any more when it is thawed: it begins anew."""
    async with counting_as(World, kafka_broker, guarantee, tmp_path) as here:
        app = here.heir(Taken())
        await app.start()
        await here.through()
        await app.close()
        async with zombie(here, "restore", tmp_path) as undead:
            await undead.frozen()
            app = here.heir(Taken())
            starting = asyncio.create_task(app.start())
            await here.through()
            await undead.thaw()
            await here.feed()
            await undead.heard("running")
            await here.through()
            assert await undead.end() == 0
            await starting
            await app.close()
            await here.counted()
