"""Metrics: their names, their values, and the registry that reads them."""

from ks_actors.metrics._family import NOT_MEASURED as NOT_MEASURED
from ks_actors.metrics._family import Group as Group
from ks_actors.metrics._family import Instrument as Instrument
from ks_actors.metrics._family import MetricFamily
from ks_actors.metrics._metric import Distribution, Metric, MetricKind, RecordingLevel
from ks_actors.metrics._registry import NOTE_S as NOTE_S
from ks_actors.metrics._registry import MetricSource as MetricSource
from ks_actors.metrics._registry import Readings as Readings
from ks_actors.metrics._registry import Registry as Registry
from ks_actors.metrics._sensors import STILL as STILL
from ks_actors.metrics._sensors import Histogram as Histogram
from ks_actors.metrics._sensors import Spread as Spread
from ks_actors.metrics._sensors import Timing as Timing
from ks_actors.metrics._sensors import Window as Window
from ks_actors.metrics._sensors import joined as joined
from ks_actors.metrics._values import MetricValues

__all__ = [
    "Distribution",
    "Metric",
    "MetricFamily",
    "MetricKind",
    "MetricValues",
    "RecordingLevel",
]
