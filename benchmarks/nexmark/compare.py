"""The results of a query, as they are compared: in each way that does not depend on the order of partitions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ks_actors.log import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from ks_actors.log import Log

_PATIENCE_MS: Final = 10_000
# Queries whose output is a table: the last value of each key is its result. q12 has windows of the wall clock: what they have in sum is compared.
TABLES: Final = frozenset({"q3", "q4", "q5", "q6", "q7", "q9", "q11"})
SETS: Final = frozenset({"q8"})
SUMS: Final = frozenset({"q12"})


async def results(log: Log, query: str, topic: str) -> Counter[tuple[str, str]]:
    """Read the output of a query; return how often it has each result."""
    return reduced(query, [pair async for pair in _read(log, topic)])


def reduced(query: str, pairs: Iterable[tuple[str, str | None]]) -> Counter[tuple[str, str]]:
    """Return how often each result is there, as far as that is the same each time."""
    if query in TABLES or query in SUMS:
        last = {key: value for key, value in dict(pairs).items() if value is not None}
        if query in TABLES:
            return Counter(last.items())
        sums: Counter[str] = Counter()
        for key, value in last.items():
            sums[key.partition("@")[0].strip("[")] += int(value)
        return Counter((key, str(count)) for key, count in sums.items())
    found = Counter((key, value) for key, value in pairs if value is not None)
    return Counter(dict.fromkeys(found, 1)) if query in SETS else found


async def _read(log: Log, topic: str) -> AsyncIterator[tuple[str, str | None]]:
    partitions = [TopicPartition(topic, number) for number in range((await log.describe_topics([topic]))[topic].partitions)]
    ends = await log.end_offsets(partitions, IsolationLevel.READ_COMMITTED)
    fetcher = log.fetcher(client_id="compare", isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign(dict.fromkeys(partitions, 0))
    try:
        while any(fetcher.position(partition) < end for partition, end in ends.items()):
            found = await fetcher.fetch(max_wait_ms=_PATIENCE_MS)
            if not found:
                break
            for fetched in found:
                for key, value in zip(fetched.batch.keys, fetched.batch.values, strict=True):
                    yield (key or b"").decode(), None if value is None else value.decode()
    finally:
        await fetcher.close()
