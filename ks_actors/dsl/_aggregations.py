"""Aggregations of grouped and cogrouped streams: by key, by window or by session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ks_actors.dsl import _table
from ks_actors.dsl._infer import value_of
from ks_actors.dsl._logic import AggregateLogic
from ks_actors.dsl._materialize import check_materialized, key_value_store
from ks_actors.processors.aggregates import StreamAggregate, StreamCount
from ks_actors.processors.api import check_function
from ks_actors.processors.tables import StoreView
from ks_actors.serdes import LONG, chosen

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl._cogroup import CogroupedStream
    from ks_actors.dsl._grouped import GroupedStream
    from ks_actors.dsl._logic import Logic
    from ks_actors.dsl._materialize import Stored
    from ks_actors.dsl._options import Materialized
    from ks_actors.dsl._table import Table
    from ks_actors.dsl.graph import Closes, GraphBuilder, GraphNode
    from ks_actors.processors.api import Operator
    from ks_actors.processors.tables import View
    from ks_actors.serdes import Serde

_AGGREGATE = "KSTREAM-AGGREGATE-"
_REDUCE = "KSTREAM-REDUCE-"
COGROUP = "COGROUPKSTREAM-AGGREGATE-"


class Functions(NamedTuple):
    """The user's functions: none for a count, the aggregator alone for a reduce."""

    initializer: Callable[[], Any] | None = None
    aggregator: Callable[..., Any] | None = None
    merger: Callable[[Any, Any, Any], Any] | None = None


class Aggregation(NamedTuple):
    """An aggregation by key, or by key and window."""

    stored: Callable[..., Stored]
    """`key_value_store`, or the function for stores of windows."""
    view: Callable[[str], View]
    operator: Callable[[str, Functions, bool, int | None], Operator]
    """Makes an operator of: store, functions, whether to send old values, index in a cogroup."""
    key: Callable[[Serde[Any] | None], Serde[Any] | None] = lambda key: key
    """Makes the serde of the table's keys from the serde of the stream's keys, None if unknown."""
    closes: Closes | None = None

    def logic(
        self, stored: Stored, functions: Functions, stream: int | None = None
    ) -> AggregateLogic:
        """Return the logic for one stream."""
        store = stored.spec.name
        return AggregateLogic(
            stored.spec,
            lambda send_old: self.operator(store, functions, send_old, stream),
            self.view(store),
        )

    def table(
        self,
        graph: GraphBuilder,
        stored: Stored,
        node: GraphNode,
        sources: frozenset[str],
        logic: Logic,
    ) -> Table[Any, Any]:
        """Return the table of a node and its sources."""
        node.closes = self.closes
        spec = stored.spec
        store_name = spec.name if stored.named else None
        key = self.key(spec.key)
        return _table.Table(graph, node, sources, key, spec.value, logic, store_name=store_name)


def _by_key(store: str, functions: Functions, send_old: bool, _: int | None) -> Operator:
    initializer, aggregator, _merger = functions
    if aggregator is None:
        return StreamCount(store=store, send_old=send_old)
    return StreamAggregate(
        store=store, initializer=initializer, aggregator=aggregator, send_old=send_old
    )


BY_KEY = Aggregation(key_value_store, StoreView, _by_key)


def count(
    grouped: GroupedStream[Any, Any],
    by: Aggregation,
    materialized: Materialized[Any, Any] | str | None,
    name: str | None,
) -> Table[Any, Any]:
    """Return the table of the numbers of records."""
    # Check first: a refused call must not use up a number for names.
    materialized = check_materialized(materialized, grouped.called("count", name))
    if materialized is not None and materialized.name is None:
        grouped.graph.new_store_name(_AGGREGATE)  # Kafka Streams skips a number here.
    return _table_of(grouped, by, materialized, name, _AGGREGATE, LONG, Functions())


def reduce(
    grouped: GroupedStream[Any, Any],
    by: Aggregation,
    materialized: Materialized[Any, Any] | str | None,
    name: str | None,
    reducer: Callable[[Any, Any], Any],
) -> Table[Any, Any]:
    """Return the table of reduced values."""
    of = grouped.called("reduce", name)
    check_function(reducer, 2, role="reducer", of=of)
    materialized = check_materialized(materialized, of)
    functions = Functions(aggregator=reducer)
    value = chosen(grouped.value, value_of(reducer))
    return _table_of(grouped, by, materialized, name, _REDUCE, value, functions)


def aggregate(
    grouped: GroupedStream[Any, Any],
    by: Aggregation,
    materialized: Materialized[Any, Any] | str | None,
    name: str | None,
    **functions: Callable[..., Any],
) -> Table[Any, Any]:
    """Return the table of aggregates; the functions are passed by role."""
    materialized = _check(functions, materialized, grouped.called("aggregate", name))
    made = Functions(**functions)
    value = value_of(made.aggregator, made.merger, made.initializer)
    return _table_of(grouped, by, materialized, name, _AGGREGATE, value, made)


def cogroup(
    cogrouped: CogroupedStream[Any, Any],
    by: Aggregation,
    materialized: Materialized[Any, Any] | str | None,
    name: str | None,
    **functions: Callable[..., Any],
) -> Table[Any, Any]:
    """Return the table of aggregates of several streams, each with its own aggregator."""
    materialized = _check(functions, materialized, cogrouped.called("aggregate", name))
    graph = cogrouped.graph
    value = value_of(*cogrouped.aggregators, *functions.values())
    stored = by.stored(graph, materialized, COGROUP, key=cogrouped.key, value=value)

    def logic(aggregator: Callable[[Any, Any, Any], Any], number: int) -> Logic:
        return by.logic(stored, Functions(aggregator=aggregator, **functions), number)

    node, sources, merged = cogrouped.build(stored, name, logic)
    return by.table(graph, stored, node, sources, merged)


def _check(
    functions: dict[str, Callable[..., Any]],
    materialized: Materialized[Any, Any] | str | None,
    of: str,
) -> Materialized[Any, Any] | None:
    for role, function in functions.items():
        check_function(function, 0 if role == "initializer" else 3, role=role, of=of)
    return check_materialized(materialized, of)


def _table_of(
    grouped: GroupedStream[Any, Any],
    by: Aggregation,
    materialized: Materialized[Any, Any] | None,
    name: str | None,
    prefix: str,
    value: Serde[Any] | None,
    functions: Functions,
) -> Table[Any, Any]:
    graph = grouped.graph
    stored = by.stored(graph, materialized, prefix, key=grouped.key, value=value)
    named = graph.name_or(name, prefix)
    logic = by.logic(stored, functions)
    return by.table(graph, stored, *grouped.build(named, stored, logic), logic)
