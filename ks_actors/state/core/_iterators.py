"""The iterators that range scans return."""

from __future__ import annotations

from inspect import GEN_CLOSED, getgeneratorstate
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, final

from ks_actors._errors import StoreClosed

if TYPE_CHECKING:
    from collections.abc import Generator
    from weakref import WeakSet

T = TypeVar("T")


@final
class StoreIterator(Generic[T]):
    """An iterator over a store as of the scan's start; later puts and deletes do not show.

    It holds a snapshot of the engine. Close it, or use it in `with`, unless you read it to its end.
    A closed iterator yields nothing more. If its store is closed first, reading on raises
    StoreClosed, because rows are missing.
    """

    __slots__ = ("__weakref__", "_rows")

    def __init__(self, rows: Generator[T, None, None], open_iterators: WeakSet[Any]) -> None:
        self._rows: Generator[T, None, None] | _NoMore = rows
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
        """Release the snapshot; nothing more can be read then."""
        # From Python 3.13 on, a generator that never started keeps its arguments even when closed.
        # Drop the generator to release them.
        rows, self._rows = self._rows, _NoMore()
        rows.close()

    def cut_off(self, store: str) -> None:
        """Release the snapshot because the store of that name closes. Only the store calls this.

        A reader that has neither reached the end nor closed the iterator gets StoreClosed.
        """
        rows = self._rows
        if not isinstance(rows, _NoMore) and getgeneratorstate(rows) != GEN_CLOSED:
            rows.close()
            self._rows = _NoMore(store)


class _NoMore:
    """The end of the rows: StopIteration, or StoreClosed if a closed store cut them off."""

    def __init__(self, store: str | None = None) -> None:
        self._store: str | None = store

    def __next__(self) -> NoReturn:
        if self._store is None:
            raise StopIteration
        raise StoreClosed(
            f"store {self._store} was closed with its task before it was read to its end"
        )

    def close(self) -> None:
        """Do nothing: the rows are released already."""
