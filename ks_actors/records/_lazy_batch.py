"""Records that are bytes in memory, and become objects only when somebody looks at them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

from ks_actors.records._batch import Batch

if TYPE_CHECKING:
    Columns = tuple[list[Any], list[Any], list[int]]


WORTHWHILE: Final = 200
"""Records from which on to leave them as they are is worth a batch of their own."""


class LazyBatch(Batch):
    """Records without headers whose columns are made when one is asked for, and not if they are only written."""

    __slots__ = ()

    def __init__(self) -> None:
        pass  # the columns of a batch are set when they are looked for

    def __getattr__(self, name: str) -> Any:
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
        """How much memory the records take, 0 when they lie in a store anyway."""

    @abstractmethod
    def write(self, start: int, limit: int, header: int) -> tuple[bytearray, int, int, int]:
        """Write records from `start` on as the kernel's `write_records` does."""
