"""Resets of positions that are no longer in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors.runtime.input._start_positions import reset_position

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container

    from ks_actors._errors import OffsetOutOfRange
    from ks_actors.log import Fetcher
    from ks_actors.records import TopicPartition
    from ks_actors.runtime.input._start_policy import StartPolicy


@final
class OffsetResets:
    """Pause partitions that are being reset until their new position is known.

    The lookup runs in the background: the poller handles group events and fetches other partitions
    meanwhile. Afterwards, `stopped` partitions stay paused, and partitions that are not `assigned`
    any more are left alone.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        start: StartPolicy,
        *,
        stopped: Container[TopicPartition],
        assigned: Callable[[], Container[TopicPartition]],
    ) -> None:
        self._fetcher = fetcher
        self._start = start
        self._stopped = stopped
        self._assigned = assigned
        self.partitions: set[TopicPartition] = set()

    def begin(self, error: OffsetOutOfRange) -> Awaitable[int] | None:
        """Return the lookup of the new position.

        Return None when the partition has moved since, or is already being reset.
        """
        partition = error.partition
        if partition in self.partitions or self._fetcher.position(partition) != error.position:
            return None
        self.partitions.add(partition)
        self._fetcher.pause((partition,))
        return self._search(error)

    async def _search(self, error: OffsetOutOfRange) -> int:
        try:
            return await reset_position(error, self._start)
        except Exception:
            # Resume, so that the next fetch fails in the same way and starts another lookup. A
            # partition that stays paused would never be read.
            self._go_on(error.partition)
            raise

    def end(self, error: OffsetOutOfRange, offset: int) -> bool:
        """Continue at `offset`, unless the partition has moved meanwhile.

        Return whether it continues there.
        """
        partition = error.partition
        wanted = (
            partition in self._assigned() and self._fetcher.position(partition) == error.position
        )
        if wanted:
            self._fetcher.seek(partition, offset)
        self._go_on(partition)
        return wanted

    def _go_on(self, partition: TopicPartition) -> None:
        self.partitions.discard(partition)
        if partition in self._assigned() and partition not in self._stopped:
            self._fetcher.resume((partition,))
