"""How long what a member of a group has is its own."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

_NEVER = float("-inf")


@final
class Lease:
    """Tell whether a member of a group can be sure that nobody else has its partitions.

    A group gives them to others when it has heard nothing for the session timeout. So the member is sure for as long, counted from when it sent the
    last heartbeat that was answered; a process that was frozen, or cut off, finds the lease over before anything has told it so. A producer without
    transactions writes under the lease of the member whose work it is: there is nothing else that would keep what it sends late from getting behind
    what the partitions' next owner has written.

    The membership extends and ends it, from any thread; `lost` is called on the member's loop when the membership is over.
    """

    __slots__ = ("_until", "lost")

    def __init__(self) -> None:
        self._until: float = _NEVER
        self.lost: Callable[[], None] = _nothing

    def holds(self) -> bool:
        """Return whether nobody else can have the partitions now."""
        return monotonic() < self._until

    def extend(self, until: float) -> None:
        """Be sure until this time of the monotonic clock, in seconds; no extension makes it shorter."""
        self._until = max(self._until, until)

    def end(self) -> None:
        """Be sure of nothing any more."""
        self._until = _NEVER


def _nothing() -> None:
    pass
