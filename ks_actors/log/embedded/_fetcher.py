"""The fetcher of the embedded log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from ks_actors._errors import LogClosed, LogError
from ks_actors.log._types import Fetched
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ks_actors.log.embedded._broker import Broker
    from ks_actors.log.embedded._faults import Faults
    from ks_actors.log.embedded._partition import Partition


@final
class EmbeddedFetcher:
    """A fetcher that reads directly from the partitions: no requests are ever in flight.

    Partitions without changes cost nothing.
    """

    def __init__(
        self,
        broker: Broker,
        faults: Faults,
        client_id: str,
        *,
        committed: bool,
        closed: Callable[[EmbeddedFetcher], None],
    ) -> None:
        self.client_id: str = client_id
        self._broker: Broker = broker
        self._faults: Faults = faults
        self._committed: bool = committed
        self._on_close = closed
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._watched: dict[TopicPartition, Partition] = {}
        # Partitions that may have changed, in the order of the changes.
        self._active: dict[TopicPartition, None] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._late = False
        self._closed = False

    def assign(self, positions: Mapping[TopicPartition, int], /) -> None:
        """Read exactly these partitions from these offsets; paused partitions stay paused."""
        self._unwatch()
        self._positions = {
            TopicPartition(*partition): offset for partition, offset in positions.items()
        }
        self._paused &= self._positions.keys()
        self._active = dict.fromkeys(
            partition for partition in self._positions if partition not in self._paused
        )
        self._wake()

    def seek(self, partition: TopicPartition, offset: int, /) -> None:
        """Continue reading from `offset`. Raises LogError for a partition that is not assigned."""
        self._check_assigned((partition,))
        self._positions[partition] = offset
        self._activate(partition)

    def position(self, partition: TopicPartition, /) -> int:
        """Return the next offset of the partition; raises KeyError when it is not assigned."""
        return self._positions[partition]

    def pause(self, partitions: Iterable[TopicPartition], /) -> None:
        """Skip partitions in fetches until `resume`.

        Raises LogError for a partition that is not assigned.
        """
        partitions = tuple(partitions)
        self._check_assigned(partitions)
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition], /) -> None:
        """Fetch partitions again, from the position of the pause.

        Raises LogError for a partition that is not assigned.
        """
        partitions = tuple(partitions)
        self._check_assigned(partitions)
        self._paused.difference_update(partitions)
        for partition in partitions:
            self._activate(partition)

    def describe(self, partition: TopicPartition, /) -> str:
        """Return the state of a partition's fetches in one line, for a report of a stall."""
        return (
            f"position {self._positions.get(partition)}, paused {partition in self._paused}, "
            f"with news {partition in self._active}"
        )

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        strange = [
            str(TopicPartition(*partition))
            for partition in partitions
            if partition not in self._positions
        ]
        if strange:
            raise LogError(
                f"fetcher {self.client_id} is not assigned {', '.join(strange)}: assign them"
            )

    def _activate(self, partition: TopicPartition) -> None:
        self._active[partition] = None
        self._wake()

    def changed(self, partition: Partition, /) -> None:
        """Check `partition` again, if its change matters to this fetcher."""
        name = partition.name
        position = self._positions[name]
        if self._limit(partition) <= position <= partition.end and not partition.deleted:
            return
        self._activate(name)

    def _limit(self, partition: Partition) -> int:
        return partition.stable if self._committed else partition.end

    def look_again(self) -> None:
        """Make a waiting fetch check again for records, and for an injected error."""
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _time_is_up(self) -> None:
        self._late = True
        self._wake()

    async def fetch(self, *, max_wait_ms: int, max_records: int = 10_000) -> Sequence[Fetched]:
        """Wait for records and return them, at most `max_records` of each partition.

        Returns an empty sequence when no record came within `max_wait_ms`. A stored batch is
        returned unchanged if it fits. Only one fetch may wait at a time. Raises OffsetOutOfRange,
        UnknownTopicOrPartition, LogClosed, LogCorrupted.
        """
        if max_records < 1:
            raise ValueError(f"max_records is {max_records}: give 1 or more")
        # Yield before any read: a cancellation after a read would lose records.
        await asyncio.sleep(0)
        await self._faults.wait("fetch")
        self._faults.before("fetch")
        found = self._collect(max_records)
        if found or max_wait_ms <= 0:
            return found
        if self._waiter is not None:
            raise LogError(f"fetcher {self.client_id} is already waiting in another fetch")
        loop = asyncio.get_running_loop()
        self._late = False
        timer = loop.call_later(max_wait_ms / 1000, self._time_is_up)
        try:
            while True:
                self._waiter = loop.create_future()
                await self._waiter
                self._faults.before("fetch")
                found = self._collect(max_records)
                if found or self._late:
                    return found
        finally:
            self._waiter = None
            timer.cancel()

    def _collect(self, max_records: int) -> list[Fetched]:
        if self._closed:
            raise LogClosed(f"fetcher {self.client_id} is closed")
        found: list[Fetched] = []
        for name in tuple(self._active):
            if name in self._paused:
                del self._active[name]
                continue
            partition = self._broker.partition(name)
            # The topic may have been deleted and created again.
            if self._watched.get(name) is not partition:
                self._watch(partition)
            position = self._positions[name]
            partition.check_position(position)
            limit = self._limit(partition)
            if position >= limit:
                del self._active[name]
                continue
            batch, behind = partition.read(position, max_records, committed=self._committed)
            found.append(Fetched(name, batch, behind, limit))
        # Move positions only after the last step that can fail: they must not pass records that are
        # not returned.
        for fetched in found:
            self._positions[fetched.partition] = fetched.next_offset
        return found

    def _watch(self, partition: Partition) -> None:
        self._watched[partition.name] = partition
        partition.watchers[self] = None

    def _unwatch(self) -> None:
        for partition in self._watched.values():
            partition.watchers.pop(self, None)
        self._watched.clear()

    async def close(self) -> None:
        """Close; a waiting fetch raises LogClosed. Does nothing when already closed."""
        self.shut()

    def shut(self) -> None:
        """Close without waiting."""
        if not self._closed:
            self._closed = True
            self._unwatch()
            self._wake()
            self._on_close(self)
