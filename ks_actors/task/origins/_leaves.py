"""Origins of rows and waiting records that do not keep the fetched batches in memory."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ks_actors.task.origins._pages import OriginLeaf

if TYPE_CHECKING:
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.task.origins._pages import OriginPage

E = TypeVar("E")

MOST: Final = 4_000
"""The number of latest source records that a cache or operator keeps with their bytes."""


class OriginLeaves(Generic[E]):
    """The pages of records: the latest `MOST` records whole, older ones without bytes.

    Additional data may be kept with each leaf.
    """

    def __init__(self, current: RecordContextHolder) -> None:
        self.current: RecordContextHolder = current
        self.page: OriginPage | None = None
        """The page of `leaf`. Call `turn` when it differs from the current record's page."""
        self.leaf: OriginLeaf = OriginLeaf(None, 0)
        self._kept: deque[tuple[OriginLeaf, E | None, int]] = deque()
        self._weight: int = 0
        self._number: int = 0
        self._last: OriginPage | None = None

    def turn(self) -> None:
        """Begin a leaf for the page of the current record."""
        self.page = self.current.page
        self.leaf = self._begin(None)

    def _begin(self, extra: E | None) -> OriginLeaf:
        """Return a new leaf of the current record's page, later than all others."""
        self._number += 1
        page = self.current.page
        leaf = OriginLeaf(page, self._number)
        weight = 0 if page is None or page is self._last else len(page)
        self._last = page
        self._kept.append((leaf, extra, weight))
        self._weight += weight
        # The last leaf stays, whatever its size: it has the current records.
        while self._weight > MOST and len(self._kept) > 1:
            old, gone, weight = self._kept.popleft()
            self._weight -= weight
            if old.page is not None:
                old.page = old.page.bare()
            if gone is not None:
                self._let_go(old, gone)
        return leaf

    def _let_go(self, leaf: OriginLeaf, extra: E) -> None:
        """Handle a leaf with additional data that no longer keeps its records."""
