"""Records that lie packed in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors.records._lazy_batch import LazyBatch

if TYPE_CHECKING:
    from ks_actors.kernel import Rows
    from ks_actors.records._batch import Batch
    from ks_actors.records._lazy_batch import Columns

_TIME, _CONTENT = 4, 5


@final
class PackedBatch(LazyBatch):
    """Rows of a window store as the records of its changelog.

    They stay unchanged until a rollback removes the rows from the store.
    """

    __slots__ = ("_first", "_last", "_rows")

    def __init__(self, rows: Rows, first: int, last: int) -> None:
        super().__init__()
        self._rows: Rows = rows
        self._first: int = first
        self._last: int = last

    def _columns(self) -> Columns:
        rows, first, last = self._rows, self._first, self._last
        return (
            rows.names(first, last),
            rows.column(_CONTENT, first, last),
            rows.column(_TIME, first, last),
        )

    def __len__(self) -> int:
        return self._last - self._first

    @property
    def own_bytes(self) -> int:
        """0: the rows are in the store."""
        return 0

    def slice(self, start: int, stop: int) -> Batch:
        """Return records `start` to before `stop`, by position, packed as well."""
        start, stop, _ = slice(start, stop).indices(len(self))
        return PackedBatch(self._rows, self._first + start, self._first + max(start, stop))

    def write(self, start: int, limit: int, header: int) -> tuple[bytearray, int, int, int]:
        """Write records from `start` on as the kernel's `write_records` does."""
        return self._rows.write(self._first + start, self._last, limit, header)
