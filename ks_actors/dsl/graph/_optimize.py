"""Optimizations of a graph before it is written.

They follow Kafka Streams (InternalStreamsBuilder.optimizeTopology).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ks_actors.dsl.graph._graph import Repartition, StreamJoin
from ks_actors.serdes import chosen, is_known
from ks_actors.topology import MERGE_REPARTITION_TOPICS, SINGLE_STORE_SELF_JOIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl.graph._graph import GraphBuilder, GraphNode


def optimize(graph: GraphBuilder, optimizations: frozenset[str]) -> None:
    """Optimize a graph; the reuse of source topics is decided when tables are written."""
    if MERGE_REPARTITION_TOPICS in optimizations:
        groups = _hoisted(graph, _repartitions(graph))
        for changer, repartitions in groups.items():
            if repartitions:
                _merge(graph, changer, repartitions)
    one_store = SINGLE_STORE_SELF_JOIN in optimizations
    for node in graph.nodes:
        if isinstance(node, StreamJoin):
            _keep_once(node, one_store=one_store)


def _repartitions(graph: GraphBuilder) -> dict[GraphNode, list[Repartition]]:
    """Return the nodes that change keys, each with its repartitions.

    No node between the two changes values.
    """
    groups: dict[GraphNode, list[Repartition]] = {}
    default = graph.has_default_value
    for node in graph.nodes:
        if node.changes_key:
            groups[node] = []
        elif isinstance(node, Repartition) and node.mergeable:
            typed = is_known(node.value) or (node.value is not None and not default)
            changer = _above(node, partial(_changes, typed=typed, default=default))
            if changer is not None and changer.changes_key:
                groups[changer].append(node)
    return groups


def _changes(node: GraphNode, *, typed: bool, default: bool) -> bool:
    """Return whether this node changes keys or values, so that no repartition may move above it.

    With `typed`, a join of values counts, too: above it the repartition's serde does not fit.
    Kafka Streams moves such topics above joins with global tables all the same.
    """
    return (
        node.changes_key
        or node.changes_value
        or (node.changes_inferred and not default)
        or (typed and node.joins_value)
    )


def _hoisted(
    graph: GraphBuilder, groups: dict[GraphNode, list[Repartition]]
) -> dict[GraphNode, list[Repartition]]:
    """Return the groups, in which repartitions below a merge of streams belong to the merge.

    One repartition must follow the merge, not each of the nodes above the merge.
    """
    found: dict[GraphNode, list[GraphNode]] = {}
    for merge in graph.nodes:
        if merge.merges:
            found[merge] = [
                changer
                for changer, repartitions in groups.items()
                if all(_below(each, merge) is not None for each in repartitions)
                and _below(merge, changer) is not None
            ]
    hoisted = dict(groups)
    for merge, changers in found.items():
        hoisted[merge] = list(
            dict.fromkeys(each for changer in changers for each in groups[changer])
        )
    for changer in {changer for changers in found.values() for changer in changers}:
        del hoisted[changer]
    return hoisted


def _merge(graph: GraphBuilder, changer: GraphNode, repartitions: list[Repartition]) -> None:
    """Put one repartition right after the node that changes keys, in place of several.

    It takes the name of the first repartition's topic.
    """
    one = graph.new_repartition(
        repartitions[0].topic,
        chosen(*(each.key for each in repartitions)),
        chosen(*(each.value for each in repartitions)),
    )
    one.line = repartitions[0].line
    # The priority makes it be written right after the node that changes keys.
    one.priority = changer.priority
    for each in repartitions:
        child = _below(each, changer)
        if child is not None:  # Otherwise it was moved together with another repartition.
            one.link(child)
            changer.unlink(child)
        parents, children = each.parents[:], each.children[:]
        for below in children:
            for parent in parents:
                parent.link(below)
            each.unlink(below)
        for parent in parents:
            parent.unlink(each)
        graph.recopartition(each.name, one.name)
    changer.link(one)


def _keep_once(join: StreamJoin, *, one_store: bool) -> None:
    """Let a self-join store its records once."""
    join.of_one = one_store and len(join.parents) == 1
    if join.of_one:
        parent = join.parents[0]
        for child in parent.children[:]:
            if child.name == join.windows[1]:
                parent.unlink(child)


def _below(start: GraphNode, above: GraphNode) -> GraphNode | None:
    """Return the child of `above` on the path to `start`."""
    return _above(start, lambda node: above in node.parents)


def _above(start: GraphNode, wanted: Callable[[GraphNode], bool]) -> GraphNode | None:
    """Return the first node that is `wanted`: `start`, or a node above it, depth first."""
    stack, seen = [start], set[Any]()
    while stack:
        node = stack.pop()
        if wanted(node):
            return node
        if node not in seen:
            seen.add(node)
            stack.extend(reversed(node.parents))
    return None
