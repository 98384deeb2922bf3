"""The queries of the topology that no member of the group runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from collections.abc import Iterable

_log = component_log(__name__)


@final
class UncoveredQueries:
    """Track the queries that no member runs, and warn of each once.

    Members start and leave one after the other, so a query counts only after `bound` seconds.
    """

    def __init__(self, bound: float) -> None:
        self._bound: float = bound
        self._since: dict[str, float] = {}
        self._told: dict[str, float] = {}

    def found(self, now: float) -> dict[str, float]:
        """Return the queries that count, each with its time in seconds; callable from any thread.

        `now` is in seconds, as in `note`.
        """
        return {query: now - since for query, since in tuple(self._told.items())}

    def note(self, queries: Iterable[str] | None, now: float) -> None:
        """Note the queries that no member runs now; log those that count, and those that end.

        None means that they are not known: then all are forgotten, and nothing is logged.
        """
        if queries is None:
            self._since, self._told = {}, {}
            return
        self._since = {query: self._since.get(query, now) for query in queries}
        for query, since in self._since.items():
            if query not in self._told and now - since >= self._bound:
                self._told[query] = since
                _log.warning(
                    "no member of the group has run the query %s for %.0f s: its records wait. "
                    "Start an instance with queries=%r, or one without the setting queries, "
                    "which runs all",
                    query,
                    now - since,
                    query,
                )
        for query in self._told.keys() - self._since.keys():
            since = self._told.pop(query)
            _log.info("a member runs the query %s again, after %.0f s", query, now - since)
