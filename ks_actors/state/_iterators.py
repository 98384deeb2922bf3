"""What range scans hand out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Generator
    from weakref import WeakSet

T = TypeVar("T")


@final
class StoreIterator(Generic[T]):
    """Iterate over what a store held when the scan was started, whatever is put or deleted meanwhile.

    Close it, or use it in `with`, when it is not read to its end: it holds a snapshot of the engine until then. It ends when its store is closed.
    """

    __slots__ = ("__weakref__", "_rows")

    def __init__(self, rows: Generator[T, None, None], open_iterators: WeakSet[Any]) -> None:
        self._rows: Generator[T, None, None] = rows
        open_iterators.add(self)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        return next(self._rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the snapshot go; there is nothing more to read then."""
        # From Python 3.13 on a generator that was never begun keeps what it was given, even when it is closed: so it is not kept itself.
        rows, self._rows = self._rows, _nothing()
        rows.close()


def _nothing() -> Generator[Any, None, None]:
    yield from ()
