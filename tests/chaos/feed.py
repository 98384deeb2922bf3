"""The writer of the input."""

from __future__ import annotations

import asyncio
import random
import struct
from collections import deque
from time import monotonic
from typing import final

from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]

from tests.chaos.options import Options
from tests.chaos.partitions import partition_for

ID_HEADER = "chaos-id"
_NUMBER = struct.Struct(">q")
_TURN_S = 0.01
# The broker is away for some time: nothing may be given up meanwhile.
_PATIENCE_MS = 300_000


def number_in(headers: object) -> int | None:
    """Return the number of the input record that headers tell of."""
    for name, value in headers if isinstance(headers, (tuple, list)) else ():
        if name == ID_HEADER and len(value) == _NUMBER.size:
            return int(_NUMBER.unpack(value)[0])
    return None


@final
class Feeder:
    """Write records at the rate, each with its number within its partition as a header; records that cannot be written yet wait here.

    After `limit` records it ends, but not before `may_end`.
    """

    def __init__(self, options: Options, bootstrap: str, topic: str) -> None:
        self._options = options
        self._bootstrap = bootstrap
        self._topic = topic
        self.keys: list[bytes] = [b"k%05d" % number for number in range(options.keys)]
        self.partition_of: dict[bytes, int] = {key: partition_for(key, options.partitions) for key in self.keys}
        self.sent: list[int] = [0] * options.partitions
        self.acked: list[int] = [0] * options.partitions
        # The time of each record, by its number; and by its place among those of its key.
        self.sent_at: list[list[float]] = [[] for _ in range(options.partitions)]
        self.key_sent_at: dict[bytes, list[float]] = {key: [] for key in self.keys}
        self.total: int = 0
        self.limit: int | None = None
        self.may_end: bool = False
        self.seconds: float = 0
        self._waiting: list[deque[tuple[bytes, bytes, int]]] = [deque() for _ in range(options.partitions)]
        self._more: list[asyncio.Event] = [asyncio.Event() for _ in range(options.partitions)]

    @property
    def unwritten(self) -> int:
        """The number of records that wait here."""
        return self.total - sum(self.acked)

    async def run(self) -> None:
        """Feed until the end, and until all is written."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, enable_idempotence=True, request_timeout_ms=_PATIENCE_MS, max_batch_size=100_000
        )
        await producer.start()
        writers = [asyncio.create_task(self._write(producer, partition)) for partition in range(self._options.partitions)]
        try:
            await self._feed(writers)
            while self.unwritten:
                self._check(writers)
                await asyncio.sleep(_TURN_S)
        finally:
            for writer in writers:
                writer.cancel()
            await asyncio.gather(*writers, return_exceptions=True)
            await producer.stop()

    @staticmethod
    def _check(writers: list[asyncio.Task[None]]) -> None:
        for writer in writers:
            if writer.done():
                writer.result()

    async def _feed(self, writers: list[asyncio.Task[None]]) -> None:
        chance = random.Random(self._options.seed * 7919 + 1)
        start = monotonic()
        while not self.may_end or self.limit is None or self.total < self.limit:
            self._check(writers)
            now = monotonic()
            due = int((now - start) * self._options.rate) - self.total
            if self.may_end and self.limit is not None:
                due = min(due, self.limit - self.total)
            for key in chance.choices(self.keys, k=max(0, due)):
                self._add(key, now)
            await asyncio.sleep(_TURN_S)
        self.seconds = monotonic() - start

    def _add(self, key: bytes, now: float) -> None:
        partition = self.partition_of[key]
        self._waiting[partition].append((key, b"v%d" % self.total, self.sent[partition]))
        self._more[partition].set()
        self.sent[partition] += 1
        self.total += 1
        self.sent_at[partition].append(now)
        self.key_sent_at[key].append(now)

    async def _write(self, producer: AIOKafkaProducer, partition: int) -> None:
        """Write the records of a partition, a batch at a time."""
        waiting = self._waiting[partition]
        while True:
            await self._more[partition].wait()
            batch = producer.create_batch()
            while waiting:
                key, value, number = waiting[0]
                if batch.append(key=key, value=value, timestamp=None, headers=[(ID_HEADER, _NUMBER.pack(number))]) is None:
                    break
                waiting.popleft()
            if not waiting:
                self._more[partition].clear()
            count = batch.record_count()
            await (await producer.send_batch(batch, self._topic, partition=partition))
            self.acked[partition] += count
