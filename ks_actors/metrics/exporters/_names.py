"""The names of metrics in other systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ks_actors.metrics._metric import MetricKind

if TYPE_CHECKING:
    from ks_actors.metrics._family import MetricFamily
    from ks_actors.metrics._metric import Metric

_END: Final = "-metrics"
_TOTAL: Final = "-total"


def prometheus_name(metric: Metric | MetricFamily) -> str:
    """Return the name in Prometheus, as dashboards for Kafka Streams have it.

    `stream-thread-metrics` `process-rate` is `kafka_stream_thread_process_rate`. Counters end in
    `_total`; texts end in `_info`, and their text is in the label `value`.
    """
    group = metric.group.removesuffix(_END)
    where = group if group.startswith("ks-actors") else f"kafka-{group}"
    name = f"{where}-{metric.name}".replace("-", "_")
    if metric.kind is MetricKind.COUNTER and not metric.name.endswith(_TOTAL):
        return f"{name}_total"
    return f"{name}_info" if metric.kind is MetricKind.TEXT else name


def otel_name(metric: Metric | MetricFamily) -> str:
    """Return the name in OpenTelemetry, that of KIP-714 and KIP-1076.

    `stream-thread-metrics` `process-rate` is `org.apache.kafka.stream.thread.process.rate`.
    """
    group = metric.group.removesuffix(_END)
    where = group if group.startswith("ks-actors") else f"org.apache.kafka.{group}"
    return f"{where}-{metric.name}".replace("-", ".")


def label(tag: str) -> str:
    """Return the name of a tag as a label or attribute."""
    return tag.replace("-", "_")
