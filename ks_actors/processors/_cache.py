"""What holds updates of a store back, as an operator sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors._batch import Batch, Headers


class Cache(Protocol):
    """Updates of one store of one task that have not gone downstream yet: at most one per row, the latest.

    An operator writes its store at once and gives its updates here instead of forwarding them, always with the row's value before (None: there was
    no row). Of a row that is held already only the new value is taken: the old one stays what was last sent. What a row is known by is its key when
    `index` is None, else `index(key)`. An operator that works on many rows at a time puts them into `olds` and `news` (and `keys`, where there is an
    `index`) itself: `olds` and `keys` get a row when `news` does not have it yet, so that all have the same order; then it calls `settle`.
    """

    @property
    def index(self) -> Callable[[Any], Any] | None: ...
    @property
    def by_start(self) -> bool:
        """Whether a row is known by its key and the start of its window, as they are."""
        ...

    @property
    def copies(self) -> bool:
        """Whether old values are sent that could be changed in place, so that `before` makes copies."""
        ...

    @property
    def news(self) -> dict[Any, tuple[Any, int]]:
        """New value (None: deleted) and timestamp."""
        ...

    @property
    def olds(self) -> dict[Any, Any]:
        """The value that was last sent."""
        ...

    @property
    def keys(self) -> dict[Any, Any]:
        """The keys as they are sent, where there is an `index`."""
        ...

    @property
    def headers(self) -> dict[Any, Headers]:
        """The headers of the last record of a row, if it had any."""
        ...

    def before(self, key: Any, value: Any) -> Any:
        """Return a row's value before an update, such as it stays when the row's object is changed in place. Call it before that."""
        ...

    def hold(self, key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
        """Take an update `(new, old)`."""
        ...

    def hold_batch(self, batch: Batch) -> None:
        """Take many."""
        ...

    def note_headers(self, batch: Batch, *, nulls: bool = True) -> None:
        """Remember the headers of the records of a batch whose rows are held; without `nulls` those without value are none of them."""
        ...

    def settle(self) -> None:
        """Send on what is too much."""
        ...
