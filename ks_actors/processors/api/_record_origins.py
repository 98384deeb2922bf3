"""Where records that wait came from, as an operator sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from ks_actors.records import Headers

Origin: TypeAlias = "tuple[Any, int] | tuple[str, int, int] | None"
"""Where a record came from: a page in memory and the record's offset there; or topic, partition and offset; or None, when nobody knows."""


class Origins(Protocol):
    """What lets an operator that holds records back make each the current one again, while it forwards what has become of it.

    So errors behind it, and what users' code asks, are about that record, and not about the one
    that lets it go.
    """

    def origin(self) -> Origin:
        """Return where the current record came from: in memory, a record as it was read is known for as long as not too many others have come."""
        ...

    def here(self) -> Any:
        """Return what `back` needs to make the current record the current one again."""
        ...

    def go_to(self, origin: Origin, timestamp: int, headers: Headers) -> None:
        """Make another record the current one; None: none."""
        ...

    def back(self, there: Any) -> None:
        """Make the record the current one again that was so before."""
        ...
