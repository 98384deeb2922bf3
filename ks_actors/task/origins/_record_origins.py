"""The origins of records that operators hold back."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors.records import TopicPartition
from ks_actors.task.origins._leaves import OriginLeaves
from ks_actors.task.origins._pages import Chunk

if TYPE_CHECKING:
    from ks_actors.processors.api import Origin
    from ks_actors.records import Headers
    from ks_actors.task.origins._pages import OriginPage

Place = tuple["OriginPage | None", int, int, "Headers"]


@final
class RecordOrigins(OriginLeaves[None]):
    """The origins of the records that one node holds back.

    Each of these records can be made the current record again.
    """

    def origin(self) -> Origin:
        """Return the origin of the current record."""
        current = self.current
        page = current.page
        if page is not self.page:
            self.turn()
        return (
            None
            if page is None
            else (self.leaf, current.offset)
            if page.lasting
            else page.origin(current.offset)
        )

    def here(self) -> Place:
        """Return the current record's context."""
        current = self.current
        return current.page, current.offset, current.timestamp, current.headers

    def go_to(self, origin: Origin, timestamp: int, headers: Headers) -> None:
        """Make another record the current record; with `origin` None there is no current record."""
        current = self.current
        current.timestamp, current.headers = timestamp, headers
        if origin is None:
            current.page, current.offset = None, -1
        elif len(origin) == 2:  # noqa: PLR2004 - a leaf, and an offset there
            leaf, current.offset = origin
            current.page = leaf.page
        else:
            topic, partition, current.offset = origin
            current.page = Chunk(TopicPartition(topic, partition), None)

    def back(self, there: Place) -> None:
        """Restore the context that `here` returned."""
        current = self.current
        current.page, current.offset, current.timestamp, current.headers = there
