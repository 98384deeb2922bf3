"""The number of records that a task takes at a time."""

from __future__ import annotations

from typing import final

_FIRST = 64
_LONGEST = 1000
_SECONDS = 0.001


@final
class RunLength:
    """The number of records of a run, adapted so that a run takes about a millisecond."""

    def __init__(self) -> None:
        self.records: int = _FIRST

    def adapt(self, seconds: float) -> None:
        """Adapt the length to the time that the last run took."""
        # Between one and two milliseconds nothing changes, so that the size does not swing.
        if seconds > 2 * _SECONDS:
            self.records = max(1, self.records // 2)
        elif seconds < _SECONDS:
            self.records = min(_LONGEST, self.records * 2)
