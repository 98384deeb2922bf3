"""Joins of a stream with a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors._errors import TopologyError
from ks_actors._times import whole_ms
from ks_actors.dsl import _stream
from ks_actors.dsl._infer import like, value_of
from ks_actors.dsl._options import Joined
from ks_actors.dsl.graph import named_or_behind
from ks_actors.processors.api import check_function, check_options
from ks_actors.processors.joins import BufferedStreamTableJoin, StreamTableJoin, WaitingKeySerde
from ks_actors.processors.tables import BufferedChangeSerde
from ks_actors.serdes import is_known
from ks_actors.topology import StoreKind, StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl._stream import Stream
    from ks_actors.dsl._table import GlobalTable, Table
    from ks_actors.processors.api import Operator

_JOIN = "KSTREAM-JOIN-"
_LEFT_JOIN = "KSTREAM-LEFTJOIN-"
_KEYED = 3
_WITH_BOTH_KEYS = 4


def stream_table_join(
    stream: Stream[Any, Any],
    table: Table[Any, Any],
    joiner: Callable[..., Any],
    joined: Joined[Any, Any, Any] | None,
    *,
    left: bool,
) -> Stream[Any, Any]:
    """Join a stream, repartitioned if necessary, with a table with as many partitions."""
    of = named_or_behind("left_join" if left else "join", None, stream.node)
    options = check_options(joined, Joined, of=of)
    keyed = check_function(joiner, 2, _KEYED, role="joiner", of=of) == _KEYED
    stream.graph.check_same(table.graph, of)
    if stream.repartition_required:
        key = options.key or like(stream.key, table.key)
        stream = stream.repartition_for_join(options.name, key, options.value)
    graph = stream.graph
    sources = stream.sources | table.sources
    graph.copartition(sources)
    name = graph.name_or(options.name, _LEFT_JOIN if left else _JOIN)
    view = table.view()
    if options.grace_ms is None:
        operator: Operator = StreamTableJoin(view=view, joiner=joiner, keyed=keyed, left=left)
        node = graph.add_processor(name, operator, stream.node, connected=view.stores)
    else:
        grace_ms: int = whole_ms(options.grace_ms)
        _check_grace(name, table, grace_ms)
        buffer = _buffer(name, options.key or stream.key, options.value or stream.value)
        operator = BufferedStreamTableJoin(
            view=view,
            joiner=joiner,
            store=buffer.name,
            grace_ms=grace_ms,
            keyed=keyed,
            left=left,
        )
        node = graph.add_processor(
            name, operator, stream.node, stores=(buffer,), connected=view.stores
        )
    node.relaxed_null_keys = left
    return _stream.Stream(
        graph, node, sources, key=options.key or stream.key, value=value_of(joiner)
    )


def _check_grace(name: str, table: Table[Any, Any], grace_ms: int) -> None:
    history_ms = table.history_ms
    if history_ms is None:
        raise TopologyError(
            f"join {name} has a grace period, but its table has no history: give it "
            "Materialized(history_retention_ms=…)"
        )
    if not 0 <= grace_ms <= history_ms:
        raise TopologyError(
            f"join {name} cannot wait for {grace_ms} ms: its table keeps history for {history_ms} "
            f"ms; give a grace period of 0 to {history_ms} ms"
        )


def _buffer(name: str, key: Any, value: Any) -> StoreSpec:
    return StoreSpec(
        name=f"{name}-Buffer",
        kind=StoreKind.KEY_VALUE,
        key=WaitingKeySerde(key),
        value=BufferedChangeSerde(value),
        type="rocksdb",
    )


def stream_global_table_join(
    stream: Stream[Any, Any],
    table: GlobalTable[Any, Any],
    key_selector: Callable[[Any, Any], Any],
    joiner: Callable[..., Any],
    *,
    left: bool,
    name: str | None = None,
) -> Stream[Any, Any]:
    """Join a stream with a global table's row for the key that a function selects."""
    graph = stream.graph
    of = named_or_behind("left_join" if left else "join", name, stream.node)
    arguments = check_function(joiner, 2, _KEYED, _WITH_BOTH_KEYS, role="joiner", of=of)
    check_function(key_selector, 2, role="key_selector", of=of)
    named = graph.name_or(name, _LEFT_JOIN)  # The same prefix for every join, as in Kafka Streams.
    operator = StreamTableJoin(
        view=table.view(),
        joiner=joiner,
        keyed=arguments >= _KEYED,
        mapped=arguments == _WITH_BOTH_KEYS,
        left=left,
        select=key_selector,
    )
    node = graph.add_processor(named, operator, stream.node)
    node.relaxed_null_keys = left
    node.joins_value = True
    node.changes_value = is_known(stream.value)
    node.changes_inferred = stream.value is not None
    return _stream.Stream(
        graph,
        node,
        stream.sources,
        key=stream.key,
        value=value_of(joiner),
        repartition_required=stream.repartition_required,
    )
