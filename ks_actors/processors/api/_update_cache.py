"""What holds updates of a store back, as an operator sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ks_actors.records import Batch, Headers, Window


class Gone(NamedTuple):
    """The entry of a row that was deleted after it had been updated since it was last sent: somebody may have read it meanwhile."""

    value: None
    timestamp: int


class HeldRows:
    """Rows that have been updated since they were last sent, by first update; of a windowed table those of one window.

    `olds` has what was last sent of each (None: nothing). A new value is what the store has when it
    is sent, with its timestamp; in `news` are those that the store may not have any more: deletes,
    as None with the time of it, and all of windows. Rows are known by their keys, or, when those
    may be equal where their bytes are not, by these bytes: then `keys` has the keys.
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
        """Remember the headers of the last record of each row that is held."""
        olds, known = self.olds, self.headers
        for key, header in zip(keys, headers, strict=False):
            if header and key in olds:
                known[key] = header
            elif known:
                known.pop(key, None)


class AtRecord(Protocol):
    """The place of the record that is being processed, which somebody who takes a batch record by record has to tell."""

    offset: int


class Cache(Protocol):
    """Updates of one store of one task that have not gone downstream yet: at most one per row, the latest.

    An operator writes its store at once and gives its updates to `hold` instead of forwarding them,
    always with the row's value before (None: there was no row). Of a row that is held already the
    old value stays what was last sent. An operator that works on many rows at a time gets them from
    `rows` and adds to them itself, if keys are `plain`, and calls `settle` at the end.
    """

    @property
    def plain(self) -> bool:
        """Whether rows are known by their keys."""
        ...

    @property
    def with_headers(self) -> bool:
        """Whether a row has headers."""
        ...

    @property
    def current(self) -> AtRecord:
        """The record that the task is at: its `offset` is to be set before `hold` is called for the next record of a batch."""
        ...

    @property
    def copies(self) -> bool:
        """Whether old values are sent that could be changed in place, so that `before` makes copies."""
        ...

    def before(self, key: Any, value: Any, window: Window | None = None) -> Any:
        """Return a row's value before an update, such as it stays when the row's object is changed in place.

        Call it before that.
        """
        ...

    def hold(self, key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
        """Take an update `(new, old)`; keys of windowed tables are `Windowed`."""
        ...

    def hold_batch(self, batch: Batch) -> None:
        """Take many."""
        ...

    def came(self, batch: Batch, skipped: Collection[int] = (), late: Mapping[int, int | None] = ...) -> None:
        """Note the records whose updates are going to be added to `rows`, or left to the store, so that errors downstream can name them.

        Those at `skipped` have changed nothing, and those that were `late` only the windows that
        end behind a time (ms); None: some, who knows which.
        """
        ...

    def leave_to_store(self, batch: Batch) -> bool:
        """Return whether nothing is to be done for counts that the store's `count_up` has put: it has noted what they were."""
        ...

    def rows(self, window: Window | None = None) -> HeldRows:
        """Return the rows, or those of a window, to be added to before `settle` is called, and not after."""
        ...

    def settle(self, updates: int = 0) -> None:
        """Count what was added by so many updates, besides those of `hold`, and send on what is too much."""
        ...
