"""Backfill and publish the topology of `words` in the log argv[1], as application argv[2], topics argv[3] and argv[4], until done or killed.

Each transaction, of a hundred records, is told to stdout; in the end how many records were new.
"""

from __future__ import annotations

import asyncio
import sys

from ks_actors import Consumed, Produced, StreamsBuilder, StreamsConfig, Topology, serdes
from ks_actors.batch import backfill, publish_backfill
from ks_actors.batch.backfill import _publish
from ks_actors.log import TopicPartition

TEXT = Consumed(serdes.STRING, serdes.STRING)


def loud(source: str, sink: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(source, TEXT).map_values(str.upper).to(sink, Produced(serdes.STRING, serdes.STRING))
    return builder.build()


def tell(where: TopicPartition, records: int) -> None:
    sys.stdout.write(f"{where} {records}\n")
    sys.stdout.flush()


async def main(log: str, application_id: str, source: str, sink: str) -> None:
    _publish._AT_ONCE = _publish._SLICE = 100  # type: ignore[misc]  # many transactions of few records
    config = StreamsConfig(application_id=application_id, log=log)
    with await backfill(loud(source, sink), config) as done:
        counts = await publish_backfill(done, config, progress=tell)
    sys.stdout.write(f"new {sum(counts.values())}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
