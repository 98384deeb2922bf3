"""Output records of a batch whose number differs from the batch's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from ks_actors.records import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import ProcessBatch


@final
class OutputRows:
    """Output records of a batch, in columns; their number differs from the batch's.

    `adders` are for the index in the batch, key, value and timestamp.
    """

    __slots__ = ("_batch", "_columns", "_forward", "adders")

    def __init__(self, forward: ProcessBatch, batch: Batch) -> None:
        self._forward: ProcessBatch = forward
        self._batch: Batch = batch
        self._columns: tuple[list[Any], ...] = ([], [], [], [])
        self.adders: tuple[Callable[[Any], None], ...] = tuple(
            column.append for column in self._columns
        )

    def flush(self) -> None:
        """Forward the collected records."""
        indexes, keys, values, timestamps = map(list, self._columns)
        if not keys:
            return
        for column in self._columns:
            column.clear()
        batch = self._batch
        headers = None if batch.headers is None else [batch.headers[index] for index in indexes]
        offsets = [batch.offsets[index] for index in indexes] if batch.offsets else ()
        self._forward(Batch(keys, values, timestamps, headers, offsets))
