"""How long to wait before something is tried again that has failed."""

from __future__ import annotations

from math import inf

_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 5.0
_LIVED_SECONDS = 60.0


class Rests:
    """The rests between attempts: none before the first, then longer and longer ones, for what has failed at once may fail again.

    They begin from none again after a success, or when the last attempt has held for a minute.
    """

    def __init__(self) -> None:
        self._next: float = 0.0
        self._tried: float = -inf

    def succeeded(self) -> None:
        """Note that something came of the last attempt."""
        self._next = 0.0

    def next(self, now: float) -> float:
        """Return how many seconds to rest from `now` on before the next attempt."""
        rest = 0.0 if now - self._tried >= _LIVED_SECONDS else self._next
        self._next = min(max(_FIRST_SECONDS, 2 * rest), _LONGEST_SECONDS)
        self._tried = now + rest
        return rest
