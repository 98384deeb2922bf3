"""The queries that the user has paused."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors.topology import REST

if TYPE_CHECKING:
    from ks_actors.records import TaskId
    from ks_actors.topology import Topology


@final
class Pauses:
    """Track the paused queries of an instance; readable from any thread.

    A pause of the app is a pause of all of its queries.
    """

    def __init__(self, topology: Topology) -> None:
        self._query_of = {part.id: part.query for part in topology.subtopologies()}
        self._all: frozenset[str] = frozenset(self._query_of.values()) or frozenset({REST})
        self.named: bool = self._all != {REST}
        """Whether the topology names queries."""
        self.queries: frozenset[str] = frozenset()
        """The paused queries."""

    def set(self, query: str | None, *, paused: bool) -> None:
        """Pause or resume a query, or all of them (None)."""
        changed = self._all if query is None else {query}
        self.queries = self.queries | changed if paused else self.queries - changed

    @property
    def everything(self) -> bool:
        """Whether all queries are paused."""
        return self.queries >= self._all

    def query(self, task: TaskId) -> str:
        """Return the query of a task."""
        return self._query_of.get(task.subtopology, REST)

    def holds(self, task: TaskId) -> bool:
        """Return whether a task is paused while other queries go on."""
        return bool(self.queries) and self.query(task) in self.queries and not self.everything

    def __str__(self) -> str:
        if self.everything:
            return "the app is paused"
        return ", ".join(f"the query {query} is paused" for query in sorted(self.queries))

    def text(self, task: TaskId) -> str:
        """Return the reason in words if a task is paused; else an empty text."""
        if self.everything:
            return str(self)
        return f"the query {self.query(task)} is paused" if self.holds(task) else ""
