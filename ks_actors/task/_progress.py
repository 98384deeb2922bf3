"""The progress of a task's processors, which is committed with its offsets."""

from __future__ import annotations

from logging import ERROR, WARNING
from operator import index
from typing import TYPE_CHECKING, Final, final

from ks_actors.lifecycle import component_log
from ks_actors.processors.api import ALL_CLOSED, LATEST_MS, is_clock_name, is_mark_name
from ks_actors.task._offset_metadata import OWN_NUMBER, encode_position, merged_progress

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ks_actors.log import OffsetAndMetadata
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.task._offset_metadata import Position
    from ks_actors.task._record_queue import RecordQueue

_LONGEST: Final = 4096
"""The characters that a broker accepts by default (offset.metadata.max.bytes)."""
_log = component_log(__name__)


@final
class Progress(dict[str, int]):
    """Numbers by name: stream times, and the times up to which final results have been sent.

    Kafka Streams uses the names of stores for final results, so that either library can continue
    from the other's progress.
    """

    def __init__(self, positions: Iterable[Position]) -> None:
        found = merged_progress(positions)
        super().__init__({name: _restored(name, number) for name, number in found.items()})
        self._told: set[str] = set()

    def drop_unclaimed(self, stores: Collection[str]) -> None:
        """Drop the numbers of operations that the topology no longer has, once all nodes exist.

        Otherwise such numbers would be committed for ever, and the space is limited.
        """
        for name, number in tuple(self.items()):
            # An operation that keeps its number as an object has claimed the name.
            if type(number) is int and name not in stores and not is_mark_name(name, stores):
                del self[name]

    def numbers(self) -> dict[str, int]:
        """Return the current numbers; some are kept as objects that change."""
        return {name: index(number) for name, number in self.items()}

    def positions(
        self, task: TaskId, queues: Iterable[RecordQueue]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the next offset and time of each partition of a task, with this progress."""
        return {
            queue.partition: self._committed(
                queue.position, queue.partition_time, task, queue.partition.partition
            )
            for queue in queues
        }

    def _committed(self, offset: int, time: int, task: TaskId, partition: int) -> OffsetAndMetadata:
        """Return the offset and time of a partition, and this progress, to commit.

        If the metadata is too long for a broker, leave out stream times, then all progress; log
        this once.
        """
        numbers = {name: _packable(name, number) for name, number in self.items()}
        number = OWN_NUMBER if task.partition == partition else task.partition
        made = encode_position(offset, time, numbers, number)
        if len(made.metadata) <= _LONGEST:
            return made
        self._tell(
            WARNING,
            task,
            made,
            "stream times, and its windows may take records that were too late before",
        )
        short = {name: number for name, number in numbers.items() if not is_clock_name(name)}
        made = encode_position(offset, time, short, number)
        if len(made.metadata) <= _LONGEST:
            return made
        self._tell(ERROR, task, made, "marks, and final results may be sent again")
        return encode_position(offset, time, {}, number)

    def _tell(self, level: int, task: object, made: OffsetAndMetadata, lost: str) -> None:
        if lost in self._told:
            return
        self._told.add(lost)
        _log.log(
            level,
            "task %s has too many operations for the metadata of an offset (%d of %d characters, "
            "by offset.metadata.max.bytes): after a restart it has lost their %s; put the "
            "operations into several subtopologies",
            task,
            len(made.metadata),
            _LONGEST,
            lost,
        )


def _packable(name: str, number: int) -> int:
    """Return a number as it is committed: no time is after the last instant.

    A committed last instant stands for `ALL_CLOSED`, so a real last instant is committed as 1 ms
    earlier.
    """
    number = index(number)
    if number < LATEST_MS:
        return number
    return LATEST_MS if number > LATEST_MS or is_clock_name(name) else LATEST_MS - 1


def _restored(name: str, number: int) -> int:
    return ALL_CLOSED if number == LATEST_MS and not is_clock_name(name) else number
