"""Several grouped streams aggregated into one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ks_actors._hints import Hinted
from ks_actors.dsl import _aggregations, _grouped, _session_windowed, _windowed
from ks_actors.dsl._logic import PassLogic, add_logic
from ks_actors.dsl.windows import SessionWindows, checked_windows
from ks_actors.processors.api import check_function, check_kind
from ks_actors.serdes import chosen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.dsl._grouped import GroupedStream
    from ks_actors.dsl._logic import Logic
    from ks_actors.dsl._materialize import Stored
    from ks_actors.dsl._options import Materialized
    from ks_actors.dsl._session_windowed import SessionWindowedCogroupedStream
    from ks_actors.dsl._table import Table
    from ks_actors.dsl.graph import GraphBuilder, GraphNode
    from ks_actors.dsl.windows import KnownWindows, Windows
    from ks_actors.records import Windowed
    from ks_actors.serdes import Serde

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

_MERGE = "COGROUPKSTREAM-MERGE-"


class CogroupedStream(Generic[K, A], metaclass=Hinted):
    """Grouped streams that share one aggregate per key; each stream has its own aggregator.

    Made by `GroupedStream.cogroup`.
    """

    def __init__(self, graph: GraphBuilder) -> None:
        self.graph: GraphBuilder = graph
        self._aggregators: dict[GroupedStream[K, Any], Callable[[Any, Any, Any], Any]] = {}
        self._parents: dict[GroupedStream[K, Any], GraphNode] = {}

    @property
    def key(self) -> Serde[K] | None:
        """The serde of keys, from the first stream that knows it."""
        return chosen(*(grouped.key for grouped in self._aggregators))

    @property
    def aggregators(self) -> Iterable[Callable[[Any, Any, Any], Any]]:
        """The aggregators of all streams."""
        return self._aggregators.values()

    def called(self, operation: str, name: str | None) -> str:
        """Return the operation's name in errors."""
        return next(iter(self._aggregators)).called(f"cogrouped {operation}", name)

    def cogroup(
        self, grouped: GroupedStream[K, V], aggregator: Callable[[K, V, A], A | None]
    ) -> CogroupedStream[K, A]:
        """Add a stream with its `aggregator(key, value, aggregate)`; return self."""
        remedy = "give a GroupedStream, which group_by and group_by_key return"
        check_kind(
            grouped, _grouped.GroupedStream, role="argument 'grouped'", of="cogroup", remedy=remedy
        )
        of = grouped.called("cogroup", None)
        self.graph.check_same(grouped.graph, of)
        check_function(aggregator, 3, role="aggregator", of=of)
        self._aggregators[grouped] = aggregator
        return self

    def aggregate(
        self,
        initializer: Callable[[], A],
        materialized: Materialized[K, A] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, A]:
        """Return the table of aggregates; each key begins with the result of `initializer()`.

        Records without key or value are dropped.
        """
        by = _aggregations.BY_KEY
        return _aggregations.cogroup(self, by, materialized, name, initializer=initializer)

    @overload
    def windowed_by(self, windows: Windows) -> TimeWindowedCogroupedStream[K, A]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedStream[K, A]: ...
    def windowed_by(
        self, windows: Windows | SessionWindows
    ) -> TimeWindowedCogroupedStream[K, A] | SessionWindowedCogroupedStream[K, A]:
        """Also group by windows of the records' timestamps, or by sessions.

        Windows of your own are possible, too: see CustomWindows.
        """
        known = checked_windows(windows, self.called("windowed_by", None))
        if isinstance(known, SessionWindows):
            return _session_windowed.SessionWindowedCogroupedStream(self, known)
        return TimeWindowedCogroupedStream(self, known)

    def build(
        self,
        stored: Stored,
        name: str | None,
        logic: Callable[[Callable[[Any, Any, Any], Any], int], Logic],
    ) -> tuple[GraphNode, frozenset[str], PassLogic]:
        """Add a node for each stream, and a node that merges them.

        Return the merge node, its name (as the table's source), and its logic.
        """
        graph = self.graph
        self._find_parents(stored)
        logics = []
        nodes = []
        for number, (grouped, aggregator) in enumerate(self._aggregators.items()):
            named = graph.suffixed_or(name, f"-cogroup-agg-{number}", _aggregations.COGROUP)
            logics.append(logic(aggregator, number))
            nodes.append(add_logic(graph, named, logics[-1], self._parents[grouped]))
        merge = graph.suffixed_or(name, "-cogroup-merge", _MERGE)
        merged = PassLogic(logics, logics[0].view())
        return add_logic(graph, merge, merged, *nodes), frozenset({merge}), merged

    def _find_parents(self, stored: Stored) -> None:
        for grouped in self._aggregators:
            if not grouped.repartition_required:
                self._parents[grouped] = grouped.node
                continue
            # Make the node even if it will not be used, so that the counter advances.
            repartition = self.graph.new_repartition(
                grouped.name or stored.spec.name, grouped.key, grouped.value
            )
            if grouped not in self._parents:
                self._parents[grouped] = self.graph.attach(repartition, grouped.node)
        self.graph.copartition(
            frozenset().union(*(grouped.sources for grouped in self._aggregators))
        )


class TimeWindowedCogroupedStream(Generic[K, A], metaclass=Hinted):
    """Cogrouped streams, aggregated per window. Made by `CogroupedStream.windowed_by`."""

    def __init__(self, cogrouped: CogroupedStream[K, A], windows: KnownWindows) -> None:
        self._cogrouped: CogroupedStream[K, A] = cogrouped
        self._windows: KnownWindows = windows

    def aggregate(
        self,
        initializer: Callable[[], A],
        materialized: Materialized[K, A] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[Windowed[K], A]:
        """Return the table of aggregates of each key and window.

        An aggregate begins with the result of `initializer()`. Late records and records without key
        are dropped; records without value are dropped only by sliding windows.
        """
        by = _windowed.by_window(self._windows)
        return _aggregations.cogroup(
            self._cogrouped, by, materialized, name, initializer=initializer
        )
