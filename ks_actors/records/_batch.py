"""Records by columns, as they travel through the runtime."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""The headers of a record: names may repeat, order is kept. No headers is the empty tuple."""


class Batch:
    """Records of one partition in offset order, a list per column, all of one length.

    On the log's side keys and values are bytes or None; after a source they are deserialized
    objects. `headers` is None when no record has any. `timestamps` are ms since the epoch.
    `offsets` ascend, with gaps where records were compacted or filtered; outgoing batches have
    none.

    A batch is immutable once it was passed on. A filter makes a new one, and batches may share
    columns.
    """

    __slots__ = ("headers", "keys", "offsets", "timestamps", "values")

    def __init__(
        self,
        keys: list[Any],
        values: list[Any],
        timestamps: list[int],
        headers: list[Headers] | None = None,
        offsets: Sequence[int] = (),
    ) -> None:
        self.keys: list[Any] = keys
        self.values: list[Any] = values
        self.timestamps: list[int] = timestamps
        self.headers: list[Headers] | None = headers
        self.offsets: Sequence[int] = offsets

    def __len__(self) -> int:
        return len(self.timestamps)

    def slice(self, start: int, stop: int) -> Batch:
        """Return records `start` to before `stop`, by position."""
        headers = self.headers
        return Batch(
            self.keys[start:stop],
            self.values[start:stop],
            self.timestamps[start:stop],
            None if headers is None else headers[start:stop],
            self.offsets[start:stop],
        )

    def select(self, selectors: Sequence[Any]) -> Batch:
        """Return the records with a true selector, by position; if all are, the batch itself."""
        if all(selectors):
            return self
        headers = self.headers
        return Batch(
            list(compress(self.keys, selectors)),
            list(compress(self.values, selectors)),
            list(compress(self.timestamps, selectors)),
            None if headers is None else list(compress(headers, selectors)),
            list(compress(self.offsets, selectors)),
        )

    def __repr__(self) -> str:
        where = f", offsets {self.offsets[0]}-{self.offsets[-1]}" if self.offsets else ""
        return f"<Batch of {len(self)}{where}>"
