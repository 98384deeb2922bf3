"""The registry: it reads the parts of an app when asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from ks_actors.metrics._family import Rate
from ks_actors.metrics._metric import RecordingLevel
from ks_actors.metrics._rates import Rates
from ks_actors.metrics._sensors import Window
from ks_actors.metrics._values import MetricValues

if TYPE_CHECKING:
    from ks_actors.metrics._family import Instrument
    from ks_actors.metrics._metric import Metric

Readings: TypeAlias = "tuple[Mapping[str, str], Iterable[tuple[Instrument, Any]]]"
"""The readings of one thing, with the thing's tags in the order of its group."""
MetricSource: TypeAlias = Callable[[], Iterable[Readings]]
"""A function that reads things as they are now; called on the event loop."""

NOTE_S: Final = 10.0
"""The time between two samples of all totals, in seconds."""
_NOTES_PER_WINDOW: Final = 3


@final
class Registry:
    """All metrics of an app: sources of readings, and the totals that rates need.

    Values are made on request. Until then metrics cost only their sensors, and one round of
    readings every `NOTE_S` seconds.
    """

    def __init__(self, level: RecordingLevel = RecordingLevel.INFO) -> None:
        self.level: RecordingLevel = level
        self.window: Window = Window()
        # The clock stands still until the app starts: test drivers have none.
        self._rates = Rates(float)
        self._sources: list[MetricSource] = []
        self._notes: int = 0
        self._reads: int = 0
        self._reads_noted: int = 0
        self._reads_before: int = 0

    @property
    def was_read(self) -> bool:
        """Whether the values were read in the last minute."""
        return self._reads > self._reads_before

    def start(self, clock: Callable[[], float]) -> None:
        """Start the time, by a monotonic clock in seconds; until then rates are 0."""
        self._rates = Rates(clock)

    def add(self, source: MetricSource) -> None:
        """Add a source."""
        self._sources.append(source)

    def values(self) -> MetricValues:
        """Return all values of this moment, of the registry's level."""
        rates, most = self._rates, self.level
        self._reads += 1
        found: list[Metric] = []
        for tags, readings in self._readings():
            for instrument, reading in readings:
                if instrument.level <= most:
                    found += instrument.values(reading, tags, rates)
        return MetricValues(found)

    def note(self) -> None:
        """Sample the totals for rates, and advance the window; call it every `NOTE_S` seconds."""
        self._rates.note(
            {
                (instrument, tuple(tags.values())): reading
                for tags, readings in self._readings()
                for instrument, reading in readings
                if isinstance(instrument, Rate)
            }
        )
        if self._notes % _NOTES_PER_WINDOW == 0:
            self._reads_before = self._reads_noted
            self._reads_noted = self._reads
        self._notes += 1
        # Windows are longer than the sampling interval: a mean of 10 s would miss most rare values.
        if self._notes % _NOTES_PER_WINDOW == 0:
            self.window.number += 1

    def _readings(self) -> Iterable[Readings]:
        for source in self._sources:
            yield from source()
