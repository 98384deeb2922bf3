"""All histories of an instance."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, final

from ks_actors.history._commits import CommitHistory
from ks_actors.history._exceptions import ExceptionHistory
from ks_actors.history._rebalances import RebalanceHistory
from ks_actors.history._samples import RecordSamples

if TYPE_CHECKING:
    from collections.abc import Callable


def _wall_time() -> int:
    return time.time_ns() // 1_000_000


@final
class History:
    """The last exceptions, commits and rebalances of an instance, and samples of its records.

    `wall_time` is the clock of all entries, in ms; an app replaces it by its own clock.
    """

    def __init__(self) -> None:
        self.wall_time: Callable[[], int] = _wall_time
        self.exceptions: ExceptionHistory = ExceptionHistory(self._now)
        self.commits: CommitHistory = CommitHistory(self._now)
        self.rebalances: RebalanceHistory = RebalanceHistory(self._now)
        self.samples: RecordSamples = RecordSamples(self._now)

    def _now(self) -> int:
        return self.wall_time()
