"""Known faults of Kafka Streams: not there by default, and there by a setting, for comparisons with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors.dsl import BufferConfig, Consumed, Grouped, Materialized, Produced, SessionWindows, SlidingWindows, StreamsBuilder, Suppressed, Table
from ks_actors.serdes import LONG, STRING
from ks_actors.serdes._windowed import SessionWindowedSerde
from ks_actors.testing import TopologyTestDriver
from tests.examples_of import examples

TEXT = Consumed(STRING, STRING)
OUT = Produced(STRING, STRING)
Step = tuple[str, str, "str | None"]


def results(build: Callable[[StreamsBuilder], None], steps: Sequence[Step], *, faults: bool = False, cache: int = 0) -> list[tuple[Any, Any]]:
    """Return the records of topic `out` for records of other topics: topic, key, value."""
    builder = StreamsBuilder()
    build(builder)
    with TopologyTestDriver(builder.build(), {"kafka_streams_faults": faults, "statestore_cache_max_bytes": cache}) as driver:
        topics = {name: driver.create_input_topic(name, STRING, STRING) for name, _, _ in steps}
        for time, (topic, key, value) in enumerate(steps):
            topics[topic].pipe_input(key, value, timestamp_ms=time)
        return driver.create_output_topic("out", STRING, STRING).read_key_values_to_list()


def twice(builder: StreamsBuilder, materialized: Materialized[Any, Any] | None = None) -> Table[Any, Any]:
    """Return `(a join b) join a`."""
    a, b = builder.table("a", TEXT), builder.table("b", TEXT)
    return a.join(b, lambda x, y: f"{x}{y}").join(a, lambda x, y: f"{x}{y}", materialized)


ROWS: tuple[Step, ...] = (("b", "k", "y"), ("a", "k", "x"), ("a", "k", None))


def test_a_row_deleted_on_both_sides_of_a_join_is_deleted_in_the_result() -> None:
    """`(a join b) join a` keeps no row that `a` has not (KAFKA-9500)."""

    def build(builder: StreamsBuilder) -> None:
        twice(builder).to_stream().to("out", OUT)

    assert results(build, ROWS)[-1] == ("k", None)
    assert results(build, ROWS, faults=True)[-1] == ("k", "xyx")


def test_a_stored_join_of_tables_with_one_origin_has_only_the_deletes_that_are_needed() -> None:
    """One for each row; its old values are those that were there, so what is computed downstream is right."""

    def build(builder: StreamsBuilder) -> None:
        twice(builder, Materialized("both", STRING, STRING)).to_stream().to("out", OUT)

    steps = (*ROWS, ("a", "k", None), ("a", "other", None))
    assert [row for row in results(build, steps) if row[1] is None] == [("k", None)]
    assert results(build, steps, faults=True) == results(build, steps[:2], faults=True)


@settings(max_examples=examples(30))
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("kl"), st.sampled_from(["1", "2", None])), max_size=20))
def test_what_is_computed_from_a_stored_join_of_tables_with_one_origin_is_right(steps: list[Step]) -> None:
    """A count of the joined rows is that of the rows that both tables have."""

    def build(builder: StreamsBuilder) -> None:
        both = twice(builder, Materialized("both", STRING, STRING))
        counts = both.group_by(lambda _, value: ("all", value), Grouped(STRING, STRING)).count()
        counts.to_stream().map_values(str).to("out", OUT)

    tables: dict[str, dict[str, str | None]] = {"a": {}, "b": {}}
    for topic, key, value in steps:
        tables[topic][key] = value
    expected = sum(tables["a"].get(key) is not None and tables["b"].get(key) is not None for key in "kl")
    found = results(build, steps)
    assert int(found[-1][1] if found else 0) == expected


def windowed(builder: StreamsBuilder, *, sessions: bool) -> None:
    grouped = builder.stream("in", TEXT).group_by_key()
    table = (
        grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(10, 5)).count()
        if sessions
        else grouped.windowed_by(SlidingWindows.of_time_difference_and_grace(10, 5)).count()
    )
    final: Table[Any, Any] = table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    final.to_stream().to("out", Produced(SessionWindowedSerde(STRING), LONG))


@pytest.mark.parametrize("sessions", [True, False])
@given(records=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=25))
@settings(max_examples=examples(40))
def test_a_window_whose_end_belongs_to_it_has_one_final_result(sessions: bool, records: list[tuple[str, int]]) -> None:
    """One final result comes also when records come at the very edge, where they are just not late."""
    assert not repeated(records, sessions=sessions, faults=False)


def repeated(records: list[tuple[str, int]], *, sessions: bool, faults: bool) -> set[str]:
    """Return the windows with more than one final result."""
    builder = StreamsBuilder()
    windowed(builder, sessions=sessions)
    with TopologyTestDriver(builder.build(), {"kafka_streams_faults": faults, "default_dsl_store": "in_memory"}) as driver:
        topic = driver.create_input_topic("in", STRING, STRING)
        for key, timestamp in (*records, ("end", 1_000)):
            topic.pipe_input(key, "v", timestamp_ms=timestamp)
        out = driver.create_output_topic("out", SessionWindowedSerde(STRING), LONG)
        found = [str(key) for key, _ in out.read_key_values_to_list()]
    return {key for key in found if found.count(key) > 1}


@pytest.mark.parametrize(("sessions", "edge"), [(True, 30), (False, 20)])
def test_kafka_streams_gives_two_final_results_at_the_very_edge(sessions: bool, edge: int) -> None:
    """By the setting: the window is sent while records are still taken for it."""
    records = [("a", 15), ("b", edge), ("a", 15), ("a", 15)]
    assert not repeated(records, sessions=sessions, faults=False)
    assert repeated(records, sessions=sessions, faults=True)
