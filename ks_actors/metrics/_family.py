"""Families: names of metrics with groups, tags and levels; readings give their values."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any, Protocol, final

import msgspec

from ks_actors.metrics._metric import Metric, MetricKind, RecordingLevel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.metrics._rates import Rates


class MetricFamily(msgspec.Struct, frozen=True):
    """The name, group and tag names of a metric, without its values.

    `description` names the unit, if there is one.
    """

    name: str
    group: str
    tags: tuple[str, ...]
    kind: MetricKind
    level: RecordingLevel
    description: str


class Instrument(Protocol):
    """One or several families, whose values come from one reading."""

    @property
    def families(self) -> tuple[MetricFamily, ...]:
        """The families."""
        ...

    @property
    def level(self) -> RecordingLevel:
        """The lowest recording level at which there are values."""
        ...

    def values(self, reading: Any, tags: Mapping[str, str], rates: Rates) -> list[Metric]:
        """Return the values of a reading."""
        ...


class _Single:
    """An instrument of one family."""

    def __init__(self, family: MetricFamily) -> None:
        self.families: tuple[MetricFamily, ...] = (family,)
        self.level: RecordingLevel = family.level
        self._name = family.name
        self._group = family.group
        self._kind = family.kind
        self._text = family.description

    def values(
        self,
        reading: Any,
        tags: Mapping[str, str],
        rates: Rates,  # noqa: ARG002 - of the protocol
    ) -> list[Metric]:
        """Return the reading as it is."""
        return [Metric(self._name, self._group, tags, reading, self._kind, self._text)]


@final
class Rate:
    """A rate per second over the last minute, from readings of a total.

    The total is a metric of its own only if its family is given. For a total of seconds, the rate
    is a ratio: the share of time.
    """

    def __init__(self, rate: MetricFamily, total: MetricFamily | None) -> None:
        self.families: tuple[MetricFamily, ...] = (rate,) if total is None else (rate, total)
        self.level: RecordingLevel = rate.level
        self._rate = rate
        self._total = total

    def values(self, reading: float, tags: Mapping[str, str], rates: Rates) -> list[Metric]:
        """Return the rate, and the total if it has a name."""
        rate, total = self._rate, self._total
        # Keyed by the instrument itself: families of one name may differ in their tags.
        per_second = rates.per_second(self, tags, reading)
        found = [_metric(rate, tags, per_second)]
        if total is not None:
            found.append(_metric(total, tags, reading))
        return found


@final
class Spreads:
    """Mean, highest and perhaps lowest value, read as a `Spread` in the unit of the families."""

    def __init__(self, mean: MetricFamily, most: MetricFamily, least: MetricFamily | None) -> None:
        self.families: tuple[MetricFamily, ...] = (
            (mean, most) if least is None else (mean, most, least)
        )
        self.level: RecordingLevel = mean.level

    def values(
        self,
        reading: tuple[float, float, float],
        tags: Mapping[str, str],
        rates: Rates,  # noqa: ARG002 - of the protocol
    ) -> list[Metric]:
        """Return the parts of the spread."""
        return [
            _metric(family, tags, value)
            # If there is no family for the lowest value, that part of the reading is left out.
            for family, value in zip(self.families, reading, strict=False)
        ]


def _metric(family: MetricFamily, tags: Mapping[str, str], value: float) -> Metric:
    return Metric(family.name, family.group, tags, value, family.kind, family.description)


@final
class Group:
    """The families of one group, which share their tags."""

    def __init__(self, name: str, *tags: str, level: RecordingLevel = RecordingLevel.INFO) -> None:
        self.name: str = name
        self.tags: tuple[str, ...] = tags
        self.families: list[MetricFamily] = []
        self._level = level

    def gauge(
        self,
        name: str,
        text: str,
        *,
        level: RecordingLevel | None = None,
        tags: tuple[str, ...] | None = None,
    ) -> Instrument:
        """Add a gauge; `tags`, if given, replace those of the group."""
        return _Single(self._add(name, MetricKind.GAUGE, text, level, tags))

    def text(self, name: str, text: str) -> Instrument:
        """Add a text."""
        return _Single(self._add(name, MetricKind.TEXT, text, None))

    def counter(self, name: str, text: str, *, level: RecordingLevel | None = None) -> Instrument:
        """Add a counter without a rate."""
        return _Single(self._add(name, MetricKind.COUNTER, text, level))

    def histogram(self, name: str, text: str) -> Instrument:
        """Add a histogram."""
        return _Single(self._add(name, MetricKind.HISTOGRAM, text, None))

    def rate(
        self,
        name: str,
        text: str,
        *,
        total: str | None = None,
        level: RecordingLevel | None = None,
    ) -> Rate:
        """Add a rate, and the counter `total` from which it is computed, with the same `text`."""
        rate = self._add(name, MetricKind.GAUGE, f"{text}, per second over the last minute", level)
        return Rate(
            rate,
            None if total is None else self._add(total, MetricKind.COUNTER, text, level),
        )

    def ratio(self, name: str, text: str, *, level: RecordingLevel | None = None) -> Rate:
        """Add a total of seconds as its share of the last minute."""
        return Rate(self._add(name, MetricKind.GAUGE, text, level), None)

    def spread(
        self,
        name: str,
        text: str,
        *,
        least: bool = False,
        level: RecordingLevel | None = None,
        tags: tuple[str, ...] | None = None,
    ) -> Spreads:
        """Add `name` with `-avg`, `-max` and perhaps `-min`."""
        made = [
            self._add(f"{name}-{end}", MetricKind.GAUGE, f"{text}: {which}", level, tags)
            for end, which in (
                ("avg", "the mean of the last minute"),
                ("max", "the highest of the last minute"),
                *((("min", "the lowest of the last minute"),) if least else ()),
            )
        ]
        return Spreads(made[0], made[1], made[2] if least else None)

    def _add(
        self,
        name: str,
        kind: MetricKind,
        text: str,
        level: RecordingLevel | None,
        tags: tuple[str, ...] | None = None,
    ) -> MetricFamily:
        family = MetricFamily(
            name,
            self.name,
            self.tags if tags is None else tags,
            kind,
            self._level if level is None else level,
            text,
        )
        self.families.append(family)
        return family


NOT_MEASURED = nan
"""The value of a gauge that has measured nothing yet."""
