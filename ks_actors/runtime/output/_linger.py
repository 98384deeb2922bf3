"""When output that trickles is written."""

from __future__ import annotations

import math
from typing import Final, final

_BURST_S: Final = 0.001
"""How long tasks take for what one fetch has brought them."""

_MUCH: Final = 256 << 10
"""Bytes that are written without a rest."""


@final
class Linger:
    """Let output that trickles rest until half of `linger` seconds after the last send, so that it is gathered; 0: not at all.

    Fetches are paced by all of `linger`: half of it keeps what several brokers bring together, and adds little where there is one. Output after a
    quiet moment waits for a millisecond: all that the tasks make of one fetch leaves together.
    """

    def __init__(self, linger: float) -> None:
        self._rest: float = linger / 2
        self._sent_at: float = -math.inf
        self._rested: bool = linger <= 0

    def allows(self, size: int) -> bool:
        """Return whether so many bytes may be written now."""
        return self._rested or size >= _MUCH

    def rest(self, now: float) -> float:
        """Return for how many seconds output that has come now is to rest, for `rested` to be called then."""
        return max(self._sent_at + self._rest - now, min(_BURST_S, self._rest))

    def rested(self) -> None:
        """Note that the rest is over."""
        self._rested = True

    def sent(self, now: float) -> None:
        """Note that something was written."""
        self._sent_at, self._rested = now, self._rest <= 0
