"""Joins of two streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ks_actors.dsl import _stream
from ks_actors.dsl._arity import arity
from ks_actors.dsl._graph import StreamJoin
from ks_actors.processors._pending_serdes import PendingKeySerde, PendingValuesSerde
from ks_actors.processors._self_join import SelfJoin
from ks_actors.processors._stateless import PassThrough
from ks_actors.processors._stream_join import JoinWindow, StreamJoinSide, Trackers
from ks_actors.topology._stores import StoreKind, StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ks_actors.dsl._stream import Stream
    from ks_actors.dsl._windows import JoinWindows
    from ks_actors.serdes import Serde
    from ks_actors.topology import Topology
    from ks_actors.topology._stores import StoreType

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")

_KEYED = 3


@dataclass(frozen=True)
class StreamJoined(Generic[K, V, W]):
    """How two streams are joined: serdes of the key and of both values; `name` is the join's, `store_name` that of its stores.

    `store_type` None is the app's default. `logging` keeps changelog topics, with `changelog_configs` on top of what the stores demand.
    """

    key: Serde[K] | None = None
    value: Serde[V] | None = None
    other_value: Serde[W] | None = None
    name: str | None = None
    store_name: str | None = None
    store_type: StoreType | None = None
    logging: bool = True
    changelog_configs: Mapping[str, str] = field(default_factory=dict)


def join(
    this: Stream[Any, Any],
    other: Stream[Any, Any],
    joiner: Callable[..., Any],
    windows: JoinWindows,
    joined: StreamJoined[Any, Any, Any] | None,
    *,
    left: bool = False,
    outer: bool = False,
) -> Stream[Any, Any]:
    """Join two streams; `left` keeps records of `this` one that meet none, `outer` those of both."""
    options = joined or StreamJoined()
    keyed = arity(joiner, 2, _KEYED) == _KEYED
    graph, name = this.graph, options.name
    if this.repartition_required:
        this = this.repartition_for_join(None if name is None else f"{name}-left", options.key, options.value)
    if other.repartition_required:
        other = other.repartition_for_join(None if name is None else f"{name}-right", options.key, options.other_value)
    sources = this.sources | other.sources
    graph.copartition(sources)
    key = options.key or this.key or other.key
    value, other_value = options.value or this.value, options.other_value or other.value

    this_suffix = "-outer-this-join" if outer else "-this-join"
    other_suffix = "-outer-other-join" if left else "-other-join"
    this_window = graph.suffixed_or(name, "-this-windowed", "KSTREAM-WINDOWED-")
    other_window = graph.suffixed_or(name, "-other-windowed", "KSTREAM-WINDOWED-")
    this_number = graph.new_processor_name("KSTREAM-OUTERTHIS-" if outer else "KSTREAM-JOINTHIS-")
    other_number = graph.new_processor_name("KSTREAM-OUTEROTHER-" if left else "KSTREAM-JOINOTHER-")
    this_name = this_number if name is None else name + this_suffix
    other_name = other_number if name is None else name + other_suffix
    merge = graph.suffixed_or(name, "-merge", "KSTREAM-MERGE-")

    base = options.store_name
    this_store = _window_store(f"{this_number if base is None else base + this_suffix}-store", windows, options, key, value)
    other_store = _window_store(f"{other_number if base is None else base + other_suffix}-store", windows, options, key, other_value)
    graph.add_processor(this_window, JoinWindow(store=this_store.name), this.node, stores=[this_store])
    graph.add_processor(other_window, JoinWindow(store=other_store.name), other.node, stores=[other_store])
    pending = [_pending_store(this_number, options, key, value, other_value, outer=outer)] if left else []
    trackers = Trackers()

    def side(store: StoreSpec, *, of_left: bool) -> StreamJoinSide:
        return StreamJoinSide(
            other=store.name,
            joiner=joiner,
            before_ms=windows.before_ms,
            after_ms=windows.after_ms,
            grace_ms=windows.grace_ms,
            left=of_left,
            outer=left if of_left else outer,
            keyed=keyed,
            pending=pending[0].name if pending else None,
            trackers=trackers,
        )

    def write(topology: Topology, _: tuple[str, ...]) -> None:
        if node.of_one:
            with_itself = SelfJoin(
                store=this_store.name,
                joiner=joiner,
                before_ms=windows.before_ms,
                after_ms=windows.after_ms,
                retention_ms=this_store.retention_ms,
                keyed=keyed,
            )
            topology.add_operator(merge, with_itself, this_window, stores=[this_store])
            return
        topology.add_operator(this_name, side(other_store, of_left=True), this_window, stores=[other_store, *pending])
        topology.add_operator(other_name, side(this_store, of_left=False), other_window, stores=[this_store, *pending])
        topology.add_operator(merge, PassThrough(), this_name, other_name)

    node = StreamJoin(merge, write, (this_window, other_window))
    graph.attach(node, this.node, other.node)
    node.relaxed_null_keys = left or outer
    return _stream.Stream(graph, node, sources, key=key)


def _window_store(name: str, windows: JoinWindows, options: StreamJoined[Any, Any, Any], key: Any, value: Any) -> StoreSpec:
    return StoreSpec(
        name=name,
        kind=StoreKind.WINDOW,
        key=key,
        value=value,
        type=options.store_type,
        logging=options.logging,
        changelog_configs={**options.changelog_configs, "cleanup.policy": "delete"},  # every record stands for itself
        retention_ms=windows.size_ms + windows.grace_ms,
        window_size_ms=windows.size_ms,
        retain_duplicates=True,
    )


def _pending_store(number: str, options: StreamJoined[Any, Any, Any], key: Any, value: Any, other_value: Any, *, outer: bool) -> StoreSpec:
    if options.store_name is None:
        name = "KSTREAM-OUTERSHARED-" + number.rpartition("-")[2]
    else:
        name = options.store_name + ("-outer-shared-join" if outer else "-left-shared-join")
    return StoreSpec(
        name=f"{name}-store",
        kind=StoreKind.KEY_VALUE,
        key=PendingKeySerde(key),
        value=PendingValuesSerde(value, other_value),
        type=options.store_type,
        logging=options.logging,
        changelog_configs=dict(options.changelog_configs),
    )
