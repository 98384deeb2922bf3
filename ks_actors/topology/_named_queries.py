"""Named queries: the parts of a topology that can run, and be asked for, apart from the others."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

from ks_actors._errors import TopologyError
from ks_actors.lifecycle import check_span

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from datetime import timedelta

REST: Final = "rest"
"""The query of all subtopologies in none of the named queries."""


@final
class QueryNames:
    """The query that new nodes belong to, and the weights and commit intervals of all queries."""

    def __init__(self) -> None:
        self.current: str | None = None
        self.weights: dict[str, int] = {}
        self.intervals: dict[str, int] = {}
        self.of_nodes: dict[str, str] = {}

    def note(self, node: str) -> None:
        """Let a new node belong to the current query, if there is one."""
        if self.current is not None:
            self.of_nodes[node] = self.current

    @contextmanager
    def open(
        self, name: str, weight: int, commit_interval_ms: int | timedelta | None
    ) -> Iterator[None]:
        """Let `name` be the current query. Raises TopologyError: see `Topology.query`."""
        _check_query(name, weight)
        interval = _interval(name, commit_interval_ms)
        if self.current is not None:
            raise TopologyError(f"query {name} begins in query {self.current}: end that one first")
        if self.weights.setdefault(name, weight) != weight:
            raise TopologyError(
                f"query {name} has the weights {self.weights[name]} and {weight}: give it one"
            )
        if interval is not None and self.intervals.setdefault(name, interval) != interval:
            raise TopologyError(
                f"query {name} has the commit_interval_ms {self.intervals[name]} and {interval}: "
                "give it one"
            )
        self.current = name
        try:
            yield
        finally:
            self.current = None


def _check_query(name: object, weight: object) -> None:
    """Raise TopologyError for a name or weight that no query can have."""
    if not isinstance(name, str) or not name.isidentifier():
        raise TopologyError(
            f"{name!r} is not a name of a query: give letters, digits and underscores, as in fraud"
        )
    if name == REST:
        raise TopologyError(f"query {REST} is that of all nodes outside of queries: choose another")
    if type(weight) is not int or weight < 1:
        raise TopologyError(f"query {name} has the weight {weight!r}: give an int of at least 1")


def _interval(name: str, given: int | timedelta | None) -> int | None:
    """Return a query's commit interval in ms; raise TopologyError for a negative one."""
    if given is None:
        return None
    interval = check_span(given, f"commit_interval_ms of query {name}")
    if interval < 0:
        raise TopologyError(
            f"query {name} has the commit_interval_ms {interval}: give 0 or more ms"
        )
    return interval


def query_of(number: int, nodes: Iterable[str], queries: Mapping[str, str]) -> str:
    """Return the query of a subtopology; raise TopologyError if its nodes belong to several."""
    found = {queries[node]: node for node in nodes if node in queries}
    if len(found) > 1:
        of = " and ".join(f"{query} (node {node})" for query, node in sorted(found.items()))
        raise TopologyError(
            f"subtopology {number} belongs to the queries {of}: nodes that share a source topic or "
            "a store are processed together; make them in one query, or send the records to the "
            "other query through a topic of its own (to, and stream)"
        )
    return next(iter(found), REST)


def checked_queries(wanted: Iterable[object], known: Collection[str]) -> frozenset[str]:
    """Return the wanted queries; raise TopologyError if one is unknown, or none is wanted."""
    found = frozenset(wanted)
    unknown = sorted(map(repr, found - frozenset(known)))
    if unknown or not found:
        missing = f"has no query {', '.join(unknown)}" if unknown else "runs none of its queries"
        raise TopologyError(f"the topology {missing}: choose among {', '.join(sorted(known))}")
    return frozenset(each for each in known if each in found)
