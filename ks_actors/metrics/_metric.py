"""The value of a metric, with its name and tags."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum

import msgspec


class MetricKind(Enum):
    """The kind of a metric's value."""

    GAUGE = "gauge"
    """A number that goes up and down; NaN while nothing was measured, as in Kafka."""
    COUNTER = "counter"
    """A number that only grows, and begins at 0 with the thing that is counted."""
    TEXT = "text"
    """A text."""
    HISTOGRAM = "histogram"
    """A `Distribution`."""


class RecordingLevel(IntEnum):
    """The level of a metric, as in `metrics_recording_level`; each includes the lower levels."""

    INFO = 0
    DEBUG = 1
    TRACE = 2


class Distribution(msgspec.Struct, frozen=True):
    """The number of measured values by size.

    `counts` has the number of values in each interval between `bounds`, upper bounds included; its
    last entry counts the values above all bounds. `total` is the sum of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        """The number of all values."""
        return sum(self.counts)


class Metric(msgspec.Struct, frozen=True, gc=False):
    """One value of a metric, for one task, node or partition, as its tags say.

    If Kafka Streams has the metric, its name, group and tags are the same. `tags` have no order.
    """

    name: str
    group: str
    tags: Mapping[str, str]
    value: float | str | Distribution
    kind: MetricKind
    description: str
