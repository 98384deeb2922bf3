"""A partition that is being fetched: where it is read, and what has been brought of it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

from ks_actors._errors import LogError
from ks_actors.log._types import Fetched
from ks_actors.log.kafka._failures import Failures
from ks_actors.log.kafka._records import Columns

if TYPE_CHECKING:
    from ks_actors.log._types import TopicPartition
    from ks_actors.log.kafka._records import Chunk

# What is being processed, and what comes after it, once half of the former is done: more, or sooner, would only take up room.
_CHUNKS = 2


@final
class Source:
    """One partition of a fetcher.

    `position` is where its owner reads on, `ahead` where the next request does. Whatever was asked for in an earlier `era` is void by now.
    """

    __slots__ = (
        "ahead",
        "asked",
        "buffered",
        "chunks",
        "era",
        "error",
        "failures",
        "idle",
        "not_before",
        "partition",
        "paused",
        "position",
        "unknown_since",
    )

    def __init__(self, partition: TopicPartition, position: int) -> None:
        self.partition: TopicPartition = partition
        self.position: int = position
        self.ahead: int = position
        self.era: int = 0
        self.paused: bool = False
        # Whether a request for it is under way, and whether the last one brought nothing.
        self.asked: bool = False
        self.idle: bool = False
        # It is not asked for before that time (of the loop): something was wrong with it.
        self.not_before: float = 0.0
        self.failures: Failures = Failures()
        # Since when nobody knows the partition.
        self.unknown_since: float | None = None
        self.error: Exception | None = None
        self.chunks: deque[Chunk] = deque()
        self.buffered: int = 0

    @property
    def ready(self) -> bool:
        """Whether there is something to say."""
        return bool(self.chunks) or self.error is not None

    @property
    def wanted(self) -> bool:
        """Whether more is to be asked for."""
        if self.paused or self.asked or self.error is not None:
            return False
        chunks = self.chunks
        return not chunks or (len(chunks) < _CHUNKS and chunks[0].half_read)

    def move(self, position: int) -> None:
        """Read on from somewhere else; what is there, or under way, is void."""
        self.position = self.ahead = position
        self.era += 1
        self.asked = self.idle = False
        self.not_before = 0.0
        self.failures.end()
        self.unknown_since = None
        self.error = None
        self.chunks.clear()
        self.buffered = 0

    def add(self, chunk: Chunk) -> bool:
        """Take in what was brought; tell whether there is anything new in it."""
        behind = chunk.next_offset
        self.idle = False
        if behind is None or behind <= self.ahead:
            return False
        self.ahead = behind
        self.chunks.append(chunk)
        self.buffered += chunk.size
        return True

    def read(self, limit: int) -> Fetched | None:
        """Return what is there, at most `limit` records, and move behind it; None when it is nothing.

        Raises LogCorrupted and LogError when it is the next record that cannot be read; it is fetched again then.
        """
        columns = Columns()
        position, end = self.position, None
        while self.chunks and len(columns.keys) < limit:
            chunk = self.chunks[0]
            end = chunk.end_offset
            try:
                more = chunk.read(position, limit, columns)
            except LogError:
                position = max(position, chunk.position)
                if columns.keys:
                    break
                self.move(position)
                raise
            if more:
                position = max(position, chunk.position)
            else:
                assert chunk.next_offset is not None
                position = max(position, chunk.next_offset)
                self.chunks.popleft()
                self.buffered -= chunk.size
        if end is None or position == self.position:
            return None
        self.position = position
        return Fetched(self.partition, columns.batch(), position, end)
