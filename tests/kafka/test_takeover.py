"""An application moves between Kafka Streams and this package, with all it has."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, Batch, Consumed, Materialized, Produced, SessionWindows, StreamsBuilder, StreamsConfig
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.records._partitioner import partition
from ks_actors.serdes import BYTES, LONG
from ks_actors.topology import Topology
from tests.kafka.broker import Broker
from tests.kafka.helpers import connect
from tests.kafka.programs import command
from tests.waiting import PATIENCE_S

PARTITIONS = 2
RECORDS = 2_000
SESSION_BYTES = 16


def count(source: str, sink: str, gap_ms: int | None) -> Topology:
    """The work of CountApp.java."""
    builder = StreamsBuilder()
    grouped = builder.stream(source, Consumed(BYTES, BYTES)).group_by_key()
    if gap_ms is None:
        counts = grouped.count(Materialized("counts", BYTES, LONG)).to_stream()
    else:
        sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(gap_ms, gap_ms)).count(Materialized("counts", BYTES, LONG))
        counts = sessions.to_stream(lambda session, _: session.key).filter(lambda _, value: value is not None)
    counts.to(sink, Produced(BYTES, LONG))
    return builder.build()


class Stage:
    """Topics of an application, its input, and its output."""

    def __init__(self, broker: Broker, log: KafkaLog, guarantee: str, directory: Path, gap_ms: int | None) -> None:
        self.gap_ms = gap_ms
        self.broker = broker
        self.log = log
        self.guarantee = guarantee
        self.directory = directory
        self.name = f"count-{uuid.uuid4().hex[:8]}"
        self.source, self.sink = f"{self.name}-in", f"{self.name}-out"
        self.given: Counter[bytes] = Counter()
        self._random = random.Random(7)
        self._time = time.time_ns() // 1_000_000  # brokers delete what is older than a session may be

    async def feed(self) -> None:
        """Write records of a few keys."""
        producer = await self.log.producer(client_id="feed")
        keys = [b"k%d" % self._random.randrange(50) for _ in range(RECORDS)]
        self.given.update(keys)
        for number in range(PARTITIONS):
            mine = [key for key in keys if partition(key, PARTITIONS) == number]
            times = range(self._time, self._time + len(mine))
            await producer.send([Outgoing(TopicPartition(self.source, number), Batch(list(mine), [b"v"] * len(mine), list(times)))])
        self._time += RECORDS
        await producer.close()

    async def read(self, topic: str, least: int) -> dict[bytes, list[int]]:
        """Read at least so many records, and all there are; return the values of each key in order."""
        found: dict[bytes, list[int]] = {}
        fetcher = self.log.fetcher(client_id="reader", isolation=IsolationLevel.READ_COMMITTED)
        fetcher.assign(dict.fromkeys((TopicPartition(topic, number) for number in range(PARTITIONS)), 0))
        total, quiet = 0, False
        async with asyncio.timeout(PATIENCE_S):
            while total < least or not quiet:
                fetched = await fetcher.fetch(max_wait_ms=500)
                quiet = not fetched
                for one in fetched:
                    total += len(one.batch)
                    for key, value in zip(one.batch.keys, one.batch.values, strict=True):
                        assert key is not None
                        if value is None:  # a session that has grown, in its changelog
                            continue
                        if self.gap_ms is not None and topic != self.sink:
                            key = key[:-SESSION_BYTES]  # noqa: PLW2901 - behind it are end and start
                        found.setdefault(key, []).append(int.from_bytes(value, "big"))
        await fetcher.close()
        return found

    async def check(self) -> None:
        """Each count came once, in order; the changelog has the last ones."""
        out = await self.read(self.sink, self.given.total())
        assert out == {key: list(range(1, number + 1)) for key, number in self.given.items()}
        changelog = await self.read(f"{self.name}-counts-changelog", len(self.given))
        assert {key: values[-1] for key, values in changelog.items()} == self.given

    @asynccontextmanager
    async def kafka_streams(self) -> AsyncIterator[None]:
        """Run CountApp.java for as long as the block lasts; it has to end well."""
        options = {"bootstrap": self.broker.bootstrap, "guarantee": self.guarantee, "input": self.source, "output": self.sink, "app-id": self.name}
        options["state-dir"] = str(self.directory / "java")
        options |= {} if self.gap_ms is None else {"gap": str(self.gap_ms)}
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        process = await asyncio.create_subprocess_exec(
            *await asyncio.to_thread(command), *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        assert process.stdout is not None
        said = asyncio.ensure_future(process.stdout.read())
        try:
            yield
            process.terminate()
            async with asyncio.timeout(PATIENCE_S):
                assert await process.wait() == 0, (await said).decode()
        finally:
            if process.returncode is None:
                process.kill()
            await said

    @asynccontextmanager
    async def ours(self) -> AsyncIterator[None]:
        """Run the same here."""
        config: Any = {"processing_guarantee": self.guarantee}
        settings = StreamsConfig(application_id=self.name, state_dir=self.directory / "python", commit_interval_ms=100, **config)
        async with App(count(self.source, self.sink, self.gap_ms), settings, log=self.log):
            yield


@pytest.mark.extended
@pytest.mark.heavy("processes in Java")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("gap_ms", [None, 10_000], ids=["counts", "sessions"])
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
async def test_an_application_is_continued_by_the_other_implementation(
    kafka_broker: Broker, tmp_path: Path, guarantee: str, gap_ms: int | None
) -> None:
    """Kafka Streams counts, this package goes on from its changelog and offsets, and Kafka Streams again: each count once, in order.

    The sessions of all keys go on from one to the other.
    """
    log = await connect(kafka_broker)
    stage = Stage(kafka_broker, log, guarantee, tmp_path, gap_ms)
    await log.create_topics([NewTopic(stage.source, PARTITIONS), NewTopic(stage.sink, PARTITIONS)])
    for running in (stage.kafka_streams, stage.ours, stage.kafka_streams, stage.ours):
        await stage.feed()
        async with running():
            await stage.read(stage.sink, stage.given.total())
        await stage.check()
    await log.close()
