"""Fetchers of partitions in Kafka."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, final

from ks_actors._errors import LogClosed, LogError, LogTruncated, OffsetOutOfRange
from ks_actors.log._request_figures import RequestFigures
from ks_actors.log.kafka.consumer._fetch_loop import FetchLoop
from ks_actors.log.kafka.consumer._partition_reader import Budget, PartitionReader
from ks_actors.log.kafka.wire import check_aiokafka
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ks_actors.log._types import Fetched
    from ks_actors.log.kafka.client import KafkaClient, LeaderEpochs

_TOUCHED = (
    "aiokafka.record.memory_records:MemoryRecords.has_next "
    "aiokafka.record.memory_records:MemoryRecords.next_batch "
    "aiokafka.record.default_records:DefaultRecordBatch.validate_crc "
    "aiokafka.protocol.offset:OffsetRequest"
)
# The most seconds of decoding at a time, so that other tasks get their turn.
_SLICE_SECONDS = 0.005


@final
class KafkaFetcher:
    """Fetch ahead: the next records are on their way while the app processes the last ones.

    The fetcher has its own connections to brokers. While a broker is unreachable it keeps trying,
    and returns nothing new of its partitions. The buffer survives a pause, and an assignment that
    keeps the partition's position.
    """

    def __init__(
        self,
        client: KafkaClient,
        client_id: str,
        *,
        committed: bool,
        closed: Callable[[KafkaFetcher], None],
    ) -> None:
        check_aiokafka(_TOUCHED)
        self.client_id: str = client_id
        self.figures: RequestFigures = RequestFigures("fetch", client_id)
        self._sources: dict[TopicPartition, PartitionReader] = {}
        # Partitions with records or errors to return, in the order of their turns.
        self._ready: dict[TopicPartition, None] = {}
        # Shared by all partitions: each may buffer a little, but together no more than this.
        self._budget: Budget = Budget(client.options.fetch_max_bytes)
        self._epochs: LeaderEpochs = client.epochs
        self._fetching: FetchLoop = FetchLoop(
            client,
            self._sources,
            self._on_records,
            budget=self._budget,
            client_id=client_id,
            committed=committed,
            figures=self.figures,
        )
        self._on_close = closed
        self._waiter: asyncio.Future[None] | None = None
        self._late = False
        self._closed = False

    def assign(self, positions: Mapping[TopicPartition, int], /) -> None:
        """Read exactly these partitions from these offsets; paused partitions stay paused."""
        assigned = {TopicPartition(*partition): offset for partition, offset in positions.items()}
        for partition in [partition for partition in self._sources if partition not in assigned]:
            source = self._sources.pop(partition)
            # The new era makes the responses under way obsolete.
            self._move(source, source.position)
            source.end()
        for partition, offset in assigned.items():
            if partition not in self._sources:
                self._sources[partition] = added = PartitionReader(
                    partition, offset, self._budget, self._epochs
                )
                self._fetching.change(added)
            # An unchanged position keeps its fetched records; `assign` is called for every new
            # task.
            elif self._sources[partition].position != offset:
                self._move(self._sources[partition], offset)

    def seek(self, partition: TopicPartition, offset: int, /) -> None:
        """Continue from `offset`. Raises LogError for a partition that is not assigned."""
        (source,) = self._assigned((partition,))
        self._move(source, offset)

    def _move(self, source: PartitionReader, offset: int) -> None:
        source.move(offset)
        # Its records are of the old position.
        self._ready.pop(source.partition, None)
        self._fetching.change(source)

    def position(self, partition: TopicPartition, /) -> int:
        """Return the partition's next offset; raises KeyError when it is not assigned."""
        return self._sources[partition].position

    def pause(self, partitions: Iterable[TopicPartition], /) -> None:
        """Leave partitions out of fetches until `resume`.

        Raises LogError for one that is not assigned.
        """
        for source in self._assigned(partitions):
            source.paused = True
            self._fetching.change(source)

    def resume(self, partitions: Iterable[TopicPartition], /) -> None:
        """Fetch partitions again, from where they were paused.

        Raises LogError for one that is not assigned.
        """
        for source in self._assigned(partitions):
            source.paused = False
            # A chunk that came in during the pause has not woken the reader, so nothing has begun
            # to decompress it either.
            self._fetching.unpacking.start_next(source)
            if source.ready:
                self._on_records(source)
            self._fetching.change(source)

    def _assigned(self, partitions: Iterable[TopicPartition]) -> list[PartitionReader]:
        partitions = [TopicPartition(*partition) for partition in partitions]
        strange = [str(partition) for partition in partitions if partition not in self._sources]
        if strange:
            raise LogError(
                f"fetcher {self.client_id} is not assigned {', '.join(strange)}: assign them"
            )
        return [self._sources[partition] for partition in partitions]

    def _on_records(self, source: PartitionReader) -> None:
        if not source.paused:
            self._ready[source.partition] = None
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _time_is_up(self) -> None:
        self._late = True
        self._wake()

    async def fetch(self, *, max_wait_ms: int, max_records: int = 10_000) -> Sequence[Fetched]:
        """Wait for records and return them, at most `max_records` of each partition.

        Returns an empty sequence when none arrive within `max_wait_ms`. Only one fetch may wait at
        a time. Raises OffsetOutOfRange, UnknownTopicOrPartition, LogCorrupted, NotAuthorized,
        LogClosed.
        """
        if max_records < 1:
            raise ValueError(f"max_records is {max_records}: give 1 or more")
        # Yield before any read: a cancellation after a read would lose records.
        await asyncio.sleep(0)
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
        until = perf_counter() + _SLICE_SECONDS
        for partition in tuple(self._ready):
            source = self._sources[partition]
            if found and not source.chunks and source.error is not None:
                # Raised by the next call, behind these records.
                self._ready = {partition: None, **self._ready}
                break
            del self._ready[partition]
            # `resume` puts it back.
            if source.paused:
                continue
            try:
                fetched = self._read(source, max_records, until)
            except Exception:
                # The position has moved, so the next request may include this partition again.
                self._fetching.change(source)
                if not found:
                    raise
                # The positions of these records have moved on: return them first, and raise the
                # error in the next call.
                self._ready = {partition: None, **self._ready}
                break
            self._fetching.change(source)
            if fetched is not None:
                found.append(fetched)
            # At the end of the order, so that a partition with many records does not starve the
            # others.
            if source.ready:
                self._ready[partition] = None
            if perf_counter() > until:
                break
        return found

    def _read(self, source: PartitionReader, max_records: int, until: float) -> Fetched | None:
        if source.chunks:
            fetched = source.read(max_records, until)
            self._fetching.unpacking.start_next(source)
            return fetched
        error = source.error
        if error is not None:
            # Raise it once; then fetch again, and raise it again if nothing has changed.
            source.error = None
            if isinstance(error, OffsetOutOfRange):
                lost = error.diverges_at if isinstance(error, LogTruncated) else None
                source.note_lost(lost or 0)
            raise error
        return None

    async def close(self) -> None:
        """Close; a waiting fetch raises LogClosed. A second call does nothing."""
        self.shut()
        await self._fetching.close()

    def shut(self) -> None:
        """Stop fetching, but leave the connections to `close`."""
        if not self._closed:
            self._closed = True
            self._fetching.stop()
            for source in self._sources.values():
                source.end()
            self._wake()
            self._on_close(self)
