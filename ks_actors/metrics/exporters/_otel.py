"""Metrics for OpenTelemetry, by observable instruments."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from math import isnan
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors.metrics._metric import Distribution, MetricKind
from ks_actors.metrics.exporters._names import label, otel_name
from ks_actors.metrics.exporters._reading import Reading
from ks_actors.metrics.families import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ks_actors.metrics._family import MetricFamily
    from ks_actors.metrics._metric import Metric
    from ks_actors.metrics.exporters._reading import HasMetrics

# A reader asks each instrument in turn: one look at the app serves all of them.
_FRESH_S: Final = 0.5


@final
class OtelMetrics:
    """The metrics of an app as observable instruments of OpenTelemetry.

    `OtelMetrics(app)` on the app's event loop is all that is needed: the readers of the meter
    provider (default: the global one) ask for the values, in whichever thread they run. The names
    are those of KIP-714, such as `org.apache.kafka.stream.thread.process.rate`, and tags are
    attributes with `_` for `-`. A text is the attribute `value` of a gauge that is 1. Of a
    histogram there are `.bucket` (with the attribute `le`), `.count` and `.sum`. Values that are
    not measured are left out. Raises ImportError without the extra `otel`.
    """

    def __init__(self, app: HasMetrics, meter_provider: Any = None) -> None:
        from opentelemetry import metrics  # noqa: PLC0415 - an extra

        self._reading = Reading(app)
        self._values: dict[tuple[str, str], list[Metric]] = {}
        self._read_at: float | None = None
        self._closed: bool = False
        meter = metrics.get_meter("ks_actors", meter_provider=meter_provider)
        for family in catalogue():
            name, text = otel_name(family), family.description
            if family.kind is MetricKind.COUNTER:
                meter.create_observable_counter(name, [partial(self._look, family)], "", text)
            elif family.kind is not MetricKind.HISTOGRAM:
                meter.create_observable_gauge(name, [partial(self._look, family)], "", text)
            else:
                for end in ("bucket", "count", "sum"):
                    look = partial(self._look_at_histogram, family, end)
                    meter.create_observable_counter(f"{name}.{end}", [look], "", text)

    def close(self) -> None:
        """Give no more values: instruments cannot be taken back."""
        self._closed = True
        self._values = {}

    def _of(self, family: MetricFamily) -> list[Metric]:
        if self._closed:
            return []
        now = monotonic()
        if self._read_at is None or now - self._read_at > _FRESH_S:
            self._read_at = now
            self._values = {}
            for metric in self._reading.values():
                self._values.setdefault((metric.group, metric.name), []).append(metric)
        return self._values.get((family.group, family.name), [])

    def _look(self, family: MetricFamily, options: object) -> Iterable[Any]:  # noqa: ARG002 - OpenTelemetry's
        from opentelemetry.metrics import Observation  # noqa: PLC0415 - an extra

        for metric in self._of(family):
            attributes = _attributes(metric)
            if isinstance(metric.value, str):
                yield Observation(1, {**attributes, "value": metric.value})
            elif not isinstance(metric.value, Distribution) and not isnan(metric.value):
                yield Observation(metric.value, attributes)

    def _look_at_histogram(
        self,
        family: MetricFamily,
        end: str,
        options: object,  # noqa: ARG002 - OpenTelemetry's
    ) -> Iterable[Any]:
        from opentelemetry.metrics import Observation  # noqa: PLC0415 - an extra

        for metric in self._of(family):
            value, attributes = metric.value, _attributes(metric)
            assert isinstance(value, Distribution)
            if end == "count":
                yield Observation(value.count, attributes)
            elif end == "sum":
                yield Observation(value.total, attributes)
            else:
                bounds = (*map(str, value.bounds), "+Inf")
                for bound, count in zip(bounds, accumulate(value.counts), strict=True):
                    yield Observation(count, {**attributes, "le": bound})


def _attributes(metric: Metric) -> dict[str, str]:
    return {label(tag): value for tag, value in metric.tags.items()}
