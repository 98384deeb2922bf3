"""The shares of the named queries in an instance's time and buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from ks_actors.records import TaskId
    from ks_actors.topology import Topology


@final
class Shares:
    """Divide time and buffers among queries in proportion to their weights.

    Time is divided by stride scheduling (Waldspurger and Weihl, 1995): each query has a pass, the
    time that it has used divided by its weight, and the query with the least pass comes next. A
    query that had nothing to do does not save up time.
    """

    def __init__(self, queries: dict[int, str], weights: dict[str, int]) -> None:
        self._queries = queries
        self._weights = weights
        self._passes: dict[str, float] = dict.fromkeys(weights, 0.0)
        self._now: float = 0.0

    @classmethod
    def of(cls, topology: Topology) -> Self | None:
        """Return the shares of a topology's queries; None if there is only one."""
        queries = {part.id: part.query for part in topology.subtopologies()}
        weights = {query: topology.weights.get(query, 1) for query in queries.values()}
        return cls(queries, weights) if len(weights) > 1 else None

    def query(self, task: TaskId) -> str:
        """Return the query of a task."""
        return self._queries[task.subtopology]

    def fraction(self, query: str) -> float:
        """Return the share of a query in the common buffers, between 0 and 1."""
        return self._weights[query] / sum(self._weights.values())

    def begin(self, query: str) -> None:
        """Note that a query has work after it had none."""
        self._passes[query] = max(self._passes[query], self._now)

    def first(self, queries: Iterable[str]) -> str:
        """Return the query whose turn it is, among those with work."""
        found = min(queries, key=lambda query: (self._passes[query], query))
        self._now = self._passes[found]
        return found

    def spent(self, task: TaskId, seconds: float) -> None:
        """Note the time that a task has used."""
        query = self._queries[task.subtopology]
        self._passes[query] += seconds / self._weights[query]
