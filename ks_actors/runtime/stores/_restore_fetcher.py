"""The fetcher for changelogs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from ks_actors.log import IsolationLevel

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ks_actors.log import Fetched, Fetcher, Log
    from ks_actors.records import TopicPartition

# The longest wait for one fetcher: records of the other fetcher do not end the wait.
_TURN_MS: Final = 100


def restore_fetcher(
    log: Log, client_id: str, sources: Collection[str], isolation: IsolationLevel
) -> Fetcher:
    """Return a fetcher for changelogs and for source topics that serve as changelogs.

    Changelogs are read committed, source topics with the app's `isolation`.
    """
    changelogs = log.fetcher(client_id=client_id, isolation=IsolationLevel.READ_COMMITTED)
    if not sources or isolation is IsolationLevel.READ_COMMITTED:
        return changelogs
    return TwoFetchers(changelogs, log.fetcher(client_id=client_id, isolation=isolation), sources)


@final
class TwoFetchers:
    """Two fetchers behind one interface: `others` reads the given topics, `first` all other topics.

    The fetchers are asked first alternately.
    """

    def __init__(self, first: Fetcher, others: Fetcher, topics: Collection[str]) -> None:
        self._fetchers: list[Fetcher] = [first, others]
        self._first = first
        self._others = others
        self._topics: frozenset[str] = frozenset(topics)
        self._busy: list[Fetcher] = []

    def _of(self, partition: TopicPartition) -> Fetcher:
        return self._others if partition.topic in self._topics else self._first

    def assign(self, positions: Mapping[TopicPartition, int], /) -> None:
        """Read exactly these partitions from these offsets."""
        parts = [
            {
                partition: offset
                for partition, offset in positions.items()
                if self._of(partition) is each
            }
            for each in self._fetchers
        ]
        for fetcher, part in zip(self._fetchers, parts, strict=True):
            fetcher.assign(part)
        self._busy = [fetcher for fetcher, part in zip(self._fetchers, parts, strict=True) if part]

    def seek(self, partition: TopicPartition, offset: int, /) -> None:
        """Continue from `offset`."""
        self._of(partition).seek(partition, offset)

    def position(self, partition: TopicPartition, /) -> int:
        """Return the next offset to read from the partition."""
        return self._of(partition).position(partition)

    def pause(self, partitions: Iterable[TopicPartition], /) -> None:
        """Leave partitions out of fetches until `resume`."""
        for partition in partitions:
            self._of(partition).pause((partition,))

    def resume(self, partitions: Iterable[TopicPartition], /) -> None:
        """Fetch partitions again."""
        for partition in partitions:
            self._of(partition).resume((partition,))

    def describe(self, partition: TopicPartition, /) -> str:
        """Return the state of a partition's fetches in one line."""
        return self._of(partition).describe(partition)

    async def fetch(self, *, max_wait_ms: int, max_records: int = 10_000) -> Sequence[Fetched]:
        """Return records of one fetcher; if both have partitions, wait for each fetcher in turn."""
        busy = self._busy or [self._first]
        if len(busy) > 1:
            busy.reverse()
            found = await busy[0].fetch(max_wait_ms=0, max_records=max_records)
            if found:
                return found
        wait_ms = min(max_wait_ms, _TURN_MS)
        return await busy[-1].fetch(max_wait_ms=wait_ms, max_records=max_records)

    async def close(self) -> None:
        """Close both fetchers, even if closing one of them raises."""
        await asyncio.gather(*(fetcher.close() for fetcher in self._fetchers))
