"""Nodes whose stream time advances with the wall clock while no record comes."""

from __future__ import annotations

from typing import Protocol


class IdleNode(Protocol):
    """A node with state that closes at certain stream times, registered by `when_idle`.

    While no record reaches the node, the task advances the node's stream time with the wall clock.
    All methods are called on the task's own turn.
    """

    touched: bool
    """Whether a record has come since the task's last check; the node sets it at each record."""

    @property
    def stream_time(self) -> int:
        """The node's stream time (ms), -1 before the first record."""
        ...

    def next_close(self) -> int | None:
        """Return the stream time (ms) at which something closes next; None when all is closed."""
        ...

    def close_until(self, time: int) -> None:
        """Forward all that closes by stream time `time` (ms), and record the close."""
        ...
