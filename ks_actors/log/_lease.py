"""The time for which it is certain that a group member has its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors.lifecycle import elapsed_time

if TYPE_CHECKING:
    from collections.abc import Callable

_NEVER = float("-inf")


@final
class Lease:
    """The time for which no other member can have this member's partitions.

    A group reassigns a member's partitions when it has received no heartbeat for the session
    timeout, and when it has not joined a rebalance within the rebalance timeout. So the lease lasts
    for the session timeout, counted from the sending time of the last answered heartbeat, but not
    beyond the rebalance timeout after the last request that found no rebalance. If a process was
    frozen or cut off, or its machine slept, its lease is over before any message arrives: the
    `clock`, in seconds, advances during sleep. A producer without transactions writes under the
    lease of its member. Otherwise its late records could follow records of the partition's next
    owner.

    The membership extends and ends the lease, from any thread; it calls `lost` on the member's loop
    when the membership is over.
    """

    __slots__ = ("_clock", "_until", "heard", "lost")

    def __init__(self, clock: Callable[[], float] = elapsed_time) -> None:
        self._clock: Callable[[], float] = clock
        self._until: float = _NEVER
        self.heard: float = _NEVER
        """When the last answered heartbeat was sent, by the lease's clock."""
        self.lost: Callable[[], None] = _nothing

    def holds(self) -> bool:
        """Return whether the lease holds, so that no other member can have the partitions."""
        return self.left() > 0

    def left(self) -> float:
        """Return the seconds until the lease ends; 0 or less when it has ended."""
        return self._until - self._clock()

    def time(self) -> float:
        """Return the time of the lease's clock, in seconds."""
        return self._clock()

    def extend(self, until: float) -> None:
        """Extend the lease to this time of its clock; never shorten it."""
        self._until = max(self._until, until)

    def end(self) -> None:
        """End the lease."""
        self._until = _NEVER

    def forget(self) -> None:
        """Stop reporting the loss: the member's producer is closing."""
        self.lost = _nothing


def _nothing() -> None:
    pass
