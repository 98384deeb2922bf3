"""A topology as a Mermaid flowchart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.topology._nodes import ProcessorNode, SinkNode, SourceNode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ks_actors.topology._nodes import GlobalStore, Node


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
