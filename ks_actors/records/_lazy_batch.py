"""Records that are bytes in memory, and become objects only on access."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

from ks_actors.records._batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.records._batch import Headers

    Columns = tuple[list[Any], list[Any], list[int]]


WORTHWHILE: Final = 200
"""The number of records from which a lazy batch is worth its cost."""


# Bytes that a record has besides its key and value.
_FRAME: Final = 8


class LazyBatch(Batch):
    """Records without headers; keys, values and timestamps are made on first access.

    Records that are only written never become objects.
    """

    __slots__ = ()

    def __init__(self, offsets: Sequence[int] = ()) -> None:
        self.headers: list[Headers] | None = None
        self.offsets: Sequence[int] = offsets

    def __getattr__(self, name: str) -> Any:
        # Slots are filled by the first access only, so an unknown name must not make the columns.
        if name not in Batch.__slots__:
            raise AttributeError(name)
        Batch.__init__(self, *self._columns(), None, self.offsets)
        return getattr(self, name)

    @abstractmethod
    def _columns(self) -> Columns:
        """Return keys, values and timestamps."""

    @property
    @abstractmethod
    def own_bytes(self) -> int:
        """The memory of the records in bytes; 0 when a store keeps them anyway."""

    @abstractmethod
    def write(self, start: int, limit: int, header: int) -> tuple[bytearray, int, int, int]:
        """Write records from `start` on as the kernel's `write_records` does."""


def mean_bytes(batch: Batch, most: int = 8) -> float:
    """Return the approximate bytes of a record's key and value, by at most `most` of the records.

    Records that are bytes are not made objects.
    """
    count = len(batch)
    if isinstance(batch, LazyBatch) and batch.own_bytes:
        return max(0.0, batch.own_bytes / count - _FRAME)
    taken = min(count, most)
    if not taken:
        return 0.0
    keys, values = batch.keys, batch.values
    places = range(0, taken * (count // taken), count // taken)
    return sum(len(keys[at] or b"") + len(values[at] or b"") for at in places) / taken
