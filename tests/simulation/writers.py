"""Write random batches to logs, as producers elsewhere do: plain ones, open and decided transactions, gaps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tests.simulation.batches import draw_template, template, template_of
from tests.simulation.cluster import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from ks_actors.records import TopicPartition
    from tests.simulation.cluster import Cluster, Partition
    from tests.simulation.logs import Log

_PRODUCERS: Final = (5, 6, 7)
_TIME: Final = 1_700_000_000_000


class Writer:
    """Writes to partitions; `cut` has those that have lost records that readers may have read."""

    def __init__(self, cluster: Cluster, random: Random, partitions: Sequence[TopicPartition]) -> None:
        self._cluster = cluster
        self._random = random
        self._partitions = partitions
        # Some seeds have one codec, and no transactions.
        self._transactional = random.random() < 0.6
        self._small = random.random() < 0.5

    @property
    def cut(self) -> frozenset[TopicPartition]:
        return frozenset(self._cluster.cuts)

    def prefill(self, batches: int) -> None:
        """Write the first batches of each log, before anybody reads."""
        for name in self._partitions:
            partition = self._partition(name)
            log = partition.log
            log.start = log.end = log.high = self._random.choice([0, 0, 1_000])
            log.epochs = []
            log.begin_epoch(0)
            for _ in range(self._random.choice([0, batches, batches])):
                self._write(log, 0)
            log.high = log.end

    def _partition(self, name: TopicPartition) -> Partition:
        found = self._cluster.partition(name)
        assert found is not None
        return found

    def _write(self, log: Log, epoch: int) -> None:
        random = self._random
        producer = random.choice((None, None, *_PRODUCERS)) if self._transactional else None
        if producer is not None and log.open_since(producer) is not None and random.random() < 0.4:
            self._end(log, producer, epoch)
            return
        if random.random() < 0.02 and log.end > log.start:
            log.skip(log.end + random.choice([1, 5]))
        number = draw_template(random)
        if self._small:
            while number % 40 == 39:
                number = draw_template(random)
        if producer is None:
            log.append(template(number).raw, epoch)
        else:
            known = log.producers.get(producer)
            sequence = (known.batches[-1][1] + 1) % (1 << 31) if known is not None and known.batches else 0
            log.append(template_of(number, producer, sequence), epoch)

    def _end(self, log: Log, producer: int, epoch: int) -> None:
        log.end_transaction(producer, 0, epoch, _TIME, commit=self._random.random() < 0.5)

    async def write(self, batches: int, healthy_at: float) -> None:
        """Write further batches to each log, and decide all transactions at last."""
        loop, random = asyncio.get_running_loop(), self._random
        left = [name for name in self._partitions for _ in range(random.choice([0, batches]))]
        random.shuffle(left)
        cuts = 0
        while left:
            await asyncio.sleep(random.choice([0, 0.001, 0.02, 0.3]))
            if len(self._cluster.cuts) > cuts:
                # A log that was cut grows beyond where its readers are, before they see it.
                cuts = len(self._cluster.cuts)
                left += [self._cluster.cuts[-1]] * random.choice([0, 3, 6])
            for _ in range(random.choice([1, 1, 5]) if loop.time() < healthy_at else len(left)):
                if left and self._able(self._partition(left[-1])):
                    self._append(self._partition(left.pop()))
                elif left:
                    left.insert(0, left.pop())
        # What is decided may still be lost in an election until all is well.
        await asyncio.sleep(max(0.0, healthy_at + 1.0 - loop.time()))
        waiting = list(self._partitions)
        while waiting:
            for name in [each for each in waiting if self._able(self._partition(each))]:
                partition = self._partition(name)
                for producer in _PRODUCERS:
                    if partition.log.open_since(producer) is not None:
                        self._end(partition.log, producer, partition.epoch)
                self._cluster.replicate(partition)
                waiting.remove(name)
            await asyncio.sleep(0.1)

    def _able(self, partition: Partition) -> bool:
        leader = self._cluster.brokers.get(partition.leader)
        return partition.leader != NO_LEADER and leader is not None and leader.connected and partition.name in leader.led

    def _append(self, partition: Partition) -> None:
        self._write(partition.log, partition.epoch)
        self._cluster.replicate(partition)
        partition.log.wake()
