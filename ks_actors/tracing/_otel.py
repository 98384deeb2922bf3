"""Traces by OpenTelemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import TracerProvider

    from ks_actors.records import TaskId
    from ks_actors.tracing._contract import TaskTracing


@final
class OtelTracing:
    """Trace the records of an app with OpenTelemetry: `App(…, tracing=OtelTracing())`.

    `tracer_provider` and `propagator` default to OpenTelemetry's global objects. The propagator
    writes the context of a record to its headers, by default as `traceparent`, `tracestate` and
    `baggage` (W3C). The provider's sampler decides about records that come without a context.

    Spans and attributes are those of OpenTelemetry's conventions for messaging: `process <topic>`
    for each record that is read, `send <topic>` for each record that is written, and `call <node>`
    for each call of an asynchronous function. Raises ImportError without the extra `otel`.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        try:
            from ks_actors.tracing import _otel_spans  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ImportError(
                "OtelTracing needs OpenTelemetry: pip install 'ks-actors[otel]'"
            ) from error
        self._spans = _otel_spans.Spans(tracer_provider, propagator)

    def task(self, task_id: TaskId, *, application_id: str, client_id: str) -> TaskTracing:
        """Return the tracing of a task."""
        return self._spans.task(task_id, application_id=application_id, client_id=client_id)
