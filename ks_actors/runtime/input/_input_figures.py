"""Measurements of the poller: fetches and rebalances."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors.log import Assigned, Lost, Revoked
from ks_actors.metrics import STILL, Timing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.log import Fetched, MembershipEvent
    from ks_actors.metrics import Window


@final
class InputFigures:
    """The fetches and rebalances of one instance; times in ms."""

    def __init__(self, window: Window = STILL, began: float = 0.0) -> None:
        self.fetches: Timing = Timing(window)
        self.records: Timing = Timing(window)
        self.rebalances: Timing = Timing(window)
        self.lost: int = 0
        self.assigned_at: float | None = None
        """The time (s) of the last assignment."""
        self._fetching_since: float = began
        self._rebalancing_since: float | None = began

    def fetch_begins(self, now: float) -> None:
        """Note the begin of a fetch."""
        self._fetching_since = now

    def fetched(self, fetched: Sequence[Fetched], now: float) -> None:
        """Note the end of a fetch."""
        self.fetches.add((now - self._fetching_since) * 1000)
        self.records.add(sum(len(one.batch) for one in fetched))

    def event(self, event: MembershipEvent, now: float) -> None:
        """Note an event of the group."""
        match event:
            case Revoked():
                self._rebalancing_since = now
            case Lost():
                self._rebalancing_since = now
                self.lost += 1
            case Assigned():
                since = now if self._rebalancing_since is None else self._rebalancing_since
                self.rebalances.add((now - since) * 1000)
                self._rebalancing_since, self.assigned_at = None, now
