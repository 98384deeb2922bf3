"""Records that are serialized already."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors.kernel import kernel as _kernel
from ks_actors.records._lazy_batch import LazyBatch

if TYPE_CHECKING:
    from ks_actors.records._lazy_batch import Columns


@final
class EncodedBatch(LazyBatch):
    """Serialized records as in a record batch, without its header.

    `count` is their number, `first` the first record's timestamp, `latest` the highest timestamp.
    """

    __slots__ = ("_count", "_data", "_first", "_latest")

    def __init__(self, data: bytes, count: int, first: int, latest: int) -> None:
        super().__init__()
        self._data: bytes = data
        self._count: int = count
        self._first: int = first
        self._latest: int = latest

    def _columns(self) -> Columns:
        _, keys, values, timestamps, _, _ = _kernel.read_records(
            self._data, 0, self._count, 0, self._first, False, False
        )
        return keys, values, timestamps

    def __len__(self) -> int:
        return self._count

    @property
    def own_bytes(self) -> int:
        """The size of the records in bytes."""
        return len(self._data)

    def write(self, start: int, limit: int, header: int) -> tuple[bytearray, int, int, int]:
        """Write records from `start` on as the kernel's `write_records` does."""
        if start == 0 and header + len(self._data) <= limit:
            written = bytearray(header)
            written += self._data
            return written, self._count, self._first, self._latest
        return _kernel.write_records(
            self.keys, self.values, self.timestamps, None, start, limit, header
        )
