"""Joins of two streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from ks_actors._hints import Hinted
from ks_actors.dsl import _stream
from ks_actors.dsl._infer import like, value_of
from ks_actors.dsl._options import NO_CONFIGS, convert_serdes, set_fields
from ks_actors.dsl.graph import StreamJoin, named_or_behind
from ks_actors.dsl.windows import JoinWindows
from ks_actors.processors.api import (
    check_configs,
    check_flag,
    check_function,
    check_kind,
    check_options,
)
from ks_actors.processors.joins import (
    JoinWindow,
    PendingKeySerde,
    PendingValuesSerde,
    SelfJoin,
    StreamJoinSide,
)
from ks_actors.processors.stateless import PassThrough
from ks_actors.serdes import chosen
from ks_actors.topology import StoreKind, StoreSpec, check_store_type, valid_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ks_actors.dsl._stream import Stream
    from ks_actors.dsl.graph import GraphBuilder
    from ks_actors.serdes import Serde, SerdeOrType
    from ks_actors.topology import StoreType, Topology

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")

_KEYED = 3


@dataclass(frozen=True)
class StreamJoined(Generic[K, V, W], metaclass=Hinted):
    """Options for a join of two streams: serdes of the key and of both values.

    `name` names the join, `store_name` its stores. `store_type` None is the app's default.
    `logging` keeps changelog topics; `changelog_configs` override the configs of the stores.
    """

    key: Serde[K] | None
    value: Serde[V] | None
    other_value: Serde[W] | None
    name: str | None
    store_name: str | None
    store_type: StoreType | None
    logging: bool
    changelog_configs: Mapping[str, str]

    def __init__(
        self,
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
        other_value: SerdeOrType[W] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        store_type: StoreType | None = None,
        logging: bool = True,
        changelog_configs: Mapping[str, str] = NO_CONFIGS,
    ) -> None:
        set_fields(self, locals())

    def __post_init__(self) -> None:
        convert_serdes(self, "key", "value", "other_value")
        for name in (self.name, self.store_name):
            if name is not None:
                valid_name(name)
        check_store_type(self.store_type, role="store_type", of="StreamJoined")
        check_flag(self.logging, role="logging", of="StreamJoined")
        check_configs(self.changelog_configs, role="changelog_configs", of="StreamJoined")


def stream_stream_join(
    this: Stream[Any, Any],
    other: Stream[Any, Any],
    joiner: Callable[..., Any],
    windows: JoinWindows,
    joined: StreamJoined[Any, Any, Any] | None,
    *,
    left: bool = False,
    outer: bool = False,
) -> Stream[Any, Any]:
    """Join two streams; `left` keeps unmatched records of `this`, `outer` of both."""
    of = named_or_behind(
        "outer_join" if outer else "left_join" if left else "join", None, this.node
    )
    check_kind(other, _stream.Stream, role="argument 'other'", of=of, remedy="give a Stream")
    this.graph.check_same(other.graph, of)
    check_kind(
        windows,
        JoinWindows,
        role="argument 'windows'",
        of=of,
        remedy="give JoinWindows.of_time_difference_with_no_grace(...) or another one",
    )
    options = check_options(joined, StreamJoined, of=of)
    keyed = check_function(joiner, 2, _KEYED, role="joiner", of=of) == _KEYED
    graph = this.graph
    this, other, sources = copartitioned(this, other, options)
    key = chosen(options.key, this.key, other.key)
    value, other_value = options.value or this.value, options.other_value or other.value

    names = _Names.of(graph, options, left=left, outer=outer)
    parts = _Parts(
        names,
        joiner,
        windows,
        _window_store(names.this_store, windows, options, key, value),
        _window_store(names.other_store, windows, options, key, other_value),
        [_pending_store(names.pending_store, options, key, value, other_value)] if left else [],
        keyed=keyed,
        left=left,
        outer=outer,
    )
    sides = parts.side(of_left=True), parts.side(of_left=False)

    def add_window(name: str, above: Stream[Any, Any], store: StoreSpec, own: int) -> None:
        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            # A record of a self-join belongs to both sides: it is late if it is late on both.
            late_ms = max(each.late_ms for each in sides) if node.of_one else own
            window = JoinWindow(store=store.name, time=parts.time, late_ms=late_ms)
            topology.add_operator(name, window, *parents, stores=[store])

        graph.add_node(name, write, above.node)

    add_window(names.this_window, this, parts.this_store, sides[0].late_ms)
    add_window(names.other_window, other, parts.other_store, sides[1].late_ms)

    def write(topology: Topology, _: tuple[str, ...]) -> None:
        # Not known before: the optimizer finds out whether both sides are the same stream.
        if node.of_one:
            parts.write_self_join(topology)
        else:
            parts.write_sides(topology, *sides)

    node = StreamJoin(names.merge, write, (names.this_window, names.other_window))
    graph.attach(node, this.node, other.node)
    node.relaxed_null_keys = left or outer
    return _stream.Stream(graph, node, sources, key=key, value=value_of(joiner))


@dataclass(frozen=True)
class _Parts:
    """The parts of one join, before they are nodes of a topology."""

    names: _Names
    joiner: Callable[..., Any]
    windows: JoinWindows
    this_store: StoreSpec
    other_store: StoreSpec
    pending: list[StoreSpec]
    keyed: bool
    left: bool
    outer: bool

    @property
    def time(self) -> str:
        """The name of the stream time that both sides share."""
        return self.pending[0].name if self.pending else self.this_store.name

    def side(self, *, of_left: bool) -> StreamJoinSide:
        """Return the operator of one side, which reads the store of the other side."""
        return StreamJoinSide(
            other=(self.other_store if of_left else self.this_store).name,
            joiner=self.joiner,
            before_ms=self.windows.before_ms,
            after_ms=self.windows.after_ms,
            grace_ms=self.windows.grace_ms,
            left=of_left,
            time=self.time,
            outer=self.left if of_left else self.outer,
            other_outer=self.outer if of_left else self.left,
            keyed=self.keyed,
            pending=self.pending[0].name if self.pending else None,
        )

    def write_self_join(self, topology: Topology) -> None:
        """Add the join of a stream with itself, which needs one store."""
        operator = SelfJoin(
            store=self.this_store.name,
            joiner=self.joiner,
            before_ms=self.windows.before_ms,
            after_ms=self.windows.after_ms,
            retention_ms=self.this_store.retention_ms,
            keyed=self.keyed,
        )
        # Under the name of the merge: nodes downstream refer to it.
        topology.add_operator(
            self.names.merge, operator, self.names.this_window, stores=[self.this_store]
        )

    def write_sides(self, topology: Topology, left: StreamJoinSide, right: StreamJoinSide) -> None:
        """Add both sides, and the node that merges their results."""
        names = self.names
        topology.add_operator(
            names.this, left, names.this_window, stores=[self.other_store, *self.pending]
        )
        topology.add_operator(
            names.other, right, names.other_window, stores=[self.this_store, *self.pending]
        )
        topology.add_operator(names.merge, PassThrough(), names.this, names.other)


class _Names(NamedTuple):
    """The names of a join's nodes and stores."""

    this_window: str
    other_window: str
    this: str
    other: str
    merge: str
    this_store: str
    other_store: str
    pending_store: str

    @classmethod
    def of(
        cls, graph: GraphBuilder, options: StreamJoined[Any, Any, Any], *, left: bool, outer: bool
    ) -> Self:
        """Take the next names; given names get the same suffixes as in Kafka Streams."""
        name, base = options.name, options.store_name
        windows = [
            graph.suffixed_or(name, suffix, "KSTREAM-WINDOWED-")
            for suffix in ("-this-windowed", "-other-windowed")
        ]
        suffixes = (
            "-outer-this-join" if outer else "-this-join",
            "-outer-other-join" if left else "-other-join",
        )
        prefixes = (
            "KSTREAM-OUTERTHIS-" if outer else "KSTREAM-JOINTHIS-",
            "KSTREAM-OUTEROTHER-" if left else "KSTREAM-JOINOTHER-",
        )
        # Take the numbers in any case, so that naming a join renames no other node.
        numbers = [graph.new_processor_name(prefix) for prefix in prefixes]
        nodes = numbers if name is None else [name + suffix for suffix in suffixes]
        bases = numbers if base is None else [base + suffix for suffix in suffixes]
        shared = "-outer-shared-join" if outer else "-left-shared-join"
        pending = (
            graph.sibling_name("KSTREAM-OUTERSHARED-", numbers[0])
            if base is None
            else base + shared
        )
        merge = graph.suffixed_or(name, "-merge", "KSTREAM-MERGE-")
        stores = [f"{store}-store" for store in (*bases, pending)]
        return cls(
            windows[0], windows[1], nodes[0], nodes[1], merge, stores[0], stores[1], stores[2]
        )


def _window_store(
    name: str, windows: JoinWindows, options: StreamJoined[Any, Any, Any], key: Any, value: Any
) -> StoreSpec:
    return StoreSpec(
        name=name,
        kind=StoreKind.WINDOW,
        key=key,
        value=value,
        type=options.store_type,
        logging=options.logging,
        # Every record counts, so none is compacted away.
        changelog_configs={**options.changelog_configs, "cleanup.policy": "delete"},
        retention_ms=windows.size_ms + windows.grace_ms,
        # The first possible match stays visible as long as the other record is not too late.
        spare_ms=1,
        window_size_ms=windows.size_ms,
        retain_duplicates=True,
    )


def _pending_store(
    name: str, options: StreamJoined[Any, Any, Any], key: Any, value: Any, other_value: Any
) -> StoreSpec:
    return StoreSpec(
        name=name,
        kind=StoreKind.KEY_VALUE,
        key=PendingKeySerde(key),
        value=PendingValuesSerde(value, other_value),
        type=options.store_type,
        logging=options.logging,
        changelog_configs=dict(options.changelog_configs),
    )


def copartitioned(
    this: Stream[Any, Any], other: Stream[Any, Any], options: StreamJoined[Any, Any, Any]
) -> tuple[Stream[Any, Any], Stream[Any, Any], frozenset[str]]:
    """Return two streams with equal partitions for equal keys, and their source topics.

    Streams whose keys may have changed are repartitioned first, `this` before the other stream.
    """
    name = options.name
    keys = options.key or like(this.key, other.key), options.key or like(other.key, this.key)
    if this.repartition_required:
        this = this.repartition_for_join(
            None if name is None else f"{name}-left", keys[0], options.value
        )
    if other.repartition_required:
        other = other.repartition_for_join(
            None if name is None else f"{name}-right", keys[1], options.other_value
        )
    sources = this.sources | other.sources
    this.graph.copartition(sources)
    return this, other, sources
