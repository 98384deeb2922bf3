"""The context of the record that a task processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ks_actors.processors.api import RecordMetadata
    from ks_actors.records import Headers
    from ks_actors.task.origins import OriginPage, RawRecord


class RecordContextHolder:
    """The known facts about the source record in process: one mutable object per task.

    The record is the one at `offset` of `page`. Without a page there is none, or it is unknown. In
    batch mode the page is exact, and the other facts describe the batch's first record. Errors name
    their record by its own offset. If a batch has records of several partitions, or records that
    were held back, its offsets are not offsets of the log but numbers that the page resolves.
    """

    __slots__ = ("headers", "offset", "page", "stream_time", "timestamp")

    def __init__(self) -> None:
        self.page: OriginPage | None = None
        self.offset: int = -1
        self.timestamp: int = -1
        self.headers: Headers = ()
        self.stream_time: int = -1

    def nowhere(self) -> None:
        """Note that there is no current record: for a punctuation, or between records."""
        self.page = None
        self.offset = -1
        self.headers = ()

    def begin_anew(self) -> None:
        """Reset; another instance ran the task meanwhile."""
        self.nowhere()
        self.timestamp = self.stream_time = -1

    def metadata(self, offset: int | None = None) -> RecordMetadata | None:
        """Return topic, partition and offset; None without a record."""
        page = self.page
        return None if page is None else page.metadata(self.offset if offset is None else offset)

    def logged(self, offset: int | None = None) -> bool:
        """Return whether the log has the source record.

        In a backfill, the log does not have records that come through a repartition topic.
        """
        page = self.page
        return page is None or page.logged(self.offset if offset is None else offset)

    def raw(self, offset: int | None = None) -> RawRecord | None:
        """Return the source record as fetched; None without a record, or without its bytes."""
        page = self.page
        return None if page is None else page.raw(self.offset if offset is None else offset)
