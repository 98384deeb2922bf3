"""A topology as text (equal to Kafka Streams' output), as JSON and as a Mermaid diagram."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ks_actors.topology._java_order import TreeSet, copied_order, hash_order
from ks_actors.topology._nodes import ProcessorNode, SinkNode, SourceNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors.topology._nodes import GlobalStore, Node


class _Described:
    """A node with the current size of the graph below it, by which Kafka's text is sorted."""

    __slots__ = ("node", "predecessors", "size", "successors")

    def __init__(self, node: Node) -> None:
        self.node: Node = node
        self.size: int = 1
        self.predecessors: TreeSet[_Described] = TreeSet(_before)
        self.successors: TreeSet[_Described] = TreeSet(_before)

    def grow(self, delta: int) -> None:
        """Add to the size, and to the sizes of all nodes above: once for every path."""
        gains: dict[_Described, int] = {self: delta}
        # `_upwards` gives each node before those above it, so its gain is complete here.
        for described in _upwards(self):
            gain = gains[described]
            described.size += gain
            for predecessor in described.predecessors:
                gains[predecessor] = gains.get(predecessor, 0) + gain


def _upwards(start: _Described) -> list[_Described]:
    """Return a node and all nodes above it, each before its own parents."""
    found: dict[_Described, None] = {}
    stack = [(start, iter(start.predecessors))]
    while stack:
        described, rest = stack[-1]
        above = next(rest, None)
        if above is None:
            stack.pop()
            found[described] = None
        elif above not in found:
            stack.append((above, iter(above.predecessors)))
    return list(found)[::-1]


def _before(first: _Described, second: _Described) -> bool:
    if first.size != second.size:
        return first.size > second.size
    return first.node.name < second.node.name


class TopologyDescription:
    """The nodes and stores of a topology. `str()` gives Kafka Streams' text, line for line."""

    def __init__(
        self, nodes: Mapping[str, Node], groups: Iterable[tuple[int, list[str], GlobalStore | None]]
    ) -> None:
        self._groups: list[tuple[int, list[_Described], GlobalStore | None]] = [
            (number, _described([nodes[name] for name in names]), keeper)
            for number, names, keeper in groups
        ]

    def __str__(self) -> str:
        text = ["Topologies:\n "]
        for number, nodes, keeper in self._groups:
            if keeper is not None:
                text.append(
                    f"  Sub-topology: {number} for global store (will not generate tasks)\n"
                )
                text.extend(f"    {_text(node)}\n" for node in nodes)
            else:
                text.append(f"  Sub-topology: {number}\n")
                text.extend(f"    {_text(node)}\n" for node in nodes)
                text.append("\n")
        return "".join(text)

    def to_json(self) -> str:
        """Return a JSON object: `subtopologies`, each with `id`, `global` and its `nodes`.

        `global` is true for a subtopology that fills a global store.
        """
        parts = [
            {"id": number, "global": keeper is not None, "nodes": [_plain(node) for node in nodes]}
            for number, nodes, keeper in self._groups
        ]
        return json.dumps({"subtopologies": parts})

    def mermaid(self) -> str:
        """Return a Mermaid flowchart: a box per subtopology, topics and stores between them."""
        return mermaid(
            [
                (number, [node.node for node in nodes], keeper)
                for number, nodes, keeper in self._groups
            ]
        )


def _described(nodes: list[Node]) -> list[_Described]:
    by_name = {node.name: _Described(node) for node in nodes}
    for name in hash_order(by_name):
        described = by_name[name]
        for parent in () if isinstance(described.node, SourceNode) else described.node.parents:
            predecessor = by_name[parent]
            described.predecessors.add(predecessor)
            predecessor.successors.add(described)
            predecessor.grow(described.size)
    return sorted(by_name.values(), key=lambda described: (-described.size, described.node.name))


def _text(described: _Described) -> str:
    node = described.node
    down = f"\n      --> {_names(described.successors)}"
    up = f"\n      <-- {_names(described.predecessors)}"
    if isinstance(node, SourceNode):
        topics = (
            f"[{', '.join(copied_order(node.topics))}]"
            if node.pattern is None
            else node.pattern.pattern
        )
        return f"Source: {node.name} (topics: {topics}){down}"
    if isinstance(node, ProcessorNode):
        return (
            f"Processor: {node.name} (stores: "
            f"[{', '.join(copied_order(hash_order(node.stores)))}]){down}{up}"
        )
    if isinstance(node.topic, str):
        return f"Sink: {node.name} (topic: {node.topic}){up}"
    return f"Sink: {node.name} (extractor class: {function_name(node.topic)}){up}"


def _names(nodes: Iterable[_Described]) -> str:
    return ", ".join(described.node.name for described in nodes) or "none"


def _plain(described: _Described) -> dict[str, Any]:
    node = described.node
    if isinstance(node, SourceNode):
        reads = (
            {"topics": list(node.topics)}
            if node.pattern is None
            else {"pattern": node.pattern.pattern}
        )
        return {"type": "source", "name": node.name, **reads, "children": list(node.children)}
    if isinstance(node, SinkNode):
        writes = (
            {"topic": node.topic}
            if isinstance(node.topic, str)
            else {"extractor": function_name(node.topic)}
        )
        return {"type": "sink", "name": node.name, **writes, "parents": list(node.parents)}
    return {
        "type": "processor",
        "name": node.name,
        "stores": list(node.stores),
        "parents": list(node.parents),
        "children": list(node.children),
    }


def function_name(function: Any) -> str:
    """Return a name for a function or callable object: its module and qualified name.

    It is the same in every run.
    """
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


class _Ids:
    """Generated ids: names of topics, nodes and stores may have characters that Mermaid rejects."""

    def __init__(self) -> None:
        self._by_thing: dict[tuple[str, str], str] = {}
        self.declared: list[str] = []

    def of(self, kind: str, name: str, left: str, right: str) -> str:
        """Return the id of a topic, store or node; on first use, remember its shape."""
        known = self._by_thing.get((kind, name))
        if known is None:
            known = self._by_thing[kind, name] = f"{kind}{len(self._by_thing)}"
            self.declared.append(f'{known}{left}"{_escaped(name)}"{right}')
        return known

    def topic(self, name: str) -> str:
        return self.of("topic", name, "[[", "]]")

    def store(self, name: str) -> str:
        return self.of("store", name, "[(", ")]")

    def node(self, name: str) -> str:
        return self.of("node", name, "([", "])")


def mermaid(groups: Iterable[tuple[int, list[Node], GlobalStore | None]]) -> str:
    """Return the flowchart: topics outside, a box with nodes and stores for each subtopology."""
    ids = _Ids()
    boxes: list[str] = []
    edges: list[str] = []
    for number, nodes, keeper in groups:
        title = (
            f"Sub-topology {number}" if keeper is None else f"Sub-topology {number}: global store"
        )
        outside = ids.declared
        ids.declared = []
        for node in nodes:
            ids.node(node.name)
            for store in node.stores if isinstance(node, ProcessorNode) else ():
                ids.store(store)
        boxes += [
            f'subgraph sub{number}["{title}"]',
            *(f"    {line}" for line in ids.declared),
            "end",
        ]
        ids.declared = outside
        for node in nodes:
            edges += _edges(ids, node)
    lines = ["flowchart TD", *(f"    {line}" for line in (*boxes, *ids.declared, *edges))]
    return "\n".join(lines) + "\n"


def _edges(ids: _Ids, node: Node) -> Iterable[str]:
    here = ids.node(node.name)
    if isinstance(node, SourceNode):
        for topic in node.topics if node.pattern is None else (node.pattern.pattern,):
            yield f"{ids.topic(topic)} --> {here}"
    if isinstance(node, ProcessorNode):
        for store in node.stores:
            yield f"{here} --- {ids.store(store)}"
    if isinstance(node, SinkNode):
        topic = node.topic if isinstance(node.topic, str) else "a topic chosen by a function"
        yield f"{here} --> {ids.topic(topic)}"
    else:
        for child in node.children:
            yield f"{here} --> {ids.node(child)}"


def _escaped(text: str) -> str:
    return (
        text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    )
