"""The base of store readers: queries of committed or latest state.

Reading changes nothing, and no object that a reader returns belongs to the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ks_actors.state.core._row_scan import Row, Rows
from ks_actors.state.core._transactional import MISSING

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from ks_actors.state.core._entry import Entry
    from ks_actors.state.core._transactional import Transactional
    from ks_actors.state.join_window import JoinWindowRows

S = TypeVar("S", bound="Transactional[Any] | JoinWindowRows")
MANY: Final = 2000
"""The most keys to sort in one go."""
STEP: Final = 500
"""Keys per step, about half a millisecond."""


def step() -> int:
    """Return the number of rows that a reader takes per step."""
    return STEP


class Reader(Generic[S]):
    """The base of all store readers."""

    def __init__(self, store: S) -> None:
        self.store: S = store

    @property
    def name(self) -> str:
        """The store's name."""
        return self.store.name

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes of a key, by which keys are ordered and partitioned."""
        if key is None:
            raise TypeError(f"store {self.store.name}: a key cannot be None")
        encoded: bytes = self.store._codec.key_bytes(key)
        return encoded

    def _index(self, key: Any) -> Any:
        encoded = self.key_bytes(key)
        return key if self.store._codec.faithful else encoded

    def _started(
        self, layers: list[dict[Any, Any]], steps: Iterator[None], rows: Generator[Row, None, None]
    ) -> Rows:
        found = Rows(layers, steps, rows)
        self.store.readers.add(found)
        return found


T = TypeVar("T", bound="Transactional[Any]")


class NotingReader(Reader[T]):
    """The reader of a store that notes the values its transactions replace."""

    def _value(self, handle: Any, *, committed: bool) -> Any:
        return self.store._committed_value(handle) if committed else self.store._now(handle)

    def _entry(self, handle: Any, value: Any) -> Entry | None:
        """Return the entry of a value from the view or the notes; a mutable one is a copy."""
        if value is MISSING:
            value = self.store.below(handle)
        if value is None:
            return None
        return self.store._codec.entry(value) if type(value) is bytes else value

    def _uncommitted(self) -> dict[Any, Any]:
        """Return the latest values of all puts since the last commit."""
        store = self.store
        return {
            handle: store._now(handle)
            for source in (store._frozen, store._dirty)
            for handle in source
        }

    def _at_start(self, handle: Any, layers: list[dict[Any, Any]], overlay: dict[Any, Any]) -> Any:
        """Return a handle's value as of the reader's start."""
        if handle in overlay:
            return overlay[handle]
        for layer in layers:
            if handle in layer:
                return layer[handle]
        return self.store._committed_value(handle)
