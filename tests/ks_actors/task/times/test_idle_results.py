"""Results of windows in a silence, record by record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import TopologyError, serdes
from ks_actors.dsl import (
    BufferConfig,
    EmitStrategy,
    GroupedStream,
    Produced,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
)
from ks_actors.testing import TopologyTestDriver
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import STRINGS
from tests.ks_actors.task.times.idle_stories import ADVANCE, GRACE, IDS, KINDS, SIZE, expected, topology, windowed_key

IDLE = 1_000
STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12_000)), min_size=1, max_size=12)


class Driven:
    """A topology of one kind of windows, driven record by record."""

    def __init__(self, driver: TopologyTestDriver, kind: str) -> None:
        self.driver: TopologyTestDriver = driver
        self._in = driver.create_input_topic("in", serdes.STRING, serdes.STRING)
        self._out = driver.create_output_topic("out", windowed_key(kind), IDS)
        self._number = 0

    def pipe(self, key: str, timestamp: int) -> None:
        self._in.pipe_input(key, str(self._number), timestamp)
        self._number += 1

    def silence(self, ms: int) -> None:
        self.driver.advance_wall_clock_time(ms)

    def results(self) -> dict[tuple[str, int, int], list[int]]:
        """Return the new results; a window has one."""
        found: dict[tuple[str, int, int], list[int]] = {}
        for record in self._out.read_records_to_list():
            assert record.key is not None
            window = (record.key.key, record.key.window.start, record.key.window.end)
            assert window not in found
            found[window] = sorted(record.value or ())
        return found

    @property
    def dropped(self) -> int:
        return self.driver.metrics()["dropped-records-total"]


@pytest.mark.parametrize("kind", KINDS)
def test_windows_close_when_all_keys_have_fallen_silent(kind: str) -> None:
    """The last windows have their results without another record (quix-streams #790); without `idle_after_ms` they wait for one."""
    rows = [("a", 10_100, 0), ("b", 10_300, 1), ("a", 10_900, 2)]
    for idle in (IDLE, None):
        with TopologyTestDriver(topology(kind, "in_memory", idle)) as driver:
            driven = Driven(driver, kind)
            for key, time, _ in rows:
                driven.pipe(key, time)
            found = driven.results()
            driven.silence(20_000)
            found |= (last := driven.results())
            assert (expected(kind, rows).items() <= found.items()) if idle else not last
            driven.silence(100_000)
            assert driven.results() == {}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(25))
@given(steps=STEPS)
def test_a_silence_closes_what_a_record_would_close(kind: str, steps: list[tuple[str, int]]) -> None:
    """All results are those that come when stream time goes on by a record of another key, in the same order."""
    found = []
    for idle in (IDLE, None):
        with TopologyTestDriver(topology(kind, "in_memory", idle)) as driver:
            driven = Driven(driver, kind)
            for key, time in steps:
                driven.pipe(key, time)
            if idle:
                driven.silence(100_000)
            else:
                driven.pipe("other", 100_000)
            # A session that has been sent takes no more records where windows close by the wall clock.
            results = driven.results()
            found.append((list(results), results, driven.dropped) if kind != "sessions" else sorted({key for key, _, _ in results}))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["tumbling", "suppress"])
def test_a_window_closes_when_its_end_and_grace_have_passed_on_the_wall_clock(kind: str) -> None:
    """Stream time goes on from the last record, for as long as the silence is; not one ms earlier."""
    with TopologyTestDriver(topology(kind, "in_memory", IDLE)) as driver:
        driven = Driven(driver, kind)
        driven.pipe("a", 10_100)
        rest = 12_000 + GRACE - 10_100
        driven.silence(rest - 1)
        assert driven.results() == {}
        driven.silence(1)
        assert driven.results() == {("a", 10_000, 12_000): [0]}


@pytest.mark.parametrize("kind", ["tumbling", "suppress"])
def test_a_short_silence_closes_nothing(kind: str) -> None:
    """Though the window would be over: records may come late by `idle_after_ms`, and each begins the wait anew."""
    with TopologyTestDriver(topology(kind, "in_memory", IDLE)) as driver:
        driven = Driven(driver, kind)
        for time in (11_800, 11_900, 11_999):
            driven.pipe("a", time)
            driven.silence(IDLE - 1)
            assert driven.results() == {}
        driven.silence(1)
        assert driven.results() == {("a", 10_000, 12_000): [0, 1, 2]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_for_a_closed_window_is_dropped_and_counted(kind: str) -> None:
    """A window has one result; a record that belongs to a later one is in time."""
    with TopologyTestDriver(topology(kind, "in_memory", IDLE)) as driver:
        driven = Driven(driver, kind)
        driven.pipe("a", 10_100)
        driven.silence(100_000)
        before = driven.results()
        driven.pipe("a", 10_000)
        assert driven.dropped > 0
        driven.pipe("a", 20_100)
        driven.silence(100_000)
        after = driven.results()
        assert not before.keys() & after.keys()
        assert expected(kind, [("a", 20_100, 2)]).items() <= after.items()


def test_stream_time_goes_no_further_than_the_last_close() -> None:
    """However long the silence was: a record of the next window is in time, with any clock that its producer has."""
    with TopologyTestDriver(topology("tumbling", "in_memory", IDLE)) as driver:
        driven = Driven(driver, "tumbling")
        driven.pipe("a", 10_100)
        driven.silence(3_600_000)
        driven.pipe("a", 12_000)
        driven.silence(3_600_000)
        assert list(driven.results()) == [("a", 10_000, 12_000), ("a", 12_000, 14_000)]
        assert driven.dropped == 0


def test_no_record_joins_a_session_that_has_been_sent() -> None:
    """One that is in time, but within the gap, begins another: no record is counted twice."""
    with TopologyTestDriver(topology("sessions", "in_memory", IDLE)) as driver:
        driven = Driven(driver, "sessions")
        driven.pipe("a", 10_000)
        driven.silence(SIZE + GRACE + 1)
        assert driven.results() == {("a", 10_000, 10_000): [0]}
        driven.pipe("a", 10_001)
        driven.pipe("a", 10_001 + SIZE)
        driven.silence(100_000)
        assert driven.results() == {("a", 10_001, 10_001 + SIZE): [1, 2]}


def test_hopping_windows_close_one_after_the_other() -> None:
    """Each at its own time, in a silence as by records."""
    with TopologyTestDriver(topology("hopping", "in_memory", IDLE)) as driver:
        driven = Driven(driver, "hopping")
        driven.pipe("a", 10_500)
        driven.silence(11_000 + GRACE - 10_500)
        assert list(driven.results()) == [("a", 9_000, 11_000)]
        driven.silence(ADVANCE)
        assert list(driven.results()) == [("a", 10_000, 12_000)]


def test_a_time_limit_forwards_the_last_changes() -> None:
    """`until_time_limit` with `idle_after_ms` holds nothing back for good, and drops nothing."""
    builder = StreamsBuilder()
    suppressed = Suppressed.until_time_limit(5_000, BufferConfig.unbounded(), idle_after_ms=IDLE)
    builder.table("in", STRINGS).suppress(suppressed).to_stream().to("out", Produced(serdes.STRING, serdes.STRING))
    with TopologyTestDriver(builder.build()) as driver:
        topic, out = driver.create_input_topic("in", serdes.STRING, serdes.STRING), driver.create_output_topic("out", serdes.STRING, serdes.STRING)
        topic.pipe_input("k", "one", 10)
        topic.pipe_input("k", "two", 20)
        driver.advance_wall_clock_time(4_989)
        assert out.is_empty
        driver.advance_wall_clock_time(1)
        assert out.read_key_values_to_list() == [("k", "two")]
        topic.pipe_input("k", "late", 5)
        driver.advance_wall_clock_time(100_000)
        assert out.read_key_values_to_list() == [("k", "late")]


def _grouped() -> GroupedStream[str, str]:
    return StreamsBuilder().stream("in", STRINGS).group_by_key()


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "5", True])
def test_a_wrong_time_is_refused_where_it_is_written(wrong: Any) -> None:
    """By emit_strategy and Suppressed, with the argument's name."""
    for windows in (TimeWindows.of_size_with_no_grace(SIZE), SessionWindows.of_inactivity_gap_with_no_grace(SIZE)):
        with pytest.raises(TopologyError, match="idle_after_ms of emit_strategy"):
            _grouped().windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE, idle_after_ms=wrong)
    with pytest.raises(TopologyError, match="idle_after_ms of Suppressed"):
        Suppressed.until_window_closes(BufferConfig.unbounded(), idle_after_ms=wrong)


def test_windows_that_wait_for_no_close_take_no_time_of_patience() -> None:
    """Neither results at every change nor unlimited windows."""
    with pytest.raises(TopologyError, match="leave out idle_after_ms, or give EmitStrategy"):
        _grouped().windowed_by(TimeWindows.of_size_with_no_grace(SIZE)).emit_strategy(EmitStrategy.ON_WINDOW_UPDATE, idle_after_ms=IDLE)
    with pytest.raises(TopologyError, match="never closes"):
        _grouped().windowed_by(UnlimitedWindows.of()).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE, idle_after_ms=IDLE)
