"""Names and shapes of what the DSL makes, compared with what Kafka Streams 4.4.0 made of the same calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ks_actors import StreamsConfig
from ks_actors.dsl import (
    BufferConfig,
    Consumed,
    EmitStrategy,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    Produced,
    Repartitioned,
    SessionWindows,
    Stream,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TableJoined,
)
from ks_actors.processors import FixedKeyProcessor, FixedKeyRecord, Processor, Record
from ks_actors.serdes import STRING
from ks_actors.topology import stores


def texts(file: str) -> dict[str, str]:
    """Return Kafka Streams' description of each graph."""
    whole = (Path(__file__).parent / file).read_text()
    return dict((*text.split("\n", 1),) for text in whole.split("===== ")[1:])  # type: ignore[misc]  # two of each


TEXTS = texts("described.txt")
OPTIMIZED = texts("optimized.txt")

GRAPHS: dict[str, Callable[[StreamsBuilder], None]] = {}


def graph(function: Callable[[StreamsBuilder], None]) -> Callable[[StreamsBuilder], None]:
    GRAPHS[function.__name__.replace("_", " ")] = function
    return function


class P(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        """Do nothing."""


class F(FixedKeyProcessor[Any, Any, Any]):
    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        """Do nothing."""


class WithStore(P):
    stores = (stores.key_value("own"),)


def yes(key: object, value: object) -> bool:
    return True


def first(one: Any, other: Any) -> Any:
    return one


def second(one: Any, other: Any) -> Any:
    return other


def third(_: Any, __: Any, other: Any) -> Any:
    return other


def pair(key: Any, value: Any) -> tuple[Any, Any]:
    return key, value


def pairs(key: Any, value: Any) -> list[tuple[Any, Any]]:
    return [(key, value)]


def same(value: Any) -> Any:
    return value


def alone(value: Any) -> list[Any]:
    return [value]


@graph
def named(b: StreamsBuilder) -> None:
    s: Stream[Any, Any] = b.stream("in", Consumed(name="read"))
    s = s.filter(yes, name="f").filter_not(yes, name="fn").map_values(same, name="mv").flat_map_values(alone, name="fmv")
    s = s.map(pair, name="m").flat_map(pairs, name="fm").select_key(first, name="sk").peek(yes, name="p")
    s.foreach(yes, name="fe")
    s.print(name="pr")
    s.merge(b.stream("other"), name="mg").to("out", Produced(name="write"))
    s.filter(yes).to("out2")


@graph
def unnamed(b: StreamsBuilder) -> None:
    s: Stream[Any, Any] = b.stream("in")
    s = s.filter(yes).filter_not(yes).map_values(same).flat_map_values(alone).map(pair).flat_map(pairs).select_key(first).peek(yes)
    s.foreach(yes)
    s.print()
    s.merge(b.stream("other")).to("out")


@graph
def split(b: StreamsBuilder) -> None:
    s: Stream[Any, Any] = b.stream("in")
    branches = s.split().branch(yes).branch(yes, "x").default_branch()
    for name in sorted(branches):
        branches[name].to(f"out-{name}")
    s.split("sp").branch(yes).default_branch("rest")
    s.split("none").branch(yes).no_default_branch()


@graph
def repartition(b: StreamsBuilder) -> None:
    s: Stream[Any, Any] = b.stream("in")
    s.repartition().to("a")
    s.repartition(Repartitioned(name="rp")).filter(yes).to("b")
    s.repartition(Repartitioned(partitions=3)).group_by_key().count()
    s.repartition(Repartitioned(name="x-repartition")).to("c")


@graph
def same_topic(b: StreamsBuilder) -> None:
    b.stream("in").filter(yes).to("a")
    b.stream("other").to("b")
    b.stream("in").map_values(same).to("c")
    b.stream(["p", "q"]).to("d")
    b.stream(["p", "q"]).to("e")


@graph
def pattern(b: StreamsBuilder) -> None:
    b.stream(re.compile("in-.*")).to("a")
    b.stream(re.compile("in-.*")).filter(yes).to("b")


@graph
def process(b: StreamsBuilder) -> None:
    b.add_state_store(stores.key_value("one")).add_state_store(stores.key_value("two"))
    s: Stream[Any, Any] = b.stream("in")
    s.process(P, "one").to("a")
    s.process(P, "one", "two", name="work").group_by_key().count()
    s.process_values(F, "two").group_by_key().count()
    s.process_values(F, name="keep").to("b")
    b.stream("far").process(P)


@graph
def supplied_stores(b: StreamsBuilder) -> None:
    b.stream("in").process(WithStore).to("a")


@graph
def group_twice(b: StreamsBuilder) -> None:
    g = b.stream("in").select_key(second).group_by_key()
    g.count()
    g.count(Materialized("cs"))


@graph
def group_twice_by_name(b: StreamsBuilder) -> None:
    g = b.stream("in").select_key(second).group_by_key(Grouped(name="grp"))
    g.count()
    g.count(Materialized("cs"))
    b.stream("late").to("x")


@graph
def group_by(b: StreamsBuilder) -> None:
    s: Stream[Any, Any] = b.stream("in")
    s.group_by(second).count()
    s.group_by(second, Grouped(name="grp")).reduce(first)


@graph
def join_twice(b: StreamsBuilder) -> None:
    t, u = b.table("t"), b.table("u")
    s: Stream[Any, Any] = b.stream("in").select_key(second)
    s.join(t, first).to("a")
    s.left_join(u, first).to("b")
    s.join(t, first, Joined(name="named")).to("c")


@graph
def to_table(b: StreamsBuilder) -> None:
    s: Stream[Any, Any] = b.stream("in")
    s.to_table().to_stream().to("a")
    s.select_key(second).to_table(name="tab").to_stream().to("b")
    s.select_key(second).to_table(Materialized("st")).to_stream().to("c")


@graph
def global_tables(b: StreamsBuilder) -> None:
    g = b.global_table("g", materialized=Materialized("gs"))
    b.global_table("h", Consumed(name="hh"))
    b.add_global_store(stores.key_value("raw"), "topic", P)
    s: Stream[Any, Any] = b.stream("in")
    s.map(pair).join(g, second, first).group_by_key().count()
    s.left_join(g, second, first, name="lj").to("a")


@graph
def merge_rekeyed(b: StreamsBuilder) -> None:
    s: Stream[Any, Any] = b.stream("in")
    o: Stream[Any, Any] = b.stream("other")
    s.merge(o.select_key(second)).group_by_key().count()
    o.merge(s).group_by_key().count()
    s.merge(s).to("a")


@graph
def split_rekeyed(b: StreamsBuilder) -> None:
    branches = b.stream("in").map(pair).split("s-").branch(yes, "a").default_branch("b")
    branches["s-a"].group_by_key().count()
    branches["s-b"].map_values(same).to("x")


@graph
def sessions(b: StreamsBuilder) -> None:
    windows = SessionWindows.of_inactivity_gap_with_no_grace(5)
    text: Stream[Any, Any] = b.stream("in")
    g = text.group_by_key()
    h = b.stream("other").select_key(second).group_by_key()
    g.windowed_by(windows).count().suppress(Suppressed.until_window_closes(BufferConfig.unbounded())).to_stream(first).to("a")
    g.windowed_by(windows).count(name="named")
    g.windowed_by(windows).count(Materialized())
    g.windowed_by(windows).reduce(first)
    h.windowed_by(windows).reduce(first, Materialized("rs"))
    h.windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).aggregate(str, third, third)
    g.cogroup(third).cogroup(h, third).windowed_by(windows).aggregate(str, third)
    g.cogroup(third).windowed_by(windows).aggregate(str, third, Materialized("cgs"), name="cg")


@graph
def self_joins(b: StreamsBuilder) -> None:
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    s: Stream[Any, Any] = b.stream("in")
    r = b.stream("other").select_key(second)
    s.join(s, first, windows).to("a")
    s.left_join(s, first, windows, StreamJoined(name="named", store_name="st")).to("b")
    r.outer_join(r, first, windows).to("c")
    s.join(r, first, windows).to("d")
    s.join(s.filter(first), first, windows).to("e")


@graph
def one_repartition(b: StreamsBuilder) -> None:
    t: Any = b.table("t")
    s: Stream[Any, Any] = b.stream("in").map(pair)
    f = s.filter(first).peek(first)
    f.group_by_key().count().to_stream().to("a")
    s.group_by_key(Grouped(name="grp")).reduce(first)
    s.map_values(same).group_by_key().count()
    s.left_join(t, first).to("b")
    s.to_table(Materialized("tab"))
    s.flat_map_values(alone).to("c")
    s.repartition().to("d")


@graph
def one_repartition_behind_merges(b: StreamsBuilder) -> None:
    s: Stream[Any, Any] = b.stream("in").select_key(second)
    o: Stream[Any, Any] = b.stream("other").select_key(second).filter(first)
    m = s.merge(o)
    m.group_by_key().count()
    m.filter(first).group_by_key(Grouped(name="grp")).reduce(first)
    far: Stream[Any, Any] = b.stream("far")
    far.merge(b.stream("near").map(pair)).group_by_key().count()


@graph
def foreign_keys(b: StreamsBuilder) -> None:
    left: Any = b.table("l")
    right: Any = b.table("r", materialized=Materialized("rs"))
    employees: Any = b.table("e")
    left.join(right, first, foreign_key=same).to_stream().to("a")
    left.left_join(right, first, Materialized("st"), foreign_key=same, joined=TableJoined("named")).to_stream().to("b")
    employees.left_join(employees, first, foreign_key=second, joined=TableJoined("self")).group_by(pair).count()
    rekeyed: Any = b.stream("in").select_key(second).to_table().filter(yes)
    counted: Any = b.stream("other").group_by_key().count()
    both = rekeyed.join(counted, first, foreign_key=same).map_values(same).join(left, first, foreign_key=same)
    both.join(right, first, Materialized("both"))


@pytest.mark.parametrize("name", TEXTS)
def test_names_and_shape_are_kafkas(name: str) -> None:
    """Text for text: an app that moves here finds topics and stores under their names."""
    builder = StreamsBuilder()
    GRAPHS[name](builder)
    assert str(builder.build().describe()) == TEXTS[name]


@pytest.mark.parametrize("name", OPTIMIZED)
def test_optimizations_are_kafkas(name: str) -> None:
    """Text for text with all optimizations, too; the graph is as it was then, and the topology without them is the same as ever."""
    builder = StreamsBuilder()
    GRAPHS[name](builder)
    config = StreamsConfig(application_id="a", topology_optimization="all", default_key_serde=STRING, default_value_serde=STRING)
    assert str(builder.build(config).describe()) == OPTIMIZED[name]
    assert str(builder.build().describe()) == TEXTS[name]
    assert str(builder.build(config).describe()) == OPTIMIZED[name]


def test_every_graph_is_compared() -> None:
    """None of the files has one more than another."""
    assert set(GRAPHS) == set(TEXTS) == set(OPTIMIZED)
