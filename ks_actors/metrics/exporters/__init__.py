"""Exporters: Prometheus and OpenTelemetry read the metrics of an app.

Each needs its extra: `pip install 'ks-actors[prometheus]'` or `'ks-actors[otel]'`.
"""

from ks_actors.metrics.exporters._names import otel_name as otel_name
from ks_actors.metrics.exporters._names import prometheus_name
from ks_actors.metrics.exporters._otel import OtelMetrics
from ks_actors.metrics.exporters._prometheus import (
    PrometheusCollector,
    PrometheusServer,
    prometheus_app,
    prometheus_text,
    serve_prometheus,
)
from ks_actors.metrics.exporters._reading import HasMetrics

__all__ = [
    "HasMetrics",
    "OtelMetrics",
    "PrometheusCollector",
    "PrometheusServer",
    "prometheus_app",
    "prometheus_name",
    "prometheus_text",
    "serve_prometheus",
]
