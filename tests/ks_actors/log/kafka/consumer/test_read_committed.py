"""The view of committed readers on a log with overlapping transactions, from any position and in any chunks; without a broker."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from ks_actors.log import TopicPartition
from ks_actors.log.kafka.client import LeaderEpochs
from ks_actors.log.kafka.consumer._partition_reader import Budget, PartitionReader
from ks_actors.log.kafka.wire._batch_reader import Chunk
from tests.ks_actors.log.kafka.wire.test_record_reader import ABORT, COMMIT, TRANSACTIONAL, marker, stored

PARTITION = TopicPartition("topic", 0)
PRODUCERS = (7, 8, 9)


class Written(NamedTuple):
    """A batch, or a marker."""

    base: int
    end: int
    raw: bytes


class Aborted(NamedTuple):
    """A broker's note of an aborted transaction."""

    producer: int
    first: int
    last: int


class Partition:
    """A leader's log of one partition, as Kafka keeps it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.log: list[Written] = []
        self.end = 0
        self.aborted: list[Aborted] = []
        self.committed: dict[int, bytes] = {}
        # By producer: where its transaction begins, and what it has written.
        self._open: dict[int, tuple[int, dict[int, bytes]]] = {}

    @property
    def stable(self) -> int:
        """The end of the decided records."""
        return min((first for first, _ in self._open.values()), default=self.end)

    def grow(self) -> None:
        """Write something, or end a transaction."""
        random = self.random
        producer = random.choice((-1, *PRODUCERS))
        if producer in self._open and random.random() < 0.4:
            self._end(producer, random.choice((ABORT, COMMIT)))
            return
        count = random.randrange(1, 5)
        values = {self.end + index: b"%d" % random.randrange(1000) for index in range(count)}
        if producer < 0:
            self.committed.update(values)
        else:
            self._open.setdefault(producer, (self.end, {}))[1].update(values)
        self._append(stored(self.end, *values.values(), producer=producer, attributes=0 if producer < 0 else TRANSACTIONAL), count)

    def _end(self, producer: int, kind: int) -> None:
        first, values = self._open.pop(producer)
        if kind == COMMIT:
            self.committed.update(values)
        else:
            self.aborted.append(Aborted(producer, first, self.end))
        self._append(marker(self.end, producer, kind), 1)

    def _append(self, raw: bytes, count: int) -> None:
        self.log.append(Written(self.end, self.end + count, raw))
        self.end += count

    def fetch(self, position: int) -> Chunk | None:
        """Return the bytes of a fetch: whole batches from the one on that has `position`, the last one maybe cut off."""
        there = [written for written in self.log if written.end > position and written.base < self.stable]
        if not there:
            return None
        there = there[: self.random.randrange(1, 8)]
        end = there[-1].end
        # As a broker looks for them by positions in files, it may tell of some that are behind what it sends.
        upto = end + self.random.choice((0, 0, 20))
        aborted = [(each.producer, each.first) for each in self.aborted if each.last >= position and each.first < upto]
        self.random.shuffle(aborted)
        raw = b"".join(written.raw for written in there)
        cut = self.random.randrange(len(there[-1].raw)) if len(there) > 1 else 0
        return Chunk(PARTITION, raw[: len(raw) - cut], self.stable, aborted)


@pytest.mark.parametrize("seed", range(150))
def test_a_committed_reader_sees_committed_records_and_nothing_else(seed: int) -> None:
    """From any offset, also in the middle of a transaction, and in any fetched chunks: all of it up to the reader's position, once, in order."""
    random = Random(seed)
    partition = Partition(random)
    for _ in range(random.randrange(60)):
        partition.grow()
    start = random.randrange(partition.stable + 1)
    source = PartitionReader(PARTITION, start, Budget(1 << 30), LeaderEpochs(), lambda _: None)
    seen: dict[int, bytes] = {}
    for _ in range(120):
        for _ in range(random.randrange(3)):
            partition.grow()
        chunk = partition.fetch(source.ahead) if len(source.chunks) < 2 else None
        if chunk is not None:
            source.add(chunk)
        fetched = source.read(random.randrange(1, 12))
        if fetched is not None:
            columns = zip(fetched.batch.offsets, fetched.batch.values, strict=True)
            seen.update((offset, value or b"") for offset, value in columns)
        if random.random() < 0.1:
            source.move(start := random.randrange(source.position + 1))
            seen.clear()
        wanted = {offset: value for offset, value in partition.committed.items() if start <= offset < source.position}
        assert seen == wanted, f"from {start} to {source.position}, seed {seed}"
