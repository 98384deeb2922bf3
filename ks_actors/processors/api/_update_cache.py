"""The cache of a store's updates, as an operator sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ks_actors.records import Batch, Headers, Window


class Gone(NamedTuple):
    """The entry of a row that was updated and then deleted since it was last sent.

    A reader may have seen the update meanwhile.
    """

    value: None
    timestamp: int


class CachedRows:
    """Rows that have been updated since they were last sent, by first update.

    For a windowed table these are the rows of one window. `olds` has the last sent value of each
    row (None: nothing). The new value and its timestamp are read from the store when the row is
    sent. `news` has the values that the store may have lost: deletes, as None with their time, and
    all values of windows. Rows are identified by their keys, or by the keys' bytes if unequal bytes
    may give equal keys; then `keys` has the keys.
    """

    __slots__ = ("headers", "keys", "news", "olds", "places", "window")

    def __init__(self, window: Window | None) -> None:
        self.window: Window | None = window
        self.olds: dict[Any, Any] = {}
        self.news: dict[Any, tuple[Any, int]] = {}
        self.keys: dict[Any, Any] = {}
        self.headers: dict[Any, Headers] = {}
        self.places: dict[Any, Any] = {}

    def note_headers(self, keys: Iterable[Any], headers: Iterable[Headers]) -> None:
        """Remember the headers of the last record of each cached row."""
        olds, known = self.olds, self.headers
        for key, header in zip(keys, headers, strict=False):
            if header and key in olds:
                known[key] = header
            elif known:
                known.pop(key, None)


class AtRecord(Protocol):
    """The offset of the current record; set it when processing a batch record by record."""

    offset: int


class Cache(Protocol):
    """Updates of one store of one task that have not gone downstream yet: the latest of each row.

    An operator writes its store at once and gives its updates to `hold` instead of forwarding them.
    Each update comes with the row's previous value (None: no row). The old value of a cached row
    remains the last sent value. If keys are `plain`, an operator may work on many rows at a time:
    it gets the CachedRows from `rows`, adds rows itself, and calls `send_excess` at the end.
    """

    @property
    def plain(self) -> bool:
        """Whether keys identify the rows."""
        ...

    @property
    def with_headers(self) -> bool:
        """Whether a row has headers."""
        ...

    @property
    def current(self) -> AtRecord:
        """The task's current record.

        Set its `offset` before you call `hold` for the next record of a batch.
        """
        ...

    @property
    def copies(self) -> bool:
        """Whether the sent old values are mutable, so that `before` makes copies."""
        ...

    def before(self, key: Any, value: Any, window: Window | None = None) -> Any:
        """Return a row's value before an update, safe from in-place changes to the row's object.

        Call it before such a change.
        """
        ...

    def hold(self, key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
        """Take an update `(new, old)`; keys of windowed tables are `Windowed`."""
        ...

    def hold_batch(self, batch: Batch) -> None:
        """Take a batch of updates."""
        ...

    def came(
        self, batch: Batch, skipped: Collection[int] = (), late: Mapping[int, int | None] = ...
    ) -> None:
        """Note the records whose updates follow in `rows` or in the store.

        Downstream errors can then name them. Records at `skipped` have changed nothing. A `late`
        record has changed only the windows that end after the given time (ms); None stands for
        unknown windows.
        """
        ...

    def leave_to_store(self, batch: Batch) -> bool:
        """Return whether the counts that the store's `count_up` has put need no more work.

        The store has noted their old values.
        """
        ...

    def rows(self, window: Window | None = None) -> CachedRows:
        """Return the rows, or those of a window; add to them only before you call `send_excess`."""
        ...

    def send_excess(self, updates: int = 0) -> None:
        """Count `updates` updates, besides those of `hold`, and forward the excess."""
        ...
