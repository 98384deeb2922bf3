"""The spans of a task by OpenTelemetry, which has to be installed to import this module."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Final, final

from opentelemetry import propagate
from opentelemetry.context import Context as OtelContext
from opentelemetry.context import attach, detach
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
    get_tracer,
    set_span_in_context,
)

from ks_actors.records import Batch
from ks_actors.tracing._header_carrier import FieldSetter, HeaderGetter, with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextvars import Context
    from typing import Any

    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from ks_actors.records import Headers, TaskId, TopicPartition

_GETTER: Final = HeaderGetter()
_SETTER: Final = FieldSetter()
_SAMPLE: Final = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


@final
class Spans:
    """The source of an app's spans: a tracer, and a propagator for their contexts in headers."""

    def __init__(
        self, tracer_provider: TracerProvider | None, propagator: TextMapPropagator | None
    ) -> None:
        self._tracer = get_tracer("ks_actors", tracer_provider=tracer_provider)
        self._propagator = propagator or propagate.get_global_textmap()

    def task(self, task_id: TaskId, *, application_id: str, client_id: str) -> TaskSpans:
        """Return the spans of a task."""
        attributes = {
            "messaging.system": "kafka",
            "messaging.client.id": client_id,
            "messaging.consumer.group.name": application_id,
            "ks_actors.task": str(task_id),
        }
        return TaskSpans(self._tracer, self._propagator, attributes)


@final
class TaskSpans:
    """The spans of one task."""

    on: bool = True

    def __init__(
        self, tracer: Tracer, propagator: TextMapPropagator, attributes: dict[str, str]
    ) -> None:
        self._tracer = tracer
        self._propagator = propagator
        self._fields: frozenset[str] = frozenset(propagator.fields)
        self._client: dict[str, str] = attributes
        self._open: list[Span] = []
        # Open spans by the headers that carry their contexts; empty if headers carry no spans.
        self._by_headers: dict[Headers, Span] = {}
        self._carries_spans: bool = _carries_spans(propagator)
        # The context of the current record, if records are processed one at a time.
        self._current: OtelContext | None = None

    def begin(self, partition: TopicPartition, batch: Batch) -> Batch:
        """Begin a span for each record that is processed now."""
        headers = repeat(()) if batch.headers is None else batch.headers
        begun = [
            self._process(partition, offset, header)
            for offset, header in zip(batch.offsets, headers, strict=False)
        ]
        return Batch(batch.keys, batch.values, batch.timestamps, begun, batch.offsets)

    def within(
        self, process: Callable[[Any, Any, int, Headers], None]
    ) -> Callable[[Any, Any, int, Headers], None]:
        """Return `process` with the span of its record as the current span."""

        def processed(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            span = self._by_headers.get(self._carried(headers))
            own = self._extract(headers)
            if span is not None:
                own = set_span_in_context(span, own)
            token, self._current = attach(own), own
            try:
                process(key, value, timestamp, headers)
            finally:
                self._current = None
                detach(token)

        return processed

    def send(self, topic: str, headers: Headers, *, origin: Headers | None = None) -> Headers:
        """Begin a span for a record that is written; return its headers with the context."""
        parent = self._extract(headers if origin is None else origin)
        attributes = self._attributes("send", topic)
        return self._start(f"send {topic}", parent, SpanKind.PRODUCER, attributes, headers)

    def failed(self, headers: Headers, error: BaseException) -> None:
        """Mark the span in `headers` as failed, if it is still open."""
        span = self._by_headers.get(self._carried(headers))
        if span is not None:
            _fail(span, error)

    def unreadable(self, partition: TopicPartition, offset: int, headers: Headers) -> Headers:
        """Begin the span of a record that could not be deserialized; return its headers."""
        return self._process(partition, offset, headers)

    def end(self) -> None:
        """End all open spans, except those of calls."""
        if self._open:
            spans, self._open, self._by_headers = self._open, [], {}
            for span in spans:
                span.end()

    def call(self, node: str, headers: Sequence[Headers], context: Context) -> CallSpan:
        """Begin the span of a node's call; make it the current span of `context`."""
        # Rows of a batch continue with the headers of its last record.
        parent = self._extract(headers[-1])
        links = [
            Link(found)
            for each in headers[:-1]
            if (found := get_current_span(self._extract(each)).get_span_context()).is_valid
        ]
        attributes: dict[str, str | int] = {**self._client, "ks_actors.node": node}
        if len(headers) > 1:
            attributes["messaging.batch.message_count"] = len(headers)
        span = self._tracer.start_span(
            f"call {node}", context=parent, attributes=attributes, links=links
        )
        context.run(attach, set_span_in_context(span, parent))
        return CallSpan(span)

    def _process(self, partition: TopicPartition, offset: int, headers: Headers) -> Headers:
        topic, number = partition
        attributes = self._attributes("process", topic)
        attributes["messaging.destination.partition.id"] = str(number)
        attributes["messaging.kafka.offset"] = offset
        parent = self._extract(headers)
        return self._start(f"process {topic}", parent, SpanKind.CONSUMER, attributes, headers)

    def _start(
        self,
        name: str,
        parent: OtelContext,
        kind: SpanKind,
        attributes: dict[str, str | int],
        headers: Headers,
    ) -> Headers:
        span = self._tracer.start_span(name, context=parent, kind=kind, attributes=attributes)
        fields: dict[str, str] = {}
        self._propagator.inject(fields, set_span_in_context(span, parent), _SETTER)
        found = with_fields(headers, self._fields, fields)
        if span.is_recording():
            self._open.append(span)
            if self._carries_spans:
                self._by_headers[self._carried(found)] = span
        return found

    def _extract(self, headers: Headers) -> OtelContext:
        # Headers have no context if a processor has made a record of its own. The library's current
        # context does not count: it may belong to the code that runs the app.
        return self._propagator.extract(headers, self._current or OtelContext(), _GETTER)

    def _carried(self, headers: Headers) -> Headers:
        """Return the headers that carry the context."""
        return tuple(header for header in headers if header[0] in self._fields)

    def _attributes(self, operation: str, topic: str) -> dict[str, str | int]:
        return {
            **self._client,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": topic,
        }


@final
class CallSpan:
    """The span of a call of a user's asynchronous function."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, error: BaseException | None) -> None:
        """End the span, with the error of the call if it has failed."""
        if error is not None:
            _fail(self._span, error)
        self._span.end()


def _carries_spans(propagator: TextMapPropagator) -> bool:
    """Return whether a propagator writes spans into headers; a baggage propagator does not."""
    fields: dict[str, str] = {}
    propagator.inject(
        fields, set_span_in_context(NonRecordingSpan(_SAMPLE), OtelContext()), _SETTER
    )
    return bool(fields)


def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
