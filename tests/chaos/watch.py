"""The permanent reader of the output: progress, standstills, latencies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, final

from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped]

from tests.chaos.checks import count_of
from tests.chaos.feed import Feeder, number_in
from tests.chaos.options import Options
from tests.chaos.standstill import Progress, Stall, Standstills

# Of a partition at once: a consumer asks a broker for nothing more for a while when records of one partition have not been taken, and all others
# would seem to stand still for that.
_FETCH_BYTES = 1 << 16


@final
class Monitor:
    """Read the committed output. The reader may be late: after a standstill `StableEnds` tells."""

    def __init__(self, options: Options, bootstrap: str, topic: str, feeder: Feeder) -> None:
        self._options = options
        self._bootstrap = bootstrap
        self._topic = topic
        self._feeder = feeder
        self._progress = Progress(feeder.partition_of, options.partitions)
        self._standstills = Standstills(options.partitions)
        self.count: int = 0
        self.latencies: list[float] = []
        self.per_second: Counter[int] = Counter()
        self.first: float | None = None
        self.last: float = 0
        self.base: int = 0
        self.begun: float = monotonic()

    async def run(self) -> None:
        """Watch until cancelled."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, isolation_level="read_committed", auto_offset_reset="earliest", enable_auto_commit=False,
            fetch_max_wait_ms=20, request_timeout_ms=10_000, max_partition_fetch_bytes=_FETCH_BYTES,
        )  # fmt: skip
        await consumer.start()
        try:
            partitions = [TopicPartition(self._topic, number) for number in range(self._options.out_partitions)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            while True:
                self._take(await consumer.getmany(timeout_ms=50))
                await asyncio.sleep(0)  # what is there is handed out without waiting, and meanwhile nothing would be fetched
        finally:
            await consumer.stop()

    @property
    def progress(self) -> list[int]:
        """The number of processed records of each partition of the input."""
        return self._progress.done

    @property
    def since(self) -> list[float | None]:
        """Since when each partition has stood still, and at the end all together."""
        return self._standstills.since

    def _take(self, found: Mapping[TopicPartition, Sequence[Any]]) -> None:
        now = monotonic()
        for records in found.values():
            for record in records:
                self._note(record, now)
        gain = self._standstills.look(now, self._feeder.acked, self.progress)
        if gain:
            self.per_second[int(now)] += gain
            self.first = self.first or now
            self.last = now

    def _note(self, record: Any, now: float) -> None:
        partition, total = self._feeder.partition_of.get(record.key), count_of(record.value)
        if partition is None or total is None:
            return
        self.count += 1
        number = number_in(record.headers)
        if self._progress.note(record.key, total, number):
            sent_at, place = (self._feeder.sent_at[partition], number) if number is not None else (self._feeder.key_sent_at[record.key], total - 1)
            if place < len(sent_at):
                self.latencies.append(now - sent_at[place])

    def reset(self) -> None:
        """Forget latencies and standstills of the warm-up."""
        now = monotonic()
        self.latencies, self.per_second = [], Counter()
        self._standstills.reset(now)
        self.base, self.begun = sum(self.progress), now

    def stalls(self) -> list[Stall]:
        """Return all of them, those that have not ended included."""
        return self._standstills.until(monotonic())

    def caught_up(self) -> bool:
        """Tell whether there is an update of all that was written."""
        return all(acked <= done for acked, done in zip(self._feeder.acked, self.progress, strict=True))

    @property
    def behind(self) -> int:
        """The number of written records without an update."""
        return sum(self._feeder.acked) - sum(self.progress)
