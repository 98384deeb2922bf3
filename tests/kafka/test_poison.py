"""One app reads all that a real Kafka takes and no client would write: it goes on, record by record."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, Consumed, InstanceState, LogAndSkipOnInvalidTimestamp, Materialized, Produced, StreamsBuilder, StreamsConfig, TimeWindows
from ks_actors.log import NewTopic, TopicPartition
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.wire._error_codes import STALE_METADATA
from ks_actors.log.kafka.wire._produce_request import ProduceRequest
from ks_actors.serdes import STRING
from ks_actors.topology import Topology
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.kafka.broker import Broker
from tests.ks_actors.log.helpers import group_name, read_all
from tests.ks_actors.log.kafka.wire.poisons import LIMIT, Poison, made, poisons, record
from tests.waiting import soon

ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "message.timestamp.before.max.ms": str(2**63 - 1)}
WANTED = 80


class Poisoned:
    """Topics that have each poison between two good records, those of an app that reads them, and how many the broker took."""

    def __init__(self, log: KafkaLog) -> None:
        self.log = log
        self.name = group_name()
        self.events, self.table, self.world, self.out, self.letters = (f"{kind}-{self.name}" for kind in ("in", "table", "global", "out", "letters"))
        self.taken: list[str] = []
        self.refused: list[str] = []

    async def create(self) -> None:
        """Create the topics, and write to them."""
        topics = [NewTopic(name, 1, ANY_TIME) for name in (self.events, self.table, self.world, self.out, self.letters)]
        await self.log.create_topics(topics)
        for topic in (self.world, self.table, self.events):
            self.taken, self.refused = [], []
            for number, poison in enumerate(poisons()):
                await self._send(topic, Poison("", made(record(b"good-%d" % number, b"good"))))
                (self.taken if await self._send(topic, poison) else self.refused).append(poison.name)
            await self._send(topic, Poison("", made(record(b"good-last", b"good"))))

    async def _send(self, topic: str, poison: Poison) -> bool:
        request = ProduceRequest(None, -1, 10_000, [(topic, [(0, poison.raw)])])
        codes: list[int] = []

        def noted(answer: Any) -> list[int]:
            codes[:] = [code for _, partitions in answer.topics for _, code, *_ in partitions]
            # A topic that was just created has no leader yet: that is asked again; a refusal is what is to be found out.
            return [code if code in STALE_METADATA else 0 for code in codes]

        await self.log._client.send_to_leader(TopicPartition(topic, 0), request, noted)
        return codes == [0]

    def topology(self) -> Topology:
        """Read a stream that is counted by windows and joined, a table and a global table; each record read comes out under its key."""
        builder = StreamsBuilder()
        strings = Consumed(STRING, STRING, timestamp_extractor=LogAndSkipOnInvalidTimestamp())
        world = builder.global_table(self.world, strings, Materialized("world"))
        table = builder.table(self.table, strings, Materialized("table"))
        stream = builder.stream(self.events, strings)
        stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(60_000)).count()
        stream.select_key(lambda key, _: key, name="renamed").group_by_key().count(Materialized("counts"))
        joined = stream.left_join(table, lambda value, row: f"{value[:20]}+{(row or '')[:20]}").left_join(
            world, lambda key, _: key, lambda value, row: f"{value}+{(row or '')[:20]}"
        )
        joined.to(self.out, Produced(STRING, STRING))
        return builder.build()

    def app(self, directory: Path, guarantee: str, *, log: KafkaLog) -> App:
        settings = {
            "application_id": self.name, "state_dir": str(directory), "processing_guarantee": guarantee, "commit_interval_ms": 100,
            "deserialization_exception_handler": "continue", "processing_exception_handler": "continue", "production_exception_handler": "continue",
            "errors_dead_letter_queue_topic_name": self.letters, "default_key_serde": STRING, "default_value_serde": STRING,
        }  # fmt: skip
        return App(self.topology(), StreamsConfig.of(settings), log=log)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


@pytest.mark.extended
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
@pytest.mark.heavy("90 records, each with a dead letter of its own, four times")
async def test_no_record_that_a_broker_takes_stops_a_partition(
    kafka_broker: Broker, tmp_path: Path, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of some 90 is handled, as a stream, a table and a global table; the good ones behind come out, before and after a loss of the state."""
    caplog.set_level(logging.ERROR, "ks_actors")
    async with KafkaLog(kafka_broker.bootstrap, options=KafkaOptions(max_decompressed_bytes=LIMIT)) as log:
        here = Poisoned(log)
        await here.create()
        assert len(here.taken) >= WANTED, here.refused
        before = resident_bytes()
        good = [f"good-{number}" for number in range(len(here.taken) + len(here.refused))] + ["good-last"]
        for directory in ("first", "second"):
            async with here.app(tmp_path / directory, guarantee, log=log) as app:
                await soon(app.wait_until_caught_up())
                assert app.state is InstanceState.RUNNING
                for store in ("table", "world"):
                    missing = [key for key in good if await app.store(store).get(key) != "good"]
                    assert not missing, (store, missing)
        assert resident_bytes() - before < 30 * LIMIT
        written = {key for _, key, _ in await read_all(log, TopicPartition(here.out, 0))}
        assert {key.encode() for key in good} <= written
        letters = await read_all(log, TopicPartition(here.letters, 0))
        assert len(letters) >= len([name for name in here.taken if name.startswith("bomb")])
