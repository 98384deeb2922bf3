"""Count words: a whole app, as small as possible.

Shows: a topology, and an app on a log in memory, which writes lines and reads the results: committed
records only, the latest one of each word.
With `embedded:///a/directory` in place of `memory://` topics and results persist: a second run counts on.

Run: python examples/word_count.py
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from typing import TYPE_CHECKING

from ks_actors import App, Consumed, Grouped, Produced, StreamsBuilder, StreamsConfig
from ks_actors.serdes import LONG, STRING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors import Topology

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


async def count_words(lines: Sequence[str], *, partitions: int = 2, guarantee: str = "exactly_once_v2") -> dict[str | None, int | None]:
    """Write lines, to all partitions in turn, and read the latest count of each word."""
    with tempfile.TemporaryDirectory() as directory:
        config = StreamsConfig(application_id="word-count", log="memory://", processing_guarantee=guarantee, state_dir=directory)
        async with App(topology(), config, topics={LINES: partitions, COUNTS: 1}) as app:
            await app.send_many(LINES, ((None, line) for line in lines))
            await app.wait_until_caught_up()
            return {record.key: record.value async for record in app.records(COUNTS, until="end")}


def main() -> None:
    counts = asyncio.run(count_words(TEXT))
    for word, count in sorted(counts.items(), key=lambda item: (-(item[1] or 0), item[0]))[:8]:
        print(f"{count:3} {word}")


if __name__ == "__main__":
    main()
