"""Rolling upgrades on a real Kafka, in short; `python -m tests.kafka.upgrades` does all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ks_actors import Consumed, Produced, StreamsBuilder
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.serdes import BYTES
from tests.kafka.broker import Broker
from tests.kafka.counting import counting
from tests.kafka.upgrades import CHANGES, GUARANTEES, upgrade
from tests.ks_actors.log.helpers import batch, read_until


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize(("change", "order"), list(zip(CHANGES, ("012", "210", "120"), strict=True)))
async def test_a_rolling_upgrade_reads_everything_once(kafka_broker: Broker, tmp_path: Path, change: str, order: str, guarantee: str) -> None:
    """Three members are restarted one by one: all records of all topics that the new version reads come out, none twice."""
    await upgrade(kafka_broker, tmp_path, change, order, guarantee)


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_pattern_follows_the_topics(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """None at the start, then one, then another one; one that is deleted leaves, and the app goes on."""
    async with counting(kafka_broker, guarantee, tmp_path) as here:
        builder = StreamsBuilder()
        builder.stream(re.compile(f"{here.name}-part-.*"), Consumed(BYTES, BYTES)).to(here.sink, Produced(BYTES, BYTES))

        async def come(*values: bytes) -> None:
            sinks = [TopicPartition(here.sink, number) for number in range(2)]
            read = await read_until(here.log, sinks, lambda found: set(values) <= {each.value for each in found})
            found = [each.value for each in read]
            # At least once a commit that fails, as it has a topic that is gone, is done again with all that was in it.
            assert sorted(set(found) if guarantee == "at_least_once" else found, key=str) == sorted(values)

        producer = await here.log.producer(client_id="feeder")

        async def send(letter: str, value: bytes) -> None:
            await producer.send([Outgoing(TopicPartition(f"{here.name}-part-{letter}", 0), batch(value))])

        async with here.app("app", topology=builder.build(), metadata_max_age_ms=200) as app:
            for letter in "ab":
                await here.log.create_topics([NewTopic(f"{here.name}-part-{letter}", 1)])
                await send(letter, letter.encode())
            await come(b"a", b"b")
            await here.log.delete_topics([f"{here.name}-part-b"])
            await send("a", b"c")
            await come(b"a", b"b", b"c")
            await here.log.create_topics([NewTopic(f"{here.name}-part-d", 1)])
            await send("d", b"d")
            await come(b"a", b"b", b"c", b"d")
            assert app.state.name in ("RUNNING", "REBALANCING")
        await producer.close()
