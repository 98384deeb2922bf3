"""The graph that the DSL builds, node by node, and then turns into a topology."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from heapq import heappop, heappush
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ks_actors._errors import TopologyError
from ks_actors.processors.stateless import DropNullKeys, PassThrough
from ks_actors.serdes import is_same
from ks_actors.topology import QueryNames, Topology, find_unnamed, valid_name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ks_actors.processors.api import Operator
    from ks_actors.serdes import Serde
    from ks_actors.topology import OffsetReset, Partitioner, StoreSpec, TimestampExtractor

__all__ = [
    "Closes",
    "GraphBuilder",
    "GraphNode",
    "Repartition",
    "StreamJoin",
    "StreamSource",
    "named_or_behind",
]

Write: TypeAlias = Callable[[Topology, tuple[str, ...]], None]
"""Add one node of the graph to the topology, given the names of its parents there.

Called once, at build, when all decisions are made.
"""

_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")
_REPARTITION = "-repartition"
_OURS = __name__.partition(".")[0] + "."
_GROUP_TABLE = "Table.group_by"
_READS = "StreamsBuilder."
_KEEP_VALUES = frozenset(
    {
        "BranchedStream.branch",
        "BranchedStream.default_branch",
        "Stream.filter",
        "Stream.filter_not",
        "Stream.group_by",
        "Stream.merge",
        "Stream.peek",
        "Stream.repartition",
        "Stream.select_key",
        "Stream.split",
        "Stream.to",
        "Stream.to_table",
        "StreamMemory.distinct",
        "StreamMemory.expire",
        "Table.filter",
        "Table.filter_not",
        "Table.suppress",
        "Table.to_stream",
    }
)
"""The operations whose values are those that they get."""


class Closes(NamedTuple):
    """When windows close: `grace_ms` after their end, and 1 ms later if they include their end.

    Of two values, the greater is the later close.
    """

    grace_ms: int
    end_included: bool


class GraphNode:
    """One operation. In the topology, its children attach to the node `name`.

    `relaxed_null_keys` says that records without a key matter here (left joins), so that no
    repartition upstream may drop them. The other flags tell the optimizer whether the operation
    changes keys, changes values (perhaps by a join, or to an inferred serde), or merges streams.
    `operation` is the method that the user called, as `Stream.map`, and `line` the line of code,
    for errors; `query` is its named query. `closes` is set for an aggregation by windows.
    """

    __slots__ = (
        "changes_inferred",
        "changes_key",
        "changes_value",
        "children",
        "closes",
        "joins_value",
        "line",
        "merges",
        "name",
        "operation",
        "parents",
        "priority",
        "query",
        "relaxed_null_keys",
        "write",
    )

    def __init__(self, name: str, write: Write) -> None:
        self.name: str = name
        self.write: Write = write
        operation, line = _call_of_user()
        self.operation: str = operation
        self.line: str = line
        self.parents: list[GraphNode] = []
        self.children: list[GraphNode] = []
        self.priority: int = -1
        self.query: str | None = None
        self.relaxed_null_keys: bool = False
        self.changes_inferred: bool = False
        self.changes_key: bool = False
        self.changes_value: bool = False
        self.joins_value: bool = False
        self.merges: bool = False
        self.closes: Closes | None = None

    def makes(self, word: str) -> bool:
        """Return whether the functions of this operation make its keys or values, by the `word`."""
        if word == "key":
            return self.changes_key or self.operation == _GROUP_TABLE
        reads = isinstance(self, Repartition) or self.operation.startswith(_READS)
        return not reads and self.operation not in _KEEP_VALUES

    def link(self, child: GraphNode) -> None:
        """Put a node below this one, unless it is there already."""
        if child not in self.children:
            self.children.append(child)
            child.parents.append(self)

    def unlink(self, child: GraphNode) -> None:
        """Remove a node from below this one."""
        if child in self.children:
            self.children.remove(child)
            child.parents.remove(self)


class StreamSource(GraphNode):
    """The source of a stream; `build` merges sources with the same topics and options."""

    __slots__ = ("key", "offset_reset", "timestamp_extractor", "topics", "value")

    def __init__(
        self,
        name: str,
        write: Write,
        topics: tuple[str, ...] | re.Pattern[str],
        *,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        timestamp_extractor: TimestampExtractor | None,
        offset_reset: OffsetReset | None,
    ) -> None:
        super().__init__(name, write)
        self.topics: tuple[str, ...] | re.Pattern[str] = topics
        self.key: Serde[Any] | None = key
        self.value: Serde[Any] | None = value
        self.timestamp_extractor: TimestampExtractor | None = timestamp_extractor
        self.offset_reset: OffsetReset | None = offset_reset


class Repartition(GraphNode):
    """A repartition topic: filter, sink and source.

    Records without a key are dropped unless a left join downstream needs them. Several repartitions
    after the same change of keys can be merged. A repartition that the user asked for is not
    `mergeable`.
    """

    __slots__ = ("keep_null_keys", "key", "mergeable", "topic", "value")

    def __init__(self, name: str, write: Write, topic: str, key: Any, value: Any) -> None:
        super().__init__(name, write)
        self.keep_null_keys: bool = False
        self.topic: str = topic
        self.key: Any = key
        self.value: Any = value
        self.mergeable: bool = True


class StreamJoin(GraphNode):
    """A join of two streams; `windows` are the names of the nodes that store the records of both.

    A self-join needs only the first of these nodes.
    """

    __slots__ = ("of_one", "windows")

    def __init__(self, name: str, write: Write, windows: tuple[str, str]) -> None:
        super().__init__(name, write)
        self.windows: tuple[str, str] = windows
        self.of_one: bool = False


class GraphBuilder:
    """Names, nodes and copartition groups of one StreamsBuilder.

    Names come from one counter, as in Kafka Streams.
    """

    def __init__(self) -> None:
        self.root: GraphNode = GraphNode("root", _write_nothing)
        self._index: int = 0
        self._generated: set[str] = set()
        self._priority: int = 0
        self._copartitioned: list[frozenset[str]] = []
        self._nodes: dict[GraphNode, None] = {}
        # the names of the tables' stores that keep the bytes of their values
        self.as_written: set[str] = set()
        # whether the app's default serde of values takes the place of inferred serdes
        self.has_default_value: bool = False
        self.queries: QueryNames = QueryNames()

    @property
    def nodes(self) -> list[GraphNode]:
        """All nodes but the root, in the order of their first attachment."""
        return list(self._nodes)

    def new_processor_name(self, prefix: str) -> str:
        """Return `prefix` and the next number of ten digits."""
        name = f"{prefix}{self._index:010d}"
        self._index += 1
        self._generated.add(name)
        return name

    def sibling_name(self, prefix: str, generated: str) -> str:
        """Return `prefix` with the number of a generated name."""
        name = prefix + generated.rpartition("-")[2]
        self._generated.add(name)
        return name

    def new_store_name(self, prefix: str) -> str:
        """Return `prefix`, STATE-STORE- and the next number of ten digits."""
        return self.new_processor_name(f"{prefix}STATE-STORE-")

    def name_or(self, name: str | None, prefix: str) -> str:
        """Return `name`, or else a new name.

        The counter advances in both cases, so that naming a node renames no other.
        """
        generated = self.new_processor_name(prefix)
        return generated if name is None else valid_name(name)

    def suffixed_or(self, name: str | None, suffix: str, prefix: str) -> str:
        """Return `name` with `suffix`, or else a new name; the counter advances in both cases."""
        generated = self.new_processor_name(prefix)
        return generated if name is None else valid_name(name + suffix)

    def check_same(self, other: GraphBuilder, of: str) -> None:
        """Raise TopologyError if an argument was made by another builder."""
        if other is not self:
            raise TopologyError(
                f"{of} got a stream or table of another StreamsBuilder: make both with the same "
                "builder"
            )

    def attach(self, node: GraphNode, *parents: GraphNode) -> GraphNode:
        """Put a node below its parents (none given: below the root).

        It is written after all nodes that were attached before.
        """
        self._nodes.setdefault(node)
        node.query = self.queries.current
        for parent in parents or (self.root,):
            if parent not in node.parents:
                node.parents.append(parent)
                parent.children.append(node)
            # For each parent, as in Kafka Streams: this order decides the numbers of subtopologies,
            # and so the names of tasks.
            node.priority = self._priority
            self._priority += 1
        return node

    def add_node(self, name: str, write: Write, *parents: GraphNode) -> GraphNode:
        """Make a node and attach it."""
        return self.attach(GraphNode(name, write), *parents)

    def add_processor(
        self,
        name: str,
        operator: Operator,
        *parents: GraphNode,
        stores: Sequence[StoreSpec] = (),
        connected: Sequence[str] = (),
    ) -> GraphNode:
        """Add a node for an operator that needs no late decision.

        The operator has `stores` of its own, and uses other stores by name.
        """

        def write(topology: Topology, above: tuple[str, ...]) -> None:
            topology.add_operator(name, operator, *above, stores=stores, connected=connected)

        return self.add_node(name, write, *parents)

    def add_store(self, spec: StoreSpec) -> None:
        """Add a store that is connected by name."""

        def write(topology: Topology, _: tuple[str, ...]) -> None:
            topology.add_state_store(spec)

        self.add_node(spec.name, write)

    def new_repartition(
        self,
        prefix: str,
        key: Any,
        value: Any,
        *,
        partitioner: Partitioner | None = None,
        partitions: int | None = None,
    ) -> Repartition:
        """Make the node of a repartition topic `<prefix>-repartition`, not attached yet.

        The counter advances by three. The node has the `name` of its source, so that readers of the
        topic are attached below the source.
        """
        topic = prefix if prefix.endswith(_REPARTITION) else prefix + _REPARTITION
        sink = self.new_processor_name("KSTREAM-SINK-")
        keep = self.new_processor_name("KSTREAM-FILTER-")
        source = self.new_processor_name("KSTREAM-SOURCE-")
        # A name given by the user is part of the names of the nodes, as in Kafka Streams.
        if not _GENERATED.fullmatch(prefix):
            sink, keep, source = (
                valid_name(f"{topic}-{kind}") for kind in ("sink", "filter", "source")
            )

        def write(topology: Topology, above: tuple[str, ...]) -> None:
            topology.add_internal_topic(topic, partitions=partitions)
            topology.add_operator(
                keep, PassThrough() if node.keep_null_keys else DropNullKeys(), *above
            )
            topology.add_sink(sink, topic, keep, key=key, value=value, partitioner=partitioner)
            topology.add_source(source, topic, key=key, value=value)

        node = Repartition(source, write, topic, key, value)
        return node

    def copartition(self, sources: Collection[str]) -> None:
        """Require that the topics of these source nodes have the same number of partitions.

        A task then gets the same partition of each topic.
        """
        self._copartitioned.append(frozenset(sources))

    def recopartition(self, old: str, new: str) -> None:
        """Replace one source node by another in the copartition groups."""
        self._copartitioned = [
            frozenset(new if name == old else name for name in group)
            for group in self._copartitioned
        ]

    def build(
        self,
        optimizations: frozenset[str],
        optimize: Callable[[GraphBuilder, frozenset[str]], None],
    ) -> Topology:
        """Return a new topology, optimized. The graph stays unchanged, and can grow further."""
        # The optimizer changes the links: keep the present links, to restore them below.
        index, copartitioned = self._index, self._copartitioned
        links = [(node, node.parents[:], node.children[:]) for node in (self.root, *self._nodes)]
        try:
            self._merge_sources()
            optimize(self, optimizations)
            self._keep_null_keys()
            return self._written(optimizations)
        finally:
            self._index, self._copartitioned = index, copartitioned
            for node, parents, children in links:
                node.parents, node.children = parents, children

    def _written(self, optimizations: frozenset[str]) -> Topology:
        """Write the nodes to a new topology, parents first and in the order of attachment."""
        topology = Topology()
        topology.optimizations = optimizations
        written = {self.root}
        made: dict[tuple[GraphNode, str], tuple[str, ...]] = {}
        turn = count()
        waiting = sorted((node.priority, next(turn), node) for node in self.root.children)
        while waiting:
            _, _, node = heappop(waiting)
            # Write a node once, and after all of its parents.
            if node in written or not written.issuperset(node.parents):
                continue
            before = len(topology.nodes)
            above = tuple(parent.name for parent in node.parents if parent is not self.root)
            with (
                nullcontext()
                if node.query is None
                else topology.query(
                    node.query,
                    weight=self.queries.weights[node.query],
                    commit_interval_ms=self.queries.intervals.get(node.query),
                )
            ):
                node.write(topology, above)
            names = tuple(islice(topology.nodes, before, None))
            topology.lines.update(dict.fromkeys(names, node.line))
            for word in ("key", "value"):
                calls = tuple(
                    dict.fromkeys(
                        call for parent in node.parents for call in made.get((parent, word), ())
                    )
                )
                # An operation that makes it is named by its own line; nobody makes that of a topic.
                if node.makes(word):
                    made[node, word] = (f"{node.operation.rpartition('.')[2]} at {node.line}",)
                else:
                    made[node, word] = calls
                    topology.made_by.update({(name, word): calls for name in names})
            written.add(node)
            for child in node.children:
                heappush(waiting, (child.priority, next(turn), child))
        for group in self._copartitioned:
            topology.copartition(group)
        topology.unnamed = find_unnamed(topology, self._generated)
        if self.queries.weights:
            topology.queries()  # which refuses a part of two queries
        return topology

    def _merge_sources(self) -> None:
        first: dict[Any, StreamSource] = {}
        for node in list(self.root.children):
            if not isinstance(node, StreamSource):
                continue
            topics = node.topics
            keys: tuple[Any, ...] = (
                ((topics.pattern, topics.flags),) if isinstance(topics, re.Pattern) else topics
            )
            for key in keys:
                main = first.setdefault(key, node)
                if main is node:
                    continue
                if main.topics != topics:
                    raise TopologyError(
                        f"sources {main.name} and {node.name} read topic {key!r}, and only one of "
                        "them reads other topics, too: read the topics one by one and merge the "
                        "streams, or make the lists equal"
                    )
                _merge(main, node, self.root)
                # Joins of the merged stream become joins of the remaining source.
                self.recopartition(node.name, main.name)
                break

    def _keep_null_keys(self) -> None:
        wanted: dict[GraphNode, bool] = {}
        stack = [self.root]
        while stack:
            node = stack[-1]
            # Visit the children first: a node depends on all nodes below it.
            missing = [child for child in node.children if child not in wanted]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            wanted[node] = any(child.relaxed_null_keys or wanted[child] for child in node.children)
            if isinstance(node, Repartition):
                node.keep_null_keys = wanted[node]


def named_or_behind(operation: str, name: str | None, node: GraphNode) -> str:
    """Return an operation's name in errors: its own name, or else the node before it."""
    return f"{operation} behind {node.name}" if name is None else f"{operation} {name}"


def _merge(main: StreamSource, other: StreamSource, root: GraphNode) -> None:
    for setting in ("offset_reset", "key", "value", "timestamp_extractor"):
        one, two = getattr(main, setting), getattr(other, setting)
        if not is_same(one, two):
            topics = main.topics
            read = (
                f"the pattern {topics.pattern}"
                if isinstance(topics, re.Pattern)
                else f"topic {', '.join(topics)}"
            )
            raise TopologyError(
                f"sources {main.name} and {other.name} read {read} but have different options, "
                f"{setting} is {_shown(one)} and {_shown(two)}: a topic has one source, so give "
                "both the same options, or convert the records after it"
            )
    root.children.remove(other)
    for child in other.children:
        child.parents[child.parents.index(other)] = main
        main.children.append(child)


def _shown(option: object) -> object:
    return "the app's default" if option is None else option


def _call_of_user() -> tuple[str, str]:
    """Return the function of this package that the user called, and the file and line."""
    frame, called = sys._getframe(1), ""
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame, called = frame.f_back, frame.f_code.co_qualname
    return called, f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _write_nothing(_: Topology, __: tuple[str, ...]) -> None:
    """Write nothing for the root."""
