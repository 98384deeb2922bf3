"""Metrics for OpenTelemetry, by observable instruments."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from math import isnan
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakKeyDictionary

from ks_actors.lifecycle import component_log
from ks_actors.metrics._metric import Distribution, MetricKind
from ks_actors.metrics.exporters._names import label, otel_name
from ks_actors.metrics.exporters._reading import Reading
from ks_actors.metrics.families import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.metrics import Meter, MeterProvider

    from ks_actors.metrics._family import MetricFamily
    from ks_actors.metrics._metric import Metric
    from ks_actors.metrics.exporters._reading import HasMetrics

# A reader asks each instrument in turn: one reading of the app serves all of them.
_FRESH_S: Final = 0.5
# Shorter than the wait of a provider's shutdown, which may block the loop itself.
_PATIENCE_S: Final = 2.0
_log = component_log(__name__)


@final
class OtelMetrics:
    """The metrics of an app as observable instruments of OpenTelemetry.

    `OtelMetrics(app)` on the app's event loop is all that is needed: the readers of the meter
    provider (default: the global one) ask for the values, in whichever thread they run. The names
    are those of KIP-714, such as `org.apache.kafka.stream.thread.process.rate`, and tags are
    attributes with `_` for `-`. A text is the attribute `value` of a gauge that is 1. A histogram
    has `.bucket` (with the attribute `le`), `.count` and `.sum`. Values that are not measured are
    left out, and so are all values of an app whose event loop does not answer within 2 s.

    Several apps may share a meter provider, at once or in turn. If values have the same attributes,
    those of the last app count. Raises ImportError without the extra `otel`.
    """

    def __init__(self, app: HasMetrics, meter_provider: Any = None) -> None:
        self._reading = Reading(app, patience_s=_PATIENCE_S)
        self._values: dict[tuple[str, str], list[Metric]] = {}
        self._read_at: float | None = None
        self._instruments = _instruments_of(meter_provider)
        self._instruments.add(self)

    def close(self) -> None:
        """Stop giving values; OpenTelemetry cannot remove instruments."""
        self._instruments.remove(self)
        self._values = {}

    def of(self, family: MetricFamily) -> list[Metric]:
        """Return the metrics of a family; empty for 0.5 s after the app could not be read."""
        if self._read_at is None or monotonic() - self._read_at > _FRESH_S:
            self._values = {}
            try:
                for metric in self._reading.values():
                    self._values.setdefault((metric.group, metric.name), []).append(metric)
            except Exception as error:  # noqa: BLE001 - the values of other apps go out all the same
                _log.warning("metrics of an app are missing in an export: %s", error)
            # Set this after any wait, so that the next instruments do not wait again.
            self._read_at = monotonic()
        return self._values.get((family.group, family.name), [])


@final
class _Instruments:
    """The instruments of a meter provider, for all apps that it observes.

    OpenTelemetry takes each instrument once. It silently drops the callbacks of a second instrument
    with the same name.
    """

    def __init__(self, meter: Meter) -> None:
        self._observed: tuple[OtelMetrics, ...] = ()
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

    def add(self, observed: OtelMetrics) -> None:
        """Observe one more app."""
        self._observed = (*self._observed, observed)

    def remove(self, observed: OtelMetrics) -> None:
        """Stop observing an app."""
        self._observed = tuple(each for each in self._observed if each is not observed)

    def _of(self, family: MetricFamily) -> Iterable[Metric]:
        """Return the metrics of all apps, one for each set of tags."""
        found = {
            tuple(sorted(metric.tags.items())): metric
            for observed in self._observed
            for metric in observed.of(family)
        }
        return found.values()

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


# The instruments made for the global provider. They move to the next global provider: a program may
# observe its app before it sets its provider, which it can do only once.
_global: list[_Instruments] = []
_by_provider: WeakKeyDictionary[MeterProvider, _Instruments] = WeakKeyDictionary()


def _instruments_of(meter_provider: MeterProvider | None) -> _Instruments:
    try:
        from opentelemetry import metrics  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "opentelemetry":
            raise
        raise ModuleNotFoundError(
            "OtelMetrics needs OpenTelemetry: pip install 'ks-actors[otel]'", name=missing.name
        ) from missing
    current = metrics.get_meter_provider()
    provider = current if meter_provider is None else meter_provider
    found = _by_provider.get(provider)
    if found is None and provider is current and _global:
        found = _global[0]
    if found is None:
        found = _Instruments(metrics.get_meter("ks_actors", meter_provider=provider))
        if provider is current:
            _global[:] = [found]
    _by_provider[provider] = found
    return found
