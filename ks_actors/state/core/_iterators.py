"""What range scans hand out."""

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
    """Iterate over what a store held when the scan was started, whatever is put or deleted meanwhile.

    Close it, or use it in `with`, when it is not read to its end: it holds a snapshot of the engine until then. There is nothing more to be read from
    one that was closed. When its store is closed before that, reading on raises StoreClosed: what has been read is not all.
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
        """Let the snapshot go; there is nothing more to read then."""
        # From Python 3.13 on a generator that was never begun keeps what it was given, even when it is closed: so it is not kept itself.
        rows, self._rows = self._rows, _NoMore()
        rows.close()

    def cut_off(self, store: str) -> None:
        """Let the snapshot go as the store of that name is closed; who has not read to the end, nor closed it, is told. For the store."""
        rows = self._rows
        if not isinstance(rows, _NoMore) and getgeneratorstate(rows) != GEN_CLOSED:
            rows.close()
            self._rows = _NoMore(store)


class _NoMore:
    """In the place of rows that there are no more: the end, or StoreClosed when there should have been more in a store of that name."""

    def __init__(self, store: str | None = None) -> None:
        self._store: str | None = store

    def __next__(self) -> NoReturn:
        if self._store is None:
            raise StopIteration
        raise StoreClosed(f"store {self._store} is closed, as its task is, before it has been read to its end")

    def close(self) -> None:
        """Do nothing: all is gone."""
