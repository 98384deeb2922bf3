"""Count words: a whole app, as small as possible.

Shows: a topology, a log in memory with its topics, and an app that processes the existing records.
It reads the results as another program would: committed records only, the latest one of each word.
With `embedded:///a/directory` in place of `memory://` topics and results persist: a second run counts on.

Run: python examples/word_count.py
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

from ks_actors import App, Batch, Consumed, Grouped, Produced, StreamsBuilder, StreamsConfig, TopicExists
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition, open_log
from ks_actors.serdes import LONG, STRING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors import Topology
    from ks_actors.log import Log

LINES, COUNTS = "lines", "counts"
TEXT = (
    "It was the best of times, it was the worst of times,",
    "it was the age of wisdom, it was the age of foolishness,",
    "it was the epoch of belief, it was the epoch of incredulity,",
    "it was the season of Light, it was the season of Darkness,",
    "it was the spring of hope, it was the winter of despair.",
)


def words_of(line: str) -> list[str]:
    return re.findall(r"\w+", line.lower())


def topology() -> Topology:
    """Return the topology.

    `group_by` adds a repartition topic, as equal words must be in one partition.
    """
    builder = StreamsBuilder()
    (
        builder.stream(LINES, Consumed(STRING, STRING))
        .flat_map_values(words_of)
        .group_by(lambda _, word: word, Grouped(STRING, STRING, "words"))
        .count()
        .to_stream()
        .to(COUNTS, Produced(STRING, LONG))
    )
    return builder.build()


async def write(log: Log, lines: Sequence[str], partitions: int) -> None:
    """Write lines without a key to all partitions in turn."""
    producer = await log.producer(client_id="writer")
    for number in range(partitions):
        mine = lines[number::partitions]
        batch = Batch([None] * len(mine), [line.encode() for line in mine], [0] * len(mine))
        await producer.send([Outgoing(TopicPartition(LINES, number), batch)])
    await producer.close()


async def read(log: Log) -> dict[str, int]:
    """Read the latest count of each word."""
    word, count = STRING.deserializer(COUNTS, is_key=True), LONG.deserializer(COUNTS)
    fetcher = log.fetcher(client_id="reader", isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign({TopicPartition(COUNTS, 0): 0})
    counts: dict[str, int] = {}
    while found := await fetcher.fetch(max_wait_ms=0):
        for fetched in found:
            counts |= zip(map(word, fetched.batch.keys), map(count, fetched.batch.values), strict=True)
    await fetcher.close()
    return counts


async def count_words(lines: Sequence[str], *, partitions: int = 2, guarantee: str = "exactly_once_v2") -> dict[str, int]:
    log = open_log("memory://")
    await log.start()
    with suppress(TopicExists):  # of a former run, where the log persists
        await log.create_topics([NewTopic(LINES, partitions), NewTopic(COUNTS, 1)])
    await write(log, lines, partitions)
    with tempfile.TemporaryDirectory() as directory:
        config = StreamsConfig(application_id="word-count", processing_guarantee=guarantee, state_dir=directory)
        async with App(topology(), config, log=log) as app:
            await app.wait_until_caught_up()
    counts = await read(log)
    await log.close()
    return counts


def main() -> None:
    counts = asyncio.run(count_words(TEXT))
    for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:8]:
        print(f"{count:3} {word}")


if __name__ == "__main__":
    main()
