"""The base of store readers: queries of committed or latest state.

Reading changes nothing, and no object that a reader returns belongs to the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ks_actors.state.core._row_scan import Row, Rows

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from ks_actors.state.core._key_ranges import Bounds
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
        return self.store.codec.key_bytes(key)

    def bounds(self, low: Any, high: Any) -> Bounds:
        """Return the range of the keys from `low` to `high`, both included; None is no bound."""
        return self.store.codec.bounds(low, high)

    def prepare(self) -> Iterator[None]:
        """Return the steps to take before a scan of rows begins; most stores need none."""
        return iter(())

    def _index(self, key: Any) -> Any:
        encoded = self.key_bytes(key)
        return key if self.store.codec.faithful else encoded

    def _started(
        self, layers: list[dict[Any, Any]], steps: Iterator[None], rows: Generator[Row, None, None]
    ) -> Rows:
        found = Rows(layers, steps, rows)
        self.store.readers.add(found)
        return found
