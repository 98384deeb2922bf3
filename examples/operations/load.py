"""The load: tables at once, then flights at a rate, in the order of the year."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import islice
from typing import TYPE_CHECKING

from examples.flights.load import TOPICS, airlines, airports, fill, flights, planes, weather
from examples.flights.topology import AIRLINES, AIRPORTS, FLIGHTS, PLANES, WEATHER
from ks_actors import Publisher, Record, Topic, TopicExists

if TYPE_CHECKING:
    from ks_actors.log import Log

TURNS_PER_SECOND = 10


async def fill_tables(log: Log) -> None:
    """Create the topics, and fill the tables."""
    with contextlib.suppress(TopicExists):
        await log.create_topics(TOPICS.values())
    producer = await log.producer(client_id="operations-tables")
    for topic, records in ((AIRLINES, airlines()), (AIRPORTS, airports()), (PLANES, planes()), (WEATHER, weather())):
        await fill(log, producer, TOPICS[topic], records)
    await producer.close()


async def fly(log: Log, rate: int) -> None:
    """Write the flights of the year, so many per second."""
    rows = flights()
    loop = asyncio.get_running_loop()
    due = loop.time()
    async with Publisher(log=log) as publisher:
        while some := list(islice(rows, max(1, rate // TURNS_PER_SECOND))):
            await publisher.send_many(Topic(FLIGHTS, bytes, bytes), (Record(*row) for row in some))
            due += len(some) / rate
            await asyncio.sleep(max(0.0, due - loop.time()))
