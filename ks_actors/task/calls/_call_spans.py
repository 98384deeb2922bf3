"""The spans of calls of a user's asynchronous functions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from contextvars import Context

    from ks_actors.records import Headers
    from ks_actors.task.calls._in_flight import Call
    from ks_actors.tracing import CallSpan, TaskTracing


@final
class CallSpans:
    """The spans of a node's calls: one for each call, its retries included.

    `records` returns the headers of the records that a call is about, in their order.
    """

    def __init__(
        self, node: str, tracing: TaskTracing, records: Callable[[Call], Sequence[Headers]]
    ) -> None:
        self._node = node
        self._tracing = tracing
        self._records = records

    def begin(self, call: Call, context: Context) -> Callable[[asyncio.Task[None]], None]:
        """Begin the span of a call that runs in `context`; return the callback that ends it."""
        span = self._tracing.call(self._node, self._records(call), context)
        return partial(_end, span, call)


def _end(span: CallSpan, call: Call, task: asyncio.Task[None]) -> None:
    error: BaseException | None = call.error
    if not task.cancelled():
        error = task.exception() or error
    span.end(error)
