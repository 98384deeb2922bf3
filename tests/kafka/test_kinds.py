"""Session stores and stores of the user's own on a real Kafka: a kill, a standby that takes over, and a disk that is lost."""

from __future__ import annotations

import asyncio
import shutil
import time
import uuid
from collections import Counter
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from ks_actors import App, Batch
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE, check_output, count_of
from tests.kafka.broker import Broker
from tests.kafka.counting import read_updates
from tests.kafka.helpers import module_process
from tests.kafka.kinds import KINDS, config_of, topology_of
from tests.kafka.test_standby import Heard
from tests.log.helpers import Read

PARTITIONS = 2

KEYS = [b"k%d" % number for number in range(300)]


class Stage:
    """Topics, their input, and the counting members."""

    def __init__(self, kind: str, guarantee: str, log: KafkaLog, bootstrap: str, directory: Path) -> None:
        self.kind = kind
        self.guarantee = guarantee
        self.log = log
        self.bootstrap = bootstrap
        self.directory = directory
        self.name = f"app-{uuid.uuid4().hex}"
        self.source, self.sink = f"in-{self.name}", f"out-{self.name}"
        self.fed: Counter[bytes] = Counter()
        self.began = time.time_ns() // 1_000_000  # brokers delete what is older than a session may be

    async def feed(self) -> None:
        """Write a record of each key, later than those before."""
        producer = await self.log.producer(client_id="feeder")
        first = self.began + self.fed.total()
        for number in range(PARTITIONS):
            keys = [key for key in KEYS if int(key[1:]) % PARTITIONS == number]
            batch = Batch(list(keys), [b"v"] * len(keys), list(range(first, first + len(keys))))
            await producer.send([Outgoing(TopicPartition(self.source, number), batch)])
        self.fed.update(KEYS)
        await producer.close()

    async def counted(self) -> None:
        """Wait until all that was fed is counted, and check that it is: each once, in order, under exactly once.

        At least once what a killed member had written, and not committed, is counted again: then counts are higher.
        """
        exact = self.guarantee == EXACTLY_ONCE

        def there(found: list[Read]) -> bool:
            last = {each.key or b"": count_of(each.value) or 0 for each in found}
            return len(found) >= self.fed.total() and (last == self.fed if exact else self.fed <= Counter(last))

        updates = await read_updates(self.log, [TopicPartition(self.sink, number) for number in range(PARTITIONS)], there)
        inputs = {key: list(range(count)) for key, count in self.fed.items()}
        assert check_output(inputs, updates, self.guarantee).violations == []

    def app(self, heard: Heard) -> App:
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
    async with KafkaLog(kafka_broker.bootstrap) as log:
        stage, heard = Stage(kind, guarantee, log, kafka_broker.bootstrap, tmp_path), Heard()
        await log.create_topics([NewTopic(name, PARTITIONS) for name in (stage.source, stage.sink)])
        app = stage.app(heard)
        await app.start()
        await stage.feed()
        async with stage.victim() as victim:
            await heard.until(lambda: bool(heard.followed))
            for _ in range(3):
                await stage.feed()
                await stage.counted()
            (moved,) = heard.followed
            await heard.until(lambda: heard.loaded[moved] >= len(KEYS) // PARTITIONS)
            heard.restored.clear()
            await stage.feed()
            victim.kill()
            await heard.until(lambda: moved in heard.restored)
        assert heard.starts[moved]
        await stage.feed()
        await stage.counted()
        await app.close()
        shutil.rmtree(tmp_path / "heir")
        lost = Heard()
        app = stage.app(lost)
        await app.start()
        assert all(lost.restored[number] >= len(KEYS) // PARTITIONS for number in range(PARTITIONS))
        await stage.feed()
        await stage.counted()
        await app.close()
