"""A partition under fetch: its positions, its buffered chunks, and its next steps."""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Final, final

from ks_actors._errors import LogError
from ks_actors.lifecycle import Transitions
from ks_actors.log._types import Fetched
from ks_actors.log.kafka.client import UNKNOWN_EPOCH, Backoff
from ks_actors.log.kafka.wire import Columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.lifecycle import Cycle
    from ks_actors.log.kafka.client import EpochHistory, KafkaOptions, LeaderEpochs
    from ks_actors.log.kafka.wire import Chunk, Unpacked
    from ks_actors.records import TopicPartition

# The chunk in process, and the next chunk once half of the first is read: more would waste memory.
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


class FetchState(Enum):
    """The state of a partition's fetches, apart from its buffer and from pauses by its owner."""

    OPEN = "fetched as far as its buffer has room and its owner has not paused it"
    LOOKING = "its offset range is being looked up"
    RESTING = "left alone for a while after a temporary error"
    FAILED = "its owner has to see an error first"


_TRANSITIONS: Final = Transitions(
    {
        FetchState.OPEN: (*FetchState,),
        # The lookup finds the cause of the error, or shows that the offset is valid.
        FetchState.LOOKING: (FetchState.OPEN, FetchState.RESTING, FetchState.FAILED),
        # Answers to earlier requests may still arrive, and have errors too.
        FetchState.RESTING: (FetchState.OPEN, FetchState.RESTING, FetchState.FAILED),
        FetchState.FAILED: (FetchState.OPEN, FetchState.FAILED),
    }
)


@final
class PartitionReader:
    """One partition of a fetcher.

    `position` is its owner's next offset, `ahead` the next offset to fetch, and `epoch` the leader
    epoch of the record before `ahead` (-1 for unknown). A lookup from an earlier `era` is obsolete.

    Each event has a method: answer (`add`, `look`, `rest`, `fail`), end of a decompression
    (`take`), read, pause, resume, seek (`move`). Each method ends with a call of `settle`, which
    does what the partition then requires; callers do not call `settle`.
    """

    __slots__ = (
        "_budget",
        "_epochs",
        "_fetching",
        "_lost",
        "_settle",
        "_timer",
        "ahead",
        "backoff",
        "buffered",
        "chunks",
        "epoch",
        "era",
        "error",
        "history",
        "lost_range",
        "more",
        "partition",
        "paused",
        "position",
        "served",
        "unknown_since",
    )

    def __init__(
        self,
        partition: TopicPartition,
        position: int,
        budget: Budget,
        epochs: LeaderEpochs,
        settle: Callable[[PartitionReader], None],
    ) -> None:
        self._budget = budget
        self._epochs: LeaderEpochs = epochs
        self._settle: Callable[[PartitionReader], None] = settle
        self._fetching: Cycle[FetchState] = _TRANSITIONS.start(
            FetchState.OPEN, name=f"the fetch of {partition}"
        )
        self.history: EpochHistory = epochs.add(partition, position)
        self.partition: TopicPartition = partition
        self.position: int = position
        self.ahead: int = position
        self.epoch: int = self.history.before(position)
        self.era: int = 0
        self.paused: bool = False
        # Whether the broker had more than the last fetch returned.
        self.more: bool = False
        # The number of the last response part with its records; the fetch loop counts them.
        self.served: int = 0
        # Whether the last fetch was refused as out of range, though its offset is in range.
        self.lost_range: bool = False
        self._lost: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.backoff: Backoff = Backoff()
        # The loop time of the first lookup that did not find the partition.
        self.unknown_since: float | None = None
        self.error: Exception | None = None
        self.chunks: deque[Chunk] = deque()
        self.buffered: int = 0

    @property
    def state(self) -> FetchState:
        """The state of the partition's fetches."""
        return self._fetching.state

    @property
    def ready(self) -> bool:
        """Whether there are records, or an error, for the owner at this moment."""
        if self.paused:
            return False
        return not self.chunks[0].waits if self.chunks else self.error is not None

    @property
    def full(self) -> bool:
        """Whether the buffer is full."""
        return len(self.chunks) >= _CHUNKS

    @property
    def wanted(self) -> bool:
        """Whether to fetch more.

        Always true for an open partition with an empty buffer, regardless of the budget: its task
        may require these records before it can process the records of other partitions.
        """
        if self.paused or self._fetching.state is not FetchState.OPEN:
            return False
        chunks = self.chunks
        return not chunks or (len(chunks) < _CHUNKS and chunks[0].half_read and self._budget.room)

    def describe(self) -> str:
        """Return the partition's state in one line, for a report of a stall."""
        chunks = ", ".join(
            f"{chunk.size} bytes {'packed' if chunk.packed else 'plain'}"
            f"{' in a thread' if chunk.unpacking else ''}{', waits' if chunk.waits else ''}"
            for chunk in self.chunks
        )
        return (
            f"position {self.position}, fetched to {self.ahead}, {self.state.name}, "
            f"paused {self.paused}, wanted {self.wanted}, error {self.error!r}, chunks [{chunks}], "
            f"budget {self._budget.used} of {self._budget.limit} bytes"
        )

    @property
    def to_unpack(self) -> Chunk | None:
        """The chunk whose next piece a thread is to decompress now.

        At most one thread works for a partition. A paused partition's pieces are decompressed too:
        they are few, and the owner wants them as soon as the partition resumes.
        """
        for chunk in self.chunks:
            if chunk.unpacking:
                return None
            if chunk.packed:
                return chunk if chunk.wants_unpacking else None
        return None

    # --- events of its owner ----------------------------------------------------------------------

    def pause(self) -> None:
        """Fetch nothing more, and return nothing, until `resume`."""
        self.paused = True
        self._settle(self)

    def resume(self) -> None:
        """Continue after a pause."""
        self.paused = False
        self._settle(self)

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
        self.more = self.lost_range = False
        self.backoff.end()
        self.unknown_since = None
        self.chunks.clear()
        self._count()
        self._go_to(FetchState.OPEN)

    def see_error(self) -> Exception:
        """Return the error for the owner, and fetch again.

        If the cause persists, the next fetch leads to the same error.
        """
        error = self.error
        assert error is not None
        self._go_to(FetchState.OPEN)
        return error

    def note_lost(self, offset: int) -> None:
        """Note that the owner knows that the log has lost the records from an offset on.

        The next move forgets the epochs of these records. Until then fetches send those epochs:
        otherwise a fetch might continue in the new log at an offset of the old log.
        """
        self._lost = offset

    def end(self) -> None:
        """Stop reading; the epoch of the last record stays known, for a commit."""
        self._stop_timer()
        self.history.cut(self.position)
        self._epochs.remove(self.partition, self.history)

    # --- events of fetches ------------------------------------------------------------------------

    def answered(self) -> None:
        """Note an answer without an error: the topic exists, and the broker leads the partition."""
        self.lost_range = False
        self.backoff.end()

    def add(self, chunk: Chunk) -> bool:
        """Add a fetched chunk; return whether it has anything new."""
        behind = chunk.next_offset
        # Brokers return whole batches: a batch may end before the requested offset.
        if behind is None or behind <= self.ahead:
            return False
        self.history.note(self.ahead, behind, chunk.epoch_starts())
        self.ahead, self.epoch = behind, chunk.leader_epoch
        self.more = behind < chunk.end_offset
        self.chunks.append(chunk)
        self._count()
        self._settle(self)
        return True

    def take(self, chunk: Chunk, unpacked: Unpacked) -> None:
        """Add decompressed batches, unless a move has dropped the chunk since."""
        chunk.take(unpacked)
        if chunk in self.chunks:
            self._count()
            self._settle(self)

    def look(self) -> None:
        """Fetch nothing while the partition's offset range is looked up."""
        self._go_to(FetchState.LOOKING)

    def rest(self, options: KafkaOptions, *, away: bool = False) -> None:
        """Fetch nothing during the next pause of the partition's backoff."""
        self._go_to(FetchState.RESTING)
        self._timer = asyncio.get_running_loop().call_later(
            self.backoff.pause_s(options, away=away), self._go_to, FetchState.OPEN
        )

    def fail(self, error: Exception) -> None:
        """Fetch nothing until the owner, after the buffered records, has seen the error."""
        self._go_to(FetchState.FAILED, error)

    def forget_epoch(self) -> None:
        """Fetch without the leader epoch of the previous record, which the log no longer has."""
        self.epoch = UNKNOWN_EPOCH
        self._settle(self)

    def _go_to(self, state: FetchState, error: Exception | None = None) -> None:
        self._fetching.to(state)
        self._stop_timer()
        self.error = error
        self._settle(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _count(self) -> None:
        """Charge the buffer to the budget, with the bytes that decompression has added."""
        buffered = 0
        for chunk in self.chunks:
            buffered += chunk.size + chunk.grown
        self._budget.used += buffered - self.buffered
        self.buffered = buffered

    # --- records for its owner --------------------------------------------------------------------

    def read(self, limit: int, until: float = inf) -> Fetched | None:
        """Return up to `limit` buffered records and advance; None if there are none.

        After the time `until` it starts no further batch. Raises LogCorrupted and LogError when the
        next record cannot be read; the record is then fetched again.
        """
        columns = Columns()
        position, end = self.position, None
        while self.chunks and len(columns) < limit:
            chunk = self.chunks[0]
            end = chunk.end_offset
            try:
                more = chunk.read(position, limit, columns, until)
            except LogError:
                position = max(position, chunk.position)
                # Return the records before the damaged record; the next read raises its error.
                if len(columns):
                    break
                # Drop the chunk, so that it is fetched again: the transfer may have damaged it.
                self.move(position)
                raise
            if more:
                position = max(position, chunk.position)
                if chunk.waits or (len(columns) and perf_counter() >= until):
                    break
            else:
                assert chunk.next_offset is not None
                position = max(position, chunk.next_offset)
                self.chunks.popleft()
        before, self.position = self.position, position
        self._count()
        self._settle(self)
        if end is None or position == before:
            return None
        return Fetched(self.partition, columns.batch(), position, end)
