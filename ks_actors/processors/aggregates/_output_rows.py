"""Output records of a batch whose number differs from the batch's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from ks_actors.records import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import ProcessBatch


@final
class OutputRows:
    """Output records of a batch, in columns; their number may differ from the batch's."""

    __slots__ = ("_columns",)

    def __init__(self) -> None:
        self._columns: tuple[list[Any], ...] = ([], [], [], [])

    def adder(self) -> Callable[[Any, Any, int, int], None]:
        """Return a function that adds a record: key, value, timestamp and index in the batch."""
        add_key, add_value, add_timestamp, add_index = (column.append for column in self._columns)

        def add(key: Any, value: Any, timestamp: int, index: int) -> None:
            add_key(key)
            add_value(value)
            add_timestamp(timestamp)
            add_index(index)

        return add

    def clear(self) -> None:
        """Begin a batch: one before may have ended with an error."""
        for column in self._columns:
            column.clear()

    def forward(self, forward: ProcessBatch, batch: Batch) -> None:
        """Forward the added records of a batch, with the headers and offsets of their sources."""
        keys, values, timestamps, indexes = map(list, self._columns)
        self.clear()
        if not keys:
            return
        headers, offsets = batch.headers, batch.offsets
        # One for each record of the batch shares its columns.
        if indexes != list(range(len(batch))):
            headers = None if headers is None else [headers[index] for index in indexes]
            offsets = [offsets[index] for index in indexes] if offsets else ()
        forward(Batch(keys, values, timestamps, headers, offsets))
