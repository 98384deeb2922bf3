"""Run the fetcher of Kafka against brokers in this process: each partition that is assigned, not paused and has records is read within a bound."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from random import Random
from typing import Final

import pytest

from actors.testing import VirtualLoop
from ks_actors.log import Fetched, TopicPartition
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.consumer._fetcher import KafkaFetcher
from tests.liveness.broker import Cluster, connect
from tests.liveness.fetch_plan import Event, FetchPlan
from tests.liveness.plan import Burst
from tests.liveness.watch import Standstill

_POLL_MS: Final = 100
_AT_ONCE: Final = 2_000
_LOOK_S: Final = 0.05
_BACK_S: Final = 2.5
_LONGEST_S: Final = 600.0
_OPTIONS: Final = frozenset(each.name for each in fields(KafkaOptions))


class FetchRun:
    """One run: records arrive, tasks take fetched ones and pause partitions that have enough, and events happen."""

    def __init__(self, plan: FetchPlan) -> None:
        self.plan = plan
        self.partitions = [TopicPartition(topic, number) for topic in plan.topics for number in range(plan.partitions)]
        self.cluster = Cluster(plan.brokers, self.partitions, latency=plan.latency, room=plan.room, seed=plan.seed)
        options = KafkaOptions(**{name: value for name, value in plan.options.items() if name in _OPTIONS})  # type: ignore[arg-type]  # numbers
        self.client = KafkaClient("broker:9092", options, client_id="r")
        self.longest: float = 0.0
        self._random = Random(plan.seed)
        self._fetcher = KafkaFetcher(self.client, "r", committed=True, closed=lambda _: None)
        self._buffered: Counter[TopicPartition] = Counter()
        self._position: dict[TopicPartition, int] = dict.fromkeys(self.partitions, 0)
        self._stood: dict[TopicPartition, float] = {}
        self._seen: dict[TopicPartition, int] = {}
        self._full: set[TopicPartition] = set()
        self._paused: Counter[TopicPartition] = Counter()
        self._absent: Counter[TopicPartition] = Counter()
        self._excused_until: float = 0.0

    async def main(self) -> None:
        """Do it. Raises Standstill, and the errors of fetching."""
        plan = self.plan
        self._fetcher.assign(self._position)
        work = [asyncio.ensure_future(self._feed(burst)) for burst in plan.bursts]
        work += [asyncio.ensure_future(self._befall(event)) for event in plan.events]
        readers = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._take())]
        try:
            await self._look_on(work, readers)
        finally:
            for one in (*work, *readers):
                one.cancel()
            await asyncio.gather(*work, *readers, return_exceptions=True)
            await self._fetcher.close()

    # --- looking on -----------------------------------------------------------------------------------------------------------

    async def _look_on(self, work: Sequence[asyncio.Future[None]], readers: Sequence[asyncio.Future[None]]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_S)
            for one in (*work, *readers):
                if one.done():
                    one.result()
            self._look(loop.time())
            if all(one.done() for one in work) and all(self._is_done(partition) for partition in self.partitions):
                return
            if loop.time() > _LONGEST_S:
                raise Standstill(f"after {_LONGEST_S:g} s there are records that were not read: {self._left()}")

    def _is_done(self, partition: TopicPartition) -> bool:
        """Return whether all was read, but for partitions of which a task has enough while the other topic has no records."""
        left = self.cluster.logs[partition].end - self._position[partition]
        return not left or (self.plan.pairs and partition in self._full and not self._takes(partition) and self._is_read(self._other(partition)))

    def _is_read(self, partition: TopicPartition) -> bool:
        return self.cluster.logs[partition].end == self._position[partition]

    def _left(self) -> dict[str, int]:
        return {str(name): left for name in self.partitions if (left := self.cluster.logs[name].end - self._position[name])}

    def _look(self, now: float) -> None:
        for partition, log in self.cluster.logs.items():
            position = self._position[partition]
            idle = position >= log.end or partition in self._full or self._paused[partition] or self._absent[partition]
            if idle or self._seen.get(partition) != position or now < self._excused_until or self.cluster.is_away(partition):
                self._seen[partition] = position
                self._stood.pop(partition, None)
                continue
            stood = self._stood[partition] = self._stood.get(partition, 0.0) + _LOOK_S
            self.longest = max(self.longest, stood)
            if stood > self.plan.bound:
                raise Standstill(
                    f"{partition} was not read for {stood:.2f} s, it may be left for {self.plan.bound:.2f} s; left are now {self._left()} records"
                )

    # --- tasks ----------------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            for fetched in await self._fetcher.fetch(max_wait_ms=_POLL_MS, max_records=_AT_ONCE):
                self._arrived(fetched)

    def _arrived(self, fetched: Fetched) -> None:
        partition, offsets = fetched.partition, list(fetched.batch.offsets)
        begin = self._position[partition]
        assert offsets == list(range(begin, begin + len(offsets))), f"{partition} is at {begin}, and these came: {offsets}"
        assert fetched.next_offset == begin + len(offsets)
        self._position[partition] = fetched.next_offset
        self._buffered[partition] += len(offsets)
        if self._buffered[partition] > self.plan.limit and partition not in self._full:
            self._full.add(partition)
            # The message that tells the fetcher waits behind others.
            asyncio.get_running_loop().call_later(self.plan.reaction, self._stop, partition)

    def _stop(self, partition: TopicPartition) -> None:
        if partition in self._full:
            self._pause(partition)

    async def _take(self) -> None:
        """Process available records, and resume partitions with few left."""
        share = max(1, int(self.plan.speed * 0.01))
        while True:
            await asyncio.sleep(0.01)
            for partition in [partition for partition, count in self._buffered.items() if count]:
                self._buffered[partition] -= min(self._takes(partition), share)
                if partition in self._full and self._buffered[partition] <= self.plan.limit // 2:
                    self._full.discard(partition)
                    self._resume(partition)

    def _takes(self, partition: TopicPartition) -> int:
        """Return how many records of a partition can be processed now: of two topics as many as both have, or all when the other is at its end."""
        count = self._buffered[partition]
        if not self.plan.pairs:
            return count
        other = self._other(partition)
        return count if self._is_read(other) and not self._buffered[other] else min(count, self._buffered[other])

    def _other(self, partition: TopicPartition) -> TopicPartition:
        return TopicPartition("b" if partition.topic == "a" else "a", partition.partition)

    def _pause(self, partition: TopicPartition) -> None:
        if not self._absent[partition]:
            self._fetcher.pause([partition])

    def _resume(self, partition: TopicPartition) -> None:
        if not self._absent[partition] and not self._paused[partition] and partition not in self._full:
            self._fetcher.resume([partition])

    # --- what happens ---------------------------------------------------------------------------------------------------------

    async def _feed(self, burst: Burst) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(burst.begin)
        begin, sent = loop.time(), 0
        spread = self.plan.partitions if burst.spread is None else min(burst.spread, self.plan.partitions)
        while sent < burst.count:
            due = min(burst.count, 1 + int((loop.time() - begin) * burst.rate))
            arrived = Counter(self._random.randrange(spread) for _ in range(due - sent))
            for number, count in arrived.items():
                self.cluster.write(TopicPartition(burst.topic, number), count, self.plan.record_bytes)
            sent = due
            await asyncio.sleep(max(self._random.expovariate(burst.rate), 0.0005))

    async def _befall(self, event: Event) -> None:
        await asyncio.sleep(event.begin)
        chosen = [partition for partition in self.partitions if self._random.random() < event.share]
        match event.kind:
            case "pause":
                await self._pause_for(chosen, event.seconds)
            case "seek":
                for partition in chosen:
                    if not self._absent[partition]:
                        self._seek(partition, self._random.randrange(self.cluster.logs[partition].end + 1))
            case "leave out":
                await self._leave_out(chosen, event.seconds)
            case "outage":
                broker = self._random.randrange(self.plan.brokers)
                self.cluster.take_away(broker)
                await asyncio.sleep(event.seconds)
                self.cluster.bring_back(broker)
                self._excuse()
            case "lead":
                for partition in chosen:
                    self.cluster.lead(partition, self._random.randrange(self.plan.brokers))
                self._excuse()
            case "forget":
                self.cluster.forget_sessions()

    def _excuse(self) -> None:
        """Leave time for finding out changes, with the pauses between attempts."""
        self._excused_until = asyncio.get_running_loop().time() + _BACK_S

    async def _pause_for(self, chosen: list[TopicPartition], seconds: float) -> None:
        for partition in chosen:
            self._paused[partition] += 1
            self._pause(partition)
        await asyncio.sleep(seconds)
        for partition in chosen:
            self._paused[partition] -= 1
            self._resume(partition)

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        self._fetcher.seek(partition, offset)
        self._position[partition] = offset
        self._buffered[partition] = 0
        if partition in self._full:
            self._full.discard(partition)
            self._resume(partition)

    async def _leave_out(self, chosen: list[TopicPartition], seconds: float) -> None:
        self._absent.update(chosen)
        self._assign()
        await asyncio.sleep(seconds)
        self._absent.subtract(chosen)
        self._assign()
        for partition in chosen:
            if not self._absent[partition] and (self._paused[partition] or partition in self._full):
                self._fetcher.pause([partition])

    def _assign(self) -> None:
        self._fetcher.assign({partition: position for partition, position in self._position.items() if not self._absent[partition]})


def fetch_all(plan: FetchPlan) -> FetchRun:
    """Run a plan; return the run. Raises its error, with the plan as a note."""

    async def main() -> FetchRun:
        run = FetchRun(plan)
        with pytest.MonkeyPatch.context() as patch:
            connect(run.client, run.cluster, lambda name, method: patch.setattr(KafkaClient, name, method))
            await run.main()
        return run

    try:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(main())
    except BaseException as error:
        error.add_note(f"{plan}\nagain: python -m tests.liveness --layer fetch --seed {plan.seed}")
        raise
