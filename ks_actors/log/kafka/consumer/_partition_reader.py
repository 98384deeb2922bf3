"""A partition under fetch: its positions, and its buffered chunks."""

from __future__ import annotations

from collections import deque
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, final

from ks_actors._errors import LogError
from ks_actors.log._types import Fetched
from ks_actors.log.kafka.client import Backoff
from ks_actors.log.kafka.wire import Columns

if TYPE_CHECKING:
    import asyncio

    from ks_actors.log.kafka.client import EpochHistory, LeaderEpochs
    from ks_actors.log.kafka.wire import Chunk
    from ks_actors.records import TopicPartition

# The chunk in process, and the next one once half of the first is done: more would waste memory.
_CHUNKS = 2


@final
class Budget:
    """The buffered bytes of a fetcher's partitions, and the limit of reading ahead."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self.used: int = 0

    @property
    def room(self) -> bool:
        """Whether partitions with buffered records may fetch more."""
        return self.used < self.limit


@final
class PartitionReader:
    """One partition of a fetcher.

    `position` is its owner's next offset, `ahead` the next offset to fetch, and `epoch` the leader
    epoch of the record before that (-1 for unknown). A lookup from an earlier `era` is obsolete.
    """

    __slots__ = (
        "_budget",
        "_epochs",
        "_lost",
        "ahead",
        "backoff",
        "backoff_timer",
        "buffered",
        "chunks",
        "epoch",
        "era",
        "error",
        "history",
        "looking",
        "lost_range",
        "more",
        "partition",
        "paused",
        "position",
        "served",
        "unknown_since",
    )

    def __init__(
        self, partition: TopicPartition, position: int, budget: Budget, epochs: LeaderEpochs
    ) -> None:
        self._budget = budget
        self._epochs: LeaderEpochs = epochs
        self.history: EpochHistory = epochs.add(partition, position)
        self.partition: TopicPartition = partition
        self.position: int = position
        self.ahead: int = position
        self.epoch: int = self.history.before(position)
        self.era: int = 0
        self.paused: bool = False
        # Whether the broker had more than the last fetch returned.
        self.more: bool = False
        # The number, among all of the fetcher, of the last response part that had its records.
        self.served: int = 0
        # No fetch while its offset range is looked up (`looking`), or during a backoff
        # (`backoff_timer`).
        self.looking: bool = False
        # Whether the last fetch was out of range, though its offset was not.
        self.lost_range: bool = False
        self._lost: int | None = None
        self.backoff_timer: asyncio.TimerHandle | None = None
        self.backoff: Backoff = Backoff()
        # The loop time since which no broker knows the partition.
        self.unknown_since: float | None = None
        self.error: Exception | None = None
        self.chunks: deque[Chunk] = deque()
        self.buffered: int = 0

    @property
    def ready(self) -> bool:
        """Whether there are records or an error to return."""
        return not self.chunks[0].waits if self.chunks else self.error is not None

    @property
    def full(self) -> bool:
        """Whether the buffer is full."""
        return len(self.chunks) >= _CHUNKS

    @property
    def wanted(self) -> bool:
        """Whether to fetch more.

        Always true for a partition with an empty buffer, regardless of the budget: its task may
        need its records before it can process those of others.
        """
        if self.paused or self.looking or self.backoff_timer is not None or self.error is not None:
            return False
        chunks = self.chunks
        return not chunks or (len(chunks) < _CHUNKS and chunks[0].half_read and self._budget.room)

    def move(self, position: int) -> None:
        """Continue from another position; drop the buffer and responses under way."""
        self.position = self.ahead = position
        history = self.history
        if self._lost is not None:
            history.cut(self._lost)
            self._epochs.forget(self.partition)
            self._lost = None
        if history.before(position) >= 0:
            history.cut(position)
        else:
            history.begin(position, self._epochs.before(self.partition, position))
        self.epoch = history.before(position)
        self.era += 1
        self.looking = self.more = self.lost_range = False
        if self.backoff_timer is not None:
            self.backoff_timer.cancel()
            self.backoff_timer = None
        self.backoff.end()
        self.unknown_since = None
        self.error = None
        self.chunks.clear()
        self._budget.used -= self.buffered
        self.buffered = 0

    def note_lost(self, offset: int) -> None:
        """Note that the owner knows that the log has lost the records from an offset on.

        The next move forgets their epochs. Until then fetches have them: otherwise one might go on
        in the new log at an offset of the former one.
        """
        self._lost = offset

    def end(self) -> None:
        """Stop reading; the epoch of the last record may still be needed for a commit."""
        self.history.cut(self.position)
        self._epochs.remove(self.partition, self.history)

    def add(self, chunk: Chunk) -> bool:
        """Add a fetched chunk; tell whether it has anything new."""
        behind = chunk.next_offset
        # Brokers return whole batches: one may end before the offset that was asked for.
        if behind is None or behind <= self.ahead:
            return False
        self.history.note(self.ahead, behind, chunk.epoch_starts())
        self.ahead, self.epoch = behind, chunk.leader_epoch
        self.more = behind < chunk.end_offset
        self.chunks.append(chunk)
        self.buffered += chunk.size
        self._budget.used += chunk.size
        return True

    def read(self, limit: int, until: float = inf) -> Fetched | None:
        """Return up to `limit` buffered records and advance; None if there are none.

        Starts no further batch after `until`. Raises LogCorrupted and LogError when the next record
        cannot be read; the next read fetches it again.
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
                # First the records before the damaged one; the next read meets it again.
                if columns.keys:
                    break
                # Drop the chunk: the damage may be of this transfer, so a later read fetches it
                # again.
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
