"""Cleaning of partitions: when they have grown enough, or on request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from ks_actors._errors import LogClosed, LogError
from ks_actors.lifecycle import component_log
from ks_actors.log.embedded._cleaning import compact, retain

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.log.embedded._broker import Broker
    from ks_actors.log.embedded._partition import Partition

_logger = component_log(__name__)

# The pause between two steps: long enough for other tasks to exchange a few messages. Otherwise
# each message would wait for a step.
_REST_SECONDS: Final = 0.001


@final
class Housekeeper:
    """The cleaner of partitions: one at a time, in steps between which other tasks run.

    A partition is cleaned without a request when new records are at least 8 MiB (on disk: 32 MiB)
    and half of its size. Retention then uses the time of the partition's newest record, or the
    clock's time if it is earlier. So replayed records with old timestamps are not deleted before
    their readers see them.
    """

    def __init__(self, broker: Broker, clock: Callable[[], int]) -> None:
        self._broker: Broker = broker
        self._clock: Callable[[], int] = clock
        self._due: dict[Partition, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._lock: asyncio.Lock = asyncio.Lock()
        self._closed = False

    def grown(self, partition: Partition) -> None:
        """Check a partition with new records."""
        if partition.grown >= self._broker.storage.growth and partition.grown * 2 >= partition.size:
            partition.grown = 0
            self._due[partition] = None
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(
                    self._clean_due(), name="ks-actors-log-housekeeping"
                )

    async def _clean_due(self) -> None:
        try:
            while self._due:
                partition = next(iter(self._due))
                del self._due[partition]
                await self._clean_one(partition)
        finally:
            self._task = None

    async def _clean_one(self, partition: Partition) -> None:
        try:
            async with self._lock:
                now = min(self._clock(), _newest(partition))
                retain(self._broker, partition, now)
                if partition.topic.settings.compacted:
                    await self._compact(partition)
        except LogClosed as closed:
            _logger.debug("%s: %s", partition.name, closed)
        except LogError as error:
            # When the partition has grown again, there is another attempt.
            _logger.warning("could not clean %s: %s", partition.name, error)

    async def _compact(self, partition: Partition) -> None:
        for _ in compact(self._broker, partition, self._clock()):
            await asyncio.sleep(_REST_SECONDS)
            if self._closed:
                raise LogClosed(
                    "the log was closed during a compaction; records that are not compacted yet "
                    "stay as they were"
                )

    async def clean(self) -> None:
        """Delete the records that the retention settings do not keep.

        Raises StorageFull, LogError.
        """
        for partition in self._partitions():
            async with self._lock:
                retain(self._broker, partition, self._clock())
            await asyncio.sleep(0)

    async def compact(self) -> None:
        """Compact all partitions of compacted topics.

        Raises StorageFull, LogError, LogClosed.
        """
        for partition in self._partitions():
            if partition.topic.settings.compacted:
                async with self._lock:
                    await self._compact(partition)

    def _partitions(self) -> list[Partition]:
        return [
            partition for topic in self._broker.topics.values() for partition in topic.partitions
        ]

    async def close(self) -> None:
        """Stop at the end of the current step."""
        self._closed = True
        self._due.clear()
        if self._task is not None:
            await asyncio.wait([self._task])


def _newest(partition: Partition) -> int:
    return next(
        (partition.newest(segment) for segment in reversed(partition.segments) if segment.count), -1
    )
