"""Topics that get more partitions under an app that runs, on a real Kafka."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ks_actors import TopologyError, UncaughtResponse
from ks_actors.dsl import Consumed, Produced, StreamsBuilder
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.log.kafka.admin._committed_offsets import fetch_committed
from ks_actors.serdes import BYTES
from ks_actors.topology import Topology
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.kafka.broker import Broker
from tests.kafka.counting import counting, ended
from tests.ks_actors.log.helpers import batch, read_all, read_until
from tests.waiting import until

GUARANTEES = [EXACTLY_ONCE, AT_LEAST_ONCE]


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_an_input_with_state_that_grows_ends_every_member_committed(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """By one error that names both topics, both numbers and the remedy, with any handler; all input before is committed."""
    async with counting(kafka_broker, guarantee, tmp_path) as here:
        asked: list[Exception] = []

        def handle(error: Exception) -> UncaughtResponse:
            asked.append(error)
            return UncaughtResponse.REPLACE_WORKER

        apps = [here.app(who, uncaught=handle) for who in ("one", "two")]
        for app in apps:
            await app.start()
        await here.through()
        await here.log.create_partitions({here.source: 3})
        errors = await asyncio.gather(*map(ended, apps))
        assert [type(error) for error in errors] == [TopologyError, TopologyError]
        assert {str(error) for error in errors} == {str(errors[0])}
        assert f"{here.changelog} has 2 partitions and needs 3, as many as {here.source} has" in str(errors[0])
        assert "ks-actors reset" in str(errors[0])
        assert len(asked) == 2
        found = await fetch_committed(here.log._client, here.name, [TopicPartition(here.source, number) for number in range(2)])
        assert [offset.offset for offset in found.values()] == [10, 10]


def passing_on(source: str, sink: str) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(source, Consumed(BYTES, BYTES))
    stream.to(sink, Produced(BYTES, BYTES, partitioner=lambda _topic, _key, _value, count: count - 1))
    return builder.build()


@pytest.mark.extended
@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_topics_without_state_grow_under_an_app(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """Partitions added to the input are read, and those added to the output are written to, by a partitioner that chooses among all."""
    async with (
        counting(kafka_broker, guarantee, tmp_path) as here,
        here.app("app", topology=passing_on(here.source, here.sink), metadata_max_age_ms=100, auto_offset_reset="latest"),
    ):
        await here.log.create_partitions({here.source: 3, here.sink: 4})
        producer = await here.log.producer(client_id="feeder")
        sent = 0

        async def passed_on() -> bool:
            nonlocal sent
            await producer.send([Outgoing(TopicPartition(here.source, 2), batch(b"%d" % sent))])
            sent += 1
            return bool(await read_all(here.log, TopicPartition(here.sink, 3)))

        await until(passed_on)
        await read_until(here.log, [TopicPartition(here.sink, number) for number in range(4)], lambda found: len(found) >= sent)
        await producer.close()
