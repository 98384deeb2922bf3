"""Load the data into the job's topics, in place of other systems.

Existing records stay, so a killed load continues: each partition always gets the same records in
the same order.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from functools import cache
from itertools import chain, islice
from typing import TYPE_CHECKING

import msgspec

from ks_actors import Batch, TopicExists, partition_of
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition

from . import data
from .model import Airline, Airport, Plane, Weather
from .topology import AIRLINES, AIRPORTS, BY_CARRIER, BY_HOUR, BY_MODEL, DEAD_LETTERS, FLIGHTS, PLANES, WEATHER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ks_actors.log import Log, Producer

COMPACTED = {"cleanup.policy": "compact"}
TOPICS = {
    FLIGHTS: NewTopic(FLIGHTS, 4),  # of four, each of the three airports has one to itself
    WEATHER: NewTopic(WEATHER, 2, COMPACTED),
    PLANES: NewTopic(PLANES, 2, COMPACTED),
    AIRPORTS: NewTopic(AIRPORTS, 1, COMPACTED),
    AIRLINES: NewTopic(AIRLINES, 1, COMPACTED),
    BY_HOUR: NewTopic(BY_HOUR, 4, COMPACTED),
    BY_CARRIER: NewTopic(BY_CARRIER, 1, COMPACTED),
    BY_MODEL: NewTopic(BY_MODEL, 1, COMPACTED),
    DEAD_LETTERS: NewTopic(DEAD_LETTERS, 1),
}
NEW_YEAR = int(datetime(2013, 1, 1, tzinfo=UTC).timestamp()) * 1000
"""The time of all table rows: before any flight, so that each flight finds complete tables."""

SLICE = 2_000


async def load(log: Log, limit: int, loaded: Callable[[int], None]) -> None:
    """Create the topics; fill the tables and the first `limit` flights.

    `loaded` is called with the number of flights so far.
    """
    with contextlib.suppress(TopicExists):
        await log.create_topics(TOPICS.values())
    there = sum(await ends(log, TOPICS[FLIGHTS]))
    producer = await log.producer(client_id="flights-loader")
    if there == 0:  # else the tables, which come first, are complete
        for topic, records in ((AIRLINES, airlines()), (AIRPORTS, airports()), (PLANES, planes()), (WEATHER, weather())):
            await fill(log, producer, TOPICS[topic], records)
    if there < limit:
        await fill(log, producer, TOPICS[FLIGHTS], islice(flights(), limit), loaded)
    loaded(limit)
    await producer.close()


def airlines() -> Iterator[tuple[bytes, bytes, int]]:
    """Yield key, value and time of each airline."""
    return ((row["carrier"].encode(), to_json(row, Airline), NEW_YEAR) for row in data.table("airlines"))


def airports() -> Iterator[tuple[bytes, bytes, int]]:
    """Yield key, value and time of each airport."""
    return ((row["faa"].encode(), to_json(row, Airport), NEW_YEAR) for row in data.table("airports"))


def planes() -> Iterator[tuple[bytes, bytes, int]]:
    """Yield key, value and time of each plane."""
    return ((row["tailnum"].encode(), to_json(row, Plane), NEW_YEAR) for row in data.table("planes"))


def weather() -> Iterator[tuple[bytes, bytes, int]]:
    """Yield key, value and time of each hour's weather."""
    return ((f"{row['origin']}|{row['time_hour']}".encode(), to_json(row, Weather), NEW_YEAR) for row in data.table("weather"))


def flights() -> Iterator[tuple[bytes, bytes, int]]:
    """Yield key, value and time of each flight: its row of the file, at its scheduled time."""
    return ((row.origin, row.text, row.scheduled) for row in chain.from_iterable(data.months()))


def to_json(row: dict[str, str], type_: type[object]) -> bytes:
    """Return the fields of `type_` in a row."""
    return msgspec.json.encode(msgspec.convert(row, type_, strict=False))


async def ends(log: Log, topic: NewTopic, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> list[int]:
    """Return the end offset of each partition.

    That is its number of records, as none were ever deleted.
    """
    partitions = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
    found = await log.end_offsets(partitions, isolation)
    return [found[partition] for partition in partitions]


async def fill(
    log: Log,
    producer: Producer,
    topic: NewTopic,
    records: Iterator[tuple[bytes, bytes, int]],
    filled: Callable[[int], None] = lambda _: None,
) -> None:
    """Write the missing part of `records` to a topic.

    `filled` is called after each slice with the number of records so far.
    """
    there = await ends(log, topic)
    place = cache(lambda key: partition_of(key, topic.partitions))
    seen, total = [0] * topic.partitions, 0
    while rows := list(islice(records, SLICE)):
        batches = [Batch([], [], []) for _ in there]
        for key, value, time in rows:
            number = place(key)
            seen[number] += 1
            if seen[number] > there[number]:
                batch = batches[number]
                batch.keys.append(key)
                batch.values.append(value)
                batch.timestamps.append(time)
        outgoing = [Outgoing(TopicPartition(topic.name, number), batch) for number, batch in enumerate(batches) if batch]
        if outgoing:
            await producer.send(outgoing)
        total += len(rows)
        filled(total)
