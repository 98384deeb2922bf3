"""Figures of the requests of one client of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, final, runtime_checkable

from ks_actors.metrics import STILL, Timing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.metrics import Window


@final
class RequestFigures:
    """The answered requests of a fetcher or producer: times in ms, bytes of batches, records."""

    def __init__(self, kind: Literal["fetch", "produce"], client_id: str) -> None:
        self.kind: Literal["fetch", "produce"] = kind
        self.client_id: str = client_id
        self.times: Timing = Timing()
        self.bytes: int = 0
        self.records: int = 0
        """The number of records; of fetchers 0, as their batches are not decoded yet."""
        self._window: Window = STILL

    def use(self, window: Window) -> None:
        """Measure times in the windows of an app, and keep the totals.

        A second call does nothing.
        """
        if self._window is not window:
            before, self.times = self.times, Timing(window)
            self.times.count, self.times.total = before.count, before.total
            self._window = window


@runtime_checkable
class MeasuresRequests(Protocol):
    """A log that sends requests to brokers, and measures them."""

    def requests(self) -> Sequence[RequestFigures]:
        """Return the figures of all open fetchers and producers."""
        ...
