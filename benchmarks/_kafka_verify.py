"""Check the output of an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks._kafka_inputs import COUNTS
from ks_actors.log import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from ks_actors.log import Log

_PATIENCE_MS = 10_000


async def outcome(log: Log, app: str, topic: str) -> tuple[int, ...]:
    """Read all committed records of an output; summarize them as `Workload.expected` does."""
    described = await log.describe_topics([topic])
    partitions = [TopicPartition(topic, number) for number in range(described[topic].partitions)]
    ends = await log.end_offsets(partitions, IsolationLevel.READ_COMMITTED)
    fetcher = log.fetcher(client_id="verify", isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign(dict.fromkeys(partitions, 0))
    records = 0
    last: dict[bytes | None, bytes | None] = {}
    try:
        while any(fetcher.position(partition) < end for partition, end in ends.items()):
            found = await fetcher.fetch(max_wait_ms=_PATIENCE_MS)
            if not found:
                break  # only transaction markers are left
            for fetched in found:
                records += len(fetched.batch)
                if app in COUNTS:
                    last.update(zip(fetched.batch.keys, fetched.batch.values, strict=True))
    finally:
        await fetcher.close()
    if app in COUNTS:
        return len(last), sum(int.from_bytes(value or b"", "big") for value in last.values())
    return (records,)
