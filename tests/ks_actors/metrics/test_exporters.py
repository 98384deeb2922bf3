"""Metrics for Prometheus and OpenTelemetry."""

from __future__ import annotations

import asyncio
import errno
import io
import math
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from urllib.request import urlopen

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, InMemoryMetricReader, PeriodicExportingMetricReader
from prometheus_client.parser import text_string_to_metric_families

from ks_actors import App, StreamsConfig
from ks_actors.metrics import Group, Histogram, MetricValues, Registry
from ks_actors.metrics.exporters import (
    OtelMetrics,
    PrometheusCollector,
    _otel,
    otel_name,
    prometheus_app,
    prometheus_name,
    prometheus_text,
    serve_prometheus,
)
from ks_actors.metrics.families import catalogue, client, node, task
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.runtime.helpers import feed
from tests.ks_actors.runtime.metrics.test_app_metrics import counting

OWN = Group("ks-actors-some-metrics", "client-id", "task-id")
SIZE, COUNT = OWN.gauge("size", "A size in bytes"), OWN.counter("events-total", "Events")
STATE, TIMES = OWN.text("state", "A state"), OWN.histogram("latency-ms", "Times in ms")
TAGS = {"client-id": "app", "task-id": "0_1"}
LABELS = {"client_id": "app", "task_id": "0_1"}


class Measured:
    """An object with one metric of each kind."""

    def __init__(self) -> None:
        self.size = 3.5
        times = Histogram((1, 10))
        for value in (0.5, 5, 5, 50):
            times.add(value)
        self._registry = Registry()
        self._registry.add(lambda: [(TAGS, [(SIZE, self.size), (COUNT, 7), (STATE, 'say "no"'), (TIMES, times.distribution())])])

    def metrics(self) -> MetricValues:
        return self._registry.values()


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(text.decode())
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def labelled(**more: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({**LABELS, **more}.items()))


@pytest.mark.parametrize(
    ("package", "extra", "make"),
    [
        ("prometheus_client", "prometheus", lambda: PrometheusCollector(Measured())),
        ("prometheus_client", "prometheus", lambda: serve_prometheus(Measured(), port=0)),
        ("opentelemetry", "otel", lambda: OtelMetrics(Measured())),
    ],
)
def test_without_its_package_an_exporter_names_the_extra(
    package: str, extra: str, make: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the import's own class."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'ks-actors\[{extra}\]'"):
        make()


def test_a_port_that_is_taken_is_named() -> None:
    """With the address and the remedy; two apps on one machine have the same default."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"metrics cannot be served at 127.0.0.1:{port}: .* in use; give another") as raised:
            serve_prometheus(Measured(), port=port)
        assert raised.value.errno == errno.EADDRINUSE


def test_prometheus_reads_each_kind_as_its_own() -> None:
    """Gauges, counters, texts as a label, and histograms with buckets that add up."""
    assert samples(prometheus_text(Measured())) == {
        ("ks_actors_some_size", labelled()): 3.5,
        ("ks_actors_some_events_total", labelled()): 7,
        ("ks_actors_some_state_info", labelled(value='say "no"')): 1,
        ("ks_actors_some_latency_ms_bucket", labelled(le="1")): 1,
        ("ks_actors_some_latency_ms_bucket", labelled(le="10")): 3,
        ("ks_actors_some_latency_ms_bucket", labelled(le="+Inf")): 4,
        ("ks_actors_some_latency_ms_count", labelled()): 4,
        ("ks_actors_some_latency_ms_sum", labelled()): 60.5,
    }


def test_constant_labels_are_on_each_value() -> None:
    """They tell two apps of one process apart."""
    found = samples(prometheus_text(Measured(), {"cluster": "blue"}))
    assert {dict(labels)["cluster"] for _, labels in found} == {"blue"}


def test_names_in_other_systems_are_unique_and_legal() -> None:
    """No two metrics of the catalogue become one, in Prometheus or in OpenTelemetry."""
    families = catalogue()
    for name_of, legal in ((prometheus_name, r"[a-z_][a-z0-9_]*"), (otel_name, r"[a-z][a-z0-9_.]*")):
        names = [name_of(family) for family in families]
        assert len(set(names)) == len(names)
        assert [name for name in names if not re.fullmatch(legal, name)] == []
    assert prometheus_name(task.TASK.families[0]) == "kafka_stream_task_active_process_ratio"
    assert otel_name(task.TASK.families[0]) == "org.apache.kafka.stream.task.active.process.ratio"


def test_an_app_is_scraped_over_http_from_a_thread() -> None:
    """`serve_prometheus` is one line; the values are read on the app's loop, and there are those of the app."""

    async def run(harness: AppHarness) -> tuple[bytes, float]:
        await feed(harness, "in", "key", "value")
        collector = PrometheusCollector(harness.app)
        assert any(family.name == "kafka_stream_thread_process" for family in collector.collect())
        return prometheus_text(harness.app), harness.app.metrics()["process-total"]

    text, processed = run_app(run, counting(), topics={"in": 1, "out": 1}, metrics_recording_level="TRACE")
    assert samples(text)["ks_actors_instance_process_total", (("client_id", "app"),)] == processed == 1


async def test_a_server_in_a_thread_reads_on_the_loop() -> None:
    """Each scrape has the values of its moment; after `close` nobody answers."""
    loop, threads = asyncio.get_running_loop(), set[bool]()

    class Checked(Measured):
        def metrics(self) -> MetricValues:
            threads.add(asyncio.get_running_loop() is loop)
            return super().metrics()

    app = Checked()
    server = serve_prometheus(app, port=0)
    url = f"http://127.0.0.1:{server.port}/metrics"
    for size in (1.0, 2.0):
        app.size = size
        text = await asyncio.to_thread(lambda: cast("bytes", urlopen(url).read()))
        assert samples(text)["ks_actors_some_size", labelled()] == size
    await asyncio.to_thread(server.close)
    assert threads == {True}
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(lambda: urlopen(url))


async def test_an_asgi_app_has_the_metrics() -> None:
    """It can be mounted into any framework."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    await prometheus_app(Measured())(scope, receive, send)
    assert sent[0]["status"] == 200
    assert samples(b"".join(message.get("body", b"") for message in sent))["ks_actors_some_size", labelled()] == 3.5


def points(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], float]]]:
    """Return attributes and values by name."""
    data: Any = reader.get_metrics_data()
    metrics = [metric for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics] if data else []
    return {metric.name: [(dict(point.attributes), point.value) for point in metric.data.data_points] for metric in metrics}


def test_opentelemetry_reads_an_app() -> None:
    """By observable instruments, with tags as attributes, and without values that were not measured."""

    async def run(harness: AppHarness) -> list[dict[str, list[tuple[dict[str, Any], float]]]]:
        await feed(harness, "in", "key", "value")
        reader = InMemoryMetricReader()
        observed = OtelMetrics(harness.app, MeterProvider([reader]))
        before = points(reader)
        observed.close()
        return [before, points(reader)]

    found, closed = run_app(run, counting(), topics={"in": 1, "out": 1})
    assert closed == {}
    assert found["org.apache.kafka.stream.thread.process.total"] == [({"thread_id": "app-Worker-1"}, 1)]
    assert found["org.apache.kafka.stream.state"] == [({"client_id": "app", "value": "RUNNING"}, 1)]
    assert [value for values in found.values() for _, value in values if math.isnan(value)] == []


class Tagged:
    """An object with one counter that has a tag of its own."""

    def __init__(self, client_id: str, value: float) -> None:
        self.value = value
        self._registry = Registry()
        tags = {"client-id": client_id}
        self._registry.add(lambda: [(tags, [(client.FAILED_THREADS, self.value)])])

    def metrics(self) -> MetricValues:
        return self._registry.values()


def totals(reader: InMemoryMetricReader) -> dict[str, float]:
    return {attributes["client_id"]: value for attributes, value in points(reader).get("org.apache.kafka.stream.failed.stream.threads", [])}


def test_opentelemetry_reads_a_histogram_as_count_sum_and_buckets() -> None:
    """By three instruments; a bucket counts all values up to its bound."""
    times, measured, reader = Histogram((1, 10)), Tagged("app", 0), InMemoryMetricReader()
    for value in (0.5, 5, 5, 50):
        times.add(value)
    measured._registry.add(lambda: [({"client-id": "app"}, [(node.AGES, times.distribution())])])
    observed = OtelMetrics(measured, MeterProvider([reader]))
    found = {name.rpartition(".")[2]: values for name, values in points(reader).items() if "latency" in name}
    observed.close()
    tags = {"client_id": "app"}
    buckets = [({**tags, "le": bound}, count) for bound, count in (("1", 1), ("10", 3), ("+Inf", 4))]
    assert found == {"count": [(tags, 4)], "sum": [(tags, 60.5)], "bucket": buckets}


def test_opentelemetry_reads_several_apps_of_a_process() -> None:
    """At once, and in turn: the next app after another was closed has values too."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    first, second = OtelMetrics(Tagged("one", 1), provider), OtelMetrics(Tagged("two", 2), provider)
    assert totals(reader) == {"one": 1, "two": 2}
    first.close()
    first.close()
    assert totals(reader) == {"two": 2}
    second.close()
    assert totals(reader) == {}
    OtelMetrics(Tagged("three", 3), provider)
    assert totals(reader) == {"three": 3}
    other = InMemoryMetricReader()
    OtelMetrics(Tagged("elsewhere", 4), MeterProvider([other]))
    assert (totals(reader), totals(other)) == ({"three": 3}, {"elsewhere": 4})


def test_opentelemetry_has_the_last_of_two_apps_with_the_same_tags() -> None:
    """An app that has ended may not be closed here when the next one begins: their counters are not added up."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    OtelMetrics(Tagged("one", 10), provider)
    OtelMetrics(Tagged("one", 1), provider)
    assert totals(reader) == {"one": 1}


def test_opentelemetry_reads_the_others_when_one_app_fails(caplog: pytest.LogCaptureFixture) -> None:
    """One warning tells the error of the app."""

    class Failing:
        def metrics(self) -> MetricValues:
            raise ValueError("no metrics")

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    OtelMetrics(Failing(), provider)
    OtelMetrics(Tagged("two", 2), provider)
    assert totals(reader) == {"two": 2}
    assert [record.getMessage() for record in caplog.records] == ["metrics of an app are missing in an export: no metrics"]


def periodic(out: io.StringIO) -> MeterProvider:
    """Return a provider whose reader works in a thread, as in production."""
    return MeterProvider([PeriodicExportingMetricReader(ConsoleMetricExporter(out=out), export_interval_millis=1e6)])


async def test_a_provider_is_shut_down_on_the_loop_of_its_app_after_the_app(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The last values are exported, although the loop waits for the thread that reads them."""
    out = io.StringIO()
    provider = periodic(out)
    config = StreamsConfig(application_id="app", log="memory://", state_dir=tmp_path)
    async with App(counting(), config, topics={"in": 1, "out": 1}) as app:
        OtelMetrics(app, provider)
    provider.shutdown()
    assert '"NOT_RUNNING"' in out.getvalue()
    assert caplog.messages == []


async def test_a_provider_is_shut_down_on_the_loop_of_its_app_before_the_app(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All instruments together wait once for the loop, which waits for them; one warning tells of the missing values."""
    monkeypatch.setattr(_otel, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(_otel, "_FRESH_S", 1e6)  # however long the instruments take
    out = io.StringIO()
    provider = periodic(out)
    OtelMetrics(Tagged("one", 1), provider)
    provider.shutdown()
    assert [record.getMessage() for record in caplog.records] == [
        "metrics of an app are missing in an export: the event loop of the app did not answer within 0.2 s: a function blocks it"
    ]
