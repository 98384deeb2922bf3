"""Joins of a stream with a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.dsl import _stream
from ks_actors.dsl._arity import arity
from ks_actors.dsl._options import Joined
from ks_actors.processors._stream_table_join import StreamTableJoin

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl._stream import Stream
    from ks_actors.dsl._table import GlobalTable, Table

_JOIN = "KSTREAM-JOIN-"
_LEFT_JOIN = "KSTREAM-LEFTJOIN-"
_KEYED = 3


def stream_table_join(
    stream: Stream[Any, Any], table: Table[Any, Any], joiner: Callable[..., Any], joined: Joined[Any, Any, Any] | None, *, left: bool
) -> Stream[Any, Any]:
    """Join a stream, repartitioned if need be, with a table that has the same number of partitions."""
    options = joined or Joined()
    keyed = arity(joiner, 2, _KEYED) == _KEYED
    if stream.repartition_required:
        stream = stream.repartition_for_join(options.name, options.key, options.value)
    graph = stream.graph
    sources = stream.sources | table.sources
    graph.copartition(sources)
    name = graph.name_or(options.name, _LEFT_JOIN if left else _JOIN)
    view = table.view()
    operator = StreamTableJoin(view=view, joiner=joiner, keyed=keyed, left=left)
    node = graph.add_processor(name, operator, stream.node, connected=view.stores)
    node.relaxed_null_keys = left
    return _stream.Stream(graph, node, sources, key=options.key or stream.key)


def stream_global_table_join(
    stream: Stream[Any, Any],
    table: GlobalTable[Any, Any],
    key_selector: Callable[[Any, Any], Any],
    joiner: Callable[..., Any],
    *,
    left: bool,
    name: str | None = None,
) -> Stream[Any, Any]:
    """Join a stream with what a global table has for the key that a function selects."""
    graph = stream.graph
    keyed = arity(joiner, 2, _KEYED) == _KEYED
    arity(key_selector, 2)
    named = graph.name_or(name, _LEFT_JOIN)  # whatever the join: that is how Kafka Streams names it
    operator = StreamTableJoin(view=table.view(), joiner=joiner, keyed=keyed, left=left, select=key_selector)
    node = graph.add_processor(named, operator, stream.node)
    node.relaxed_null_keys = left
    return _stream.Stream(graph, node, stream.sources, key=stream.key, repartition_required=stream.repartition_required)
