"""Traces: the spans of records, and their contexts in headers."""

from ks_actors.tracing._contract import CallSpan, TaskTracing, Tracing
from ks_actors.tracing._otel import OtelTracing
from ks_actors.tracing._untraced import UNTRACED

__all__ = ["UNTRACED", "CallSpan", "OtelTracing", "TaskTracing", "Tracing"]
