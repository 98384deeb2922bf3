"""Find two sources that lead straight into one inner join, to process both in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ks_actors.system import Later, is_loaded
from ks_actors.topology import ProcessorNode, SourceNode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.processors.joins import JoinPair, StreamJoinSide
    from ks_actors.task._node import NodeWork
    from ks_actors.topology import SinkNode


if TYPE_CHECKING:
    from ks_actors.processors import joins
else:
    joins = Later("ks_actors.processors.joins")


class Pair(NamedTuple):
    """The source nodes of both sides, and their join."""

    left: str
    right: str
    join: JoinPair


class _Arm(NamedTuple):
    source: str
    store: str
    node: ProcessorNode
    side: StreamJoinSide


def find_pair(
    nodes: Mapping[str, SourceNode | ProcessorNode | SinkNode], works: Mapping[str, NodeWork]
) -> Pair | None:
    """Return a task's pair if its two sources lead only to the same inner join.

    All nodes downstream of the join must take batches.
    """
    if not is_loaded(joins):
        return None
    sources = [node for node in nodes.values() if isinstance(node, SourceNode)]
    arms = [_arm(source, nodes) for source in sources]
    if len(arms) != 2 or arms[0] is None or arms[1] is None:  # noqa: PLR2004 - left and right
        return None
    left, right = arms if arms[0].side.left else arms[::-1]
    assert left is not None
    assert right is not None
    matched = (
        left.side.left
        and not right.side.left
        and (left.store, right.store) == (right.side.other, left.side.other)
    )
    if not matched or left.store == right.store or left.node.children != right.node.children:
        return None
    contexts = works[left.node.name], works[right.node.name]
    # Stores that are read row by row gain nothing from runs.
    if any(
        not _in_runs(context, arm.side.other)
        for context, arm in zip(contexts, (left, right), strict=True)
    ):
        return None
    return Pair(
        left.source, right.source, joins.JoinPair(left.side, contexts[0], right.side, contexts[1])
    )


def _arm(
    source: SourceNode, nodes: Mapping[str, SourceNode | ProcessorNode | SinkNode]
) -> _Arm | None:
    window = _only_child(source, nodes)
    join = None if window is None else _only_child(window, nodes)
    if (
        window is None
        or join is None
        or not isinstance(window.operator, joins.JoinWindow)
        or not isinstance(join.operator, joins.StreamJoinSide)
    ):
        return None
    side = join.operator
    return (
        None
        if side.outer or side.pending is not None
        else _Arm(source.name, window.operator.store, join, side)
    )


def _only_child(
    node: SourceNode | ProcessorNode, nodes: Mapping[str, SourceNode | ProcessorNode | SinkNode]
) -> ProcessorNode | None:
    children: list[Any] = [nodes[name] for name in node.children]
    return children[0] if len(children) == 1 and isinstance(children[0], ProcessorNode) else None


def _in_runs(context: NodeWork, store: str) -> bool:
    """Return whether a store takes many rows at a time."""
    return hasattr(context.store(store), "put_run")
