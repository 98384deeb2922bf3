"""The topology as a graph for the page: topics, nodes and stores, with the names of the log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from ks_actors.records import TaskId
from ks_actors.topology import SinkNode, SourceNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.app import App
    from ks_actors.records import TopicPartition
    from ks_actors.topology import Node as TopologyNode
    from ks_actors.topology import Topology

_ANY = "a topic chosen by a function"
_GENERATED: Final = re.compile(r"K(?:STREAM|TABLE)-([A-Z-]+)-\d{10}")
_STORE_OF_TABLE: Final = re.compile(r"-STATE-STORE-\d{10}$")
_OPERATIONS: Final = {
    "FLATMAP": "flat_map",
    "FLATMAPVALUES": "flat_map_values",
    "JOINASOF": "join as of",
    "JOINOTHER": "join",
    "JOINTHIS": "join",
    "KEY-SELECT": "select_key",
    "LEFTJOIN": "left_join",
    "MAPVALUES": "map_values",
    "OUTEROTHER": "outer_join",
    "OUTERSHARED": "outer_join",
    "OUTERTHIS": "outer_join",
    "PRINTER": "print",
    "PROCESSOR": "process",
    "PROCESSVALUES": "process_values",
    "SOURCE": "table",
    "TOSTREAM": "to_stream",
    "TOTABLE": "to_table",
    "TRANSFORMVALUES": "transform_values",
}


class Node(msgspec.Struct, frozen=True):
    """A box of the graph; `kind` is topic, source, processor, sink or store.

    `label` is the name without what was generated: the operation of a node without a name.
    """

    id: str
    kind: str
    name: str
    label: str
    subtopology: int | None


class Graph(msgspec.Struct, frozen=True):
    """The boxes, and the arrows as pairs of ids."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...]


class Layout:
    """Names of the topology as the log has them."""

    def __init__(self, app: App) -> None:
        self._app: App = app
        self._topology: Topology = app.topology
        self._application_id: str = app.config.application_id
        self._internal = frozenset(self._topology.internal_topics)
        self.internal: frozenset[str] = frozenset(map(self.topic, self._internal))
        """The names of internal topics in the log."""
        self._parts = self._topology.subtopologies()
        self._readers: dict[str, str | None] = {}
        self._queries: dict[int, str] = {}
        if self._topology.weights:
            for query, numbers in self._topology.queries(whole=True).items():
                self._queries.update(dict.fromkeys(numbers, query))

    def topic(self, name: str) -> str:
        """Return a topic's name in the log."""
        return f"{self._application_id}-{name}" if name in self._internal else name

    def graph(self) -> Graph:
        """Return the graph of all nodes."""
        nodes: dict[str, Node] = {}
        edges: list[tuple[str, str]] = []
        part_of = {name: part.id for part in self._parts for name in part.nodes}
        for name, node in self._topology.nodes.items():
            part = part_of.get(name)
            kind, here = _kind(node), f"node:{name}"
            nodes[here] = Node(here, kind, name, _label(name), part)
            for topic in self._reads(node):
                nodes.setdefault(f"topic:{topic}", _topic(topic))
                edges.append((f"topic:{topic}", here))
            for topic in self._writes(node):
                nodes.setdefault(f"topic:{topic}", _topic(topic))
                edges.append((here, f"topic:{topic}"))
            for store in getattr(node, "stores", ()):
                box = Node(f"store:{store}", "store", store, _label(store), part)
                nodes.setdefault(box.id, box)
                edges.append((here, box.id))
            edges += [(here, f"node:{child}") for child in getattr(node, "children", ())]
        return Graph(tuple(nodes.values()), tuple(edges))

    def _reads(self, node: TopologyNode) -> Iterator[str]:
        if isinstance(node, SourceNode):
            if node.pattern is not None:
                yield node.pattern.pattern
            yield from map(self.topic, node.topics)

    def _writes(self, node: TopologyNode) -> Iterator[str]:
        if isinstance(node, SinkNode):
            yield self.topic(node.topic) if isinstance(node.topic, str) else _ANY

    def query_of(self, subtopology: int) -> str | None:
        """Return the query of a subtopology, also of one that runs elsewhere.

        None if the topology has no named queries.
        """
        return self._queries.get(subtopology)

    def source_node(self, topic: str) -> str | None:
        """Return the node that reads a topic of the log, None when none does."""
        if topic not in self._readers:
            self._readers[topic] = next(
                (name for name, node in self._topology.nodes.items() if self._matches(node, topic)),
                None,
            )
        return self._readers[topic]

    def task_of(self, partition: TopicPartition) -> TaskId | None:
        """Return the task that reads a partition, None when no node reads its topic."""
        parts = self._app._task_parts
        if parts is not None and parts.topics.grouping.custom:
            tasks = parts.topics.tasks()
            return next((task for task, group in tasks.items() if partition in group), None)
        name = self.source_node(partition.topic)
        part = next((part.id for part in self._parts if name in part.nodes), None)
        return None if part is None else TaskId(part, partition.partition)

    def _matches(self, node: TopologyNode, topic: str) -> bool:
        if not isinstance(node, SourceNode):
            return False
        if node.pattern is not None:
            return node.pattern.fullmatch(topic) is not None
        return topic in map(self.topic, node.topics)


def _kind(node: TopologyNode) -> str:
    if isinstance(node, SourceNode):
        return "source"
    return "sink" if isinstance(node, SinkNode) else "processor"


def _topic(name: str) -> Node:
    return Node(f"topic:{name}", "topic", name, name, None)


def _label(name: str) -> str:
    """Return the operation of a generated name, as in Python; other names stay as they are."""
    found = _GENERATED.fullmatch(name)
    if found is None:
        return _STORE_OF_TABLE.sub("", name)
    operation = found[1]
    return _OPERATIONS.get(operation, operation.lower().replace("-", " "))
