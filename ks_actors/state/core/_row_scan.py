"""What a query reads of one store, as it was at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, final

from ks_actors._errors import StoreClosed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from ks_actors.state.core._codec import Entry

Row: TypeAlias = "tuple[Any, Any, Entry]"
"""What rows are in the order of, a key (with the window's start, where there are windows), and its entry."""

MOST_NOTES: Final = 1_000_000
"""Changes that are remembered for a reader who does not come to his end."""


@final
class Rows:
    """Iterate over the rows of a store as they were when this was made, whatever is committed or rolled back meanwhile.

    `steps` have to be taken before the first row: they look through what is in memory, a millisecond or less at a time. Until a reader is done
    `looking`, the store notes in `layers` what each commit replaces. Raises StoreClosed once the store is closed or given up, or when too
    much was committed since.
    """

    __slots__ = ("__weakref__", "_noted", "_reason", "_rows", "layers", "looking", "steps")

    def __init__(self, layers: list[dict[Any, Any]], steps: Iterator[None], rows: Generator[Row, None, None]) -> None:
        self.layers: list[dict[Any, Any]] = layers
        self.steps: Iterator[None] = steps
        self.looking: bool = True
        self._rows: Generator[Row, None, None] | None = rows
        self._noted: int = 0
        self._reason: str = ""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Row:
        if self._rows is None:
            raise StoreClosed(self._reason)
        try:
            return next(self._rows)
        except StopIteration:
            self.looking = False
            raise

    def note(self, layer: dict[Any, Any]) -> None:
        """Take note of what a commit has replaced."""
        self.layers.append(layer)
        self._noted += len(layer)
        if self._noted > MOST_NOTES:
            self.void(f"a query was not read to its end while {self._noted:,} changes were committed: read faster, or less at a time")

    def void(self, reason: str) -> None:
        """Let go of the store: who reads on is told the reason."""
        rows, self._rows = self._rows, None
        if rows is not None:
            self._reason = reason
            self.looking = False
            self.layers.clear()
            rows.close()
            self.steps = iter(())
