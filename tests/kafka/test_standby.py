"""A member is killed, and the standbys of its tasks take over, on a real Kafka."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from ks_actors import App, TaskId
from ks_actors.log import TopicPartition
from ks_actors.runtime import RestoreListener, StandbyUpdateListener
from tests.chaos.checks import EXACTLY_ONCE
from tests.kafka.broker import Broker
from tests.kafka.counting import PARTITIONS, Counting, counting_as
from tests.kafka.helpers import module_process
from tests.ks_actors.log.helpers import COMMITTED, read_all
from tests.waiting import PATIENCE_S

# Longer than any machine keeps a member from its heartbeats: members on one machine see a dead process without it.
LONG_SESSION_MS = 60_000


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


class Stage(Counting):
    """Topics, their input, and the counting members."""

    keys = tuple(b"k%d" % number for number in range(2_000))

    def heir(self, heard: Heard) -> App:
        """Return the member that survives."""
        settings: dict[str, Any] = {
            "commit_interval_ms": 100,
            "session_timeout_ms": LONG_SESSION_MS,
            "transaction_timeout_ms": 10_000,
            "num_standby_replicas": 1,
        }
        return self.app("heir", listener=heard, **settings)

    def victim(self) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
        """Run the other member, in a process of its own."""
        words = self.words("victim", session_timeout=LONG_SESSION_MS / 1000, standbys=1)
        return module_process("tests.chaos.app", *words, log=self.directory / "victim.log")


async def test_the_standby_of_a_killed_member_takes_over(kafka_broker: Broker, tmp_path: Path) -> None:
    """It reads the records after its last read, not the changelog from its start; each record is counted once, in order."""
    async with counting_as(Stage, kafka_broker, EXACTLY_ONCE, tmp_path) as stage:
        heard, each = Heard(), len(stage.keys) // PARTITIONS
        app = stage.heir(heard)
        await app.start()
        await stage.feed(1)
        async with stage.victim() as victim:
            # The second member takes one of the tasks, and this one follows it.
            await heard.until(lambda: bool(heard.followed))
            for _ in range(4):
                await stage.through(1)
            (moved,) = heard.followed
            await heard.until(lambda: heard.loaded[moved] >= 3 * each)
            assert int(app.metrics()["standby-tasks"]) == int(app.metrics()["active-tasks"]) == 1
            heard.restored.clear()
            await stage.feed(1)
            victim.kill()
            await heard.until(lambda: moved in heard.restored)
        for _ in range(2):
            await stage.through(1)
        assert len(await read_all(stage.log, TopicPartition(stage.changelog, moved), COMMITTED)) >= 6 * each
        assert heard.starts[moved]
        # One round was under way when it was killed; at most that is left to be read.
        assert heard.restored[moved] <= each
        await app.close()
