"""A node that has records in the hands of a user's code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ks_actors.records import Headers
    from ks_actors.task.calls._async_node import Call


class InFlight(Protocol):
    """What the runtime knows of an asynchronous node, be it one of single records or of many at once. Nothing of it waits."""

    node: str
    in_flight: int

    @property
    def room(self) -> int:
        """How many records may be taken now."""
        ...

    @property
    def has_results(self) -> bool:
        """Return whether `emit` has something to do."""
        ...

    @property
    def settled(self) -> bool:
        """Return whether nothing is in the hands of the user's code, or waits to be: all that was sent has its result."""
        ...

    @property
    def oldest(self) -> Call | None:
        """Return the call that has been under way for longest, None when there is none."""
        ...

    @property
    def leaving(self) -> bool:
        """Return whether calls that were given up are still on their way out of the user's code."""
        ...

    @property
    def waits(self) -> bool:
        """Return whether there are records that wait for others, and `flush` would send them."""
        ...

    def process(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Take a record; what comes of it comes out of a later `emit`."""
        ...

    def emit(self) -> bool:
        """Hand on results; return whether there were any."""
        ...

    def flush(self) -> None:
        """Send what waits for others."""
        ...

    def cancel(self) -> None:
        """Give up all records in flight."""
        ...

    def close(self) -> None:
        """Cancel what is in flight, and close the user's code."""
        ...
