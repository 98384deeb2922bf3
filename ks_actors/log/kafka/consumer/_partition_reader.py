"""A partition that is being fetched: where it is read, and what has been brought of it."""

from __future__ import annotations

from collections import deque
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, final

from ks_actors._errors import LogError
from ks_actors.log._types import Fetched
from ks_actors.log.kafka.client import Failures
from ks_actors.log.kafka.wire import Columns

if TYPE_CHECKING:
    import asyncio

    from ks_actors.log.kafka.wire import Chunk
    from ks_actors.records import TopicPartition

# What is being processed, and what comes after it, once half of the former is done: more, or sooner, would only take up room.
_CHUNKS = 2


@final
class Budget:
    """How many bytes the partitions of a fetcher have buffered, and from how many on nothing is read ahead any more."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self.used: int = 0

    @property
    def room(self) -> bool:
        """Whether partitions that have something to be read may have more."""
        return self.used < self.limit


@final
class Source:
    """One partition of a fetcher.

    `position` is where its owner reads on, `ahead` where the next request does. Whatever was looked up in an earlier `era` is void by now.
    """

    __slots__ = (
        "_budget",
        "ahead",
        "buffered",
        "chunks",
        "era",
        "error",
        "failures",
        "held",
        "looking",
        "more",
        "partition",
        "paused",
        "position",
        "unknown_since",
    )

    def __init__(self, partition: TopicPartition, position: int, budget: Budget) -> None:
        self._budget = budget
        self.partition: TopicPartition = partition
        self.position: int = position
        self.ahead: int = position
        self.era: int = 0
        self.paused: bool = False
        # Whether the last fetch left something behind on the broker.
        self.more: bool = False
        # It is not asked for while its range of offsets is looked up, and while it rests after a failure.
        self.looking: bool = False
        self.held: asyncio.TimerHandle | None = None
        self.failures: Failures = Failures()
        # Since when nobody knows the partition.
        self.unknown_since: float | None = None
        self.error: Exception | None = None
        self.chunks: deque[Chunk] = deque()
        self.buffered: int = 0

    @property
    def ready(self) -> bool:
        """Whether there is something to say."""
        return not self.chunks[0].waits if self.chunks else self.error is not None

    @property
    def full(self) -> bool:
        """Whether no more can be taken in."""
        return len(self.chunks) >= _CHUNKS

    @property
    def wanted(self) -> bool:
        """Whether more is to be asked for.

        Of a partition that has nothing buffered it always is, whatever others have: its task may wait for it before it goes on with them.
        """
        if self.paused or self.looking or self.held is not None or self.error is not None:
            return False
        chunks = self.chunks
        return not chunks or (len(chunks) < _CHUNKS and chunks[0].half_read and self._budget.room)

    def move(self, position: int) -> None:
        """Read on from somewhere else; what is there, or under way, is void."""
        self.position = self.ahead = position
        self.era += 1
        self.looking = self.more = False
        if self.held is not None:
            self.held.cancel()
            self.held = None
        self.failures.end()
        self.unknown_since = None
        self.error = None
        self.chunks.clear()
        self._budget.used -= self.buffered
        self.buffered = 0

    def add(self, chunk: Chunk) -> bool:
        """Take in what was brought; tell whether there is anything new in it."""
        behind = chunk.next_offset
        if behind is None or behind <= self.ahead:
            return False
        self.ahead = behind
        self.more = behind < chunk.end_offset
        self.chunks.append(chunk)
        self.buffered += chunk.size
        self._budget.used += chunk.size
        return True

    def read(self, limit: int, until: float = inf) -> Fetched | None:
        """Return what is there, at most `limit` records, and move behind it; None when it is nothing. No batch is begun after `until`.

        Raises LogCorrupted and LogError when it is the next record that cannot be read; it is fetched again then.
        """
        columns = Columns()
        position, end = self.position, None
        while self.chunks and len(columns.keys) < limit:
            chunk = self.chunks[0]
            end = chunk.end_offset
            try:
                more = chunk.read(position, limit, columns, until)
            except LogError:
                position = max(position, chunk.position)
                if columns.keys:
                    break
                self.move(position)
                raise
            if more:
                position = max(position, chunk.position)
                if chunk.waits or (columns.keys and perf_counter() >= until):
                    break
            else:
                assert chunk.next_offset is not None
                position = max(position, chunk.next_offset)
                self.chunks.popleft()
                self.buffered -= chunk.size
                self._budget.used -= chunk.size
        if end is None or position == self.position:
            return None
        self.position = position
        return Fetched(self.partition, columns.batch(), position, end)
