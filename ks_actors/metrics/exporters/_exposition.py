"""Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Final

from ks_actors.metrics._metric import Distribution, MetricKind
from ks_actors.metrics.exporters._names import label, prometheus_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors.metrics._metric import Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
NO_LABELS: Final = frozenset({"topology-description"})
"""Texts of many lines, which are no labels."""

TYPES: Final = {
    MetricKind.GAUGE: "gauge",
    MetricKind.COUNTER: "counter",
    MetricKind.TEXT: "gauge",
    MetricKind.HISTOGRAM: "histogram",
}
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_OF_HELP: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


def exposition(values: Iterable[Metric], constant: Mapping[str, str]) -> bytes:
    """Return values in the text format, as UTF-8.

    An app with 60 tasks has thousands of values, which are written on its event loop: this takes a
    third of the time of `prometheus_client`.
    """
    families: dict[tuple[str, str], list[str]] = {}
    # Values of one thing share their tags: each is written once.
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
