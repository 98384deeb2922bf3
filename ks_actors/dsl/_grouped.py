"""Streams and tables grouped by key, for aggregation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ks_actors._hints import Hinted
from ks_actors.dsl import _aggregations
from ks_actors.dsl._infer import value_of
from ks_actors.dsl._logic import add_logic, table_aggregate, table_reduce
from ks_actors.dsl._materialize import check_materialized, key_value_store
from ks_actors.dsl.graph import named_or_behind
from ks_actors.dsl.windows import SessionWindows, checked_windows
from ks_actors.processors.api import check_function
from ks_actors.processors.tables import ChangeSerde
from ks_actors.serdes import LONG, chosen
from ks_actors.system import Later

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl._cogroup import CogroupedStream
    from ks_actors.dsl._logic import Logic
    from ks_actors.dsl._materialize import Stored
    from ks_actors.dsl._options import Materialized
    from ks_actors.dsl._session_windowed import SessionWindowedStream
    from ks_actors.dsl._table import Table
    from ks_actors.dsl._windowed import TimeWindowedStream
    from ks_actors.dsl.graph import GraphBuilder, GraphNode, Repartition
    from ks_actors.dsl.windows import Windows
    from ks_actors.serdes import Serde
    from ks_actors.topology import Topology

if TYPE_CHECKING:
    from ks_actors.dsl import _cogroup, _session_windowed, _windowed
else:
    _cogroup, _windowed = Later("ks_actors.dsl._cogroup"), Later("ks_actors.dsl._windowed")
    _session_windowed = Later("ks_actors.dsl._session_windowed")

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

_TABLE_AGGREGATE = "KTABLE-AGGREGATE-"
_TABLE_REDUCE = "KTABLE-REDUCE-"


class GroupedStream(Generic[K, V], metaclass=Hinted):
    """A stream with its records grouped by key. Made by `Stream.group_by` and `group_by_key`."""

    def __init__(
        self,
        graph: GraphBuilder,
        node: GraphNode,
        sources: frozenset[str],
        key: Serde[K] | None,
        value: Serde[V] | None,
        name: str | None,
        *,
        repartition_required: bool,
    ) -> None:
        self.graph: GraphBuilder = graph
        self.node: GraphNode = node
        self.sources: frozenset[str] = sources
        self.key: Serde[K] | None = key
        self.value: Serde[V] | None = value
        self.name: str | None = name
        self.repartition_required: bool = repartition_required
        self._repartition: Repartition | None = None

    def count(
        self, materialized: Materialized[K, int] | str | None = None, *, name: str | None = None
    ) -> Table[K, int]:
        """Return the table of the number of records per key.

        Records without key or value are dropped and not counted.
        """
        return _aggregations.count(self, _aggregations.BY_KEY, materialized, name)

    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, V]:
        """Return the table of `reducer(aggregate, value)` over the values of each key.

        The first value is the first aggregate. A result of None deletes the row. Records without
        key or value are dropped.
        """
        return _aggregations.reduce(self, _aggregations.BY_KEY, materialized, name, reducer)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A | None],
        materialized: Materialized[K, A] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, A]:
        """Return the table of `aggregator(key, value, aggregate)` over the values of each key.

        The first aggregate is the result of `initializer()`. A result of None deletes the row.
        Records without key or value are dropped. The aggregate may be changed in place and
        returned.
        """
        return _aggregations.aggregate(
            self,
            _aggregations.BY_KEY,
            materialized,
            name,
            initializer=initializer,
            aggregator=aggregator,
        )

    @overload
    def windowed_by(self, windows: Windows) -> TimeWindowedStream[K, V]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedStream[K, V]: ...
    def windowed_by(
        self, windows: Windows | SessionWindows
    ) -> TimeWindowedStream[K, V] | SessionWindowedStream[K, V]:
        """Also group by windows of the records' timestamps, or by sessions.

        Windows of your own are possible, too: see CustomWindows.
        """
        known = checked_windows(windows, self.called("windowed_by", None))
        if isinstance(known, SessionWindows):
            return _session_windowed.SessionWindowedStream(self, known)
        return _windowed.TimeWindowedStream(self, known)

    def cogroup(self, aggregator: Callable[[K, V, A], A | None]) -> CogroupedStream[K, A]:
        """Begin to aggregate several grouped streams into one table.

        This stream is aggregated by `aggregator(key, value, aggregate)`.
        """
        return _cogroup.CogroupedStream[K, A](self.graph).cogroup(self, aggregator)

    def called(self, operation: str, name: str | None) -> str:
        """Return the operation's name in errors."""
        return named_or_behind(operation, name, self.node)

    def build(self, name: str, stored: Stored, logic: Logic) -> tuple[GraphNode, frozenset[str]]:
        """Add the node of an aggregation, after a repartition if the keys may have changed.

        Return the node and the names of its sources.
        """
        if not self.repartition_required:
            return add_logic(self.graph, name, logic, self.node), self.sources
        # Make the node even if it will not be used: the counter advances as in Kafka Streams.
        repartition = self.graph.new_repartition(
            self.name or stored.spec.name, self.key, self.value
        )
        # All aggregations of a named group share one topic; without a name each has its own.
        if self._repartition is None or self.name is None:
            self._repartition = repartition
        self.graph.attach(self._repartition, self.node)
        return add_logic(self.graph, name, logic, self._repartition), frozenset(
            {self._repartition.name}
        )


class GroupedTable(Generic[K, V], metaclass=Hinted):
    """A table with its rows grouped by another key. Made by `Table.group_by`."""

    def __init__(
        self,
        graph: GraphBuilder,
        node: GraphNode,
        key: Serde[K] | None,
        value: Serde[V] | None,
        name: str | None,
    ) -> None:
        self.graph: GraphBuilder = graph
        self.node: GraphNode = node
        self.key: Serde[K] | None = key
        self.value: Serde[V] | None = value
        self.name: str | None = name
        self._repartition: GraphNode | None = None

    def count(
        self, materialized: Materialized[K, int] | str | None = None, *, name: str | None = None
    ) -> Table[K, int]:
        """Return the table of the number of rows per group."""
        materialized = check_materialized(materialized, named_or_behind("count", name, self.node))
        stored = key_value_store(
            self.graph, materialized, _TABLE_AGGREGATE, key=self.key, value=LONG
        )
        return self._table(
            name, _TABLE_AGGREGATE, stored, table_aggregate(stored.spec, int, _one_more, _one_less)
        )

    def reduce(
        self,
        adder: Callable[[V, V], V | None],
        subtractor: Callable[[V, V], V | None],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, V]:
        """Return the table of values combined by `adder(aggregate, value)`.

        When a value leaves a group, `subtractor(aggregate, value)` removes it. The first value is
        the first aggregate. A result of None deletes the row.
        """
        of = named_or_behind("reduce", name, self.node)
        check_function(adder, 2, role="adder", of=of)
        check_function(subtractor, 2, role="subtractor", of=of)
        materialized = check_materialized(materialized, of)
        stored = key_value_store(
            self.graph,
            materialized,
            _TABLE_AGGREGATE,
            key=self.key,
            value=chosen(self.value, value_of(adder)),
        )
        return self._table(
            name, _TABLE_REDUCE, stored, table_reduce(stored.spec, adder, subtractor)
        )

    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A | None],
        subtractor: Callable[[K, V, A], A | None],
        materialized: Materialized[K, A] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, A]:
        """Return the table of values combined by `adder(key, value, aggregate)`.

        When a row changes, `subtractor(key, value, aggregate)` removes the old value. A group
        begins with the result of `initializer()`. A result of None deletes the row.
        """
        of = named_or_behind("aggregate", name, self.node)
        check_function(initializer, 0, role="initializer", of=of)
        check_function(adder, 3, role="adder", of=of)
        check_function(subtractor, 3, role="subtractor", of=of)
        materialized = check_materialized(materialized, of)
        stored = key_value_store(
            self.graph,
            materialized,
            _TABLE_AGGREGATE,
            key=self.key,
            value=value_of(adder, initializer),
        )
        return self._table(
            name,
            _TABLE_AGGREGATE,
            stored,
            table_aggregate(stored.spec, initializer, adder, subtractor),
        )

    def _table(self, name: str | None, prefix: str, stored: Stored, logic: Logic) -> Table[K, Any]:
        sink = self.graph.suffixed_or(name, "-sink", "KSTREAM-SINK-")
        source = self.graph.suffixed_or(name, "-source", "KSTREAM-SOURCE-")
        named = self.graph.name_or(name, prefix)
        spec = stored.spec
        topic = f"{self.name or spec.name}-repartition"
        if self._repartition is None or self.name is None:
            self._repartition = self.graph.add_node(
                source, self._writer(topic, sink, source), self.node
            )
        else:
            self.graph.attach(self._repartition, self.node)
        repartition = self._repartition
        node = add_logic(self.graph, named, logic, repartition)
        sources = frozenset({repartition.name})
        return _aggregations.BY_KEY.table(self.graph, stored, node, sources, logic)

    def _writer(
        self, topic: str, sink: str, source: str
    ) -> Callable[[Topology, tuple[str, ...]], None]:
        key, value = self.key, ChangeSerde(self.value)

        def write(topology: Topology, above: tuple[str, ...]) -> None:
            topology.add_internal_topic(topic)
            topology.add_sink(sink, topic, *above, key=key, value=value)
            topology.add_source(source, topic, key=key, value=value)

        return write


def _one_more(_: Any, __: Any, count: int) -> int:
    return count + 1


def _one_less(_: Any, __: Any, count: int) -> int:
    return count - 1
