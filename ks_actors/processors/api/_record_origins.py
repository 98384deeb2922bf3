"""The origins of held-back records, as an operator sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from ks_actors.records import Headers

Origin: TypeAlias = "tuple[Any, int] | tuple[str, int, int] | None"
"""The origin of a record, None when unknown.

It is a page in memory and the record's offset there; or topic, partition and offset.
"""


class Origins(Protocol):
    """Makes held-back records the current records again, to forward their results.

    So downstream errors, and the metadata that user code reads, name that record and not the record
    that releases it.
    """

    def origin(self) -> Origin:
        """Return the origin of the current record.

        The record's bytes are known until too many later records have come.
        """
        ...

    def here(self) -> Any:
        """Return the value that `back` needs to restore the current record."""
        ...

    def go_to(self, origin: Origin, timestamp: int, headers: Headers) -> None:
        """Make another record the current one; None stands for no record."""
        ...

    def back(self, there: Any) -> None:
        """Make the previous record the current one again."""
        ...
