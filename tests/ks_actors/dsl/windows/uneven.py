"""Windows of a user's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ks_actors import Window


@dataclass(frozen=True)
class Uneven:
    """Windows of two thirds and of one third of `period_ms`, side by side, and others across both.

    None begins where another one does, and some end before others that begin earlier.
    """

    period_ms: int
    grace_ms: int

    @property
    def size_ms(self) -> int:
        return 2 * self.period_ms // 3

    def windows_for(self, timestamp: int) -> Iterator[Window]:
        third, sixth = self.period_ms // 3, self.period_ms // 6
        begin = timestamp - timestamp % self.period_ms
        for start, length in ((begin + sixth, 2 * third), (begin, 2 * third), (begin + 2 * third, third), (begin + 2 * sixth, 1)):
            if start <= timestamp < start + length:
                yield Window(start, start + length)
