"""Read the result topics as tables: the last value of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ks_actors.log import IsolationLevel, TopicPartition
from ks_actors.serdes import STRING, Serde, json

from .model import CarrierReport, HourlyDelays, ModelDelays
from .topology import BY_CARRIER, BY_HOUR, BY_MODEL, DEAD_LETTERS, HOURLY_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ks_actors import Headers, Windowed
    from ks_actors.log import Fetched, Log

K = TypeVar("K")
V = TypeVar("V")


class DeadLetter(NamedTuple):
    """A rejected row, and the reason."""

    row: bytes | None
    headers: Headers


class Results(NamedTuple):
    """All results of the job."""

    by_hour: dict[Windowed[str], HourlyDelays]
    by_carrier: dict[str, CarrierReport]
    by_model: dict[str, ModelDelays]
    dead_letters: list[DeadLetter]


async def read(log: Log) -> Results:
    """Read all committed results."""
    return Results(
        await table(log, BY_HOUR, HOURLY_KEY, json(HourlyDelays)),
        await table(log, BY_CARRIER, STRING, json(CarrierReport)),
        await table(log, BY_MODEL, STRING, json(ModelDelays)),
        [
            DeadLetter(row, headers)
            async for found in committed(log, DEAD_LETTERS)
            for row, headers in zip(found.batch.values, found.batch.headers or [()] * len(found.batch), strict=True)
        ],
    )


async def table(log: Log, topic: str, key: Serde[K], value: Serde[V]) -> dict[K, V]:
    """Read a topic as a table; decode only the final values."""
    last: dict[bytes, bytes | None] = {}
    async for found in committed(log, topic):
        last.update(zip(found.batch.keys, found.batch.values, strict=True))
    decode_key, decode_value = key.deserializer(topic, is_key=True), value.deserializer(topic)
    return {decode_key(raw): decode_value(data) for raw, data in last.items() if data is not None}


async def committed(log: Log, topic: str) -> AsyncIterator[Fetched]:
    """Yield the committed records of a topic up to its current end, each partition in order."""
    description = (await log.describe_topics([topic]))[topic]
    partitions = [TopicPartition(topic, number) for number in range(description.partitions)]
    ends = await log.end_offsets(partitions, IsolationLevel.READ_COMMITTED)
    begins = await log.begin_offsets(partitions)
    left = {partition for partition in partitions if begins[partition] < ends[partition]}
    fetcher = log.fetcher(client_id="flights-results", isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign({partition: begins[partition] for partition in left})
    while left:
        for fetched in await fetcher.fetch(max_wait_ms=1_000):
            yield fetched
            if fetched.next_offset >= ends[fetched.partition]:
                left.discard(fetched.partition)
    await fetcher.close()
