"""Sensors, rates and values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors.metrics import Group, Histogram, MetricKind, RecordingLevel, Registry, Timing, Window

TAGS = {"client-id": "app"}


@given(windows=st.lists(st.lists(st.floats(0, 1e6), max_size=5), min_size=1, max_size=6))
def test_a_timing_tells_of_the_last_two_windows(windows: list[list[float]]) -> None:
    """Mean, highest and lowest are of the current window and the one before; count and total are of all."""
    window = Window()
    timing = Timing(window)
    for number, added in enumerate(windows):
        window.number = number
        for value in added:
            timing.add(value)
    last = [value for added in windows[-2:] for value in added]
    every = [value for added in windows for value in added]
    if last:
        assert list(timing.spread()) == pytest.approx([sum(last) / len(last), max(last), min(last)])
    else:
        assert all(map(math.isnan, timing.spread()))
    assert [timing.count, timing.total] == pytest.approx([len(every), sum(every)])


def test_a_timing_forgets_what_is_older_than_a_silent_window() -> None:
    """After two windows without values there is nothing to tell, however long nobody looked."""
    window = Window()
    timing = Timing(window)
    timing.add(1.0)
    window.number += 2
    assert math.isnan(timing.spread().mean)


@given(st.lists(st.floats(-1, 20)))
def test_a_histogram_counts_each_value_once(values: list[float]) -> None:
    """In the first bucket that is not too small for it."""
    histogram = Histogram((1.0, 5.0, 10.0))
    for value in values:
        histogram.add(value)
    found = histogram.distribution()
    expected = [sum(low < value <= high for value in values) for low, high in ((-math.inf, 1), (1, 5), (5, 10), (10, math.inf))]
    assert (found.bounds, list(found.counts)) == ((1.0, 5.0, 10.0), expected)
    assert found.total == pytest.approx(sum(values))
    assert found.count == len(values)


class Counted:
    """A registry with one rate, and a clock that the test moves."""

    def __init__(self, level: RecordingLevel = RecordingLevel.INFO) -> None:
        self.now = 1_000.0
        self.total = 0.0
        group = Group("some-metrics", "client-id")
        self._rate = group.rate("x-rate", "Events", total="x-total")
        self._detail = group.gauge("detail", "A detail", level=RecordingLevel.DEBUG)
        self.registry = Registry(level)
        self.registry.add(lambda: [(TAGS, [(self._rate, self.total), (self._detail, 1)])])
        self.registry.start(lambda: self.now)

    def pass_by(self, seconds: int, events: float) -> None:
        """Let time pass in steps of 10 s with a note each, and events evenly."""
        for _ in range(seconds // 10):
            self.now += 10
            self.total += events * 10 / seconds
            self.registry.note()

    @property
    def rate(self) -> float:
        (found,) = self.registry.values().find("x-rate")
        assert isinstance(found.value, float)
        return found.value


def test_a_rate_is_that_of_the_last_minute() -> None:
    """From the start for as long as that is shorter; older events do not count."""
    counted = Counted()
    assert counted.rate == 0
    counted.pass_by(30, 90)
    assert counted.rate == pytest.approx(3)
    counted.pass_by(600, 600)
    assert counted.rate == pytest.approx(1)
    counted.pass_by(70, 0)
    assert counted.rate == 0


def test_a_total_that_begins_again_has_no_negative_rate() -> None:
    """A task that was closed and comes back counts from 0."""
    counted = Counted()
    counted.pass_by(60, 600)
    counted.total = 30
    assert counted.rate == pytest.approx(0.5)


def test_a_level_hides_the_metrics_above_it() -> None:
    """At INFO there is no DEBUG; at TRACE there is."""
    assert len(Counted().registry.values()) == 2
    assert {metric.name for metric in Counted(RecordingLevel.TRACE).registry.values()} == {"x-rate", "x-total", "detail"}


def test_values_are_found_by_name_and_by_some_of_their_tags() -> None:
    """`find` gives all that match, `total` their sum; a text has none."""
    group = Group("some-metrics", "task-id")
    gauge, text = group.gauge("size", "A size"), group.text("name", "A name")
    registry = Registry()
    registry.add(lambda: [({"task-id": str(number)}, [(gauge, number), (text, "x")]) for number in range(4)])
    values = registry.values()
    assert [metric.value for metric in values.find("size", {"task-id": "2"})] == [2]
    assert values.total("size", group="some-metrics") == 6
    assert values.total("size", {"task-id": "9"}, group="some-metrics") == 0
    assert values.find("size", group="others") == ()
    assert {metric.kind for metric in values} == {MetricKind.GAUGE, MetricKind.TEXT}
    with pytest.raises(TypeError, match="is a text"):
        values.total("name", group="some-metrics")
    with pytest.raises(KeyError, match="is not a metric of the instance"):
        values["size"]


def test_a_number_of_the_instance_may_be_missing() -> None:
    """`get` has a default for it, and `in` asks by name; those of the parts are none, and neither are texts."""
    whole, part = Group("ks-actors-instance-metrics", "client-id"), Group("some-metrics", "task-id")
    total, state, size = whole.gauge("total", "A total"), whole.text("state", "A state"), part.gauge("size", "A size")
    registry = Registry()
    registry.add(lambda: [({"client-id": "a"}, [(total, 0), (state, "RUNNING")]), ({"task-id": "0_0"}, [(size, 5)])])
    values = registry.values()
    assert values["total"] == values.get("total") == values.get("total", 7) == 0
    assert values.get("size") is None
    assert values.get("totl", 7.5) == 7.5
    assert values.get("state", "none") == "none"
    assert [name in values for name in ("total", "totl", "size", "state")] == [True, False, False, False]
    assert values.find("size")[0] in values
