"""Records that a node or a cache holds at one moment, until all of them have left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Sized


class Holder(Protocol):
    """Something that holds records back on their way."""

    def mark(self) -> int:
        """Note the records that are held now, for `passed`."""
        ...

    def passed(self, mark: int, /) -> bool:
        """Return whether all records that were held at a mark have left."""
        ...


@final
class Turnover:
    """The records that a node has, by the marks between which they came.

    A node that always has some is never empty, but those of any one moment leave it.
    """

    __slots__ = ("_counts", "_turn")

    def __init__(self) -> None:
        self._turn: int = 0
        # Ascending, as a number that has left comes back only while it is the last one.
        self._counts: dict[int, int] = {}

    def enter(self) -> int:
        """Note a record that comes; return the number to give back when it leaves."""
        turn = self._turn
        self._counts[turn] = self._counts.get(turn, 0) + 1
        return turn

    def leave(self, turn: int) -> None:
        """Note a record that leaves."""
        left = self._counts[turn] - 1
        if left:
            self._counts[turn] = left
        else:
            del self._counts[turn]

    def mark(self) -> int:
        """Note the records that are held now, for `passed`."""
        self._turn += 1
        return self._turn - 1

    def passed(self, mark: int) -> bool:
        """Return whether all records that were held at a mark have left."""
        first = next(iter(self._counts), None)
        return first is None or first > mark

    def clear(self) -> None:
        """Forget all records."""
        self._counts.clear()


@final
class Emptied:
    """A cache as a holder: it has let its updates go when it is seen empty, as at each commit."""

    __slots__ = ("_cache",)

    def __init__(self, cache: Sized) -> None:
        self._cache = cache

    def mark(self) -> int:
        """Return a mark; a cache needs none."""
        return 0

    def passed(self, _mark: int) -> bool:
        """Return whether the cache is empty now."""
        return not self._cache
