"""The inputs of the benchmark on Kafka, always the same bytes, and the correct results."""

from __future__ import annotations

import random
import string
import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, NamedTuple

from ks_actors import Batch
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.records._partitioner import partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.log import Log

PARTITIONS = 4
SPAN_MS = 100_000
WINDOW_MS = 10_000
HOUR_MS = 3_600_000
VALUE_BYTES = 100
VOCABULARY = 10_000
_PADS = 509
_BATCH = 4_000


class Row(NamedTuple):
    """One record of an input; the timestamp is in ms from the start of the input."""

    key: bytes | None
    value: bytes
    timestamp: int


@dataclass(frozen=True)
class Workload:
    """The size of the inputs: `records` over `keys` keys.

    Lines of words are a tenth of that; each of the joined streams is half of it.
    """

    records: int
    keys: int

    def topic(self, name: str) -> str:
        """Return the name of an input's topic."""
        return f"in-{name}-{self.records}-{self.keys}"

    def rows(self, name: str) -> Iterator[Row]:
        """Yield the records of an input."""
        match name:
            case "kv":
                return _payments(self.records, self.keys, seed=1)
            case "left":
                return _payments(self.records // 2, self.keys, seed=11)
            case "right":
                return _payments(self.records // 2, self.keys, seed=12)
            case "words":
                return _lines(self.records // 10, seed=1)
            case "table":
                return (Row(b"k%07d" % i, b'{"user":"k%07d","name":"name-%d","tier":%d}' % (i, i, i % 7), -1) for i in range(self.keys))
            case _:
                raise KeyError(name)

    def expected(self, app: str) -> tuple[int, ...]:
        """Return the expected output of an app.

        It is the number of records, or the number of keys and the sum of the last counts.
        """
        match app:
            case "map":
                return (sum(b'"flag":1' in row.value for row in self.rows("kv")),)
            case "tablejoin":
                return (self.records,)
            case "join":
                return (self._joined(),)
            case "count":
                return (len({row.key for row in self.rows("kv")}), self.records)
            case "window":
                return (len({(row.key, row.timestamp // WINDOW_MS) for row in self.rows("kv")}), self.records)
            case "wordcount":
                words = Counter(chain.from_iterable(row.value.split(b" ") for row in self.rows("words")))
                return (len(words), words.total())
            case _:
                raise KeyError(app)

    def _joined(self) -> int:
        left, right = defaultdict[bytes | None, list[int]](list), defaultdict[bytes | None, list[int]](list)
        for times, name in ((left, "left"), (right, "right")):
            for row in self.rows(name):
                times[row.key].append(row.timestamp)
        return sum(
            bisect_right(right[key], time + WINDOW_MS) - bisect_left(right[key], time - WINDOW_MS) for key, times in left.items() for time in times
        )


INPUTS = {"map": ("kv",), "count": ("kv",), "wordcount": ("words",), "window": ("kv",), "join": ("left", "right"), "tablejoin": ("kv", "table")}
"""The inputs of each application, in the order of its command line."""

COUNTS = {"count", "wordcount", "window"}
"""The applications that write counts by key."""


def beginning() -> int:
    """Return the start of the inputs' event time (ms).

    It is a full hour, so that windows fall the same way each time, and recent, as Kafka deletes old
    records.
    """
    return int(time.time() * 1000) // HOUR_MS * HOUR_MS - SPAN_MS


async def load(log: Log, workload: Workload, name: str, begin_ms: int) -> None:
    """Fill the topic of an input, unless it exists."""
    topic = workload.topic(name)
    if await log.describe_topics([topic]):
        return
    await log.create_topics([NewTopic(topic, PARTITIONS, {"retention.ms": "-1"})])
    producer = await log.producer(client_id="load")
    rows, count = workload.rows(name), 0
    while part := list(islice(rows, _BATCH)):
        keys = [row.key for row in part if row.key is not None]
        # Lines have no key; each partition gets the same ones every time.
        numbers = partitions_of(keys, PARTITIONS) if keys else [(count + index) % PARTITIONS for index in range(len(part))]
        columns: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        for row, number in zip(part, numbers, strict=True):
            columns[number].append(row)
        await producer.send([Outgoing(TopicPartition(topic, number), _batch(column, begin_ms)) for number, column in enumerate(columns) if column])
        count += len(part)
    await producer.close()


def _batch(rows: list[Row], begin_ms: int) -> Batch:
    return Batch([row.key for row in rows], [row.value for row in rows], [begin_ms + row.timestamp for row in rows])


def _payments(count: int, keys: int, seed: int) -> Iterator[Row]:
    """Yield JSON of 100 bytes with uniform keys, event time spread evenly."""
    source = random.Random(seed)  # noqa: S311 - no secrets here
    picks = source.choices(range(keys), k=count)
    amounts = source.choices(range(100_000), k=count)
    pads = ["".join(source.choices(string.ascii_lowercase + string.digits, k=VALUE_BYTES)) for _ in range(_PADS)]
    for i, (pick, amount) in enumerate(zip(picks, amounts, strict=True)):
        head = f'{{"id":{i},"user":"k{pick:07d}","amount":{amount},"flag":{amount & 1},"pad":"'
        value = f'{head}{pads[i % _PADS][: max(1, VALUE_BYTES - len(head) - 2)]}"}}'
        yield Row(b"k%07d" % pick, value.encode(), i * SPAN_MS // count)


def _lines(count: int, seed: int) -> Iterator[Row]:
    """Yield lines of about 100 bytes of words, their frequencies by Zipf's law."""
    source = random.Random(seed)  # noqa: S311 - likewise
    vocabulary: dict[str, None] = {}
    while len(vocabulary) < VOCABULARY:
        vocabulary["".join(source.choices(string.ascii_lowercase, k=source.randint(3, 9)))] = None
    words, weights = list(vocabulary), list(accumulate(1 / (rank + 1) for rank in range(VOCABULARY)))
    picks = iter(source.choices(words, cum_weights=weights, k=count * (VALUE_BYTES // 4)))
    for i in range(count):
        line: list[str] = []
        size = 0
        while size < VALUE_BYTES:
            line.append(next(picks))
            size += len(line[-1]) + 1
        yield Row(None, " ".join(line).encode(), i * SPAN_MS // count)
