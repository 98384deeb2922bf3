"""Records that are bytes in memory, and become objects only on access."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

from ks_actors.records._batch import Batch

if TYPE_CHECKING:
    Columns = tuple[list[Any], list[Any], list[int]]


WORTHWHILE: Final = 200
"""The number of records from which a lazy batch is worth its cost."""


class LazyBatch(Batch):
    """Records without headers; their columns are made on first access.

    Records that are only written never become objects.
    """

    __slots__ = ()

    def __init__(self) -> None:
        pass  # columns are set on first access

    def __getattr__(self, name: str) -> Any:
        # Slots are filled by the first access only, so an unknown name must not make the columns.
        if name not in Batch.__slots__:
            raise AttributeError(name)
        Batch.__init__(self, *self._columns())
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
