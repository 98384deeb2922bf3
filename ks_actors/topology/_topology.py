"""The graph that an app runs: sources, processors, sinks and the stores between them."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import contextmanager
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ks_actors._errors import TopologyError
from ks_actors._hints import Hinted
from ks_actors.processors.api import (
    AsyncOptions,
    ProcessorOperator,
    check_configs,
    check_function,
    check_kind,
    check_names,
    check_offset_reset,
    check_whole,
    takes_headers,
)
from ks_actors.serdes import serde_of
from ks_actors.topology._description import TopologyDescription
from ks_actors.topology._named_queries import QueryNames, checked_queries
from ks_actors.topology._names import checked_topics, valid_topic
from ks_actors.topology._nodes import (
    GlobalStore,
    InternalTopic,
    ProcessorNode,
    SinkNode,
    SourceNode,
)
from ks_actors.topology._stores import StoreSpec
from ks_actors.topology._subtopologies import (
    Groups,
    check_topics,
    copartition_groups,
    pattern_groups,
    subtopology,
)
from ks_actors.topology._topic import note_topics, topic_name, topics_of, with_topic
from ks_actors.topology._unnamed_resources import Unnamed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta
    from typing import Self

    from ks_actors.processors.api import AnySupplier, Operator
    from ks_actors.serdes import SerdeOrType
    from ks_actors.topology._nodes import (
        Node,
        OffsetReset,
        Partitioner,
        TimestampExtractor,
        TopicExtractor,
    )
    from ks_actors.topology._subtopologies import Subtopology
    from ks_actors.topology._topic import Topic, TopicOrName


class Topology(metaclass=Hinted):
    """Sources, processors and sinks, added one by one, parents first.

    The DSL makes a topology; build one by hand for full control. Every `add_…` checks at once and
    raises TopologyError, which names the node and the fix; a failed call changes
    nothing. Records are forwarded to children in the order of their addition.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._stores: dict[str, StoreSpec] = {}
        self._users: dict[str, list[str]] = {}
        self._global_stores: dict[str, StoreSpec] = {}
        self._global_topics: dict[str, GlobalStore] = {}
        self._internal: dict[str, InternalTopic] = {}
        self._topics: dict[str, Topic[Any, Any]] = {}
        self._copartitioned: list[frozenset[str]] = []
        self._groups: Groups[str] = Groups()
        self._queries: QueryNames = QueryNames()
        self._left_out: dict[str, tuple[int, ...]] = {}  # by `only`
        self.optimizations: frozenset[str] | None = None
        """The optimizations applied at the build (`topology_optimization`).

        None for a topology made by hand, which is not optimized.
        """
        self.lines: dict[str, str] = {}
        """The line of code of each node, for errors; empty if built by hand."""
        self.made_by: dict[tuple[str, str], tuple[str, ...]] = {}
        """By node and `key` or `value`: the calls upstream that make it, as `map at app.py:7`."""
        self.unnamed: Unnamed = Unnamed()
        """The stores and internal topics with generated names; empty if built by hand."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name, in the order of their addition.

        Those of global stores are included; they are in no subtopology.
        """
        return MappingProxyType(self._nodes)

    @property
    def stores(self) -> Mapping[str, StoreSpec]:
        """The stores of tasks, by name."""
        return MappingProxyType(self._stores)

    @property
    def global_stores(self) -> Mapping[str, StoreSpec]:
        """The stores that every instance fills with all of a topic, by name.

        They have no changelog: their topic serves as the changelog.
        """
        return MappingProxyType(self._global_stores)

    @property
    def global_topics(self) -> Mapping[str, GlobalStore]:
        """The global stores with their nodes, by topic."""
        return MappingProxyType(self._global_topics)

    @property
    def internal_topics(self) -> Mapping[str, InternalTopic]:
        """The topics that the app creates before it runs, without changelogs.

        Their names are those in the topology, without the application id.
        """
        return MappingProxyType(self._internal)

    def add_source(
        self,
        name: str,
        topics: TopicOrName | Sequence[TopicOrName] | re.Pattern[str],
        *,
        key: SerdeOrType[Any] | None = None,
        value: SerdeOrType[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
    ) -> Self:
        """Add a node that reads topics, or all topics that a pattern matches in full.

        Options not given are the Topic's. Serdes missing in both are the app's defaults.
        """
        self._check_new(name)
        of = f"source {name}"
        names, options = with_topic(
            topics,
            of,
            key=serde_of(key, role="key", of=of),
            value=serde_of(value, role="value", of=of),
            timestamp_extractor=timestamp_extractor,
            offset_reset=offset_reset,
        )
        if timestamp_extractor is not None:
            check_function(timestamp_extractor, 2, role="timestamp_extractor", of=of)
        check_offset_reset(offset_reset, of=of)
        listed = checked_topics(names, of)
        if isinstance(listed, re.Pattern):
            self._check_pattern(name, listed)
            node = SourceNode(name=name, pattern=listed, **options)
        else:
            if len(set(listed)) < len(listed):
                raise TopologyError(
                    f"source {name} reads a topic twice: {', '.join(listed)}; name every topic once"
                )
            for topic in listed:
                self._check_topic(name, topic)
            node = SourceNode(name=name, topics=listed, **options)
        note_topics(self._topics, topics_of(topics))
        self._nodes[name] = node
        self._groups.add(name)
        self._queries.note(name)
        return self

    def add_processor(
        self, name: str, supplier: AnySupplier, *parents: str, options: AsyncOptions | None = None
    ) -> Self:
        """Add a node that runs a processor; the supplier makes a new processor for every task.

        The supplier is called once or twice here, to check it. Stores in an attribute `stores` of
        the supplier are added and connected. `options` are for a processor with `async def
        process`.
        """
        if options is not None:
            check_kind(
                options,
                AsyncOptions,
                role="options",
                of=f"processor {name}",
                remedy="give an AsyncOptions, or None",
            )
        operator = ProcessorOperator(name, supplier, options)
        return self.add_operator(name, operator, *parents, stores=operator.stores)

    def add_operator(
        self,
        name: str,
        operator: Operator,
        *parents: str,
        stores: Iterable[StoreSpec] = (),
        connected: Iterable[str] = (),
    ) -> Self:
        """Add a node that runs an operator, with stores of its own and those `connected` by name.

        All processors become operators.
        """
        self._check_new(name)
        self._check_parents(name, parents)
        own = tuple(stores)
        for spec in own:
            self._check_store(spec, name)
        others = tuple(connected)
        check_names(others, role="a name of a store", of=f"processor {name}")
        for store in others:
            self._check_connectable(name, store, own)
        self._nodes[name] = ProcessorNode(name=name, operator=operator, parents=parents)
        self._link(name, parents)
        for spec in own:
            self._stores[spec.name] = spec
            self._connect(name, spec.name)
        for store in others:
            self._connect(name, store)
        return self

    def add_sink(
        self,
        name: str,
        topic: TopicOrName | TopicExtractor,
        *parents: str,
        key: SerdeOrType[Any] | None = None,
        value: SerdeOrType[Any] | None = None,
        partitioner: Partitioner | None = None,
    ) -> Self:
        """Add a node that writes to a topic, or to the existing topic that a function returns.

        Options not given are the Topic's. Serdes missing in both are the app's defaults.
        """
        self._check_new(name)
        self._check_parents(name, parents)
        of = f"sink {name}"
        named, options = with_topic(
            topic,
            of,
            key=serde_of(key, role="key", of=of),
            value=serde_of(value, role="value", of=of),
            partitioner=partitioner,
        )
        node = SinkNode(name=name, topic=named, parents=parents, **options)
        if callable(named):
            check_function(named, 3, role="topic", of=of)
        else:
            valid_topic(named, of)
        takes_headers(partitioner, of)
        note_topics(self._topics, topics_of(topic))
        self._nodes[name] = node
        self._link(name, parents)
        return self

    def add_state_store(self, spec: StoreSpec, *processors: str) -> Self:
        """Add a store and connect it to processors.

        A store with the same name must be the same object.
        """
        self._check_store(spec, None)
        check_names(processors, role=f"a processor of store {spec.name}", of="add_state_store")
        for processor in processors:
            self._check_processor(processor, spec.name)
        self._stores[spec.name] = spec
        for processor in processors:
            self._connect(processor, spec.name)
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Self:
        """Connect a processor to existing stores.

        Processors that share a store are in one subtopology.
        """
        if not stores:
            raise TopologyError(
                f"processor {processor} is connected to no store: name at least one"
            )
        check_names((processor,), role="the processor", of="connect_processor_and_state_stores")
        check_names(
            stores, role="a store", of=f"connect_processor_and_state_stores for {processor}"
        )
        for store in stores:
            self._check_connectable(processor, store)
            self._check_processor(processor, store)
        for store in stores:
            self._connect(processor, store)
        return self

    def add_global_store(
        self,
        spec: StoreSpec,
        source: str,
        topic: TopicOrName,
        processor: str,
        supplier: AnySupplier | Operator,
        *,
        key: SerdeOrType[Any] | None = None,
        value: SerdeOrType[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
    ) -> Self:
        """Add a store that every instance fills with all of a topic.

        All processors can read it unconnected; only the processor given here writes to it. Options
        not given are the Topic's. Serdes missing in both are the app's defaults.
        """
        self._check_new(source)
        self._check_new(processor)
        _check_spec(spec, f"global store of topic {topic_name(topic)}")
        of = f"global store {spec.name}"
        named, options = with_topic(
            topic,
            of,
            key=serde_of(key, role="key", of=of),
            value=serde_of(value, role="value", of=of),
            timestamp_extractor=timestamp_extractor,
        )
        valid_topic(named, of)
        if timestamp_extractor is not None:
            check_function(timestamp_extractor, 2, role="timestamp_extractor", of=of)
        self._check_topic(source, named)
        if source == processor:
            raise TopologyError(
                f"source and processor of global store {spec.name} are both named {source}: give "
                "them different names"
            )
        if spec.name in self._stores or spec.name in self._global_stores:
            raise TopologyError(
                f"store {spec.name} has already been added: give the global one another name"
            )
        given: Any = supplier
        # The DSL gives an operator, users give the supplier of a processor.
        operator: Operator = (
            given if hasattr(given, "bind") else ProcessorOperator(processor, given)
        )
        if operator.asynchronous is not None:
            raise TopologyError(
                f"processor {processor} of global store {spec.name} is 'async def', which nothing "
                "awaits there: make it plain"
            )
        note_topics(self._topics, topics_of(topic))
        self._nodes[source] = SourceNode(
            name=source, topics=(named,), children=(processor,), **options
        )
        self._nodes[processor] = ProcessorNode(
            name=processor, operator=operator, stores=(spec.name,), parents=(source,)
        )
        self._groups.unite(source, processor)
        # The topic serves as the changelog.
        self._global_stores[spec.name] = msgspec.structs.replace(spec, logging=False)
        self._global_topics[named] = GlobalStore(source, named, spec.name, processor)
        return self

    def add_internal_topic(
        self, name: str, *, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> Self:
        """Declare a topic, read and written by nodes of this topology, as the app's own.

        It is made as `<application id>-<name>`.
        """
        valid_topic(name, "an internal topic")
        if name in self._internal:
            raise TopologyError(
                f"internal topic {name} has already been added: give the operations that make it "
                "different names"
            )
        if partitions is not None:
            check_whole(partitions, role="partitions", of=f"internal topic {name}")
        if configs is not None:
            check_configs(configs, role="configs", of=f"internal topic {name}")
        if partitions is not None and partitions < 1:
            raise TopologyError(
                f"internal topic {name} cannot have {partitions} partitions: give 1 or more, or "
                "None for as many as upstream"
            )
        self._internal[name] = InternalTopic(name, partitions, dict(configs or {}))
        return self

    def copartition(self, sources: Collection[str]) -> Self:
        """Require that the topics of these sources have the same number of partitions.

        Equal keys are then in the same task.
        """
        if isinstance(sources, str) or not isinstance(sources, Collection):
            raise TopologyError(
                f"sources of copartition is {sources!r}: give a list of names of sources"
            )
        check_names(tuple(sources), role="a source", of="copartition")
        group = frozenset(sources)
        counts = {
            topic: self._internal[topic].partitions if topic in self._internal else None
            for name in group
            if isinstance(node := self._nodes.get(name), SourceNode)
            for topic in node.topics
        }
        if None not in counts.values() and len(set(counts.values())) > 1:
            text = ", ".join(f"{topic} ({count})" for topic, count in sorted(counts.items()))
            raise TopologyError(
                f"topics that are joined have different numbers of partitions: {text}; "
                "repartition them to the same number"
            )
        self._copartitioned.append(group)
        return self

    def subtopologies(self) -> tuple[Subtopology, ...]:
        """Return the subtopologies, numbered as in Kafka Streams; global stores get numbers too.

        Raises TopologyError if nodes of one subtopology belong to several queries.
        """
        copartitioned = copartition_groups(self._copartitioned, self._nodes)
        patterned = pattern_groups(self._copartitioned, self._nodes)
        return tuple(
            subtopology(
                number,
                names,
                self._nodes,
                self._stores,
                self._internal,
                copartitioned,
                patterned,
                self._queries.of_nodes,
            )
            for number, names, keeper in self._numbered()
            if keeper is None
        )

    @contextmanager
    def query(
        self, name: str, *, weight: int = 1, commit_interval_ms: int | timedelta | None = None
    ) -> Iterator[None]:
        """Let nodes that are added inside the `with` block belong to the query `name`.

        A query is a set of whole subtopologies. Ready tasks of several queries in one instance get
        its time in proportion to the weights. An instance commits at the least `commit_interval_ms`
        of its queries (None: that of the config). Name a query again to add nodes. Raises
        TopologyError within another query, and for a second weight or interval.
        """
        with self._queries.open(name, weight, commit_interval_ms):
            yield

    def queries(self, *, whole: bool = False) -> Mapping[str, tuple[int, ...]]:
        """Return the numbers of the subtopologies by query; `rest` has those outside of queries.

        The `whole` topology includes the queries that `only` has left out.
        """
        found = dict(self._left_out) if whole else {}
        parts = self.subtopologies()
        check_topics(parts, self._internal)
        for each in parts:
            found[each.query] = (*found.get(each.query, ()), each.id)
        return MappingProxyType(found)

    @property
    def weights(self) -> Mapping[str, int]:
        """The weights of the named queries; the weight of `rest` is 1."""
        return MappingProxyType(self._queries.weights)

    @property
    def commit_intervals(self) -> Mapping[str, int]:
        """The `commit_interval_ms` of the queries that have one."""
        return MappingProxyType(self._queries.intervals)

    def only(self, *queries: str) -> Topology:
        """Return this topology with these queries alone; numbers and names stay as they are.

        Members of one group can run different queries. Global stores belong to all. Raises
        TopologyError for unknown queries.
        """
        known = self.queries(whole=True)
        wanted = checked_queries(queries, known.keys() - self._left_out.keys())
        parts = [each for each in self.subtopologies() if each.query in wanted]
        kept = {name for each in parts for name in each.nodes}
        for keeper in self._global_topics.values():
            kept |= {keeper.source, keeper.processor}
        read = {topic for each in parts for topic in each.source_topics}
        stores = {name for each in parts for name in each.stores}
        part = copy(self)
        part._left_out = {query: known[query] for query in known if query not in wanted}
        part._nodes = {name: node for name, node in self._nodes.items() if name in kept}
        part._stores = {name: spec for name, spec in self._stores.items() if name in stores}
        part._internal = {name: topic for name, topic in self._internal.items() if name in read}
        return part

    def describe(self) -> TopologyDescription:
        """Return the description: text (`str()`, Kafka's format), `.to_json()` and `.mermaid()`."""
        return TopologyDescription(self._nodes, self._numbered())

    def _numbered(self) -> list[tuple[int, list[str], GlobalStore | None]]:
        keepers = {keeper.source: keeper for keeper in self._global_topics.values()}
        return [
            (number, names, keepers.get(names[0]))
            for number, names in enumerate(self._groups)
            if names[0] in self._nodes  # not left out by `only`
        ]

    def _check_new(self, name: Any) -> None:
        if not isinstance(name, str) or not name:
            raise TopologyError(f"{name!r} is not a valid node name: give a str that is not empty")
        if name in self._nodes:
            raise TopologyError(f"node {name} has already been added: give every node its own name")

    def _check_parents(self, name: str, parents: tuple[str, ...]) -> None:
        check_names(parents, role="a parent", of=f"node {name}")
        if not parents:
            raise TopologyError(f"node {name} has no parent: name the nodes that send it records")
        if len(set(parents)) < len(parents):
            raise TopologyError(
                f"node {name} has a parent twice: {', '.join(parents)}; name every parent once"
            )
        for parent in parents:
            node = self._nodes.get(parent)
            if node is None:
                hint = (
                    "a node cannot be its own parent"
                    if parent == name
                    else "add parents before their children"
                )
                raise TopologyError(f"parent {parent} of node {name} is unknown: {hint}")
            if isinstance(node, SinkNode):
                raise TopologyError(
                    f"parent {parent} of node {name} is a sink, which forwards nothing: read its "
                    "topic with a source instead"
                )
            if any(
                parent in (keeper.source, keeper.processor)
                for keeper in self._global_topics.values()
            ):
                raise TopologyError(
                    f"parent {parent} of node {name} belongs to a global store, which forwards "
                    "nothing: read the topic as a stream"
                )

    def _check_topic(self, name: str, topic: str) -> None:
        if topic in self._global_topics:
            raise TopologyError(
                f"topic {topic} of source {name} fills global store "
                f"{self._global_topics[topic].store}: a topic has one source"
            )
        for node in self._nodes.values():
            if isinstance(node, SourceNode):
                if topic in node.topics:
                    raise TopologyError(
                        f"topic {topic} of source {name} is already read by source {node.name}: "
                        "add a child to that one"
                    )
                if node.pattern is not None and node.pattern.fullmatch(topic):
                    raise TopologyError(
                        f"topic {topic} of source {name} matches the pattern "
                        f"{node.pattern.pattern} of source {node.name}: a topic has one source"
                    )

    def _check_pattern(self, name: str, pattern: re.Pattern[str]) -> None:
        for node in self._nodes.values():
            for topic in node.topics if isinstance(node, SourceNode) else ():
                if pattern.fullmatch(topic):
                    raise TopologyError(
                        f"pattern {pattern.pattern} of source {name} matches topic {topic} of "
                        f"source {node.name}: narrow it"
                    )

    def _check_store(self, spec: StoreSpec, owner: str | None) -> None:
        _check_spec(spec, "the topology" if owner is None else f"node {owner}")
        if spec.name in self._global_stores:
            raise TopologyError(
                f"store {spec.name} has already been added as a global store: give every store its "
                "own name"
            )
        known = self._stores.get(spec.name)
        # Compare by identity: two unrelated operations may have created equal specs.
        if known is not None and known is not spec:
            users = " and ".join(self._users.get(spec.name, ())) or "no node"
            again = "" if owner is None else f", and node {owner} brings another one"
            raise TopologyError(
                f"a different store {spec.name} has already been added, and is used by "
                f"{users}{again}: give every store its own name, or pass the same StoreSpec object "
                "to all that share it"
            )

    def _check_connectable(
        self, processor: str, store: str, own: tuple[StoreSpec, ...] = ()
    ) -> None:
        if store in self._global_stores:
            raise TopologyError(
                f"store {store} is global: processor {processor} can read it without a connection; "
                "remove the name"
            )
        if store not in self._stores and all(store != spec.name for spec in own):
            raise TopologyError(
                f"store {store} of processor {processor} is unknown: add it with add_state_store "
                "first"
            )

    def _check_processor(self, processor: str, store: str) -> None:
        node = self._nodes.get(processor)
        if node is None:
            raise TopologyError(
                f"processor {processor}, to be connected to store {store}, is unknown: add it first"
            )
        if not isinstance(node, ProcessorNode):
            raise TopologyError(
                f"node {processor} is not a processor: store {store} cannot be connected to a "
                "source or a sink"
            )

    def _link(self, name: str, parents: tuple[str, ...]) -> None:
        self._groups.unite(name, *parents)
        self._queries.note(name)
        for parent in parents:
            node = cast("SourceNode | ProcessorNode", self._nodes[parent])
            self._nodes[parent] = msgspec.structs.replace(node, children=(*node.children, name))

    def _connect(self, processor: str, store: str) -> None:
        users = self._users.setdefault(store, [])
        # Processors that share a store must be in one task.
        if users:
            self._groups.unite(users[0], processor)
        users.append(processor)
        node = cast("ProcessorNode", self._nodes[processor])
        if store not in node.stores:
            self._nodes[processor] = msgspec.structs.replace(node, stores=(*node.stores, store))


def _check_spec(spec: Any, of: str) -> None:
    if not isinstance(spec, StoreSpec):
        raise TopologyError(
            f"{spec!r} is not a StoreSpec, but {of} needs a store: make one with ks_actors.stores"
        )
