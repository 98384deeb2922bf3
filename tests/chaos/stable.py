"""The times when committed output could be read, by a reader at any position and at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from time import monotonic
from typing import NamedTuple, final

from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

from tests.chaos.checks import count_of
from tests.chaos.clients import Record, Trouble
from tests.chaos.feed import Feeder
from tests.chaos.options import Options
from tests.chaos.standstill import Progress, Stall, Standstills

_EACH_S = 0.03
_SILENCE_S = 30


class Sample(NamedTuple):
    """At some time: the output's last stable offsets, and how many records of each partition of the input were written."""

    time: float
    stable: tuple[int, ...]
    written: tuple[int, ...]


@final
class StableEnds:
    """Ask for the output's last stable offsets all the time.

    A reader on a busy machine comes behind what it reads, by seconds when much is committed at a stroke: a partition would seem to stand still for as
    long. With the records, as they are read in the end, these offsets tell when each of them was there.
    """

    def __init__(self, options: Options, bootstrap: str, topic: str, feeder: Feeder) -> None:
        self._options = options
        self._bootstrap = bootstrap
        self._topic = topic
        self._feeder = feeder
        self._samples: list[Sample] = []

    async def run(self) -> None:
        """Ask until cancelled."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, isolation_level="read_committed", request_timeout_ms=10_000)
        await consumer.start()
        partitions = [TopicPartition(self._topic, number) for number in range(self._options.out_partitions)]
        try:
            while True:
                with suppress(KafkaError):  # the broker is away; should it stay so, `stalls` says that
                    found = await consumer.end_offsets(partitions)
                    self._samples.append(Sample(monotonic(), tuple(found[each] for each in partitions), tuple(self._feeder.acked)))
                await asyncio.sleep(_EACH_S)
        finally:
            await consumer.stop()

    def stalls(self, records: Sequence[Record], begun: float) -> list[Stall]:
        """Return the standstills since a time; `records` are all committed ones, in order per partition. Raises Trouble when offsets are missing."""
        if not self._samples or monotonic() - self._samples[-1].time > _SILENCE_S:
            raise Trouble(f"the broker has not told the last stable offsets of {self._topic} for {_SILENCE_S} s, or never")
        return find_stalls(self._samples, records, Progress(self._feeder.partition_of, self._options.partitions), begun)


def find_stalls(samples: Iterable[Sample], records: Iterable[Record], progress: Progress, begun: float) -> list[Stall]:
    """Return the times in which nothing more of a partition could be read as committed, though there was more to do."""
    found = Standstills(len(progress.done))
    left: dict[int, list[Record]] = {}
    for record in records:
        left.setdefault(record.partition, []).append(record)
    for queue in left.values():
        queue.reverse()
    time, resets = begun, True
    for sample in samples:
        if resets and sample.time >= begun:
            found.reset(begun)
            resets = False
        for number, stable in enumerate(sample.stable):
            _take(left.get(number, []), stable, progress)
        found.look(sample.time, sample.written, progress.done)
        time = sample.time
    return found.until(time)


def _take(queue: list[Record], stable: int, progress: Progress) -> None:
    while queue and queue[-1].offset < stable:
        record = queue.pop()
        total = count_of(record.value)
        if total is not None and record.key in progress.partition_of:
            progress.note(record.key, total, record.number)
