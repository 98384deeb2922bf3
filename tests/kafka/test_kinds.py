"""Session stores and stores of the user's own on a real Kafka: a kill, a standby that takes over, and a disk that is lost."""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from ks_actors import App, Batch
from ks_actors.log import Outgoing, TopicPartition
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.kafka.broker import Broker
from tests.kafka.counting import PARTITIONS, Counting, counting_as
from tests.kafka.helpers import module_process
from tests.kafka.kinds import KINDS, config_of, topology_of
from tests.kafka.test_standby import Heard


class Stage(Counting):
    """Topics, their input, and the members that count it in a store of one kind."""

    keys = tuple(b"k%d" % number for number in range(300))
    kind: str
    began = time.time_ns() // 1_000_000  # brokers delete what is older than a session may be

    async def feed(self, count: int = 1, value: bytes = b"v") -> None:
        """Write a record of each key, later than those before."""
        producer = await self.log.producer(client_id="feeder")
        first = self.began + self.fed.total()
        for number in range(PARTITIONS):
            keys = [key for key in self.keys if int(key[1:]) % PARTITIONS == number] * count
            batch = Batch(list(keys), [value] * len(keys), list(range(first, first + len(keys))))
            await producer.send([Outgoing(TopicPartition(self.source, number), batch)])
            self.fed.update(keys)
        await producer.close()

    def heir(self, heard: Heard) -> App:
        config = config_of(self.name, str(self.directory / "heir"), self.guarantee)
        return App(topology_of(self.kind, self.source, self.sink), config, log=self.log, restore_listener=heard, standby_listener=heard)

    def victim(self) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
        """Run the other member, in a process of its own."""
        words = (self.kind, self.bootstrap, self.name, self.source, self.sink, str(self.directory / "victim"), self.guarantee)
        return module_process("tests.kafka.kinds", *words, log=self.directory / "victim.log")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_killed_member_a_standby_and_a_lost_disk(kafka_broker: Broker, tmp_path: Path, kind: str, guarantee: str) -> None:
    """The standby goes on at its position, not at the changelog's start; a member without a disk restores all of it: nothing is lost, or doubled."""
    async with counting_as(Stage, kafka_broker, guarantee, tmp_path) as stage:
        stage.kind = kind
        heard, each = Heard(), len(stage.keys) // PARTITIONS
        app = stage.heir(heard)
        await app.start()
        await stage.feed()
        async with stage.victim() as victim:
            await heard.until(lambda: bool(heard.followed))
            for _ in range(3):
                await stage.through(1)
            (moved,) = heard.followed
            await heard.until(lambda: heard.loaded[moved] >= each)
            heard.restored.clear()
            await stage.feed()
            victim.kill()
            await heard.until(lambda: moved in heard.restored)
        assert heard.starts[moved]
        await stage.through(1)
        await app.close()
        shutil.rmtree(tmp_path / "heir")
        lost = Heard()
        app = stage.heir(lost)
        await app.start()
        assert all(lost.restored[number] >= each for number in range(PARTITIONS))
        await stage.through(1)
        await app.close()
