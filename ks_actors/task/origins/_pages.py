"""Pages of source records, which name a record's origin."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol, TypeAlias, final

from ks_actors.processors.api import RecordMetadata

if TYPE_CHECKING:
    from ks_actors.records import Batch, Headers, TopicPartition


@final
class RawRecord:
    """A record as it was fetched. The offset is -1 if the log has no such record."""

    __slots__ = ("headers", "key", "offset", "partition", "timestamp", "value")

    def __init__(
        self, partition: TopicPartition, raw: Batch, index: int, *, logged: bool = True
    ) -> None:
        self.partition: TopicPartition = partition
        self.offset: int = raw.offsets[index] if logged else -1
        self.key: bytes | None = raw.keys[index]
        self.value: bytes | None = raw.values[index]
        self.timestamp: int = raw.timestamps[index]
        self.headers: Headers = raw.headers[index] if raw.headers is not None else ()


class OriginPage(Protocol):
    """Source records, each addressed by its offset.

    Some batches use other numbers in place of offsets.
    """

    def metadata(self, offset: int) -> RecordMetadata | None:
        """Return a record's source position; None when it is unknown."""
        ...

    def raw(self, offset: int) -> RawRecord | None:
        """Return a record as it was fetched; None when it is not kept."""
        ...

    def logged(self, offset: int, /) -> bool:
        """Return whether the log has the record; if not, its offset counts records of a history."""
        ...

    def bare(self) -> OriginPage | None:
        """Return a page with the positions, but without bytes; None when there is no such page."""
        ...

    def __len__(self) -> int:
        """Return about how many source records the page keeps in memory."""
        ...

    @property
    def lasting(self) -> bool:
        """Whether the page may be kept; if not, use `origin` to keep a record's position."""
        ...

    def origin(self, offset: int) -> Place | None:
        """Return a record's position, in a page that may be kept."""
        ...


@final
class OriginLeaf:
    """A page, until it drops its records; of two leaves the later one has the higher `number`."""

    __slots__ = ("number", "page")

    def __init__(self, page: OriginPage | None, number: int) -> None:
        self.page: OriginPage | None = page
        self.number: int = number

    def metadata(self, offset: int) -> RecordMetadata | None:
        """Return the source position of a record."""
        return None if self.page is None else self.page.metadata(offset)

    def place(self, offset: int) -> RecordMetadata | None:
        """Return a record's position in the log; None when it is unknown, or has none."""
        return (
            None
            if self.page is None or not self.page.logged(offset)
            else self.page.metadata(offset)
        )


Place: TypeAlias = tuple[OriginLeaf, int]
"""The origin of a record: a page, and the offset there."""


@final
class Chunk:
    """Records of one partition as fetched; a chunk without a batch has only their positions.

    `logged` says whether the log has them.
    """

    __slots__ = ("_batch", "_logged", "partition")

    lasting: bool = True

    def __init__(
        self, partition: TopicPartition, batch: Batch | None, *, logged: bool = True
    ) -> None:
        self.partition: TopicPartition = partition
        self._batch: Batch | None = batch
        self._logged: bool = logged

    def metadata(self, offset: int) -> RecordMetadata:
        """Return topic, partition and offset."""
        return RecordMetadata(self.partition.topic, self.partition.partition, offset)

    def raw(self, offset: int) -> RawRecord | None:
        """Return the record at an offset as it was fetched."""
        if self._batch is None:
            return None
        offsets = self._batch.offsets
        index = bisect_left(offsets, offset)
        return (
            RawRecord(self.partition, self._batch, index, logged=self._logged)
            if index < len(offsets) and offsets[index] == offset
            else None
        )

    def logged(self, _: int, /) -> bool:
        """Return whether the log has the records."""
        return self._logged

    def origin(self, offset: int) -> Place:
        """Return this page, and the offset."""
        return OriginLeaf(self, 0), offset

    def bare(self) -> Chunk:
        """Return a page of the same partition without a batch."""
        return self if self._batch is None else Chunk(self.partition, None, logged=self._logged)

    def __len__(self) -> int:
        return 0 if self._batch is None else len(self._batch)
