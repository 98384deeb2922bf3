"""A name in the place of a Materialized names the store."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import ks_actors
from ks_actors import Consumed, Grouped, Materialized, SessionWindows, SlidingWindows, StreamsBuilder, Table, TimeWindows, TopologyError
from ks_actors.serdes import LONG, STRING
from ks_actors.testing import TopologyTestDriver

BOTH = Consumed(STRING, STRING)
DEFAULTS: dict[str, Any] = {"default_key_serde": STRING, "default_value_serde": STRING}


def same(value: Any) -> Any:
    return value


def two(left: Any, right: Any) -> Any:
    return left


def three(key: Any, value: Any, aggregate: Any) -> Any:
    return aggregate


class Keeps(ks_actors.ValueTransformer[str, str, str]):
    def transform(self, key: str, value: str | None) -> str | None:
        return value


def table(builder: StreamsBuilder, topic: str = "in") -> Table[str, str]:
    return builder.table(topic, BOTH)


WINDOWS = (TimeWindows.of_size_with_no_grace(5), SlidingWindows.of_time_difference_with_no_grace(5))
GAP = SessionWindows.of_inactivity_gap_with_no_grace(5)


def grouped(builder: StreamsBuilder) -> Any:
    return builder.stream("in", BOTH).group_by_key()


CALLS: dict[str, Callable[[StreamsBuilder, Any], Any]] = {
    "StreamsBuilder.table": lambda b, m: b.table("in", BOTH, m),
    "StreamsBuilder.global_table": lambda b, m: (b.table("in", BOTH), b.global_table("all", BOTH, m)),
    "Stream.to_table": lambda b, m: b.stream("in", BOTH).to_table(m),
    "GroupedStream.count": lambda b, m: grouped(b).count(m),
    "GroupedStream.reduce": lambda b, m: grouped(b).reduce(two, m),
    "GroupedStream.aggregate": lambda b, m: grouped(b).aggregate(str, three, m),
    "GroupedTable.count": lambda b, m: table(b).group_by(lambda k, v: (k, v), Grouped(STRING, STRING)).count(m),
    "GroupedTable.reduce": lambda b, m: table(b).group_by(lambda k, v: (k, v), Grouped(STRING, STRING)).reduce(two, two, m),
    "GroupedTable.aggregate": lambda b, m: table(b).group_by(lambda k, v: (k, v), Grouped(STRING, STRING)).aggregate(str, three, three, m),
    "TimeWindowedStream.count": lambda b, m: grouped(b).windowed_by(WINDOWS[0]).count(m),
    "TimeWindowedStream.reduce": lambda b, m: grouped(b).windowed_by(WINDOWS[1]).reduce(two, m),
    "TimeWindowedStream.aggregate": lambda b, m: grouped(b).windowed_by(WINDOWS[0]).aggregate(str, three, m),
    "SessionWindowedStream.count": lambda b, m: grouped(b).windowed_by(GAP).count(m),
    "SessionWindowedStream.reduce": lambda b, m: grouped(b).windowed_by(GAP).reduce(two, m),
    "SessionWindowedStream.aggregate": lambda b, m: grouped(b).windowed_by(GAP).aggregate(str, three, three, m),
    "CogroupedStream.aggregate": lambda b, m: grouped(b).cogroup(three).aggregate(str, m),
    "TimeWindowedCogroupedStream.aggregate": lambda b, m: grouped(b).cogroup(three).windowed_by(WINDOWS[0]).aggregate(str, m),
    "SessionWindowedCogroupedStream.aggregate": lambda b, m: grouped(b).cogroup(three).windowed_by(GAP).aggregate(str, three, m),
    "Table.filter": lambda b, m: table(b).filter(two, m),
    "Table.filter_not": lambda b, m: table(b).filter_not(two, m),
    "Table.map_values": lambda b, m: table(b).map_values(same, m),
    "Table.transform_values": lambda b, m: table(b).transform_values(Keeps, materialized=m),
    "Table.join": lambda b, m: table(b).join(table(b, "other"), two, m),
    "Table.left_join": lambda b, m: table(b).left_join(table(b, "other"), two, materialized=m, foreign_key=same),
    "Table.outer_join": lambda b, m: table(b).outer_join(table(b, "other"), two, m),
}


def test_each_operation_with_a_store_is_here() -> None:
    """All operations that take a Materialized take a name."""
    found = {
        f"{name}.{member}"
        for name in ks_actors.__all__
        if isinstance(kind := getattr(ks_actors, name), type)
        for member, function in inspect.getmembers(kind, inspect.isfunction)
        if member[0] != "_" and "materialized" in inspect.signature(function).parameters
    }
    assert found == CALLS.keys()


@pytest.mark.parametrize("call", CALLS)
def test_a_name_stands_for_a_materialized_with_this_name(call: str) -> None:
    """The topologies are the same, and the store has the name."""

    def shown(materialized: Any) -> str:
        builder = StreamsBuilder()
        CALLS[call](builder, materialized)
        topology = builder.build()
        assert "kept" in {**topology.stores, **topology.global_stores}
        return str(topology.describe())

    assert shown("kept") == shown(Materialized("kept"))


def test_a_store_with_a_name_is_queried_by_it() -> None:
    """With the serdes of the stream."""
    builder = StreamsBuilder()
    builder.stream("in", BOTH).group_by_key().count("counts").to_stream().to("out")
    with TopologyTestDriver(builder, **DEFAULTS) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("a", "x")
        assert driver.get_key_value_store("counts").get("a") == 1
        assert driver.create_output_topic("out", STRING, LONG).read_value() == 1


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_name_is_refused(call: str) -> None:
    """As that of a Materialized is."""
    with pytest.raises(TopologyError, match="not a / name"):
        CALLS[call](StreamsBuilder(), "not a / name")
