"""Starts from some time ago, on a real Kafka (KIP-1106)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from time import time

from ks_actors.dsl import Consumed, Produced, StreamsBuilder
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.serdes import BYTES
from tests.chaos.checks import EXACTLY_ONCE
from tests.kafka.broker import Broker
from tests.kafka.counting import counting
from tests.ks_actors.log.helpers import batch, read_all

HOUR_MS = 3_600_000


async def test_a_source_starts_at_the_first_record_of_at_most_some_age(kafka_broker: Broker, tmp_path: Path) -> None:
    """Older records are passed over; a partition whose records are all older is read from its end."""
    async with counting(kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        now = int(time() * 1000)
        mixed, old = (TopicPartition(here.source, number) for number in range(2))
        ages = (5, 4, 2, 0)
        producer = await here.log.producer(client_id="feeder")
        await producer.send(
            [
                Outgoing(mixed, batch(*(str(age).encode() for age in ages), timestamps=[now - age * HOUR_MS for age in ages])),
                Outgoing(old, batch(b"old", timestamps=[now - 9 * HOUR_MS])),
            ]
        )
        builder = StreamsBuilder()
        stream = builder.stream(here.source, Consumed(BYTES, BYTES, offset_reset=timedelta(hours=3)))
        stream.to(here.sink, Produced(BYTES, BYTES))
        async with here.app("app", topology=builder.build()) as app:
            await producer.send([Outgoing(old, batch(b"new", timestamps=[now]))])
            await app.wait_until_caught_up()
        await producer.close()
        found = [value for number in range(2) for _, _, value in await read_all(here.log, TopicPartition(here.sink, number))]
        assert sorted(value or b"" for value in found) == [b"0", b"2", b"new"]
