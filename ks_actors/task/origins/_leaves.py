"""Places that rows and waiting records point to, without keeping all in memory that was fetched with their records."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar, final

if TYPE_CHECKING:
    from ks_actors.processors.api import RecordMetadata
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.task.origins._pages import OriginPage

E = TypeVar("E")

MOST: Final = 4_000
"""So many source records are kept as they came for what a cache, or an operator, holds back: the latest."""


@final
class OriginLeaf:
    """A page, until it lets go of its records; `number` tells which of two leaves is the later one."""

    __slots__ = ("number", "page")

    def __init__(self, page: OriginPage | None, number: int) -> None:
        self.page: OriginPage | None = page
        self.number: int = number

    def metadata(self, offset: int) -> RecordMetadata | None:
        """Return where a record came from."""
        return None if self.page is None else self.page.metadata(offset)

    def place(self, offset: int) -> RecordMetadata | None:
        """Return where the log has a record; None when that is not known, or it has none."""
        return None if self.page is None or not self.page.logged(offset) else self.page.metadata(offset)


Place: TypeAlias = tuple[OriginLeaf, int]
"""Where a record came from: a page, and the offset there."""


class OriginLeaves(Generic[E]):
    """The pages that records have come from: with the latest `MOST` records, and bare of them. Something extra may go with each leaf."""

    def __init__(self, current: RecordContextHolder) -> None:
        self.current: RecordContextHolder = current
        self.page: OriginPage | None = None
        """The page of `leaf`. If it is not that of the current record, `turn` is to be called."""
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
        while self._weight > MOST and len(self._kept) > 1:
            old, gone, weight = self._kept.popleft()
            self._weight -= weight
            if old.page is not None:
                old.page = old.page.bare()
            if gone is not None:
                self._let_go(old, gone)
        return leaf

    def _let_go(self, leaf: OriginLeaf, extra: E) -> None:
        """Take note that a leaf with something extra keeps no records any more."""
