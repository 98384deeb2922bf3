"""Progress of an export."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ks_actors.batch._reading import LogRange
    from ks_actors.records import Batch

_EACH_S: Final = 1.0


class ExportProgress(msgspec.Struct, frozen=True):
    """Progress of one partition: offsets `start` to `end` are read, and `offset` is next.

    `name` is the store or topic as it was given. `records` counts the records read. Compaction and
    transactions leave gaps, so `records` may be less than the number of offsets.
    """

    name: str
    partition: int
    start: int
    end: int
    offset: int
    records: int

    @property
    def done(self) -> bool:
        """Whether the partition has been read to its end."""
        return self.offset >= self.end


class Watch(NamedTuple):
    """The receiver of an export's progress; calls block until the report is received."""

    tell: Callable[[ExportProgress], None]
    clock: Callable[[], float] = time.monotonic

    def over(
        self, name: str, what: LogRange, read: Generator[Batch, None, None]
    ) -> Generator[Batch, None, None]:
        """Yield the batches of a range.

        Report the start and the end of the range, and the progress every second in between.
        """
        records, due = 0, self.clock() + _EACH_S
        self._tell(name, what, what.start, records)
        for batch in read:
            records += len(batch)
            if self.clock() >= due:
                due = self.clock() + _EACH_S
                self._tell(name, what, batch.offsets[-1] + 1, records)
            yield batch
        self._tell(name, what, what.end, records)

    def _tell(self, name: str, what: LogRange, offset: int, records: int) -> None:
        offset = min(offset, what.end)
        self.tell(ExportProgress(name, what.partition, what.start, what.end, offset, records))
