"""Joins of a stream with the latest record of another stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.dsl import _stream
from ks_actors.dsl._infer import value_of
from ks_actors.dsl.graph import named_or_behind
from ks_actors.dsl.joins._stream_stream import StreamJoined, copartitioned
from ks_actors.processors.api import check_function, check_kind, check_options, checked_ms
from ks_actors.processors.joins import (
    BufferedStreamTableJoin,
    KeepRecords,
    RecordsAsOf,
    StreamTableJoin,
    WaitingKeySerde,
)
from ks_actors.processors.tables import BufferedChangeSerde
from ks_actors.serdes import chosen
from ks_actors.topology import StoreKind, StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from ks_actors.dsl._stream import Stream
    from ks_actors.processors.api import Operator

_KEYED = 3


def stream_asof_join(
    this: Stream[Any, Any],
    other: Stream[Any, Any],
    joiner: Callable[..., Any],
    tolerance_ms: int | timedelta,
    joined: StreamJoined[Any, Any, Any] | None,
    *,
    grace_ms: int | timedelta,
    left: bool,
) -> Stream[Any, Any]:
    """Join records of `this` with the latest of the other; `left` keeps unmatched records."""
    options = check_options(joined, StreamJoined, of="join_asof")
    of = named_or_behind("left_join_asof" if left else "join_asof", options.name, this.node)
    check_kind(other, _stream.Stream, role="argument 'other'", of=of, remedy="give a Stream")
    keyed = check_function(joiner, 2, _KEYED, role="joiner", of=of) == _KEYED
    tolerance_ms = checked_ms(tolerance_ms, role="tolerance_ms", of=of, least=0)
    grace_ms = checked_ms(grace_ms, role="grace_ms", of=of, least=0)
    graph, name = this.graph, options.name
    graph.check_same(other.graph, of)
    this, other, sources = copartitioned(this, other, options)
    key = chosen(options.key, this.key, other.key)
    keep = graph.name_or(None if name is None else f"{name}-other", "KSTREAM-ASOF-")
    node_name = graph.name_or(name, "KSTREAM-JOINASOF-")
    base = options.store_name or node_name
    rows = StoreSpec(
        name=f"{base}-other-store",
        kind=StoreKind.WINDOW,
        key=key,
        value=options.other_value or other.value,
        type=options.store_type,
        logging=options.logging,
        changelog_configs=dict(options.changelog_configs),
        retention_ms=tolerance_ms + grace_ms + 1,
        window_size_ms=max(1, tolerance_ms),
    )
    kept = graph.add_processor(keep, KeepRecords(store=rows.name), other.node, stores=[rows])
    view = RecordsAsOf(store=rows.name, tolerance_ms=tolerance_ms)
    operator: Operator = StreamTableJoin(view=view, joiner=joiner, keyed=keyed, left=left)
    stores: list[StoreSpec] = []
    parents = [this.node]
    if grace_ms:
        waiting = StoreSpec(
            name=f"{base}-this-store",
            kind=StoreKind.KEY_VALUE,
            key=WaitingKeySerde(key),
            value=BufferedChangeSerde(options.value or this.value),
            type=options.store_type,
            logging=options.logging,
            changelog_configs=dict(options.changelog_configs),
        )
        stores.append(waiting)
        parents.append(kept)
        operator = BufferedStreamTableJoin(
            view=view,
            joiner=joiner,
            store=waiting.name,
            grace_ms=grace_ms,
            keyed=keyed,
            left=left,
        )
    node = graph.add_processor(node_name, operator, *parents, stores=stores, connected=view.stores)
    node.relaxed_null_keys = left
    return _stream.Stream(graph, node, sources, key=key, value=value_of(joiner))
