"""Joins of two tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors._errors import TopologyError
from ks_actors.dsl import _table
from ks_actors.dsl._infer import value_of
from ks_actors.dsl._logic import JoinLogic, JoinSideLogic
from ks_actors.dsl._materialize import check_materialized, key_value_store
from ks_actors.dsl.graph import named_or_behind
from ks_actors.processors.api import check_function, check_kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl._options import Materialized
    from ks_actors.dsl._table import Table
    from ks_actors.topology import Topology

_MERGE = "KTABLE-MERGE-"
_THIS = "KTABLE-JOINTHIS-"
_OTHER = "KTABLE-JOINOTHER-"
_KEYED = 3


def table_table_join(
    this: Table[Any, Any],
    other: Table[Any, Any],
    joiner: Callable[..., Any],
    materialized: Materialized[Any, Any] | str | None,
    name: str | None,
    joined: Any,
    *,
    left: bool,
    outer: bool,
) -> Table[Any, Any]:
    """Join two tables on their keys.

    `left` keeps rows that only `this` has, `outer` keeps all rows. With `materialized` the
    result is stored.
    """
    graph = this.graph
    of = named_or_behind(
        "outer_join" if outer else "left_join" if left else "join", name, this.node
    )
    check_kind(
        other,
        _table.Table,
        role="argument 'other'",
        of=of,
        remedy="give a Table; to_table() makes one from a stream",
    )
    if joined is not None:
        raise TopologyError(
            f"argument 'joined' of {of} is for joins by a foreign key: give foreign_key=…, or "
            "leave it out"
        )
    graph.check_same(other.graph, of)
    keyed = check_function(joiner, 2, _KEYED, role="joiner", of=of) == _KEYED
    materialized = check_materialized(materialized, of)
    stored = (
        None
        if materialized is None
        else key_value_store(graph, materialized, _MERGE, key=this.key, value=value_of(joiner))
    )
    merge_name = graph.name_or(name, _MERGE)
    sources = this.sources | other.sources
    graph.copartition(sources)
    if left:
        this.send_old(force=True)
    if outer:
        other.send_old(force=True)

    def reversed_joiner(other: Any, this: Any) -> Any:
        return joiner(this, other)

    def reversed_keyed_joiner(key: Any, other: Any, this: Any) -> Any:
        return joiner(key, this, other)

    this_side = JoinSideLogic(
        this, other, joiner, this_optional=outer, other_optional=left, keyed=keyed
    )
    other_side = JoinSideLogic(
        other,
        this,
        reversed_keyed_joiner if keyed else reversed_joiner,
        this_optional=left,
        other_optional=outer,
        keyed=keyed,
    )
    this_name = graph.suffixed_or(name, "-join-this", _THIS)
    other_name = graph.suffixed_or(name, "-join-other", _OTHER)
    logic = JoinLogic(this_side, other_side, None if stored is None else stored.spec)
    # Reading the views stores both tables, so do it before the topology is written.
    this_stores, other_stores = this.view().stores, other.view().stores

    def write(topology: Topology, _: tuple[str, ...]) -> None:
        topology.add_operator(this_name, this_side.operator(), this.node.name)
        topology.add_operator(other_name, other_side.operator(), other.node.name)
        topology.add_operator(
            merge_name, logic.operator(), this_name, other_name, stores=logic.stores()
        )
        topology.connect_processor_and_state_stores(this_name, *other_stores)
        topology.connect_processor_and_state_stores(other_name, *this_stores)

    node = graph.add_node(merge_name, write, this.node, other.node)
    if stored is None:
        return _table.Table(graph, node, sources, this.key, value_of(joiner), logic)
    return _table.Table(
        graph, node, sources, stored.spec.key, stored.spec.value, logic, store_name=stored.spec.name
    )
