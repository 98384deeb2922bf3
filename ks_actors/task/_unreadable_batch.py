"""Record batches that cannot be read.

A batch is replaced by one record without key and value, about which the deserialization handler
decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors._errors import LogCorrupted
from ks_actors.lifecycle import component_log
from ks_actors.log import Fetched
from ks_actors.records import Batch

if TYPE_CHECKING:
    from collections.abc import Container

    from ks_actors.log import Fetcher
    from ks_actors.records import TopicPartition

_log = component_log(__name__)


@final
class UnreadableBatch(Batch):
    """A record in place of all unreadable records, at their first offset; `error` says why."""

    __slots__ = ("error",)

    def __init__(self, error: LogCorrupted, offset: int) -> None:
        super().__init__([None], [None], [-1], None, (offset,))
        self.error: LogCorrupted = error


def passed_over(
    error: Exception, fetcher: Fetcher, reading: Container[TopicPartition]
) -> tuple[Fetched, ...]:
    """Move a fetcher past records that it cannot read; return them as if fetched.

    Returns nothing if the next offset is unknown, or the partition is read from another position by
    now.
    """
    if (
        not isinstance(error, LogCorrupted)
        or error.partition is None
        or error.offset is None
        or error.next_offset is None
    ):
        return ()
    partition, offset, behind = error.partition, error.offset, error.next_offset
    if partition not in reading or fetcher.position(partition) != offset:
        return ()
    _log.warning(
        "%s: offsets %d to %d cannot be read; the deserialization handler decides about them: %s",
        partition,
        offset,
        behind - 1,
        error,
    )
    fetcher.seek(partition, behind)
    return (Fetched(partition, UnreadableBatch(error, offset), behind, behind),)


def left_out(passed: Fetched) -> Fetched:
    """Return a passed-over batch without its record.

    Use it for stores, which follow the decision made when the record was processed.
    """
    return Fetched(passed.partition, Batch([], [], []), passed.next_offset, passed.end_offset)
