"""Joiners that see the key of a join, or both keys (KIP-1340)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import serdes
from ks_actors.dsl import Consumed, JoinWindows, Materialized, Produced, Stream, StreamsBuilder, Table
from ks_actors.testing import TopologyTestDriver
from tests.examples_of import examples

JSON: Any = serdes.json(list[Any])
TEXT = Consumed(serdes.STRING, serdes.STRING)
MEETING = JoinWindows.of_time_difference_and_grace(10, 10)
RECORDS = st.lists(
    st.tuples(st.sampled_from(["left", "right"]), st.sampled_from(["a", "b", "c"]), st.sampled_from(["a", "b", "", None]), st.integers(0, 40)),
    max_size=15,
)


def first(value: str) -> str | None:
    """Return the other key of a value, if it has one."""
    return value[:1] or None


def mapped(_: str, value: str | None) -> str | None:
    return first(value or "")


def left(b: StreamsBuilder) -> Table[str, str]:
    return b.table("left", TEXT)


def right(b: StreamsBuilder) -> Table[str, str]:
    return b.table("right", TEXT)


def stream(b: StreamsBuilder, name: str = "left") -> Stream[str, str]:
    return b.stream(name, TEXT)


# Kinds of joins, made by a joiner.
JOINS: dict[str, Callable[[StreamsBuilder, Any], Any]] = {
    "streams, inner": lambda b, f: stream(b).join(stream(b, "right"), f, MEETING),
    "streams, left": lambda b, f: stream(b).left_join(stream(b, "right"), f, MEETING),
    "streams, outer": lambda b, f: stream(b).outer_join(stream(b, "right"), f, MEETING),
    "streams, as of": lambda b, f: stream(b).left_join_asof(stream(b, "right"), f, 10),
    "stream and table": lambda b, f: stream(b).join(right(b), f),
    "stream and table, left": lambda b, f: stream(b).left_join(right(b), f),
    "tables, inner": lambda b, f: left(b).join(right(b), f),
    "tables, left": lambda b, f: left(b).left_join(right(b), f),
    "tables, outer": lambda b, f: left(b).outer_join(right(b), f),
    "tables, kept": lambda b, f: left(b).outer_join(right(b), f, Materialized("kept", value=JSON)),
    "global table": lambda b, f: stream(b).join(b.global_table("right", TEXT), mapped, f),
    "global table, left": lambda b, f: stream(b).left_join(b.global_table("right", TEXT), mapped, f),
    "foreign key": lambda b, f: left(b).join(right(b), f, foreign_key=first),
    "foreign key of both": lambda b, f: left(b).join(right(b), f, foreign_key=mapped),
    "foreign key, left": lambda b, f: left(b).left_join(right(b), f, foreign_key=first),
}
BOTH_KEYS = [kind for kind in JOINS if kind.startswith(("global", "foreign"))]


def pair(one: Any, two: Any) -> Any:
    return [one, two]


def with_key(key: Any, one: Any, two: Any) -> Any:
    return [key, one, two]


def with_keys(key: Any, other: Any, one: Any, two: Any) -> Any:
    return [key, other, one, two]


def outcome(kind: str, joiner: Any, records: list[tuple[str, str, str | None, int]]) -> list[tuple[Any, Any]]:
    builder = StreamsBuilder()
    made = JOINS[kind](builder, joiner)
    (made if hasattr(made, "map_values") and not hasattr(made, "to_stream") else made.to_stream()).to("out", Produced(serdes.STRING, JSON))
    with TopologyTestDriver(builder.build()) as driver:
        topics = {name: driver.create_input_topic(name, serdes.STRING, serdes.STRING) for name in ("left", "right")}
        out = driver.create_output_topic("out", serdes.STRING, JSON)
        for topic, key, value, time in records:
            topics[topic].pipe_input(key, value, time)
        return out.read_key_values_to_list()


@pytest.mark.parametrize("kind", JOINS)
@settings(max_examples=examples(15))
@given(RECORDS)
def test_a_joiner_may_take_the_key(kind: str, records: list[tuple[str, str, str | None, int]]) -> None:
    """It gets the key of the result before the values; results come as without it."""
    plain = outcome(kind, pair, records)
    assert outcome(kind, with_key, records) == [(key, value and [key, *value]) for key, value in plain]


@pytest.mark.parametrize("kind", BOTH_KEYS)
@settings(max_examples=examples(15))
@given(RECORDS)
def test_a_joiner_may_take_both_keys(kind: str, records: list[tuple[str, str, str | None, int]]) -> None:
    """The record's own one, then the one that it was joined by: of a global table, or a foreign one."""
    plain = outcome(kind, pair, records)
    assert outcome(kind, with_keys, records) == [(key, value and [key, mapped(key, value[0]), *value]) for key, value in plain]


def test_a_view_of_joined_tables_calls_the_joiner_with_the_key() -> None:
    """A stream that is joined with a join that nobody stores finds its rows."""
    builder = StreamsBuilder()
    joined = left(builder).outer_join(right(builder), with_key)
    builder.stream("in", TEXT).join(joined, with_key).to("out", Produced(serdes.STRING, JSON))
    with TopologyTestDriver(builder.build()) as driver:
        for topic, value in (("left", "1"), ("right", "2"), ("in", "3")):
            driver.create_input_topic(topic, serdes.STRING, serdes.STRING).pipe_input("k", value, 5)
        assert driver.create_output_topic("out", serdes.STRING, JSON).read_key_values_to_list() == [("k", ["k", "3", ["k", "1", "2"]])]
