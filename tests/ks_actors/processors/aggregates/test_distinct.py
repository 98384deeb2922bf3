"""Streams without duplicates, record by record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import TopologyError, serdes
from ks_actors.dsl import Consumed, Produced, StreamsBuilder
from ks_actors.testing import TopologyTestDriver
from tests.examples_of import examples

TEXT = Consumed(serdes.STRING, serdes.STRING)
WITHIN = 100
Row = tuple[str | None, str, int]
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["x1", "x2", "y1", "-"]), st.integers(0, 600)), max_size=20)


def _part(value: str) -> str | None:
    return None if value == "-" else value[0]


def distinct(rows: list[Row], *, by: bool, grace: int | None) -> tuple[list[Row], int]:
    """Return what is forwarded, and how many are dropped."""
    builder = StreamsBuilder()
    more: dict[str, Any] = {"by": _part, "by_serde": serdes.STRING} if by else {}
    builder.stream("in", TEXT).distinct(WITHIN, grace_ms=grace, store_type="in_memory", **more).to("out", Produced(serdes.STRING, serdes.STRING))
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", serdes.STRING, serdes.STRING)
        for key, value, time in rows:
            topic.pipe_input(key, value, time)
        found = driver.create_output_topic("out", serdes.STRING, serdes.STRING).read_records_to_list()
        return [(one.key, str(one.value), one.timestamp) for one in found], driver.metrics()["dropped-records-total"]


@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize("grace", [None, 0, 30, 1_000])
@settings(max_examples=examples(20))
@given(rows=ROWS)
def test_the_first_of_records_that_are_the_same_goes_on(by: bool, grace: int | None, rows: list[Row]) -> None:
    """One with the same key and part, no further than `within_ms` from a forwarded one, does not; late ones are dropped and counted."""
    now, kept, dropped = -1, list[Row](), 0
    for key, value, time in rows:
        if key is None or (by and _part(value) is None):
            dropped += 1
            continue
        now = max(now, time)
        if time < now - (WITHIN if grace is None else grace):
            dropped += 1
        elif not any(key == other[0] and abs(time - other[2]) <= WITHIN and (not by or _part(value) == _part(other[1])) for other in kept):
            kept.append((key, value, time))
    assert distinct(rows, by=by, grace=grace) == (kept, dropped)


def test_a_duplicate_does_not_lengthen_the_time() -> None:
    """It is measured from the record that was forwarded."""
    assert distinct([("a", "x1", 0), ("a", "x1", 60), ("a", "x1", 101)], by=False, grace=None) == ([("a", "x1", 0), ("a", "x1", 101)], 0)


def test_records_that_one_record_is_made_into_are_compared_too() -> None:
    """All of them have its place in the log."""
    builder = StreamsBuilder()
    builder.stream("in", TEXT).flat_map_values(lambda value: value.split()).distinct(
        WITHIN, by=lambda word: word, by_serde=serdes.STRING, name="words"
    ).to("out", Produced(serdes.STRING, serdes.STRING))
    topology = builder.build()
    assert "words-store" in topology.stores
    with TopologyTestDriver(topology) as driver:
        topic = driver.create_input_topic("in", serdes.STRING, serdes.STRING)
        topic.pipe_input("k", "to be or not to be", 10)
        topic.pipe_input("k", "be it", 20)
        out = driver.create_output_topic("out", serdes.STRING, serdes.STRING)
        assert [value for _, value in out.read_key_values_to_list()] == ["to", "be", "or", "not", "it"]


def test_a_stream_with_new_keys_is_repartitioned_first() -> None:
    """Records that are the same have to come to one task."""
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT).select_key(lambda _, value: value)
    stream.distinct(WITHIN, key=serdes.STRING, name="once").to("out", Produced(serdes.STRING, serdes.STRING))
    topology = builder.build()
    assert "once-repartition" in topology.internal_topics


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"within_ms": -1}, "within_ms of distinct .* is -1"),
        ({"within_ms": "5"}, "within_ms of distinct"),
        ({"within_ms": 5, "grace_ms": 1.5}, "grace_ms of distinct"),
        ({"within_ms": 5, "by": lambda value: value}, "needs both or neither"),
        ({"within_ms": 5, "by_serde": serdes.STRING}, "needs both or neither"),
        ({"within_ms": 5, "by": lambda: 1, "by_serde": serdes.STRING}, "by"),
        ({"within_ms": 5, "by_serde": "text"}, "by_serde"),
        ({"within_ms": 5, "store_type": "disk"}, "store_type"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_written(wrong: dict[str, Any], text: str) -> None:
    """The error names the argument."""
    with pytest.raises(TopologyError, match=text):
        StreamsBuilder().stream("in", TEXT).distinct(**wrong)
