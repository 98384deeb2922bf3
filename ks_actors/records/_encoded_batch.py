"""Records that are serialized already."""

from __future__ import annotations

from sys import maxsize
from typing import TYPE_CHECKING, final

from ks_actors.kernel import kernel as _kernel
from ks_actors.records._lazy_batch import LazyBatch

if TYPE_CHECKING:
    from ks_actors.records._batch import Batch
    from ks_actors.records._lazy_batch import Columns


@final
class EncodedBatch(LazyBatch):
    """Serialized records as in a record batch, without its header.

    `count` is their number, `first` the first record's timestamp, `latest` the highest timestamp.
    """

    __slots__ = ("_count", "_parts", "_size", "latest")

    def __init__(self, data: bytes, count: int, first: int, latest: int) -> None:
        super().__init__()
        self._parts: list[tuple[bytes, int, int]] = [(data, count, first)]
        self._count: int = count
        self._size: int = len(data)
        self.latest: int = latest

    @classmethod
    def of(cls, batch: Batch) -> EncodedBatch | None:
        """Return some records encoded; None if they are not bytes, or have headers."""
        if batch.headers is not None:
            return None
        try:
            written = _kernel.write_records(
                batch.keys, batch.values, batch.timestamps, None, 0, maxsize, 0
            )
        except TypeError:
            return None
        return cls(bytes(written[0]), *written[1:])

    def append(self, other: EncodedBatch) -> None:
        """Append the records of another batch; only before this batch is passed on."""
        self._parts += other._parts
        self._count += other._count
        self._size += other._size
        self.latest = max(self.latest, other.latest)

    def copy(self) -> EncodedBatch:
        """Return a batch of the same records, to append others."""
        copied = EncodedBatch(b"", 0, 0, self.latest)
        copied._parts, copied._count, copied._size = self._parts[:], self._count, self._size
        return copied

    def _columns(self) -> Columns:
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        timestamps: list[int] = []
        for data, count, first in self._parts:
            read = _kernel.read_records(data, 0, count, 0, first, False, False)
            keys += read[1]
            values += read[2]
            timestamps += read[3]
        return keys, values, timestamps

    def __len__(self) -> int:
        return self._count

    @property
    def own_bytes(self) -> int:
        """The size of the records in bytes."""
        return self._size

    def write(self, start: int, limit: int, header: int) -> tuple[bytearray, int, int, int]:
        """Write records from `start` on as the kernel's `write_records` does."""
        if start == 0 and len(self._parts) == 1 and header + self._size <= limit:
            data, count, first = self._parts[0]
            written = bytearray(header)
            written += data
            return written, count, first, self.latest
        return _kernel.join_records(self._parts, start, limit, header)
