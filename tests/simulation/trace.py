"""The events of a run: a number that two runs of a seed have in common, and the last events in words."""

from __future__ import annotations

import zlib
from collections import Counter, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_KEPT = 400


class Trace:
    """Events with their times. `digest` changes with each; `requests` counts them by kind."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.digest: int = 0
        self.requests: Counter[str] = Counter()
        self._clock = clock
        self._last: deque[tuple[float, str, tuple[object, ...]]] = deque(maxlen=_KEPT)

    def note(self, what: str, *details: object) -> None:
        """Note an event."""
        now = self._clock()
        self.digest = zlib.crc32(repr((now, what, details)).encode(), self.digest)
        self._last.append((now, what, details))

    def note_bytes(self, what: str, raw: bytes, *details: object) -> None:
        """Note an event with bytes, which are not kept."""
        self.requests[what] += 1
        self.note(what, zlib.crc32(raw), *details)

    def told(self) -> str:
        """Return the last events, a line each."""
        return "\n".join(f"{when:10.4f} {what} {' '.join(map(str, details))}" for when, what, details in self._last)
