"""How long what a member of a group has is its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors.lifecycle import elapsed_time

if TYPE_CHECKING:
    from collections.abc import Callable

_NEVER = float("-inf")


@final
class Lease:
    """Tell whether a member of a group can be sure that nobody else has its partitions.

    A group gives them to others when it has heard nothing for the session timeout. So the member is sure for as long, counted from when it sent the
    last heartbeat that was answered. A process that was frozen or cut off, or whose machine has slept, finds the lease over before anything has told
    it so: the `clock`, in seconds, goes on in sleep. A producer without transactions writes under the lease of the member whose work it is: nothing
    else would keep what it sends late from getting behind what the partitions' next owner has written.

    The membership extends and ends it, from any thread; `lost` is called on the member's loop when the membership is over.
    """

    __slots__ = ("_clock", "_until", "lost")

    def __init__(self, clock: Callable[[], float] = elapsed_time) -> None:
        self._clock: Callable[[], float] = clock
        self._until: float = _NEVER
        self.lost: Callable[[], None] = _nothing

    def holds(self) -> bool:
        """Return whether nobody else can have the partitions now."""
        return self._clock() < self._until

    def time(self) -> float:
        """Return the time of the lease's clock, in seconds."""
        return self._clock()

    def extend(self, until: float) -> None:
        """Be sure until this time of the lease's clock; no extension makes it shorter."""
        self._until = max(self._until, until)

    def end(self) -> None:
        """Be sure of nothing any more."""
        self._until = _NEVER

    def forget(self) -> None:
        """Stop telling of its end: the member's producer is closing."""
        self.lost = _nothing


def _nothing() -> None:
    pass
