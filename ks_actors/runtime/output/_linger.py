"""The linger time of output that trickles."""

from __future__ import annotations

import math
from typing import Final, final

_BURST_S: Final = 0.001
"""The time that tasks take for the records of one fetch."""

_MUCH: Final = 256 << 10
"""Bytes that are written without lingering."""


@final
class Linger:
    """Gather output that trickles until half of `linger` seconds after the last send.

    A `linger` of 0 turns this off. Fetches are paced by the whole of `linger`. Half of `linger` is
    enough to gather the output for fetches from several brokers, and adds little delay with one
    broker. Output after a quiet moment waits for 1 ms, so that all output of one fetch is sent
    together.
    """

    def __init__(self, linger: float) -> None:
        self._rest: float = linger / 2
        self._sent_at: float = -math.inf
        self._rested: bool = linger <= 0

    def allows(self, size: int) -> bool:
        """Return whether `size` bytes may be written now."""
        return self._rested or size >= _MUCH

    def rest(self, now: float) -> float:
        """Return the seconds that new output must wait; call `rested` after the wait."""
        return max(self._sent_at + self._rest - now, min(_BURST_S, self._rest))

    def rested(self) -> None:
        """Note that the wait is over."""
        self._rested = True

    def sent(self, now: float) -> None:
        """Note a send."""
        self._sent_at, self._rested = now, self._rest <= 0
