"""An optimized topology gives the same results, through fewer topics."""

from __future__ import annotations

from typing import Any

import pytest

from ks_actors import StreamsConfig, serdes
from ks_actors.dsl import Consumed, Grouped, Joined, JoinWindows, Materialized, Produced, Stream, StreamJoined, StreamsBuilder
from ks_actors.testing import TopologyTestDriver

TEXT = serdes.STRING
STRINGS, OUT, COUNTS = Consumed(TEXT, TEXT), Produced(TEXT, TEXT), Produced(TEXT, serdes.LONG)


def rekeyed(key: Any, value: Any) -> tuple[Any, Any]:
    return value[:1], f"{key}{value}"


def build(optimization: str) -> Any:
    """Several operations behind one change of keys, and behind a merge of two."""
    builder = StreamsBuilder()
    stream: Stream[Any, Any] = builder.stream("in", STRINGS).map(rekeyed)
    kept: Stream[Any, Any] = stream.filter(lambda _, value: not value.endswith("-"))
    kept.group_by_key(Grouped(TEXT, TEXT)).count(Materialized("counts", TEXT, serdes.LONG)).to_stream().to("counts", COUNTS)
    kept.group_by_key(Grouped(TEXT, TEXT)).reduce(lambda one, other: f"{one}{other}").to_stream().to("all", OUT)
    stream.map_values(len).group_by_key(Grouped(TEXT, serdes.INTEGER)).count(Materialized("lengths", TEXT, serdes.LONG)).to_stream().to(
        "longs", COUNTS
    )
    table = builder.table("table", STRINGS)
    stream.left_join(table, lambda value, row: f"{value}={row}", Joined(TEXT, TEXT)).to("joined", OUT)
    both = stream.merge(builder.stream("other", STRINGS).select_key(lambda _, value: value[:1]))
    both.group_by_key(Grouped(TEXT, TEXT)).count(Materialized("both", TEXT, serdes.LONG)).to_stream().to("both", COUNTS)
    windows = JoinWindows.of_time_difference_with_no_grace(3)
    both.join(both, lambda one, other: f"{one}+{other}", windows, StreamJoined(TEXT, TEXT, TEXT)).to("pairs", OUT)
    return builder.build(StreamsConfig(application_id="app", topology_optimization=optimization))


def results(optimization: str) -> dict[str, list[Any]]:
    topology = build(optimization)
    with TopologyTestDriver(topology) as driver:
        for number in range(60):
            topic = ("in", "table", "other")[number % 7 % 3]
            key, value = f"k{number % 5}", "abc"[number % 3] + ("-" if number % 4 == 0 else "+")
            driver.create_input_topic(topic, TEXT, TEXT).pipe_input(value[:1] if topic == "table" else key, value, timestamp_ms=number)
        found: dict[str, list[Any]] = {}
        for topic in ("counts", "all", "longs", "joined", "both", "pairs"):
            serde: Any = TEXT if topic in {"all", "joined", "pairs"} else serdes.LONG
            output: Any = driver.create_output_topic(topic, TEXT, serde)
            found[topic] = [(record.key, record.value, record.timestamp) for record in output.read_records_to_list()]
        return found


@pytest.mark.parametrize("optimization", ["all", "merge.repartition.topics", "single.store.self.join", "reuse.ktable.source.topics"])
def test_results_are_the_same(optimization: str) -> None:
    """Record by record; one task here sees the records in the order in which they were written."""
    assert results(optimization) == results("none")


def test_there_are_fewer_topics() -> None:
    """One repartition topic stands for all behind a change of keys, one store for both sides of a self-join."""
    plain, optimized = build("none"), build("all")
    assert len(plain.internal_topics) - len(optimized.internal_topics) >= 2
    assert len(plain.stores) - len(optimized.stores) == 1
    assert [spec.source_topic for spec in optimized.stores.values() if spec.source_topic] == ["table"]
    assert optimized.optimizations is not None
    assert len(optimized.optimizations) == 3


@pytest.mark.parametrize("source", [STRINGS, None])
@pytest.mark.parametrize("left", [False, True])
def test_a_join_with_a_global_table_stays_before_its_topic(left: bool, source: Any) -> None:
    """The repartition behind it is of the joiner's result, with a serde for that: it cannot move to where values are not joined yet."""
    builder = StreamsBuilder()
    table = builder.global_table("table", STRINGS)
    stream: Stream[Any, Any] = builder.stream("in", source).select_key(lambda _, value: value[:1])
    join: Any = stream.left_join if left else stream.join
    joined: Stream[Any, Any] = join(table, lambda key, _: key, lambda value, row: len(value) + len(row or ""))
    grouped = joined.group_by_key(Grouped(TEXT, serdes.LONG))
    grouped.reduce(lambda one, other: one + other, Materialized("sums", TEXT, serdes.LONG)).to_stream().to("out", COUNTS)
    config = StreamsConfig(application_id="app", topology_optimization="all", default_key_serde=TEXT, default_value_serde=TEXT)
    with TopologyTestDriver(builder.build(config), config) as driver:
        driver.create_input_topic("table", TEXT, TEXT).pipe_input("a", "row")
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "abcd")
        assert driver.create_output_topic("out", TEXT, serdes.LONG).read_key_values_to_list() == [("a", 7)]
