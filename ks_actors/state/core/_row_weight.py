"""The typical size of a store's rows in memory."""

from __future__ import annotations

from typing import Any, Final, final

from ks_actors.state.core._size_estimate import average, size

ROW_BYTES: Final = 120
"""The bytes of a row besides its objects: dict entries and the allocator's overhead."""

WAITING_BYTES: Final = 80
"""The bytes noted for a row that is still to be written."""

FIRST_GUESS: Final = 300


@final
class RowWeight:
    """The typical size of a store's rows in memory, learned from samples."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes: int = FIRST_GUESS

    def learn(self, key: Any, value: Any) -> None:
        """Learn from one row."""
        self.learn_bytes(ROW_BYTES + size(key) + size(value))

    def learn_bytes(self, weight: int) -> None:
        """Learn from one row's bytes."""
        self.bytes = average(self.bytes, weight)

    def total(self, resident_rows: int, waiting_rows: int) -> int:
        """Return the approximate bytes of rows in memory, some of which are still to be written."""
        return resident_rows * self.bytes + waiting_rows * WAITING_BYTES
