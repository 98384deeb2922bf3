"""Streams of records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ks_actors._errors import TopologyError
from ks_actors._hints import Hinted, refuse
from ks_actors.dsl import _stream_joins, _stream_memory
from ks_actors.dsl._infer import forwarded_by, item_of, pair_of, pairs_of, records_of, value_of
from ks_actors.dsl._options import Grouped, Produced, Repartitioned
from ks_actors.dsl._windowed_partitioner import default_partitioner
from ks_actors.dsl.graph import named_or_behind
from ks_actors.processors.api import (
    ProcessorOperator,
    async_options,
    check_function,
    check_kind,
    check_names,
    check_options,
    check_whole,
    checked_ms,
    options_of,
    takes_key,
)
from ks_actors.processors.stateless import (
    Batched,
    Filter,
    FlatMap,
    FlatMapValues,
    ForEach,
    Map,
    MapValues,
    PassThrough,
    Peek,
    Print,
    SelectKey,
)
from ks_actors.serdes import chosen, common, inferred
from ks_actors.system import Later
from ks_actors.topology import valid_name, valid_topic, with_topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from datetime import timedelta
    from typing import TextIO, Unpack

    from ks_actors.dsl._branching import BranchedStream
    from ks_actors.dsl._grouped import GroupedStream
    from ks_actors.dsl._infer import Pair
    from ks_actors.dsl._options import Materialized
    from ks_actors.dsl._table import Table
    from ks_actors.dsl.graph import GraphBuilder, GraphNode, Repartition
    from ks_actors.processors.api import (
        AsyncArguments,
        FixedKeyProcessor,
        Operator,
        Processor,
        Record,
        Retry,
    )
    from ks_actors.serdes import Serde
    from ks_actors.topology import Topic, TopicExtractor, TopicOrName, Topology

if TYPE_CHECKING:
    from ks_actors.dsl import _branching, _grouped, _table
else:
    _branching, _grouped = Later("ks_actors.dsl._branching"), Later("ks_actors.dsl._grouped")
    _table = Later("ks_actors.dsl._table")

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


class Stream(
    _stream_joins.StreamJoins[K, V],
    _stream_memory.StreamMemory[K, V],
    Generic[K, V],
    metaclass=Hinted,
):
    """A stream of records, each a fact of its own.

    Operations return other streams; nothing runs before the topology does. Functions are called
    with (key, value) unless stated otherwise. Those of stateless operations may be `async def`:
    `max_in_flight`, `order`, `timeout_ms` and `retry` then control the calls, see AsyncOptions.
    Serdes are passed on as long as types are known to stay the same. An operation that may change
    the key drops its serde, and the next operation that needs equal keys in one task repartitions.
    """

    if not TYPE_CHECKING:
        # A plain `for` also calls `__getitem__`, with indexes.
        __getitem__ = __aiter__ = refuse(
            "describes records and has none: give functions of them, such as "
            "stream.map_values(lambda value: value['a']), filter(lambda key, value: value['a']) "
            "or foreach(function)"
        )

    def __init__(
        self,
        graph: GraphBuilder,
        node: GraphNode,
        sources: frozenset[str],
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        repartition_required: bool = False,
    ) -> None:
        self.graph: GraphBuilder = graph
        self.node: GraphNode = node
        self.sources: frozenset[str] = sources
        self.key: Serde[K] | None = key
        self.value: Serde[V] | None = value
        self.repartition_required: bool = repartition_required
        self._own_repartition: Repartition | None = None

    def filter(
        self,
        predicate: Callable[[K, V], object],
        *,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> Stream[K, V]:
        """Keep the records for which predicate(key, value) holds."""
        return self._filter(predicate, name, options, negate=False)

    def filter_not(
        self,
        predicate: Callable[[K, V], object],
        *,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> Stream[K, V]:
        """Keep the records for which predicate(key, value) does not hold."""
        return self._filter(predicate, name, options, negate=True)

    @overload
    def map_values(
        self,
        mapper: Callable[[V], Awaitable[V2]],
        *,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> Stream[K, V2]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], Awaitable[V2]],
        *,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> Stream[K, V2]: ...
    @overload
    def map_values(
        self, mapper: Callable[[V], V2], *, name: str | None = None
    ) -> Stream[K, V2]: ...
    @overload
    def map_values(
        self, mapper: Callable[[K, V], V2], *, name: str | None = None
    ) -> Stream[K, V2]: ...
    def map_values(
        self,
        mapper: Callable[..., Any],
        *,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> Stream[K, Any]:
        """Replace values by mapper(value) or mapper(key, value), depending on its parameters."""
        of = self._called("map_values", name)
        with_key = takes_key(mapper, of, awaited=True)
        name = self.graph.name_or(name, "KSTREAM-MAPVALUES-")
        return self._next(
            name,
            MapValues(mapper, async_options(mapper, options, name), with_key=with_key),
            (self.key, value_of(mapper)),
        )

    def map(
        self,
        mapper: Callable[[K, V], tuple[K2, V2] | Awaitable[tuple[K2, V2]]],
        *,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> Stream[K2, V2]:
        """Replace records by the pair mapper(key, value)."""
        check_function(mapper, 2, role="mapper", of=self._called("map", name), awaited=True)
        name = self.graph.name_or(name, "KSTREAM-MAP-")
        operator = Map(mapper, async_options(mapper, options, name))
        return self._next(name, operator, pair_of(mapper), rekeyed=True)

    @overload
    def flat_map_values(
        self,
        mapper: Callable[[V], Iterable[V2] | Awaitable[Iterable[V2]]],
        *,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> Stream[K, V2]: ...
    @overload
    def flat_map_values(
        self,
        mapper: Callable[[K, V], Iterable[V2] | Awaitable[Iterable[V2]]],
        *,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> Stream[K, V2]: ...
    def flat_map_values(
        self,
        mapper: Callable[..., Any],
        *,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> Stream[K, Any]:
        """Replace each record by a record per value of mapper(value) or mapper(key, value)."""
        of = self._called("flat_map_values", name)
        with_key = takes_key(mapper, of, awaited=True, iterated=True)
        name = self.graph.name_or(name, "KSTREAM-FLATMAPVALUES-")
        return self._next(
            name,
            FlatMapValues(mapper, async_options(mapper, options, name), with_key=with_key),
            (self.key, item_of(mapper)),
        )

    def flat_map(
        self,
        mapper: Callable[[K, V], Iterable[tuple[K2, V2]] | Awaitable[Iterable[tuple[K2, V2]]]],
        *,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> Stream[K2, V2]:
        """Replace each record by all the pairs that mapper(key, value) returns."""
        check_function(
            mapper, 2, role="mapper", of=self._called("flat_map", name), awaited=True, iterated=True
        )
        name = self.graph.name_or(name, "KSTREAM-FLATMAP-")
        operator = FlatMap(mapper, async_options(mapper, options, name))
        return self._next(name, operator, pairs_of(mapper), rekeyed=True)

    @overload
    def select_key(
        self,
        selector: Callable[[K, V], Awaitable[K2]],
        *,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> Stream[K2, V]: ...
    @overload
    def select_key(
        self, selector: Callable[[K, V], K2], *, name: str | None = None
    ) -> Stream[K2, V]: ...
    def select_key(
        self,
        selector: Callable[..., Any],
        *,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> Stream[Any, V]:
        """Replace keys by selector(key, value)."""
        check_function(
            selector, 2, role="selector", of=self._called("select_key", name), awaited=True
        )
        name = self.graph.name_or(name, "KSTREAM-KEY-SELECT-")
        return self._next(
            name,
            SelectKey(selector, async_options(selector, options, name)),
            (value_of(selector), self.value),
            rekeyed=True,
        )

    def peek(
        self,
        action: Callable[[K, V], object],
        *,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> Stream[K, V]:
        """Call action(key, value) for each record, and forward the record."""
        check_function(action, 2, role="action", of=self._called("peek", name), awaited=True)
        name = self.graph.name_or(name, "KSTREAM-PEEK-")
        return self._next(
            name, Peek(action, async_options(action, options, name)), (self.key, self.value)
        )

    def foreach(
        self,
        action: Callable[[K, V], object],
        *,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> None:
        """Call action(key, value) for each record, and forward nothing."""
        check_function(action, 2, role="action", of=self._called("foreach", name), awaited=True)
        name = self.graph.name_or(name, "KSTREAM-FOREACH-")
        self.graph.add_processor(
            name, ForEach(action, async_options(action, options, name)), self.node
        )

    def print(
        self,
        label: str | None = None,
        *,
        file: TextIO | None = None,
        mapper: Callable[[K, V], str] | None = None,
        name: str | None = None,
    ) -> None:
        """Print `[label]: key, value` for each record to stdout or a file.

        `label` is the stream's name if not given. With a `mapper` it prints mapper(key, value)
        after the label.
        """
        of = self._called("print", name)
        if mapper is not None:
            check_function(mapper, 2, role="mapper", of=of)
        if file is not None and not callable(getattr(file, "write", None)):
            raise TopologyError(f"file of {of} is {file!r}: give an open text file")
        name = self.graph.name_or(name, "KSTREAM-PRINTER-")
        shown = self.node.name if label is None else label
        self.graph.add_processor(name, Print(shown, file, mapper), self.node)

    def merge(self, other: Stream[K, V], *, name: str | None = None) -> Stream[K, V]:
        """Return a stream with the records of both.

        Each of the two keeps its order; there is no order between them.
        """
        of = self._called("merge", name)
        check_kind(
            other,
            Stream,
            role="argument 'other'",
            of=of,
            remedy="give a Stream; to_stream() makes one from a table",
        )
        self.graph.check_same(other.graph, of)
        name = self.graph.name_or(name, "KSTREAM-MERGE-")
        node = self.graph.add_processor(name, PassThrough(), self.node, other.node)
        node.merges = True
        required = self.repartition_required or other.repartition_required
        return Stream(
            self.graph,
            node,
            self.sources | other.sources,
            key=common(self.key, other.key),
            value=common(self.value, other.value),
            repartition_required=required,
        )

    def split(self, name: str | None = None) -> BranchedStream[K, V]:
        """Divide the stream by predicates.

        Call `.branch(…)` any number of times, then `.default_branch()` or `.no_default_branch()`.
        """
        return _branching.BranchedStream(self, name)

    def repartition(self, repartitioned: Repartitioned[K, V] | None = None) -> Stream[K, V]:
        """Write the stream to a topic of the app's own and read it back.

        The options set the number of partitions and the partitioner.
        """
        options: Repartitioned[K, V] = check_options(
            repartitioned, Repartitioned, of=self._called("repartition", None)
        )
        name = (
            self.graph.new_processor_name("KSTREAM-REPARTITION-")
            if options.name is None
            else options.name
        )
        key = options.key or self.key
        value = options.value or self.value
        partitioner = options.partitioner or default_partitioner(key)
        node = self.graph.new_repartition(
            name, key, value, partitioner=partitioner, partitions=options.partitions
        )
        # The user asked for this topic: the optimizer must keep it.
        node.mergeable = False
        self.graph.attach(node, self.node)
        return Stream(self.graph, node, frozenset((node.name,)), key=key, value=value)

    @overload
    def to(self, topic: Topic[K, V], produced: Produced[K, V] | None = None) -> None: ...
    @overload
    def to(
        self: Stream[K, V2 | None], topic: Topic[K, V2], produced: Produced[K, V2] | None = None
    ) -> None: ...
    @overload
    def to(
        self: Stream[K, V2 | None], topic: str | TopicExtractor, produced: Produced[K, V2]
    ) -> None: ...
    @overload
    def to(self, topic: str | TopicExtractor, produced: Produced[K, V] | None = None) -> None: ...
    def to(
        self, topic: TopicOrName | TopicExtractor, produced: Produced[Any, Any] | None = None
    ) -> None:
        """Write each record to a topic, or to the topic that topic(key, value, context) returns.

        Options in `produced` override those of a Topic. Topics have to exist.
        """
        of = self._called("to", None)
        options: Produced[Any, Any] = check_options(produced, Produced, of=of)
        named, found = with_topic(
            topic, of, key=options.key, value=options.value, partitioner=options.partitioner
        )
        if callable(named):
            check_function(named, 3, role="topic", of=of)
        else:
            valid_topic(named, of)
        name = self.graph.name_or(options.name, "KSTREAM-SINK-")
        key = found["key"] or self.key
        value = found["value"] or self.value
        # Windowed keys are placed by the key alone, so that all windows of a key are in one
        # partition.
        partitioner = found["partitioner"] or default_partitioner(key)

        def write(topology: Topology, above: tuple[str, ...]) -> None:
            topology.add_sink(name, topic, *above, key=key, value=value, partitioner=partitioner)

        self.graph.add_node(name, write, self.node)

    def to_table(
        self, materialized: Materialized[K, V] | str | None = None, *, name: str | None = None
    ) -> Table[K, V]:
        """Take the records as updates of a table: the latest value of each key, None deletes."""
        return _table.stream_to_table(self, materialized, name)

    def group_by(
        self, selector: Callable[[K, V], K2], grouped: Grouped[K2, V] | None = None
    ) -> GroupedStream[K2, V]:
        """Group the records by selector(key, value); drop records for which it returns None."""
        of = self._called("group_by", None)
        options = (
            Grouped(value=self.value) if grouped is None else check_options(grouped, Grouped, of=of)
        )
        check_function(selector, 2, role="selector", of=of, awaited=True)
        name = self.graph.name_or(options.name, "KSTREAM-KEY-SELECT-")
        node = self.graph.add_processor(
            name, SelectKey(selector, async_options(selector, {}, name)), self.node
        )
        node.changes_key = True
        return _grouped.GroupedStream(
            self.graph,
            node,
            self.sources,
            chosen(options.key, value_of(selector)),
            chosen(options.value, inferred(self.value)),
            options.name,
            repartition_required=True,
        )

    def group_by_key(self, grouped: Grouped[K, V] | None = None) -> GroupedStream[K, V]:
        """Group the records by their key.

        They are repartitioned only if an earlier operation may have changed the key.
        """
        options = (
            Grouped(self.key, self.value)
            if grouped is None
            else check_options(grouped, Grouped, of=self._called("group_by_key", None))
        )
        return _grouped.GroupedStream(
            self.graph,
            self.node,
            self.sources,
            chosen(options.key, inferred(self.key)),
            chosen(options.value, inferred(self.value)),
            options.name,
            repartition_required=self.repartition_required,
        )

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K2, V2]],
        *stores: str,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> Stream[K2, V2]:
        """Process every record with a processor, which forwards any records.

        `stores` are the names of stores of the builder that the processor uses.
        """
        return self._process(supplier, stores, name, "KSTREAM-PROCESSOR-", options, keeps_key=False)

    def process_values(
        self,
        supplier: Callable[[], FixedKeyProcessor[K, V, V2]],
        *stores: str,
        name: str | None = None,
        **options: Unpack[AsyncArguments],
    ) -> Stream[K, V2]:
        """Process every record with a processor that keeps the keys.

        No repartition is necessary after it.
        """
        return self._process(
            supplier, stores, name, "KSTREAM-PROCESSVALUES-", options, keeps_key=True
        )

    def batch(
        self,
        function: Callable[
            [list[Record[K, V]]], Iterable[Record[K2, V2]] | Awaitable[Iterable[Record[K2, V2]]]
        ],
        *,
        max_records: int = 10_000,
        max_wait_ms: int | timedelta = 1_000,
        max_in_flight: int = 1,
        timeout_ms: int | timedelta | None = None,
        retry: Retry | None = None,
        name: str | None = None,
    ) -> Stream[K2, V2]:
        """Call a function with many records at once, and forward the records that it returns.

        It may return any number of records, with new keys and times. A task calls it with at most
        `max_records` records in order, at the latest when the first has waited for `max_wait_ms` or
        at a commit, which waits until the call has returned. `max_in_flight` calls may run at a
        time in a task; their results are forwarded in the order of the calls.

        An `async def` is awaited; a plain function is called in a thread, where it cannot be
        interrupted. `timeout_ms` and `retry` are as for an `async def` elsewhere; a plain function
        that takes longer fails when it returns. A failed call is a failure of each of its records.
        `SparkBridge.function` makes functions that run on Spark.
        """
        check_function(
            function,
            1,
            role="function",
            of=self._called("batch", name),
            awaited=True,
            iterated=True,
        )
        name = self.graph.name_or(name, "KSTREAM-BATCH-")
        run = options_of(
            {
                "max_in_flight": max_in_flight,
                "order": "partition",
                "timeout_ms": timeout_ms,
                "retry": retry,
            },
            name,
        )
        check_whole(max_records, role="max_records", of=name, least=1)
        max_wait_ms = checked_ms(max_wait_ms, role="max_wait_ms", of=name, least=0)
        operator = Batched(function, max_records, max_wait_ms, run)
        return self._next(name, operator, records_of(function), rekeyed=True)

    def repartition_for_join(
        self, name: str | None, key: Serde[K] | None, value: Serde[V] | None
    ) -> Stream[K, V]:
        """Return the stream after a repartition topic.

        Without a name, all joins of this stream share one topic.
        """
        # Make the node even if it will not be used, so that the counter advances.
        node = self.graph.new_repartition(
            self.node.name if name is None else name, key or self.key, value or self.value
        )
        if name is None and self._own_repartition is not None:
            node = self._own_repartition
        else:
            self.graph.attach(node, self.node)
            if name is None:
                self._own_repartition = node
        return Stream(
            self.graph,
            node,
            frozenset((node.name,)),
            key=key or self.key,
            value=value or self.value,
        )

    def _called(self, operation: str, name: str | None) -> str:
        return named_or_behind(operation, name, self.node)

    def _next(
        self,
        name: str,
        operator: Operator,
        serdes: Pair,
        *,
        rekeyed: bool = False,
    ) -> Stream[Any, Any]:
        node = self.graph.add_processor(name, operator, self.node)
        node.changes_key = rekeyed
        node.changes_value = isinstance(operator, MapValues | FlatMapValues)
        return Stream(
            self.graph,
            node,
            self.sources,
            key=serdes[0],
            value=serdes[1],
            repartition_required=rekeyed or self.repartition_required,
        )

    def _filter(
        self,
        predicate: Callable[[K, V], object],
        name: str | None,
        options: AsyncArguments,
        *,
        negate: bool,
    ) -> Stream[K, V]:
        of = self._called("filter_not" if negate else "filter", name)
        check_function(predicate, 2, role="predicate", of=of, awaited=True)
        name = self.graph.name_or(name, "KSTREAM-FILTER-")
        operator = Filter(predicate, async_options(predicate, options, name), negate=negate)
        return self._next(name, operator, (self.key, self.value))

    def _process(
        self,
        supplier: Callable[[], Processor[Any, Any, Any, Any] | FixedKeyProcessor[Any, Any, Any]],
        stores: tuple[str, ...],
        name: str | None,
        prefix: str,
        options: AsyncArguments,
        *,
        keeps_key: bool,
    ) -> Stream[Any, Any]:
        name = self.graph.new_processor_name(prefix) if name is None else valid_name(name)
        check_names(stores, role="a name of a store", of=f"processor {name}")
        operator = ProcessorOperator(
            name, supplier, options_of(options, name) if options else None, fixed_key=keeps_key
        )
        node = self.graph.add_processor(
            name, operator, self.node, stores=operator.stores, connected=stores
        )
        node.changes_key, node.changes_value = not keeps_key, True
        key, value = forwarded_by(operator.processor)
        # A processor may forward any key.
        required = self.repartition_required if keeps_key else True
        return Stream(
            self.graph,
            node,
            self.sources,
            key=self.key if keeps_key else key,
            value=value,
            repartition_required=required,
        )
