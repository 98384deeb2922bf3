"""Metrics for Prometheus, by `prometheus-client`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from ks_actors.metrics._metric import Distribution, MetricKind
from ks_actors.metrics.exporters._names import label, prometheus_name
from ks_actors.metrics.exporters._reading import Reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as Family

    from ks_actors.metrics._metric import Metric
    from ks_actors.metrics.exporters._reading import HasMetrics

Receive: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

_TOTAL: Final = "_total"
_NO_CONSTANT: Final[Mapping[str, str]] = {}
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
NO_LABELS: Final = frozenset({"topology-description"})
"""Texts of many lines, which are unsuitable as labels."""
TYPES: Final = {
    MetricKind.GAUGE: "gauge",
    MetricKind.COUNTER: "counter",
    MetricKind.TEXT: "gauge",
    MetricKind.HISTOGRAM: "histogram",
}
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_OF_HELP: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


@final
class PrometheusCollector:
    """A collector for `prometheus_client`: `REGISTRY.register(PrometheusCollector(app))`.

    Create the collector on the app's event loop; it may be read from any thread. The names are
    those of `prometheus_name`, tags are labels with `_` for `-`. `constant` labels are added to
    each value. Raises ImportError without the extra `prometheus`.
    """

    def __init__(self, app: HasMetrics, constant: Mapping[str, str] = _NO_CONSTANT) -> None:
        _library()
        self._reading = Reading(app)
        self._constant = dict(constant)

    def describe(self) -> Iterable[Family]:
        """Return no names, so that registering reads nothing."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Return all values as families; raises TimeoutError when the event loop hangs."""
        from prometheus_client.metrics_core import Metric as Family  # noqa: PLC0415 - an extra

        families: dict[str, Family] = {}
        for metric in self._reading.values():
            if metric.name in NO_LABELS:
                continue
            name = prometheus_name(metric)
            family = families.get(name)
            if family is None:
                base = name.removesuffix(_TOTAL) if metric.kind is MetricKind.COUNTER else name
                family = families[name] = Family(base, metric.description, TYPES[metric.kind])
            self._add(family, name, metric)
        yield from families.values()

    def _add(self, family: Family, name: str, metric: Metric) -> None:
        labels = {label(tag): value for tag, value in metric.tags.items()} | self._constant
        value = metric.value
        if isinstance(value, str):
            family.add_sample(name, {**labels, "value": value}, 1)
        elif isinstance(value, Distribution):
            bounds = (*map(str, value.bounds), "+Inf")
            for bound, count in zip(bounds, accumulate(value.counts), strict=True):
                family.add_sample(f"{name}_bucket", {**labels, "le": bound}, count)
            family.add_sample(f"{name}_count", labels, value.count)
            family.add_sample(f"{name}_sum", labels, value.total)
        else:
            family.add_sample(name, labels, value)


def _library() -> ModuleType:
    """Return the library. Raises ModuleNotFoundError, with the remedy, without the extra."""
    try:
        import prometheus_client  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as missing:
        if missing.name != "prometheus_client":
            raise
        raise ModuleNotFoundError(
            "metrics for Prometheus need prometheus-client: pip install 'ks-actors[prometheus]'",
            name=missing.name,
        ) from missing
    return prometheus_client


def _registry(app: HasMetrics, constant: Mapping[str, str]) -> CollectorRegistry:
    registry: CollectorRegistry = _library().CollectorRegistry(auto_describe=False)
    registry.register(PrometheusCollector(app, constant))
    return registry


def prometheus_text(app: HasMetrics, constant: Mapping[str, str] = _NO_CONSTANT) -> bytes:
    """Return all metrics of an app in Prometheus' text format, version 0.0.4, as UTF-8.

    Call it on the event loop. `constant` labels are added to each value. Needs no other package.
    """
    return exposition(app.metrics(), constant)


def prometheus_app(app: HasMetrics, constant: Mapping[str, str] = _NO_CONSTANT) -> AsgiApp:
    """Return an ASGI application with the metrics of an app, to be mounted at `/metrics`.

    The application answers GET and HEAD, at any path. It runs on the app's event loop, and needs no
    other package.
    """

    async def answer(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"this serves HTTP, not {scope['type']}")
        await receive()
        known = scope["method"] in {"GET", "HEAD"}
        body = prometheus_text(app, constant) if known else b"use GET"
        headers = [
            (b"content-type", (CONTENT_TYPE if known else "text/plain").encode()),
            (b"content-length", str(len(body)).encode()),
        ]
        status = HTTPStatus.OK if known else HTTPStatus.METHOD_NOT_ALLOWED
        await send({"type": "http.response.start", "status": status.value, "headers": headers})
        shown = b"" if scope["method"] == "HEAD" else body
        await send({"type": "http.response.body", "body": shown})

    return answer


@final
class PrometheusServer:
    """A server of metrics in a thread of its own; `with` closes it."""

    def __init__(self, server: Any, thread: Any) -> None:
        self._server = server
        self._thread = thread
        self.port: int = server.server_port

    def close(self) -> None:
        """Stop serving, and wait for the thread. Call it from a thread, or after the app."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> PrometheusServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def serve_prometheus(
    app: HasMetrics,
    *,
    host: str = "127.0.0.1",
    port: int = 9464,
    constant: Mapping[str, str] = _NO_CONSTANT,
) -> PrometheusServer:
    """Serve the metrics of an app over HTTP, until the server is closed; call it on the loop.

    The server listens on this machine only, unless another `host` is given; port 0 is any free
    port. Nothing is encrypted or authenticated. `constant` labels are added to each value. Raises
    OSError when the address is taken, ImportError without the extra `prometheus`.
    """
    start = _library().start_http_server
    registry = _registry(app, constant)
    try:
        return PrometheusServer(*start(port, addr=host, registry=registry))
    except OSError as error:
        text = (
            f"metrics cannot be served at {host}:{port}: {error.strerror or error}; give another "
            "host or port, or port 0 for any free one"
        )
        raise OSError(error.errno, text) from error


def exposition(values: Iterable[Metric], constant: Mapping[str, str]) -> bytes:
    """Return values in the text format, as UTF-8.

    An app with 60 tasks has thousands of values, which are written on its event loop: this takes a
    third of the time of `prometheus_client`.
    """
    families: dict[tuple[str, str], list[str]] = {}
    # Values of one thing share their tags, so each set of tags is written once.
    known: dict[int, str] = {}
    names: dict[tuple[str, str], str] = {}
    for metric in values:
        if metric.name in NO_LABELS:
            continue
        key = metric.group, metric.name
        if (lines := families.get(key)) is None:
            name = names[key] = prometheus_name(metric)
            kind, text = TYPES[metric.kind], metric.description.translate(_OF_HELP)
            lines = families[key] = [f"# HELP {name} {text}\n# TYPE {name} {kind}\n"]
        if (labels := known.get(id(metric.tags))) is None:
            labels = known[id(metric.tags)] = _labels(metric.tags, constant)
        _write(lines, names[key], labels, metric.value)
    return "".join(line for lines in families.values() for line in lines).encode()


def _write(lines: list[str], name: str, labels: str, value: float | str | Distribution) -> None:
    if isinstance(value, str):
        lines.append(f'{name}{{{labels},value="{value.translate(_ESCAPES)}"}} 1.0\n')
    elif isinstance(value, Distribution):
        bounds = (*map(str, value.bounds), "+Inf")
        for bound, count in zip(bounds, accumulate(value.counts), strict=True):
            lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {count}\n')
        lines.append(f"{name}_count{{{labels}}} {value.count}\n")
        lines.append(f"{name}_sum{{{labels}}} {_number(value.total)}\n")
    else:
        lines.append(f"{name}{{{labels}}} {_number(value)}\n")


def _labels(tags: Mapping[str, str], constant: Mapping[str, str]) -> str:
    labels = {label(tag): value for tag, value in tags.items()} | dict(constant)
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())


def _number(value: float) -> str:
    if value != value:  # noqa: PLR0124 - NaN alone differs from itself
        return "NaN"
    return "+Inf" if value == inf else "-Inf" if value == -inf else repr(value)
