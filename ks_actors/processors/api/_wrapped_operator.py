"""Operators with a user's wrapper around their functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast, final

from ks_actors._errors import TopologyError
from ks_actors.processors.api._context_checks import check_times_and_headers
from ks_actors.processors.api._operator import AsyncBound, Bound
from ks_actors.processors.api._wrapper import WrappedNode

if TYPE_CHECKING:
    from ks_actors.processors.api._async_options import AsyncOptions
    from ks_actors.processors.api._operator import AsyncOperator, NodeContext, Operator, Process
    from ks_actors.processors.api._wrapper import ProcessorWrapper
    from ks_actors.records import Headers

F = TypeVar("F")


@final
class WrappedOperator:
    """An operator whose functions a user's wrapper has wrapped; it takes records one at a time."""

    record_context: bool = True

    def __init__(self, operator: Operator, wrapper: ProcessorWrapper) -> None:
        self._operator = operator
        self._wrapper = wrapper
        self.asynchronous: AsyncOptions | None = operator.asynchronous

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        bound = self._operator.bind(context)
        process = self._wrapper.wrap(wrapped_node(context), _passed_on(bound.process, context.node))
        return Bound(checked(process, "wrap", context.node), None, bound.close)

    def bind_async(self, context: NodeContext) -> AsyncBound:
        """Make the functions of one task for `async def` code."""
        bound = cast("AsyncOperator", self._operator).bind_async(context)
        call = self._wrapper.wrap_async(wrapped_node(context), bound.call)
        return AsyncBound(checked(call, "wrap_async", context.node), bound.emit, bound.close)


def _passed_on(process: Process, node: str) -> Process:
    """Return a node's function, with a check of the timestamps and headers from its wrapper."""
    who = f"the wrapper of node {node} passes on"

    def checked_process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        check_times_and_headers(timestamp, headers, who)
        process(key, value, timestamp, headers)

    return checked_process


def wrapped_node(context: NodeContext) -> WrappedNode:
    """Return the description of a node for a wrapper."""
    return WrappedNode(
        context.node, context.application_id, context.task_id, context.record_metadata
    )


def checked(function: F, method: str, node: str) -> F:
    """Return a wrapper's function. Raises TopologyError if it cannot be called."""
    returned: Any = function
    if not callable(returned):
        raise TopologyError(
            f"{method} of processor_wrapper_class returned {returned!r} for node {node}: return "
            "the function to call for it"
        )
    return function
