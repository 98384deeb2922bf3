"""Records that lie in a store, packed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from ks_actors._batch import Batch

if TYPE_CHECKING:
    from ks_actors._kernel import Rows

_TIME, _CONTENT = 4, 5


@final
class PackedBatch(Batch):
    """Rows of a window store as the records of its changelog: they become objects when a column is asked for, and not if they are only written.

    They are what they are until a rollback takes the rows out of the store.
    """

    __slots__ = ("_first", "_last", "_rows")

    def __init__(self, rows: Rows, first: int, last: int) -> None:
        # The columns of a batch are set when they are looked for.
        self._rows: Rows = rows
        self._first: int = first
        self._last: int = last

    def __getattr__(self, name: str) -> Any:
        if name not in Batch.__slots__:
            raise AttributeError(name)
        rows, first, last = self._rows, self._first, self._last
        Batch.__init__(self, rows.names(first, last), rows.column(_CONTENT, first, last), rows.column(_TIME, first, last))
        return getattr(self, name)

    def __len__(self) -> int:
        return self._last - self._first

    def slice(self, start: int, stop: int) -> Batch:
        """Return records `start` to before `stop`, by position, packed as well."""
        start, stop, _ = slice(start, stop).indices(len(self))
        return PackedBatch(self._rows, self._first + start, self._first + max(start, stop))

    def write(self, start: int, limit: int, header: int) -> tuple[bytearray, int, int, int]:
        """Write records from `start` on as the kernel's `write_records` does."""
        return self._rows.write(self._first + start, self._last, limit, header)
