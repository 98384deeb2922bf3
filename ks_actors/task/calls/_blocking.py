"""The mark of functions that may block a thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ks_actors._errors import TopologyError
from ks_actors.processors.api import is_async
from ks_actors.topology import ProcessorNode, SinkNode, SourceNode

if TYPE_CHECKING:
    from ks_actors.topology import Node, TimestampExtractor, Topology

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__ks_actors_blocking__"
_METHODS = ("__call__", "process", "transform", "windows_for")
_PACKAGE = __name__.partition(".")[0] + "."


def blocking(function: F, /) -> F:
    """Declare that a function, or a processor class, blocks or computes for long.

    Tasks with such a function are processed in a worker's own thread, and the event loop stays
    free. Where such tasks have stores, workers pause until a commit has ended: only one thread at a
    time may use a store. Such a function must not touch the loop. It may be a function given to the
    DSL, a processor, the `transform` of a ValueTransformer, the `windows_for` of your own windows,
    a partitioner, or a sink's topic name extractor. A timestamp extractor may not block: the loop
    calls it to find the task's next record.

    Raises TopologyError for an `async def`, which waits without a thread; it can await
    `asyncio.to_thread(...)` for blocking parts.
    """
    if not callable(function):
        raise TopologyError(
            f"{function!r} is declared as blocking and is not callable: give a function, or a "
            "processor class"
        )
    if (
        is_async(function)
        or inspect.isasyncgenfunction(function)
        or is_async(getattr(function, "process", function))
    ):
        raise TopologyError(
            f"{function!r} is 'async def' and declared as blocking: await asyncio.to_thread(...) "
            "for the blocking part, and remove the mark"
        )
    setattr(function, _MARK, True)
    return function


def is_blocking(operator: object) -> bool:
    """Return whether an operator has a function that is declared as blocking.

    This includes the processor that the operator makes, and that processor's methods.
    """
    return any(map(_marked, vars(operator).values()))


def needs_thread(node: Node) -> bool:
    """Return whether a node has a function that is declared as blocking."""
    if isinstance(node, ProcessorNode):
        return is_blocking(node.operator)
    return isinstance(node, SinkNode) and (_marked(node.partitioner) or _marked(node.topic))


def whole_commits(topology: Topology) -> bool:
    """Return whether workers have to pause for the whole of a commit.

    Custom stores do not separate the next transaction from the transaction being committed. And
    while a thread processes a task, nothing else may touch the task's stores.
    """
    return any(
        any(spec.supplier is not None for spec in part.stores.values())
        or (part.stores and any(needs_thread(topology.nodes[name]) for name in part.nodes))
        for part in topology.subtopologies()
    )


def check_threads(topology: Topology, default_extractor: TimestampExtractor) -> None:
    """Raise TopologyError when a subtopology would require both a thread and the loop.

    Raise it also when a timestamp extractor is declared as blocking.
    """
    for node in topology.nodes.values():
        if isinstance(node, SourceNode) and _marked(node.timestamp_extractor or default_extractor):
            raise TopologyError(
                f"the timestamp extractor of {node.name} is declared as blocking, but extractors "
                "run on the event loop: remove the mark if it is quick, or set the time in a "
                "blocking processor"
            )
    for part in topology.subtopologies():
        nodes = [topology.nodes[name] for name in part.nodes]
        blocks = next((node.name for node in nodes if needs_thread(node)), None)
        waits = next(
            (
                node.name
                for node in nodes
                if isinstance(node, ProcessorNode) and node.operator.asynchronous is not None
            ),
            None,
        )
        if blocks is not None and waits is not None:
            raise TopologyError(
                f"{blocks} is declared as blocking and {waits} is 'async def', and both are in "
                f"subtopology {part.id}, whose tasks run either in a thread or on the event loop: "
                f"make {blocks} 'async def' and await asyncio.to_thread(...) there, or separate "
                "them by stream.repartition()"
            )


def _marked(part: Any) -> bool:
    if isinstance(part, list | tuple):
        return any(map(_marked, part))
    if isinstance(part, partial):
        return _marked(part.func)
    if getattr(part, _MARK, False):
        return True
    if _is_ours(part) and any(map(_marked, vars(part).values())):
        return True
    return any(getattr(getattr(part, method, None), _MARK, False) for method in _METHODS)


def _is_ours(part: Any) -> bool:
    """Return whether a part of an operator is from this package, and may hold users' functions.

    Such parts are aggregations, views of tables and partitioners. A user's object has its own mark.
    """
    return (
        is_dataclass(part)
        and not isinstance(part, type)
        and type(part).__module__.startswith(_PACKAGE)
    )
