"""Measurements of a task's records: their number, size and age, at the end of a slice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ks_actors.metrics import Histogram, Timing
from ks_actors.records import EncodedBatch, mean_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.history import EdgeTaps
    from ks_actors.log import Outgoing
    from ks_actors.metrics import Window
    from ks_actors.records import Batch
    from ks_actors.task.figures._emissions import Emitted

AGE_BOUNDS_MS: Final = (
    *(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0),
    *(1_000.0, 2_000.0, 5_000.0, 10_000.0, 30_000.0, 60_000.0, 300_000.0, 3_600_000.0),
)
"""The bounds of the histograms of ages, in ms."""


def estimated_bytes(batch: Batch) -> float:
    """Return the approximate bytes of keys and values, from a sample of the records."""
    return mean_bytes(batch) * len(batch)


def _last(batch: Batch) -> tuple[int, float]:
    """Return the timestamp (ms) and the bytes of a batch's last record.

    Of an encoded batch return the highest timestamp and the mean, without decoding it.
    """
    if isinstance(batch, EncodedBatch):
        return batch.latest, mean_bytes(batch)
    return batch.timestamps[-1], len(batch.keys[-1] or b"") + len(batch.values[-1] or b"")


@final
class SinkFigures:
    """The output of one task to one topic: records, approximate bytes, and ages in ms."""

    __slots__ = ("ages", "all_ages", "bytes", "node", "records")

    def __init__(self, node: str, window: Window, all_ages: Histogram) -> None:
        self.node: str = node
        self.records: int = 0
        self.bytes: float = 0.0
        self.ages: Timing = Timing(window)
        self.all_ages: Histogram = all_ages


@final
class SinksFigures:
    """The output of one task by topic; `nodes` are the sinks of the topics.

    `ages` has the histograms of all tasks by topic. Output that no sink has written, such as dead
    letters, is not measured. `emissions` counts, by node, the results that nodes hold back.
    """

    def __init__(
        self, nodes: Mapping[str, str], ages: dict[str, Histogram], window: Window
    ) -> None:
        self.topics: dict[str, SinkFigures] = {}
        self.emissions: dict[str, Emitted] = {}
        self._nodes = nodes
        self._ages = ages
        self._window = window
        self._taps: EdgeTaps | None = None

    def sample(self, taps: EdgeTaps | None) -> None:
        """Offer the output to `taps` from now on, or with None no more."""
        self._taps = taps

    def note(self, output: Sequence[Outgoing], now_ms: int) -> None:
        """Note the output of a slice; measure size and age on a topic's last records."""
        topic, size, found = "", 0.0, None
        if self._taps is not None:
            self._taps.output(output, self._nodes)
        for outgoing in output:
            batch = outgoing.batch
            if outgoing.partition.topic != topic:
                topic = outgoing.partition.topic
                found = self.topics.get(topic) or self._begin(topic)
                if found is not None:
                    time, size = _last(batch)
                    age = max(0, now_ms - time)
                    found.ages.add(age)
                    found.all_ages.add(age)
            if found is not None:
                count = len(batch)
                found.records += count
                found.bytes += count * size

    def _begin(self, topic: str) -> SinkFigures | None:
        if (node := self._nodes.get(topic)) is None:
            return None
        if (ages := self._ages.get(topic)) is None:
            ages = self._ages[topic] = Histogram(AGE_BOUNDS_MS)
        found = self.topics[topic] = SinkFigures(node, self._window, ages)
        return found
