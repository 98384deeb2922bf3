"""Spans in memory, and what tests ask about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ks_actors.records import Headers
from ks_actors.tracing import OtelTracing

if TYPE_CHECKING:
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.sampling import Sampler

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
HEADER = ("traceparent", f"00-{TRACE}-{PARENT}-01".encode())
UNSAMPLED = ("traceparent", f"00-{TRACE}-{PARENT}-00".encode())


class Recorded:
    """A tracing whose spans stay in memory."""

    def __init__(self, sampler: Sampler | None = None, propagator: TextMapPropagator | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = OtelTracing(self.provider, propagator=propagator)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """The spans that have ended, in the order of their ends."""
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


def of_trace(number: int) -> Headers:
    """Return headers with the context of a trace."""
    return (("traceparent", f"00-{number:032x}-{number:016x}-01".encode()),)


def trace_of(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}"


def id_of(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"{context.span_id:016x}"


def parent_of(span: ReadableSpan) -> str | None:
    return None if span.parent is None else f"{span.parent.span_id:016x}"


def context_in(headers: Headers) -> tuple[str, str]:
    """Return the ids of trace and span in headers."""
    (value,) = [value for name, value in headers if name == "traceparent"]
    assert value is not None
    _, trace, span, _ = value.decode().split("-")
    return trace, span
