"""Records that a node or a cache holds at one moment, until all of them have left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Sized


class Holder(Protocol):
    """A part that holds records back."""

    def mark(self) -> int:
        """Note the records that are held now, for `passed`."""
        ...

    def passed(self, mark: int, /) -> bool:
        """Return whether all records that were held at a mark have left."""
        ...


@final
class Turnover:
    """The records that a node holds, by the marks between which they came.

    A busy node is never empty, but the records that it holds at any moment leave it eventually.
    """

    __slots__ = ("_counts", "_turn")

    def __init__(self) -> None:
        self._turn: int = 0
        # Numbers ascend: a number is used again only while it is the last number.
        self._counts: dict[int, int] = {}

    def enter(self) -> int:
        """Note a record that comes; return the number to pass to `leave`."""
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
    """A cache as a holder: its updates have left when it is empty, as at each commit."""

    __slots__ = ("_cache",)

    def __init__(self, cache: Sized) -> None:
        self._cache = cache

    def mark(self) -> int:
        """Return a constant: no mark is required for a cache."""
        return 0

    def passed(self, _mark: int) -> bool:
        """Return whether the cache is empty now."""
        return not self._cache
