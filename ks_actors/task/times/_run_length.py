"""The number of records that a task takes at a time."""

from __future__ import annotations

from typing import final

_FIRST = 64
_LONGEST = 1000
_SECONDS = 0.001


@final
class RunLength:
    """The number of records of a run, adapted so that a run takes about a millisecond.

    A task whose functions may block takes one record at a time. Each call may take seconds, however
    fast earlier calls were, and the slice ends only with the run.
    """

    def __init__(self, *, blocking: bool = False) -> None:
        self.records: int = 1 if blocking else _FIRST
        self._longest: int = 1 if blocking else _LONGEST

    def adapt(self, done: int, seconds: float) -> None:
        """Adapt the length to the time that the last run of `done` records took."""
        # Between one and two milliseconds nothing changes, so that the size does not swing.
        if seconds > 2 * _SECONDS:
            # Shorten the run at once if records have become much slower: halving would take many
            # long runs.
            self.records = max(1, min(self.records // 2, int(done * _SECONDS / seconds)))
        elif seconds < _SECONDS:
            self.records = min(self._longest, self.records * 2)
