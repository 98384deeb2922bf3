"""The number of records that a task takes at a time."""

from __future__ import annotations

from typing import final

_FIRST = 64
_LONGEST = 1000
_SECONDS = 0.001
# The longest time that a busy machine gives to another process in the middle of a run.
_PAUSE = 0.02


@final
class RunLength:
    """The number of records of a run, adapted so that a run takes about a millisecond.

    A task whose functions may block takes one record at a time. Each call may take seconds, however
    fast earlier calls were, and the slice ends only with the run.
    """

    def __init__(self, *, blocking: bool = False) -> None:
        self.records: int = 1 if blocking else _FIRST
        self._longest: int = 1 if blocking else _LONGEST
        self._was_long: bool = False

    def adapt(self, done: int, seconds: float) -> None:
        """Adapt the length to the time that the last run of `done` records took."""
        if seconds <= 2 * _SECONDS and 2 * done < self.records:
            return  # it was short because there were no more records: that tells nothing
        # Between one and two milliseconds nothing changes, so that the size does not swing.
        was_long, self._was_long = self._was_long, seconds > 2 * _SECONDS
        if seconds > _PAUSE:
            # Shorten the run at once if records have become much slower: halving would take many
            # long runs.
            self.records = max(1, min(self.records // 2, int(done * _SECONDS / seconds)))
        elif self._was_long:
            # On a busy machine every fourth run is long because another process had the processor
            # meanwhile: if each of them shortened the next runs, all runs would be short.
            self.records = max(1, self.records // (1 + was_long))
        elif seconds < _SECONDS:
            self.records = min(self._longest, self.records * 2)
