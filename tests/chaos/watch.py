"""Who reads the output all the time: progress, standstills, latencies."""

from __future__ import annotations

import asyncio
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, final

from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped]

from tests.chaos.checks import count_of
from tests.chaos.feed import number_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.chaos.feed import Feeder
    from tests.chaos.options import Options

_SHORTEST_STALL_S = 0.4
_AT_ONCE = 500  # records of a partition


class Stall(NamedTuple):
    """A time in which the committed output of a partition (None: of all) did not advance while input of it waited."""

    partition: int | None
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@final
class Monitor:
    """Read what is committed in the output.

    Progress of a partition of the input is behind the highest of its records whose update is there: where updates do not tell, the sum of its keys'
    counts.
    """

    def __init__(self, options: Options, bootstrap: str, topic: str, feeder: Feeder) -> None:
        self._options = options
        self._bootstrap = bootstrap
        self._topic = topic
        self._feeder = feeder
        self._highest: dict[bytes, int] = {}
        self._told: bool | None = None
        self._stalls: list[Stall] = []
        # Since when each partition has stood still, and at the end all together.
        self.since: list[float | None] = [None] * (options.partitions + 1)
        self.progress: list[int] = [0] * options.partitions
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
            fetch_max_wait_ms=20, request_timeout_ms=10_000,
        )  # fmt: skip
        await consumer.start()
        try:
            partitions = [TopicPartition(self._topic, number) for number in range(self._options.out_partitions)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            while True:
                # Each in turn: a consumer would hand out all that waits of one partition before any of the next, which then seems to stand still.
                heard = False
                for partition in partitions:
                    heard |= self._take(await consumer.getmany(partition, timeout_ms=0, max_records=_AT_ONCE))
                if heard:
                    await asyncio.sleep(0)  # what is there is handed out without waiting, and meanwhile nothing would be fetched
                else:
                    self._take(await consumer.getmany(timeout_ms=50, max_records=_AT_ONCE))
        finally:
            await consumer.stop()

    def _take(self, found: Mapping[TopicPartition, Sequence[Any]]) -> bool:
        """Note what was read; return whether that is anything."""
        now, before = monotonic(), list(self.progress)
        for records in found.values():
            for record in records:
                self._note(record, now)
        self._look(now, before)
        return bool(found)

    def _note(self, record: Any, now: float) -> None:
        partition, total = self._feeder.partition_of.get(record.key), count_of(record.value)
        if partition is None or total is None:
            return
        self.count += 1
        number = number_in(record.headers)
        if self._told is None:
            self._told = number is not None
        if not self._told:
            self._note_total(record.key, partition, total, now)
        elif number is not None and number >= self.progress[partition]:
            self.latencies.append(now - self._feeder.sent_at[partition][number])
            self.progress[partition] = number + 1

    def _note_total(self, key: bytes, partition: int, total: int, now: float) -> None:
        old = self._highest.get(key, 0)
        if total > old:
            self._highest[key] = total
            self.progress[partition] += total - old
            sent_at = self._feeder.key_sent_at[key]
            if total <= len(sent_at):
                self.latencies.append(now - sent_at[total - 1])

    def _look(self, now: float, before: list[int]) -> None:
        gain = sum(self.progress) - sum(before)
        if gain:
            self.per_second[int(now)] += gain
            self.first = self.first or now
            self.last = now
        waiting = [acked > done for acked, done in zip(self._feeder.acked, self.progress, strict=True)]
        moved = [done > was for done, was in zip(self.progress, before, strict=True)]
        for place, (waits, moves) in enumerate(zip([*waiting, any(waiting)], [*moved, any(moved)], strict=True)):
            since = self.since[place]
            if since is not None and (moves or not waits):
                if now - since > _SHORTEST_STALL_S:
                    self._stalls.append(self._stall(place, since, now))
                self.since[place] = None
            if self.since[place] is None and waits:
                self.since[place] = now

    def _stall(self, place: int, begin: float, end: float) -> Stall:
        return Stall(None if place == self._options.partitions else place, begin, end)

    def reset(self) -> None:
        """Forget latencies and standstills of the warm-up."""
        now = monotonic()
        self.latencies, self._stalls, self.per_second = [], [], Counter()
        self.since = [None if since is None else now for since in self.since]
        self.base, self.begun = sum(self.progress), now

    def stalls(self) -> list[Stall]:
        """Return all of them, those that have not ended included."""
        now = monotonic()
        return self._stalls + [self._stall(place, since, now) for place, since in enumerate(self.since) if since is not None]

    def caught_up(self) -> bool:
        """Tell whether there is an update of all that was written."""
        return all(acked <= done for acked, done in zip(self._feeder.acked, self.progress, strict=True))

    @property
    def behind(self) -> int:
        """How many written records have no update yet."""
        return sum(self._feeder.acked) - sum(self.progress)
