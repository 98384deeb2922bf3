"""Fetchers of partitions in Kafka."""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, final

from ks_actors._errors import LogClosed, LogError, LogTruncated, OffsetOutOfRange
from ks_actors.lifecycle import component_log
from ks_actors.log._request_figures import RequestFigures
from ks_actors.log.kafka.consumer._fetch_loop import FetchLoop
from ks_actors.log.kafka.consumer._partition_reader import Budget, PartitionReader
from ks_actors.log.kafka.wire import Unpacked, unpacked
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from ks_actors.log._types import Fetched
    from ks_actors.log.kafka.client import KafkaClient, LeaderEpochs
    from ks_actors.log.kafka.wire import Chunk

# The most seconds of decoding at a time, so that other tasks can run in between.
_SLICE_SECONDS = 0.005
_log = component_log(__name__)


@final
class KafkaFetcher:
    """Fetch ahead: the next records are on their way while the app processes the last records.

    The fetcher has its own connections to brokers. While a broker is unreachable the fetcher
    retries, and returns no new records of that broker's partitions. A partition's buffer survives a
    pause, and an assignment that keeps the partition's position.
    """

    def __init__(
        self,
        client: KafkaClient,
        client_id: str,
        *,
        committed: bool,
        closed: Callable[[KafkaFetcher], None],
    ) -> None:
        self.client_id: str = client_id
        self.figures: RequestFigures = RequestFigures("fetch", client_id)
        self._sources: dict[TopicPartition, PartitionReader] = {}
        # Partitions with records or errors to return, in the order in which to return them.
        self._ready: dict[TopicPartition, None] = {}
        # All partitions share this budget: it limits the bytes that they buffer together.
        self._budget: Budget = Budget(client.options.fetch_max_bytes)
        self._epochs: LeaderEpochs = client.epochs
        self._fetching: FetchLoop = FetchLoop(
            client,
            self._sources,
            budget=self._budget,
            client_id=client_id,
            committed=committed,
            figures=self.figures,
        )
        self._unpacking: Unpacking = Unpacking(self._fetching.begin, client.threads)
        self._on_close = closed
        self._waiter: asyncio.Future[None] | None = None
        self._late = False
        self._closed = False

    def assign(self, positions: Mapping[TopicPartition, int], /) -> None:
        """Read exactly these partitions from these offsets; paused partitions stay paused."""
        assigned = {TopicPartition(*partition): offset for partition, offset in positions.items()}
        for partition in [partition for partition in self._sources if partition not in assigned]:
            source = self._sources.pop(partition)
            # The move starts a new era, in which the responses under way are obsolete.
            source.move(source.position)
            source.end()
        for partition, offset in assigned.items():
            if partition not in self._sources:
                self._sources[partition] = added = PartitionReader(
                    partition, offset, self._budget, self._epochs, self._settle
                )
                self._settle(added)
            # An unchanged position keeps its fetched records; `assign` is called for every new
            # task.
            elif self._sources[partition].position != offset:
                self._sources[partition].move(offset)

    def seek(self, partition: TopicPartition, offset: int, /) -> None:
        """Continue from `offset`. Raises LogError for a partition that is not assigned."""
        (source,) = self._assigned((partition,))
        source.move(offset)

    def position(self, partition: TopicPartition, /) -> int:
        """Return the partition's next offset; raises KeyError when it is not assigned."""
        return self._sources[partition].position

    def pause(self, partitions: Iterable[TopicPartition], /) -> None:
        """Leave partitions out of fetches until `resume`.

        Raises LogError for a partition that is not assigned.
        """
        for source in self._assigned(partitions):
            source.pause()

    def resume(self, partitions: Iterable[TopicPartition], /) -> None:
        """Fetch partitions again, from where they were paused.

        Raises LogError for a partition that is not assigned.
        """
        for source in self._assigned(partitions):
            source.resume()

    def describe(self, partition: TopicPartition, /) -> str:
        """Return the state of a partition's fetches in one line, for a report of a stall."""
        source = self._sources.get(partition)
        if source is None:
            return "not assigned"
        turn = "has a turn to be read" if partition in self._ready else "has no turn to be read"
        return f"{source.describe()}; {turn}; {self._fetching.describe(partition)}"

    def _assigned(self, partitions: Iterable[TopicPartition]) -> list[PartitionReader]:
        partitions = [TopicPartition(*partition) for partition in partitions]
        strange = [str(partition) for partition in partitions if partition not in self._sources]
        if strange:
            raise LogError(
                f"fetcher {self.client_id} is not assigned {', '.join(strange)}: assign them"
            )
        return [self._sources[partition] for partition in partitions]

    def _settle(self, source: PartitionReader) -> None:
        """After any event, do what a partition now requires; only this method does so.

        Decompress its next piece, make its records available, and check soon whether to fetch it.
        """
        if source.chunks:
            self._unpacking.start_next(source)
        if source.ready:
            # A partition that is already in the order keeps its place.
            self._ready.setdefault(source.partition)
            self._wake()
        else:
            self._ready.pop(source.partition, None)
        self._fetching.change(source)

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
            if found and not source.chunks:
                # Return the records before the error; the next call raises the error.
                break
            # Move it to the end of the order, so that a partition with many records does not starve
            # the others.
            del self._ready[partition]
            try:
                fetched = self._read(source, max_records, until)
            except LogError:
                # The positions of the found records have moved on: return those records first. The
                # partition is fetched again, and the error then recurs.
                if not found:
                    raise
                break
            if fetched is not None:
                found.append(fetched)
            if perf_counter() > until:
                break
        return found

    def _read(self, source: PartitionReader, max_records: int, until: float) -> Fetched | None:
        if source.chunks:
            return source.read(max_records, until)
        error = source.see_error()
        if isinstance(error, OffsetOutOfRange):
            lost = error.diverges_at if isinstance(error, LogTruncated) else None
            source.note_lost(lost or 0)
        raise error

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


@final
class Unpacking:
    """Decompress the next batches of partitions in threads.

    Each partition has one piece to read and the piece after it. After a seek or the end a result is
    obsolete, and is dropped once its thread is done. `begin` runs a coroutine that ends with the
    fetcher. `threads` are the client's, since the loop's default executor belongs to the user.
    """

    def __init__(
        self, begin: Callable[[Coroutine[Any, Any, None]], None], threads: Executor | None
    ) -> None:
        self._begin: Callable[[Coroutine[Any, Any, None]], None] = begin
        self._threads: Executor | None = threads

    def start_next(self, source: PartitionReader) -> None:
        """Start decompressing a partition's next piece, if one is due."""
        chunk = source.to_unpack
        if chunk is not None:
            chunk.unpacking = True
            self._begin(self._unpack(source, chunk))

    async def _unpack(self, source: PartitionReader, chunk: Chunk) -> None:
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self._threads, partial(unpacked, chunk.raw, chunk.unpacked_to, chunk.limit)
            )
        except Exception as error:  # noqa: BLE001 - without thread or memory, the reader does it
            _log.warning(
                "%s: records are decompressed on the event loop, because a thread could not do "
                "it: %r",
                source.partition,
                error,
            )
            found = Unpacked({}, None)
        source.take(chunk, found)
