"""The graph of a program in the DSL, and its optimizations."""

from ks_actors.dsl.graph._graph import (
    Closes,
    GraphBuilder,
    GraphNode,
    Repartition,
    StreamJoin,
    StreamSource,
    named_or_behind,
)
from ks_actors.dsl.graph._optimize import optimize

__all__ = [
    "Closes",
    "GraphBuilder",
    "GraphNode",
    "Repartition",
    "StreamJoin",
    "StreamSource",
    "named_or_behind",
    "optimize",
]
