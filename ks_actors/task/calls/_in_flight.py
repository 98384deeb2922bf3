"""The protocol of nodes that wait for a user's code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ks_actors.metrics import Timing
    from ks_actors.records import Headers
    from ks_actors.task.calls._async_node import Call
    from ks_actors.task.calls._turnover import Turnover


class InFlight(Protocol):
    """An asynchronous node as the runtime sees it, of single records or of batches.

    No method waits.
    """

    node: str
    in_flight: int
    times: Timing
    """The times (s) of calls that have ended, with their retries."""
    turnover: Turnover
    """Tells when the records of one moment have left."""

    @property
    def running(self) -> int:
        """The number of calls in the user's code."""
        ...

    @property
    def failures(self) -> int:
        """The number of calls that have failed, after their retries."""
        ...

    @property
    def retries_at(self) -> float:
        """When the last pause before a retry ends, or has ended, on the loop's clock (s)."""
        ...

    @property
    def room(self) -> int:
        """The number of records that may be added now."""
        ...

    @property
    def has_results(self) -> bool:
        """Whether `emit` has work."""
        ...

    @property
    def settled(self) -> bool:
        """Whether the user's code has no records, and none wait for it: all have results."""
        ...

    @property
    def oldest(self) -> Call | None:
        """The call that has been running for longest, None without any."""
        ...

    @property
    def leaving(self) -> bool:
        """Whether cancelled calls are still running in the user's code."""
        ...

    @property
    def waits(self) -> bool:
        """Whether there are records that wait for others, and `flush` would send them."""
        ...

    def process(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Add a record; a later `emit` emits its results."""
        ...

    def emit(self) -> bool:
        """Emit results; return whether there were any."""
        ...

    def flush(self) -> None:
        """Send the records that wait for others."""
        ...

    def cancel(self) -> None:
        """Cancel all records in flight."""
        ...

    def close(self) -> None:
        """Cancel calls in flight, and close the user's code."""
        ...
