"""Tables: the latest value of every key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import msgspec

from ks_actors._errors import TopologyError
from ks_actors._hints import Hinted, refuse
from ks_actors.dsl import _stream
from ks_actors.dsl._infer import forwarded_by, pair_of, value_of
from ks_actors.dsl._logic import FilterLogic, MapLogic, SourceLogic, TransformLogic, add_logic
from ks_actors.dsl._materialize import (
    check_materialized,
    history_ms,
    key_value_store,
    optional_store,
    without_history,
)
from ks_actors.dsl._options import Grouped
from ks_actors.dsl._table_joins import TableJoins
from ks_actors.dsl.graph import named_or_behind
from ks_actors.processors.api import (
    check_function,
    check_kind,
    check_options,
    check_supplier,
    takes_key,
)
from ks_actors.processors.tables import StoreView, TableSource, ToStream, ValueTransformer
from ks_actors.serdes import WindowedKeySerde
from ks_actors.system import Later
from ks_actors.topology import (
    REUSE_SOURCE_TOPICS,
    QueryableStore,
    StoreKind,
    bare_kind,
    topic_name,
    valid_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl._grouped import GroupedTable
    from ks_actors.dsl._logic import Logic
    from ks_actors.dsl._options import Consumed, Materialized
    from ks_actors.dsl._stream import Stream
    from ks_actors.dsl._suppressed import Suppressed
    from ks_actors.dsl.graph import GraphBuilder, GraphNode
    from ks_actors.processors.tables import View
    from ks_actors.records import Windowed
    from ks_actors.serdes import Serde
    from ks_actors.topology import StoreSpec, TopicOrName, Topology

if TYPE_CHECKING:
    from ks_actors.dsl import _grouped, _suppressed
    from ks_actors.processors import aggregates
else:
    _grouped, _suppressed = Later("ks_actors.dsl._grouped"), Later("ks_actors.dsl._suppressed")
    aggregates = Later("ks_actors.processors.aggregates")

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
KO = TypeVar("KO")
VO = TypeVar("VO")

_FILTER = "KTABLE-FILTER-"
_MAP_VALUES = "KTABLE-MAPVALUES-"
_SELECT = "KTABLE-SELECT-"
_SOURCE = "KTABLE-SOURCE-"
_TO_STREAM = "KTABLE-TOSTREAM-"
_TO_TABLE = "KSTREAM-TOTABLE-"
_TRANSFORM_VALUES = "KTABLE-TRANSFORMVALUES-"
_STREAM_SOURCE = "KSTREAM-SOURCE-"
_BY_WINDOW = {StoreKind.WINDOW.value, StoreKind.SESSION.value}


class Table(TableJoins[K, V], metaclass=Hinted):
    """The latest value of every key, and its changes.

    Made by `StreamsBuilder.table`, by aggregations and joins, and by `Stream.to_table`. A table is
    kept in a store if the user names one (`Materialized`), or if an operation downstream needs it.
    A value of None deletes the row. An update with an older timestamp replaces the row too, unless
    the table has a history (`Materialized.history_retention_ms`), to which it is then added.
    """

    if not TYPE_CHECKING:
        # A plain `for` also calls `__getitem__`, with indexes.
        __getitem__ = __aiter__ = refuse(
            "describes rows and has none: the app that runs it has them, app.store(name).get(key)"
        )

    def __init__(
        self,
        graph: GraphBuilder,
        node: GraphNode,
        sources: frozenset[str],
        key: Serde[K] | None,
        value: Serde[V] | None,
        logic: Logic,
        *,
        store_name: str | None = None,
    ) -> None:
        self.graph: GraphBuilder = graph
        self.node: GraphNode = node
        self.sources: frozenset[str] = sources
        self.key: Serde[K] | None = key
        self.value: Serde[V] | None = value
        self._logic: Logic = logic
        self._store_name: str | None = store_name
        self._sends_old: bool = False

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the store that queries can read, None if the user named none."""
        return self._store_name

    @overload
    def queryable(self: Table[Windowed[K2], V2]) -> QueryableStore[K2, V2]: ...
    @overload
    def queryable(self) -> QueryableStore[K, V]: ...
    def queryable(self) -> QueryableStore[Any, Any]:
        """Return the store for `App.store`, whose answers then have the table's types.

        A windowed aggregation is queried by plain keys; tables derived from such an aggregation are
        queried by windowed keys. Raises TopologyError when the user named no store.
        """
        if self._store_name is None:
            raise TopologyError(
                "the table has no store that queries can read: name one with Materialized"
            )
        key = self.key
        spec: StoreSpec | None = getattr(self._logic, "spec", None)
        by_window = spec is not None and bare_kind(spec.kind.value) in _BY_WINDOW
        plain = key.inner if by_window and isinstance(key, WindowedKeySerde) else key
        return QueryableStore(self._store_name, plain, self.value)

    @property
    def history_ms(self) -> int | None:
        """The time (ms) for which old rows can be looked up; None if they cannot.

        With None the table, and the tables it is computed from, are not versioned.
        """
        return self._logic.history_ms

    @property
    def has_versioned_store(self) -> bool:
        """Whether the table's own store is versioned."""
        return self._logic.history_ms is not None and self._store_name is not None

    def view(self) -> View:
        """Return the view for readers of the table; this stores the table if necessary."""
        return self._logic.view()

    def send_old(self, *, force: bool) -> bool:
        """Send old values from now on; return whether the table sends them.

        With `force`, the table is stored for that if necessary.
        """
        self._sends_old = self._sends_old or self._logic.send_old(force=force)
        return self._sends_old

    def filter(
        self,
        predicate: Callable[[K, V], object],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, V]:
        """Return the table of rows for which `predicate(key, value)` is true.

        When that stops being so for a row, the row is deleted from the returned table.
        """
        return self._filter(predicate, materialized, name, negated=False)

    def filter_not(
        self,
        predicate: Callable[[K, V], object],
        materialized: Materialized[K, V] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, V]:
        """Return the table of rows for which `predicate(key, value)` is false.

        When that stops being so for a row, the row is deleted from the returned table.
        """
        return self._filter(predicate, materialized, name, negated=True)

    @overload
    def map_values(
        self,
        mapper: Callable[[V], V2 | None],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, V2]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], V2 | None],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, V2]: ...
    def map_values(
        self,
        mapper: Callable[..., V2 | None],
        materialized: Materialized[K, V2] | str | None = None,
        *,
        name: str | None = None,
    ) -> Table[K, V2]:
        """Return the table with values `mapper(value)`, or `mapper(key, value)`; None is no row.

        Deletes are not mapped.
        """
        of = self._called("map_values", name)
        keyed = takes_key(mapper, of)
        materialized = check_materialized(materialized, of)
        # Describe the store before naming the node: Kafka Streams numbers them in this order, and
        # names must be the same as there.
        value = (materialized and materialized.value) or value_of(mapper)
        spec = optional_store(self.graph, materialized, _MAP_VALUES, key=self.key, value=value)
        named = self.graph.name_or(name, _MAP_VALUES)
        logic = MapLogic(self, spec, mapper, keyed=keyed)
        return self._derived(named, logic, materialized, value)

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer[K, V, V2]],
        *stores: str,
        materialized: Materialized[K, V2] | str | None = None,
        name: str | None = None,
    ) -> Table[K, V2]:
        """Return the table with values that a ValueTransformer computes with these `stores`.

        It is called for deletes too. `supplier` makes a new transformer at every call.
        """
        of = self._called("transform_values", name)
        transformer = check_supplier(supplier, role="supplier", of=of)
        check_kind(
            transformer,
            ValueTransformer,
            role="supplier",
            of=of,
            remedy="supply an object of a subclass of ValueTransformer",
        )
        materialized = check_materialized(materialized, of)
        # Without a prefix: here Kafka Streams takes no number for a store without a name.
        value = (materialized and materialized.value) or forwarded_by(type(transformer))[1]
        spec = optional_store(self.graph, materialized, "", key=self.key, value=value)
        named = self.graph.name_or(name, _TRANSFORM_VALUES)
        logic = TransformLogic(self, spec, supplier, type(transformer), stores)
        return self._derived(named, logic, materialized, value, stores)

    @overload
    def to_stream(self, *, name: str | None = None) -> Stream[K, V | None]: ...
    @overload
    def to_stream(
        self, key_mapper: Callable[[K, V | None], K2], *, name: str | None = None
    ) -> Stream[K2, V | None]: ...
    def to_stream(
        self, key_mapper: Callable[[K, V | None], K2] | None = None, *, name: str | None = None
    ) -> Stream[Any, V | None]:
        """Return the stream of changes: every new value, None where a row is deleted.

        With `key_mapper(key, value)` the records get other keys.
        """
        if key_mapper is not None:
            check_function(key_mapper, 2, role="key_mapper", of=self._called("to_stream", name))
        named = self.graph.name_or(name, _TO_STREAM)
        node = self.graph.add_processor(named, ToStream(), self.node)
        stream: Stream[Any, Any] = _stream.Stream(
            self.graph, node, self.sources, key=self.key, value=self.value
        )
        # A node of its own, as in Kafka Streams: it marks the stream for repartitioning.
        return stream if key_mapper is None else stream.select_key(key_mapper)

    def group_by(
        self,
        selector: Callable[[K, V], tuple[K2, V2] | None],
        grouped: Grouped[K2, V2] | None = None,
    ) -> GroupedTable[K2, V2]:
        """Group rows by another key: `selector(key, value)` returns it with the value to aggregate.

        If it returns None, or a pair with None, the row is in no group. Rows go through a
        repartition topic; `grouped` has its serdes and name. The selector is called for a row's old
        value as well as for its new value, so equal arguments must give equal results.
        """
        of = self._called("group_by", None)
        options: Grouped[K2, V2] = check_options(grouped, Grouped, of=of)
        check_function(selector, 2, role="selector", of=of)
        named = self.graph.name_or(options.name, _SELECT)
        node = self.graph.add_processor(
            named,
            aggregates.TableSelect(selector=selector, versioned=self.history_ms is not None),
            self.node,
        )
        # An aggregation subtracts a row's old value from the group that it leaves.
        self.send_old(force=True)
        key, value = pair_of(selector)
        return _grouped.GroupedTable(
            self.graph, node, options.key or key, options.value or value, options.name
        )

    def suppress(self, suppressed: Suppressed) -> Table[K, V]:
        """Hold changes back until a window is final, or for some time.

        Then forward the latest change of each key.
        """
        remedy = "give Suppressed.until_time_limit(...) or Suppressed.until_window_closes(...)"
        check_kind(
            suppressed,
            _suppressed.Suppressed,
            role="argument 'suppressed'",
            of=self._called("suppress", None),
            remedy=remedy,
        )
        return _suppressed.suppress(self, suppressed)

    def _called(self, operation: str, name: str | None) -> str:
        return named_or_behind(operation, name, self.node)

    def _filter(
        self,
        predicate: Callable[[K, V], object],
        materialized: Materialized[K, V] | str | None,
        name: str | None,
        *,
        negated: bool,
    ) -> Table[K, V]:
        of = self._called("filter_not" if negated else "filter", name)
        check_function(predicate, 2, role="predicate", of=of)
        materialized = check_materialized(materialized, of)
        spec = optional_store(self.graph, materialized, _FILTER, key=self.key, value=self.value)
        named = self.graph.name_or(name, _FILTER)
        logic = FilterLogic(self, spec, predicate, negated=negated)
        return self._derived(
            named, logic, materialized, (materialized and materialized.value) or self.value
        )

    def _derived(
        self,
        name: str,
        logic: FilterLogic | MapLogic | TransformLogic,
        materialized: Materialized[K, V2] | None,
        value: Serde[V2] | None,
        connected: tuple[str, ...] = (),
    ) -> Table[K, V2]:
        key = (materialized and materialized.key) or self.key
        node = add_logic(self.graph, name, logic, self.node, connected=connected)
        store = None if logic.spec is None else logic.spec.name
        return Table(self.graph, node, self.sources, key, value, logic, store_name=store)


class GlobalTable(Generic[K, V], metaclass=Hinted):
    """All of a topic's latest values, in every instance.

    Streams can be joined with it by any key. Made by `StreamsBuilder.global_table`.
    """

    def __init__(
        self, store: str, key: Serde[K] | None, value: Serde[V] | None, *, named: bool
    ) -> None:
        self._store: str = store
        self._key = key
        self._value = value
        self._named: bool = named

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the store that queries can read, None if the user named none."""
        return self._store if self._named else None

    def queryable(self) -> QueryableStore[K, V]:
        """Return the store for `App.store`, whose answers then have the table's types."""
        return QueryableStore(self._store, self._key, self._value)

    def view(self) -> View:
        """Return the view for readers of the table."""
        return StoreView(self._store)


def source_table(
    graph: GraphBuilder,
    given: TopicOrName,
    consumed: Consumed[K, V],
    materialized: Materialized[K, V] | str | None,
) -> Table[K, V]:
    """Read a topic as a table."""
    topic = valid_topic(topic_name(given), "table")
    materialized = check_materialized(materialized, f"table of topic {topic}")
    spec, named = key_value_store(
        graph, materialized, f"{topic}-", key=consumed.key, value=consumed.value
    )
    spec = msgspec.structs.replace(spec, rows_of=topic)
    source = graph.suffixed_or(consumed.name, "-source", _STREAM_SOURCE)
    name = graph.name_or(consumed.name, _SOURCE)
    logic = SourceLogic(spec, stored=named or history_ms(spec) is not None)

    def write(topology: Topology, _: tuple[str, ...]) -> None:
        topology.add_source(
            source,
            given,
            key=spec.key,
            value=spec.value,
            timestamp_extractor=consumed.timestamp_extractor,
            offset_reset=consumed.offset_reset,
        )
        stores = logic.stores()
        # The source topic serves as the changelog.
        if REUSE_SOURCE_TOPICS in (topology.optimizations or ()):
            stores = tuple(
                msgspec.structs.replace(store, logging=True, source_topic=topic) for store in stores
            )
        topology.add_operator(name, logic.operator(), source, stores=stores)

    node = graph.add_node(name, write)
    return Table(
        graph,
        node,
        frozenset({source}),
        spec.key,
        spec.value,
        logic,
        store_name=spec.name if named else None,
    )


def global_table(
    graph: GraphBuilder,
    given: TopicOrName,
    consumed: Consumed[K, V],
    materialized: Materialized[K, V] | str | None,
) -> GlobalTable[K, V]:
    """Read a topic as a global table."""
    topic = valid_topic(topic_name(given), "global_table")
    materialized = check_materialized(materialized, f"global_table of topic {topic}")
    without_history(materialized, "a global table")
    spec, named = key_value_store(
        graph, materialized, f"{topic}-", key=consumed.key, value=consumed.value
    )
    # No node is downstream, so the cache is useless.
    spec = msgspec.structs.replace(spec, caching=False, rows_of=topic)
    source = graph.suffixed_or(consumed.name, "-source", _STREAM_SOURCE)
    name = graph.name_or(consumed.name, _SOURCE)

    def write(topology: Topology, _: tuple[str, ...]) -> None:
        topology.add_global_store(
            spec,
            source,
            given,
            name,
            TableSource(store=spec.name),
            key=spec.key,
            value=spec.value,
            timestamp_extractor=consumed.timestamp_extractor,
        )

    graph.add_node(name, write)
    return GlobalTable(spec.name, spec.key, spec.value, named=named)


def stream_to_table(
    stream: Stream[K, V], materialized: Materialized[K, V] | str | None, name: str | None
) -> Table[K, V]:
    """Take a stream as a table: repartitioned, if its keys may have changed."""
    graph = stream.graph
    materialized = check_materialized(materialized, named_or_behind("to_table", name, stream.node))
    named = graph.name_or(name, _TO_TABLE)
    spec, stored = key_value_store(
        graph, materialized, _TO_TABLE, key=stream.key, value=stream.value
    )
    parent, sources = stream.node, stream.sources
    if stream.repartition_required:
        parent = graph.attach(graph.new_repartition(named, spec.key, spec.value), stream.node)
        sources = frozenset({parent.name})
    logic = SourceLogic(spec, stored=stored or history_ms(spec) is not None)
    node = add_logic(graph, named, logic, parent)
    return Table(
        graph, node, sources, spec.key, spec.value, logic, store_name=spec.name if stored else None
    )
