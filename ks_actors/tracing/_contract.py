"""The contract between tasks and a tracing library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextvars import Context

    from ks_actors.records import Batch, Headers, TaskId, TopicPartition


class CallSpan(Protocol):
    """The span of a call of a user's asynchronous function."""

    def end(self, error: BaseException | None) -> None:
        """End the span, with the error of the call if it has failed."""
        ...


class TaskTracing(Protocol):
    """The spans of one task. Only one caller may use it at a time, as with the task."""

    @property
    def on(self) -> bool:
        """Whether there are any spans; if not, records keep their headers."""
        ...

    def begin(self, partition: TopicPartition, batch: Batch) -> Batch:
        """Begin a span for each record that is processed now.

        Returns the same records, with the context of their span in the headers, in place of the
        given context.
        """
        ...

    def within(
        self, process: Callable[[Any, Any, int, Headers], None]
    ) -> Callable[[Any, Any, int, Headers], None]:
        """Return `process` with the span of its record as the current span."""
        ...

    def send(self, topic: str, headers: Headers, *, origin: Headers | None = None) -> Headers:
        """Begin a span for a record that is written; return its headers, with that span's context.

        The parent is the context in `origin`, or in `headers` where there is none.
        """
        ...

    def failed(self, headers: Headers, error: BaseException) -> None:
        """Mark the span in `headers` as failed, if it is still open."""
        ...

    def unreadable(self, partition: TopicPartition, offset: int, headers: Headers) -> Headers:
        """Begin the span of a record that could not be deserialized; return its headers."""
        ...

    def end(self) -> None:
        """End all open spans, except those of calls."""
        ...

    def call(self, node: str, headers: Sequence[Headers], context: Context) -> CallSpan:
        """Begin the span of a node's call for records with these headers.

        The span becomes the current span of `context`, in which the call is going to run.
        """
        ...


class Tracing(Protocol):
    """Traces of an app, for `App(tracing=…)`."""

    def task(self, task_id: TaskId, *, application_id: str, client_id: str) -> TaskTracing:
        """Return the tracing of a task."""
        ...
