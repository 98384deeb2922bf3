"""The input of the runtime benchmarks, always the same bytes."""

from __future__ import annotations

import random
import string
from typing import TYPE_CHECKING

from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.records._batch import Batch
from ks_actors.records._partitioner import partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.log import Log

PARTITIONS = 4
RECORD_BYTES = 100
BATCH = 500
SPAN_MS = 100_000
PADS = 509
KEY = b"k%07d"
IN, OUT = "in", "out"


async def make_topics(log: Log, kept_bytes: int | None = None) -> None:
    """Create the input and output topics of every case.

    Each partition retains about `kept_bytes`; None keeps everything.
    """
    configs = {} if kept_bytes is None else {"retention.bytes": str(kept_bytes)}
    await log.create_topics([NewTopic(IN, PARTITIONS, configs), NewTopic(OUT, PARTITIONS, configs)])


async def fill(log: Log, batches: Iterator[list[Outgoing]]) -> int:
    """Write batches into the log; return the number of records."""
    producer = await log.producer(client_id="load")
    count = 0
    for batch in batches:
        await producer.send(batch)
        count += sum(len(outgoing.batch) for outgoing in batch)
    await producer.close()
    return count


def records(count: int, keys: int, seed: int = 1) -> Iterator[list[Outgoing]]:
    """Yield `count` JSON records of 100 bytes with uniform keys, event time spread over 100 s.

    Batches have about 500 records per partition.
    """
    picks = random.Random(seed).choices(range(keys), k=count)  # noqa: S311 - no secrets here
    yield from _in_batches(picks, seed)


def each_key_once(keys: int, seed: int = 2) -> Iterator[list[Outgoing]]:
    """Yield a record for every key."""
    yield from _in_batches(list(range(keys)), seed)


def _in_batches(picks: list[int], seed: int) -> Iterator[list[Outgoing]]:
    source = random.Random(seed + 100)  # noqa: S311 - no secrets here
    pads = ["".join(source.choices(string.ascii_lowercase + string.digits, k=RECORD_BYTES)) for _ in range(PADS)]
    size = BATCH * PARTITIONS
    for start in range(0, len(picks), size):
        yield _by_partition(picks[start : start + size], start, len(picks), pads, source)


def _by_partition(picks: list[int], start: int, total: int, pads: list[str], source: random.Random) -> list[Outgoing]:
    places = partitions_of([KEY % pick for pick in picks], PARTITIONS)
    cents = source.choices(range(100_000), k=len(picks))
    batches = [Batch([], [], []) for _ in range(PARTITIONS)]
    for index, (pick, place, amount) in enumerate(zip(picks, places, cents, strict=True), start):
        batch = batches[place]
        head = f'{{"id":{index},"user":"k{pick:07d}","flag":{amount & 1},"cents":{amount},"pad":"'
        batch.keys.append(KEY % pick)
        batch.values.append(f'{head}{pads[index % PADS][: max(1, RECORD_BYTES - len(head) - 2)]}"}}'.encode())
        batch.timestamps.append(index * SPAN_MS // total)
    return [Outgoing(TopicPartition(IN, number), batch) for number, batch in enumerate(batches) if len(batch)]
