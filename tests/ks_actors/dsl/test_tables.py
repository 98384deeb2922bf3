"""The DSL of tables and aggregations: its topologies, beyond the graphs that are compared with Kafka Streams' own."""

from __future__ import annotations

from typing import Any

import pytest

from ks_actors._errors import TopologyError
from ks_actors.dsl import (
    Consumed,
    EmitStrategy,
    Grouped,
    Joined,
    Materialized,
    Produced,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Table,
    TimeWindows,
    UnlimitedWindows,
)
from ks_actors.dsl._windowed import TimeWindowedStream
from ks_actors.processors import ValueTransformer
from ks_actors.processors.tables._change_serde import ChangeSerde
from ks_actors.processors.tables._tables import TableFilter, TableMapValues, TableSource
from ks_actors.serdes import LONG, STRING
from ks_actors.topology import ProcessorNode, SinkNode, SourceNode, StoreKind, Topology
from ks_actors.topology import stores as state_stores

TEXT = Consumed(STRING, STRING)
LAST_INSTANT = 2**63 - 1


def operator(topology: Topology, prefix: str) -> Any:
    (found,) = [node.operator for name, node in topology.nodes.items() if name.startswith(prefix) and isinstance(node, ProcessorNode)]
    return found


def table(builder: StreamsBuilder, name: str | None = None) -> Table[str, str]:
    return builder.table("in", TEXT, None if name is None else Materialized(name))


def windows(spec: TimeWindows | UnlimitedWindows) -> TimeWindowedStream[str, str]:
    return StreamsBuilder().stream("in", TEXT).group_by_key().windowed_by(spec)


# ---- when a table is stored, and when it sends old values


def test_a_table_that_nobody_asks_for_rows_is_not_stored() -> None:
    """It is a stream of changes then."""
    builder = StreamsBuilder()
    source = table(builder)
    source.map_values(len).to_stream().to("out")
    topology = builder.build()
    assert dict(topology.stores) == {}
    assert source.queryable_store_name is None
    assert operator(topology, "KTABLE-SOURCE") == TableSource()


def test_later_operations_decide_that_a_table_is_stored() -> None:
    """Grouping needs old values, and these come from a store at the source; nodes in between compute."""
    builder = StreamsBuilder()
    source = table(builder)
    source.map_values(lambda value: value + "!").group_by(lambda key, value: (value, key)).count()
    topology = builder.build()
    assert [store for store in topology.stores if store.startswith("in-")] == ["in-STATE-STORE-0000000000"]
    assert operator(topology, "KTABLE-SOURCE").send_old
    assert operator(topology, "KTABLE-MAPVALUES").send_old


def test_a_filter_takes_old_values_where_there_are_some() -> None:
    """Behind a stored table it sends old values, behind another one it does not."""
    for name in ("rows", None):
        builder = StreamsBuilder()
        table(builder, name).filter(lambda _, value: value > "b").to_stream().to("out")
        found = operator(builder.build(), "KTABLE-FILTER")
        assert isinstance(found, TableFilter)
        assert found.send_old is (name is not None)


def test_a_stored_map_has_old_values_of_its_own() -> None:
    """The table upstream need not send any."""
    builder = StreamsBuilder()
    mapped = table(builder).map_values(lambda value: value + "!", Materialized("mapped", value=STRING))
    mapped.group_by(lambda key, value: (value, key), Grouped(STRING, STRING)).count()
    topology = builder.build()
    assert mapped.queryable_store_name == "mapped"
    assert operator(topology, "KTABLE-SOURCE") == TableSource()
    found = operator(topology, "KTABLE-MAPVALUES")
    assert isinstance(found, TableMapValues)
    assert (found.store, found.send_old) == ("mapped", True)
    assert topology.stores["mapped"].key is STRING


def test_options_without_a_name_store_nothing_in_filters_and_maps() -> None:
    """As in Kafka Streams, where only a number goes to waste."""
    builder = StreamsBuilder()
    rows = table(builder)
    rows.filter(lambda _, value: value > "b", Materialized(value=STRING)).map_values(len, Materialized(value=LONG)).to_stream().to("out")
    topology = builder.build()
    assert dict(topology.stores) == {}
    assert [name for name in topology.nodes if name.startswith("KTABLE-")][1:] == [
        "KTABLE-FILTER-0000000004",
        "KTABLE-MAPVALUES-0000000006",
        "KTABLE-TOSTREAM-0000000007",
    ]


def test_a_join_is_stored_with_options_even_without_a_name() -> None:
    """It cannot be asked from outside, though its store has options."""
    builder = StreamsBuilder()
    left, right = table(builder), builder.table("right", TEXT)
    joined = left.join(right, lambda a, b: a + b, Materialized(value=STRING, logging=False))
    topology = builder.build()
    spec = topology.stores[str(joined.queryable_store_name)]
    assert spec.name.startswith("KTABLE-MERGE-STATE-STORE-")
    assert (spec.value, spec.logging) == (STRING, False)


class Kept(ValueTransformer[str, str, str]):
    def transform(self, key: str, value: str | None) -> str | None:
        return value


def test_a_reader_of_an_unstored_transformed_table_gets_its_stores_too() -> None:
    """The reading join is connected to the source's store and the transformer's."""
    builder = StreamsBuilder()
    rows = table(builder, "rows").transform_values(Kept, materialized=Materialized(value=STRING))
    assert rows.queryable_store_name is None
    builder.stream("other", TEXT).join(rows, lambda a, b: a + b).to("out")
    topology = builder.build()
    (node,) = [node for name, node in topology.nodes.items() if name.startswith("KSTREAM-JOIN-")]
    assert isinstance(node, ProcessorNode)
    assert node.stores == ("rows",)


def test_joins_of_joins_read_through_to_the_stores() -> None:
    """Filters, maps and joins that are not stored are computed at the reader."""
    builder = StreamsBuilder()
    left, right = table(builder, "l"), builder.table("right", TEXT, Materialized("r"))
    joined = left.outer_join(right, lambda a, b: f"{a}{b}").filter(lambda _, value: value > "b").map_values(lambda value: value + "!")
    joined.left_join(left.join(right, lambda a, b: a + b, Materialized("j")), lambda a, b: f"{a}{b}").to_stream().to("out")
    topology = builder.build()
    others = [node.stores for name, node in topology.nodes.items() if name.startswith("KTABLE-JOINOTHER-") and isinstance(node, ProcessorNode)]
    assert others[-1] == ("l", "r")


# ---- serdes


def test_a_count_is_stored_as_a_long_and_a_windowed_key_with_its_start() -> None:
    """As Kafka Streams writes them."""
    grouped = StreamsBuilder().stream("in", TEXT).group_by_key()
    assert grouped.count().value is LONG
    counted = grouped.windowed_by(TimeWindows.of_size_with_no_grace(10)).count(Materialized("c"))
    assert counted.value is LONG
    assert "windowed" in repr(counted.key)
    assert "windowed(None" in repr(StreamsBuilder().stream("in").group_by_key().windowed_by(UnlimitedWindows.of()).count().key)


def test_changes_go_through_the_repartition_topic_of_a_grouped_table() -> None:
    """With the serdes of the grouping; without any, the app's default is wrapped when it is known."""
    for options, inner in ((Grouped(STRING, STRING, "by"), STRING), (None, None)):
        builder = StreamsBuilder()
        grouped = table(builder, "rows").group_by(lambda key, value: (value, key), options)
        grouped.count()
        grouped.reduce(lambda a, _: a, lambda a, _: a)
        topology = builder.build()
        serdes = [node.value for node in topology.nodes.values() if isinstance(node, SourceNode | SinkNode) and isinstance(node.value, ChangeSerde)]
        # a named grouping shares its topic, an unnamed one has one for each aggregation
        assert len(serdes) == (2 if options else 4)
        assert {serde.inner for serde in serdes} == {inner}
        assert len(topology.internal_topics) == (1 if options else 2)


def test_a_named_grouping_repartitions_once() -> None:
    """All aggregations read the one topic; unnamed, each has its own."""
    for name, topics in (("by", ["by-repartition"]), (None, ["a-repartition", "b-repartition"])):
        builder = StreamsBuilder()
        grouped = builder.stream("in", TEXT).group_by(lambda _, value: value, Grouped(STRING, STRING, name))
        grouped.count(Materialized("a"))
        grouped.count(Materialized("b"))
        assert list(builder.build().internal_topics) == topics


def test_a_cogrouped_stream_takes_the_key_serde_of_its_streams() -> None:
    """The cogrouped stream repartitions the streams that need it, once for all tables made of it."""
    builder = StreamsBuilder()
    a = builder.stream("a").group_by_key()
    b = builder.stream("b", TEXT).group_by(lambda _, value: value, Grouped(STRING, STRING, "rekeyed"))
    cogrouped = a.cogroup(lambda _, __, total: total + 1).cogroup(b, lambda _, __, total: total - 1)
    total = cogrouped.aggregate(int, Materialized("total", value=LONG))
    per_window = cogrouped.windowed_by(UnlimitedWindows.of()).aggregate(int, name="windowed")
    assert total.key is STRING
    assert total.queryable_store_name == "total"
    assert per_window.queryable_store_name is None
    per_window.group_by(lambda key, value: (key.key, value)).count()
    topology = builder.build()
    assert next(iter(topology.internal_topics)) == "rekeyed-repartition"
    assert {"windowed-cogroup-agg-0", "windowed-cogroup-agg-1", "windowed-cogroup-merge"} <= set(topology.nodes)


# ---- windows


def test_a_window_store_keeps_results_as_long_as_window_and_grace_or_longer() -> None:
    """Never shorter: late records would find nothing to add to."""
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT).group_by_key().windowed_by(TimeWindows.of_size_and_grace(10, 5))
    stream.count(Materialized("default"))
    stream.count(Materialized("longer", retention_ms=100))
    with pytest.raises(TopologyError, match="retention_ms"):
        stream.count(Materialized("shorter", retention_ms=14))
    stores = builder.build().stores
    assert [(spec.kind, spec.retention_ms, spec.window_size_ms) for spec in stores.values()] == [
        (StoreKind.TIMESTAMPED_WINDOW, 15, 10),
        (StoreKind.TIMESTAMPED_WINDOW, 100, 10),
    ]


def test_a_session_store_keeps_sessions_as_long_as_gap_and_grace_or_longer() -> None:
    """Results that come when a session closes need it beyond that; a retention that is set counts, but for the last moment."""
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT).group_by_key().windowed_by(SessionWindows.of_inactivity_gap_and_grace(10, 5))
    counts = stream.count(Materialized("default"))
    assert counts.node.closes == (15, True)
    assert (counts.value, repr(counts.key)) == (LONG, f"<Serde session_windowed({STRING!r})>")
    stream.reduce(lambda one, _: one, Materialized("longer", retention_ms=100))
    with pytest.raises(TopologyError, match="inactivity gap and grace take"):
        stream.count(Materialized("shorter", retention_ms=14))
    final = stream.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    final.count(Materialized("final"))
    final.aggregate(int, lambda _, __, count: count, lambda _, one, __: one, Materialized("long-final", retention_ms=15))
    found = {name: (spec.kind, spec.retention_ms) for name, spec in builder.build().stores.items()}
    retentions = {"default": 15, "longer": 100, "final": 26, "long-final": 16}
    assert found == {name: (StoreKind.SESSION, retention) for name, retention in retentions.items()}


@pytest.mark.parametrize(("gap", "grace"), [(-1, 0), (0, -1)])
def test_sessions_that_cannot_be_are_refused(gap: int, grace: int) -> None:
    """A gap may be none, but not less."""
    with pytest.raises(TopologyError, match="give 0 or more"):
        SessionWindows.of_inactivity_gap_and_grace(gap, grace)
    assert SessionWindows.of_inactivity_gap_with_no_grace(0).keep_ms == 0
    with pytest.raises(TopologyError, match="retention_ms of 0 or more"):
        state_stores.session("s", retention_ms=-1)


def test_an_unlimited_window_is_kept_for_ever() -> None:
    """An unlimited window never closes."""
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT).group_by_key().windowed_by(UnlimitedWindows.of().start_on(7))
    assert stream.emit_strategy(EmitStrategy.ON_WINDOW_UPDATE).count(Materialized("s")).node.closes == (0, False)
    assert builder.build().stores["s"].retention_ms == LAST_INSTANT
    with pytest.raises(TopologyError, match="never closes"):
        stream.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)


@pytest.mark.parametrize(("size", "grace", "advance"), [(0, 0, 1), (-1, 0, 1), (10, -1, 10), (10, 0, 0), (10, 0, 11), (10, 0, -3)])
def test_windows_that_cannot_be_are_refused(size: int, grace: int, advance: int) -> None:
    """Nothing lasts no time, waits less than none, or leaves gaps."""
    with pytest.raises(TopologyError):
        TimeWindows.of_size_and_grace(size, grace).advance_by(advance)


def test_an_unlimited_window_begins_at_the_epoch_or_later() -> None:
    """There are no earlier records."""
    with pytest.raises(TopologyError, match="epoch"):
        UnlimitedWindows.of().start_on(-1)


def test_windowed_aggregations_have_kafka_streams_names() -> None:
    """Counts, reduces and aggregates; one number goes to waste for options without a name."""
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    tables: list[Table[Any, Any]] = [
        stream.count(),
        stream.count(Materialized(value=LONG)),
        stream.reduce(lambda a, v: a + v),
        stream.aggregate(str, lambda _, v, a: a + v),
        stream.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(name="final"),
    ]
    assert [table.node.name for table in tables] == [
        "KSTREAM-AGGREGATE-0000000002",
        "KSTREAM-AGGREGATE-0000000005",
        "KSTREAM-REDUCE-0000000007",
        "KSTREAM-AGGREGATE-0000000009",
        "final",
    ]
    builder.build()


# ---- functions with the wrong number of parameters


def test_functions_are_looked_at_when_they_are_given() -> None:
    """The check comes while the topology is built, not at the first record."""
    grouped = StreamsBuilder().stream("in", TEXT).group_by_key()
    rows = table(StreamsBuilder())
    by_value = rows.group_by(lambda key, value: (value, key))
    one: Any = lambda value: value  # noqa: E731 - it is to be passed on
    none: Any = lambda: "x"  # noqa: E731 - likewise
    calls: list[Any] = [
        lambda: grouped.reduce(one),
        lambda: grouped.aggregate(one, lambda _, __, a: a),
        lambda: grouped.aggregate(int, one),
        lambda: grouped.cogroup(one),
        lambda: grouped.windowed_by(UnlimitedWindows.of()).reduce(one),
        lambda: grouped.windowed_by(UnlimitedWindows.of()).aggregate(int, one),
        lambda: rows.filter(one),
        lambda: rows.map_values(none),
        lambda: rows.join(rows, one),
        lambda: by_value.reduce(one, one),
        lambda: by_value.aggregate(int, one, one),
        lambda: StreamsBuilder().stream("in").join(rows, one),
    ]
    for call in calls:
        with pytest.raises(TopologyError, match="positional arguments"):
            call()


def test_a_global_table_can_be_named_or_not() -> None:
    """Only a named one can be asked from outside."""
    builder = StreamsBuilder()
    assert builder.global_table("a", TEXT, Materialized("rows")).queryable_store_name == "rows"
    unnamed = builder.global_table("b", TEXT)
    assert unnamed.queryable_store_name is None
    builder.stream("in", TEXT).left_join(unnamed, lambda _, value: value, lambda a, b: f"{a}{b}").to("out", Produced(STRING, STRING))
    topology = builder.build()
    assert set(topology.global_stores) == {"rows", "b-STATE-STORE-0000000002"}


def test_sliding_windows_keep_the_records_of_new_windows() -> None:
    """Twice the time difference and the grace period; results may come out when windows close."""
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT).group_by_key().windowed_by(SlidingWindows.of_time_difference_and_grace(10, 5))
    stream.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(Materialized("counts"))
    assert builder.build().stores["counts"].retention_ms == 25
    assert SlidingWindows.of_time_difference_with_no_grace(10).keep_ms == 20
    assert UnlimitedWindows.of().keep_ms == LAST_INSTANT
    for difference, grace in ((0, 0), (-1, 0), (1, -1)):
        with pytest.raises(TopologyError):
            SlidingWindows.of_time_difference_and_grace(difference, grace)


def test_a_reduced_stream_and_a_reduced_table_keep_their_serdes() -> None:
    """An aggregate of values is a value."""
    builder = StreamsBuilder()
    assert builder.stream("in", TEXT).group_by_key().reduce(lambda a, v: a + v).value is STRING
    grouped = builder.table("rows", TEXT).group_by(lambda key, value: (value, key), Grouped(STRING, STRING))
    assert grouped.reduce(lambda a, v: a + v, lambda a, _: a, name="r").value is STRING
    assert grouped.aggregate(lambda: "", lambda _, v, a: a + v, lambda _, __, a: a, Materialized("a")).queryable_store_name == "a"
    topology = builder.build()
    assert {"r-sink", "r-source", "r"} <= set(topology.nodes)
    topology_stores = topology.stores
    assert topology_stores["a"].value is None


def test_a_count_with_options_but_no_name_lets_a_number_go_to_waste() -> None:
    """As Kafka Streams does, so that names further on are the same."""
    builder = StreamsBuilder()
    counted = builder.stream("in", TEXT).group_by_key().count(Materialized(value=LONG), name="c")
    assert counted.node.name == "c"
    assert list(builder.build().stores) == ["KSTREAM-AGGREGATE-STATE-STORE-0000000002"]


def test_a_stream_becomes_a_table_behind_a_repartition_if_its_keys_changed() -> None:
    """A reader of the table is connected to its store; a filter without a store is passed over."""
    builder = StreamsBuilder()
    rows = builder.stream("in", TEXT).select_key(lambda _, value: value).to_table(Materialized("rows", STRING, STRING), name="t")
    plain = builder.stream("other", TEXT).to_table()
    joined = rows.filter_not(lambda _, value: value > "b", name="f").join(
        plain.map_values(lambda _, value: value, name="m"), lambda a, b: a + b, name="j"
    )
    joined.to_stream(lambda _, value: value, name="s").to("out")
    topology = builder.build()
    assert list(topology.internal_topics) == ["t-repartition"]
    assert {"j", "j-join-this", "j-join-other", "f", "m", "s"} <= set(topology.nodes)
    (other,) = [node for name, node in topology.nodes.items() if name == "j-join-other"]
    assert isinstance(other, ProcessorNode)
    assert other.stores == ("rows",)


def test_a_stream_joins_a_table_behind_a_repartition_if_its_keys_changed() -> None:
    """With the names of the join; by value or by key and value."""
    builder = StreamsBuilder()
    rows = builder.table("rows", TEXT)
    stream = builder.stream("in", TEXT).select_key(lambda _, value: value)
    joined = stream.left_join(rows, lambda k, a, b: f"{k}{a}{b}", Joined(STRING, STRING, STRING, "j"))
    assert (joined.node.name, joined.key) == ("j", STRING)
    assert list(builder.build().internal_topics) == ["j-repartition"]
