"""Positions that the log does not have any more, while it is found out where to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors.runtime._beginnings import reset_position

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container

    from ks_actors._errors import OffsetOutOfRange
    from ks_actors.log import Fetcher, Log
    from ks_actors.log._types import TopicPartition


@final
class Resets:
    """Have partitions that are being reset fetched no more until their new position is known.

    The position is asked for beside the messages of the poller: the group is heard and other partitions are fetched meanwhile.
    """

    def __init__(self, log: Log, fetcher: Fetcher, policy: Callable[[str], str]) -> None:
        self._log = log
        self._fetcher = fetcher
        self._policy = policy
        self.partitions: set[TopicPartition] = set()

    def begin(self, error: OffsetOutOfRange) -> Awaitable[int] | None:
        """Return the search for the new position; None when the partition reads from somewhere else by now, or is being reset already."""
        partition = error.partition
        if partition in self.partitions or self._fetcher.position(partition) != error.position:
            return None
        self.partitions.add(partition)
        self._fetcher.pause((partition,))
        return reset_position(error, self._log, self._policy)

    def end(self, error: OffsetOutOfRange, offset: int, *, assigned: Container[TopicPartition], stopped: Container[TopicPartition]) -> bool:
        """Read on from `offset`, unless the partition was moved meanwhile; not at once if it is `stopped`. Return whether it is read from there."""
        partition = error.partition
        self.partitions.discard(partition)
        if partition not in assigned:
            return False
        wanted = self._fetcher.position(partition) == error.position
        if wanted:
            self._fetcher.seek(partition, offset)
        if partition not in stopped:
            self._fetcher.resume((partition,))
        return wanted
