"""The rows that a query reads from one store, as of one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, final

from ks_actors._errors import StoreClosed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from ks_actors.state.core._entry import Entry

Row: TypeAlias = "tuple[Any, Any, Entry]"
"""The sort key of a row, its key (with the window's start for windows), and its entry."""

MOST_NOTES: Final = 1_000_000
"""The most changes noted for a reader that does not reach its end."""


@final
class Rows:
    """An iterator over a store's rows as of its creation; later commits and rollbacks do not show.

    Take all `steps` before the first row: each searches memory for a millisecond or less. While a
    reader is `looking`, the store notes in `layers` the values that each commit replaces. Raises
    StoreClosed once the store is closed or its state is discarded, or after too many committed
    changes.
    """

    __slots__ = ("__weakref__", "_noted", "_reason", "_rows", "layers", "looking", "steps")

    def __init__(
        self, layers: list[dict[Any, Any]], steps: Iterator[None], rows: Generator[Row, None, None]
    ) -> None:
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
        """Note the values that a commit has replaced."""
        self.layers.append(layer)
        self._noted += len(layer)
        if self._noted > MOST_NOTES:
            self.void(
                f"a query was not read to its end while {self._noted:,} changes were committed: "
                "read faster, or smaller ranges"
            )

    def void(self, reason: str) -> None:
        """Release the store; further reads raise StoreClosed with this reason."""
        rows, self._rows = self._rows, None
        if rows is not None:
            self._reason = reason
            self.looking = False
            self.layers.clear()
            rows.close()
            self.steps = iter(())
