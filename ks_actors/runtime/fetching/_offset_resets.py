"""Resets of positions that are no longer in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from ks_actors._errors import LogTruncated, StreamsError
from ks_actors.lifecycle import component_log
from ks_actors.runtime.fetching._start_policy import words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Mapping

    from ks_actors._errors import OffsetOutOfRange
    from ks_actors.log import Fetcher
    from ks_actors.records import TopicPartition
    from ks_actors.runtime.fetching._start_policy import StartPolicy

_log = component_log(__name__)


class Reset(NamedTuple):
    """A partition continues at `position`, in a log that begins at `begin`; resets are numbered."""

    partition: TopicPartition
    position: int
    begin: int
    number: int


@final
class OffsetResets:
    """Pause partitions that are being reset until their new position is known.

    The lookup runs in the background: the poller fetches other partitions meanwhile. Afterwards,
    `stopped` partitions stay paused, and partitions that are not `assigned` any more are left
    alone.
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
        self.partitions: dict[TopicPartition, int] = {}
        """The partitions that are being reset, each with the position that the log lacks."""
        # The offsets of rewinds that came during a lookup.
        self._rewound: dict[TopicPartition, int] = {}
        self._number: int = 0
        self._last: dict[TopicPartition, Reset] = {}

    def begin(self, error: OffsetOutOfRange) -> Awaitable[int] | None:
        """Return the lookup of the new position.

        Return None when the partition has moved since, or is already being reset.
        """
        partition = error.partition
        if partition in self.partitions or self._fetcher.position(partition) != error.position:
            return None
        self.partitions[partition] = error.position
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

    def end(self, error: OffsetOutOfRange, offset: int) -> Reset | None:
        """Continue at `offset`, or at an earlier offset that a rewind has asked for meanwhile.

        Return the reset; None when the partition has been assigned again meanwhile.
        """
        partition = error.partition
        wanted = (
            partition in self._assigned() and self._fetcher.position(partition) == error.position
        )
        rewound = self._rewound.pop(partition, offset)
        self._go_on(partition)
        return self._reset(partition, rewound, error.begin, offset) if wanted else None

    def rewind(self, positions: Mapping[TopicPartition, int], known: int) -> list[Reset]:
        """Go back to positions from before all resets after number `known`.

        Return those later resets again: they still count.
        """
        again: list[Reset] = []
        for partition, offset in positions.items():
            if partition not in self._assigned():
                continue
            # A partition that was assigned again meanwhile has another position.
            if self.partitions.get(partition) == self._fetcher.position(partition):
                self._rewound[partition] = offset
            else:
                last = self._last.get(partition)
                if last is not None and last.number > known:
                    again.append(self._reset(partition, offset, last.begin, last.position))
                else:
                    self._fetcher.seek(partition, offset)
        return again

    def clear(self) -> None:
        """Forget all resets: nothing is read any more."""
        self.partitions.clear()
        self._rewound.clear()
        self._last.clear()

    def _reset(self, partition: TopicPartition, wanted: int, begin: int, position: int) -> Reset:
        """Go to a wanted offset if it is between `begin` and `position`, or else to `position`."""
        self._number += 1
        at = wanted if begin <= wanted <= position else position
        self._fetcher.seek(partition, at)
        self._last[partition] = reset = Reset(partition, at, begin, self._number)
        return reset

    def _go_on(self, partition: TopicPartition) -> None:
        self.partitions.pop(partition, None)
        if partition in self._assigned():
            if (rewound := self._rewound.pop(partition, None)) is not None:
                self._fetcher.seek(partition, rewound)
            if partition not in self._stopped:
                self._fetcher.resume((partition,))


async def reset_position(error: OffsetOutOfRange, start: StartPolicy) -> int:
    """Return the position for a partition when its current position is not in the log.

    After a truncation, the position is that of the first record that was not read. Otherwise the
    topic's policy determines the position. Raises StreamsError when the topic's policy is none.
    """
    partition, policy = error.partition, start.of(error.partition.topic)
    if policy == "none":
        raise StreamsError(
            f"{error}; auto_offset_reset is none, so the app does not choose a position: commit an "
            "offset, or set auto_offset_reset to earliest, latest or a duration",
            topic=partition.topic,
            partition=partition.partition,
        )
    if isinstance(error, LogTruncated) and error.diverges_at is not None:
        offset = max(error.diverges_at, error.begin)
        _log.warning(
            "%s; continuing at offset %d. Results of lost records stay; look into the brokers' "
            "own log for the cause",
            error,
            offset,
        )
        return offset
    _log.warning("%s; continuing from the %s", error, words(policy))
    return (await start.offsets((partition,)))[partition]
