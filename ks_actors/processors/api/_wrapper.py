"""Wrappers of processors: a user's code around each node's function (KIP-1112)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ks_actors.processors.api._record import Record
from ks_actors.records import Headers

if TYPE_CHECKING:
    from ks_actors.processors.api._operator import Process, RecordMetadata
    from ks_actors.records import TaskId

AsyncProcess: TypeAlias = Callable[[Any, Any, int, Headers], Awaitable[Any]]
"""Call `async def` code for one record: key, value, timestamp (ms), headers."""

BatchProcess: TypeAlias = Callable[[list[Record[Any, Any]]], Awaitable[list[Record[Any, Any]]]]
"""Call the function of `Stream.batch` for some records; it returns the rows to forward."""


class WrappedNode(NamedTuple):
    """A processor node in one task.

    `record_metadata()` returns the origin of the current record; None in a punctuation, or when the
    origin is unknown.
    """

    name: str
    application_id: str
    task_id: TaskId
    record_metadata: Callable[[], RecordMetadata | None]


class ProcessorWrapper:
    """Wraps the functions of all processors, of the DSL and the Processor API (KIP-1112).

    Derive from it, override what you need, and name it by the setting `processor_wrapper_class`.
    Each method gets a node and its function, and returns the function to call instead. It is called
    once for each node of each task, before the node's processor is initialized. Global stores have
    tasks too. Sources and sinks are not wrapped.

    With a wrapper, tasks process records one at a time, which costs throughput.
    """

    def wrap(self, node: WrappedNode, process: Process) -> Process:  # noqa: ARG002 - to be overridden
        """Return the function that takes each record: key, value, timestamp (ms), headers.

        `process` returns when all downstream processing of the record is done, depth first, except
        for `async def` nodes. The `processing_exception_handler` decides about an error that the
        returned function raises, as about any error of the node. Without a call of `process` the
        record is dropped.
        """
        return process

    def wrap_async(self, node: WrappedNode, call: AsyncProcess) -> AsyncProcess:  # noqa: ARG002 - likewise
        """Return the function that is called, and awaited, for each record of an `async def` node.

        Return the result of `call` unchanged: it holds what the node forwards.
        """
        return call

    def wrap_batch(self, node: WrappedNode, call: BatchProcess) -> BatchProcess:  # noqa: ARG002 - likewise
        """Return the function that is called, and awaited, for each list of a `Stream.batch`."""
        return call
