"""The length of segments of rows that expire together."""

from __future__ import annotations

from typing import Final

LONG_MS: Final = 3_600_000


LONGEST_MS: Final = 86_400_000


def span_of(retention_ms: int) -> int:
    """Return the length of a segment (ms).

    It is short enough to free expired rows soon, and long enough for joins to search few segments.
    """
    return min(retention_ms // (6 if retention_ms <= LONG_MS else 12) + 1, LONGEST_MS)
