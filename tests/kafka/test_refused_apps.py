"""Whole apps with a log that refuses requests: each ends with its error within a deadline, and commits nothing wrong."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from ks_actors import Consumed, InstanceState, Materialized, Produced, ProductionFailed, RecordTooLarge, StreamsBuilder, TopologyError
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.serdes import BYTES, LONG
from ks_actors.topology import Topology
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.kafka.broker import Broker
from tests.kafka.counting import PARTITIONS, Counting, counting, ended
from tests.ks_actors.log.helpers import batch, values_of
from tests.waiting import soon

GUARANTEES = [EXACTLY_ONCE, AT_LEAST_ONCE]
LARGE = b"x" * 5_000


def copying(here: Counting, sink: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(here.source, Consumed(BYTES, BYTES)).to(sink, Produced(BYTES, BYTES))
    return builder.build()


async def feed_values(here: Counting, *values: bytes) -> None:
    producer = await here.log.producer(client_id="feeder")
    await producer.send([Outgoing(TopicPartition(here.source, 0), batch(*values))])
    await producer.close()


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_record_that_is_too_large(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """It ends the app by ProductionFailed, unless the handler goes on: then it is left out, and all others are written."""
    async with counting(kafka_broker, guarantee, tmp_path) as here:
        small = NewTopic(f"small-{here.name}", PARTITIONS, {"max.message.bytes": "2000"})
        await here.log.create_topics([small])
        topology, place = copying(here, small.name), TopicPartition(small.name, 0)
        app = here.app("app", topology=topology)
        await app.start()
        await feed_values(here, b"a")
        await soon(app.wait_until_caught_up())
        ending = asyncio.create_task(ended(app))
        await feed_values(here, b"b", LARGE, b"c")
        error = await ending
        assert isinstance(error, ProductionFailed), repr(error)
        assert isinstance(error.__cause__, RecordTooLarge)
        assert small.name in str(error)
        assert app.state is InstanceState.ERROR
        async with here.app("app", topology=topology, production_exception_handler="continue") as again:
            await soon(again.wait_until_caught_up())
            assert again.metrics()["dropped-records-total"] == 1
        written = [value for number in range(PARTITIONS) for value in await values_of(here.log, TopicPartition(place.topic, number))]
        assert LARGE not in written
        assert {*written} == {b"a", b"b", b"c"}
        if guarantee == EXACTLY_ONCE:
            assert written == [b"a", b"b", b"c"]


@pytest.mark.parametrize("name", ["no topic's name", "nobody-made-it"])
@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_record_for_a_topic_that_there_is_not(kafka_broker: Broker, tmp_path: Path, guarantee: str, name: str) -> None:
    """It ends the app by ProductionFailed, unless the handler goes on: then it is left out alone, and all others are written."""
    async with counting(kafka_broker, guarantee, tmp_path) as here:
        builder = StreamsBuilder()
        stream = builder.stream(here.source, Consumed(BYTES, BYTES))
        stream.to(lambda _, value, __: name if value == b"lost" else here.sink, Produced(BYTES, BYTES))
        topology = builder.build()
        await feed_values(here, b"a", b"lost", b"b")
        app = here.app("app", topology=topology)
        error = await ended(app)
        assert isinstance(error, ProductionFailed), repr(error)
        assert name in str(error)
        async with here.app("app", topology=topology, production_exception_handler="continue") as again:
            await soon(again.wait_until_caught_up())
            assert again.metrics()["dropped-records-total"] == 1
            await feed_values(here, b"c")
            await soon(again.wait_until_caught_up())
        written = [value for number in range(PARTITIONS) for value in await values_of(here.log, TopicPartition(here.sink, number))]
        assert {*written} == {b"a", b"b", b"c"}
        if guarantee == EXACTLY_ONCE:
            assert written == [b"a", b"b", b"c"]


async def test_a_producer_that_is_fenced(kafka_broker: Broker, tmp_path: Path) -> None:
    """The app gives up uncommitted work, takes its transactional id back, and goes on."""
    async with counting(kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        states: list[InstanceState] = []
        async with here.app("app", states) as app:
            await here.through()
            told = json.loads((app.config.state_dir / here.name / "kafka-streams-process-metadata").read_text())
            name = f"{here.name}-{told['processId']}-1"
            for _ in range(2):
                seen = len(states)
                intruder = await here.log.transactional_producer(name, client_id="intruder", timeout_ms=10_000)
                await here.through()
                await intruder.close()
                assert InstanceState.REBALANCING in states[seen:]
            await here.through()
            assert app.state is InstanceState.RUNNING


@pytest.mark.extended
async def test_a_transaction_that_expires(kafka_broker: Broker, tmp_path: Path) -> None:
    """Its work is done again, and the app goes on: a function may block for longer than a transaction may be open."""
    caught = threading.Event()

    def slow(key: bytes, value: bytes) -> None:
        if value == b"slow" and not caught.is_set():
            caught.set()
            threading.Event().wait(2.5)

    async with counting(kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        builder = StreamsBuilder()
        counts = builder.stream(here.source, Consumed(BYTES, BYTES)).peek(slow).group_by_key().count(Materialized("counts", BYTES, LONG))
        counts.to_stream().to(here.sink, Produced(BYTES, LONG))
        async with here.app("app", topology=builder.build(), transaction_timeout_ms=1_000, commit_interval_ms=1_000, max_drain_ms=500) as app:
            await here.through()
            # So many that some are written before the commit, and a transaction is open.
            producer = await here.log.producer(client_id="feeder")
            values = [*[b"v"] * 20_000, b"slow", *[b"v"] * 20_000]
            await producer.send([Outgoing(TopicPartition(here.source, 0), batch(*values, keys=[b"k0"] * len(values)))])
            here.fed[b"k0"] += len(values)
            await here.counted()
            assert caught.is_set()
            assert app.metrics()["rolled-back-total"] >= 1
            await here.through()
            assert app.state is InstanceState.RUNNING


async def test_a_changelog_that_forgets(kafka_broker: Broker, tmp_path: Path) -> None:
    """Made by hand with the broker's own settings it deletes old records: no app starts on it, and the error names the remedy."""
    async with counting(kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        await here.log.create_topics([NewTopic(here.changelog, PARTITIONS)])
        app = here.app("app")
        with pytest.raises(TopologyError) as refused:
            await soon(app.start())
        assert f"{here.changelog} has cleanup.policy=delete and needs compact" in str(refused.value)
        assert "kafka-configs --alter" in str(refused.value)
        assert app.state is InstanceState.ERROR
        await here.log.set_configs({here.changelog: {"cleanup.policy": "compact"}})
        await here.feed()
        async with here.app("app"):
            await here.counted()
