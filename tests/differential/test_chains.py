"""Graphs whose nodes share stores along a chain, where a batch is not always as good as its records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors.dsl import Consumed, Materialized, Produced, StreamsBuilder, TimeWindows
from ks_actors.processors import ValueTransformer
from ks_actors.records import Batch
from ks_actors.serdes import LONG, STRING
from ks_actors.task import _compiler, _node
from ks_actors.topology import SourceNode, Topology
from tests.differential.cases import WITH_HEADERS, config_of, read_cases, run_steps
from tests.differential.parts import TEXT, text
from tests.differential.topologies import REBUILT, reason_out_of_reach
from tests.examples_of import examples

C, P = Consumed(TEXT, TEXT), Produced(STRING, TEXT)
CACHES = (0, 10 << 20)
Outputs: TypeAlias = dict[str, list[tuple[Any, ...]]]
Build: TypeAlias = Callable[[StreamsBuilder], None]


def kept(name: str, value: Any = TEXT) -> Materialized[Any, Any]:
    return Materialized(name, TEXT, value)


def joined(left: Any, right: Any) -> str:
    return f"{text(left)}/{text(right)}"


def one_line(key: Any, value: Any) -> tuple[str, str]:
    return f"{getattr(key, 'key', key)}", text(value)


def send(stream: Any, topic: str = "out") -> None:
    """Write windowed keys as keys: the values tell the rest."""
    stream.map(one_line).to(topic, P)


def source(builder: StreamsBuilder) -> Any:
    return builder.table("in", C, kept("t"))


def windowed(builder: StreamsBuilder, advance: int = 10) -> Any:
    windows = TimeWindows.of_size_and_grace(10, 5).advance_by(advance)
    return builder.stream("in", C).group_by_key().windowed_by(windows).count(kept("w", LONG))


def with_itself(table: Any) -> None:
    send(table.to_stream().join(table, joined))


# ---- graphs of nodes that read what a node above has written


def a_table_with_itself(builder: StreamsBuilder) -> None:
    with_itself(source(builder))


def a_filtered_table_with_its_source(builder: StreamsBuilder) -> None:
    table = source(builder)
    send(table.filter(lambda _, v: v < "c").to_stream().join(table, joined))


def a_table_with_values_computed_from_it(builder: StreamsBuilder) -> None:
    table = source(builder)
    send(table.to_stream().join(table.map_values(lambda v: f"m{v}"), joined))


def a_join_of_tables_with_one_of_them(builder: StreamsBuilder) -> None:
    table = source(builder)
    send(table.left_join(builder.table("other", C, kept("o")), joined).to_stream().left_join(table, joined))


def a_table_of_a_stream_with_itself(builder: StreamsBuilder) -> None:
    table = builder.stream("in", C).to_table(kept("t"))
    send(table.to_stream().map_values(text).left_join(table, joined))


def a_table_of_two_streams_with_itself(builder: StreamsBuilder) -> None:
    table = builder.stream("in", C).merge(builder.stream("other", C)).to_table(kept("t"))
    send(table.to_stream().left_join(table, joined))


def a_count_with_itself(builder: StreamsBuilder) -> None:
    with_itself(builder.stream("in", C).group_by_key().count(kept("t", LONG)))


def a_reduction_with_itself(builder: StreamsBuilder) -> None:
    with_itself(builder.stream("in", C).group_by_key().reduce(lambda a, v: a + v, kept("t")))


def an_aggregation_with_itself(builder: StreamsBuilder) -> None:
    with_itself(builder.stream("in", C).group_by_key().aggregate(str, lambda _, v, a: a + v, kept("t")))


def tumbling_counts_with_themselves(builder: StreamsBuilder) -> None:
    with_itself(windowed(builder))


def hopping_counts_with_themselves(builder: StreamsBuilder) -> None:
    with_itself(windowed(builder, 5))


def a_branch_beside_the_chain(builder: StreamsBuilder) -> None:
    table = source(builder)
    send(table.to_stream(), "all")
    with_itself(table)


def two_chains_one_below_the_other(builder: StreamsBuilder) -> None:
    table = source(builder)
    counts = table.to_stream().map_values(text).group_by_key().count(kept("n", LONG))
    send(counts.to_stream().left_join(table, joined).left_join(counts, joined))


# ---- graphs of nodes that read what a node above only reads


class Clock(ValueTransformer[Any, Any, Any]):
    """Tell the stream time at which a row is read."""

    def transform(self, key: Any, value: Any) -> str:
        return f"{text(value)}@{self.context.current_stream_time_ms()}"


def a_stream_with_transformed_rows(builder: StreamsBuilder) -> None:
    send(builder.stream("other", C).left_join(source(builder).transform_values(Clock).filter(lambda _, v: v != "a@0"), joined))


def a_table_with_transformed_rows(builder: StreamsBuilder) -> None:
    send(builder.table("other", C, kept("o")).left_join(source(builder).transform_values(Clock), joined).to_stream())


def two_ways_into_one_topic(builder: StreamsBuilder) -> None:
    stream = builder.stream("in", C)
    stream.map_values(text).to("out", P)
    stream.map_values(lambda v: f"2{text(v)}").to(lambda *_: "out", P)


CHAINS: tuple[Build, ...] = (
    a_table_with_itself,
    a_filtered_table_with_its_source,
    a_table_with_values_computed_from_it,
    a_join_of_tables_with_one_of_them,
    a_table_of_a_stream_with_itself,
    a_table_of_two_streams_with_itself,
    a_count_with_itself,
    a_reduction_with_itself,
    an_aggregation_with_itself,
    tumbling_counts_with_themselves,
    hopping_counts_with_themselves,
    a_branch_beside_the_chain,
    two_chains_one_below_the_other,
)
OTHERS: tuple[Build, ...] = (a_stream_with_transformed_rows, a_table_with_transformed_rows, two_ways_into_one_topic)


def built(build: Build) -> Topology:
    builder = StreamsBuilder()
    build(builder)
    return builder.build()


def outputs_of(topology: Topology, steps: list[dict[str, Any]], cache: int) -> tuple[Outputs, Outputs]:
    """Return what comes out in batches, and record by record."""
    read = {topic for node in topology.nodes.values() if isinstance(node, SourceNode) for topic in node.topics}
    steps = [step for step in steps if step["topic"] in read]
    config = {"application_id": "app", "default_key_serde": TEXT, "default_value_serde": TEXT, "statestore_cache_max_bytes": cache}
    in_batches, one_by_one = (run_steps(topology, ("out", "all"), steps, config, one_by_one=one) for one in (False, True))
    return in_batches, one_by_one


def records(topic: str, values: list[str | None]) -> list[dict[str, Any]]:
    return [{"topic": topic, "key": f"k{number % 2}", "value": value, "timestamp": 3 * number} for number, value in enumerate(values)]


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("build", CHAINS + OTHERS, ids=lambda build: build.__name__)
def test_a_row_is_read_before_the_next_record_changes_it(build: Build, cache: int) -> None:
    """A node sees the stores and the stream time of its record's own moment, however many records come at once."""
    steps = records("other", ["x", "y", "z", "u", "v"] * 4) + records("in", ["a", "b", "c", None, "a", "d", "b", "e"])
    in_batches, one_by_one = outputs_of(built(build), steps, cache)
    assert in_batches == one_by_one
    assert in_batches["out"]


def test_a_table_joined_with_itself_has_equal_sides() -> None:
    """Each update meets the row that it has made, as in Kafka Streams."""
    in_batches, _ = outputs_of(built(a_table_with_itself), records("in", ["a", "b", "c", "d"]), 0)
    assert [row[1] for row in in_batches["out"]] == [b"a/a", b"b/b", b"c/c", b"d/d"]


# ---- graphs at random

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from(("in", "in", "other")),
            "key": st.sampled_from(("a", "b", "c", None)),
            "value": st.sampled_from(("a", "b", "c", "d", None)),
            "timestamp": st.integers(0, 60),
        },
        optional={"headers": st.just([("h", "1")])},
    ),
    max_size=40,
)


class Maker:
    """A chain of operations drawn one by one; each may use any table that is there."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.builder = StreamsBuilder()
        self.tables: list[Any] = []
        self.number = 0

    def topology(self) -> Topology:
        kind = self.draw(st.sampled_from(("table", "stream")))
        other = self.draw(st.sampled_from(("none", "table", "merged")))
        if other == "table":
            self.tables.append(self.builder.table("other", C, self.store()))
        if kind == "table":
            self.tables.append(self.builder.table("in", C, self.store()))
            stream = self.tables[-1].to_stream()
        else:
            stream = self.builder.stream("in", C)
        if other == "merged":
            stream = stream.merge(self.builder.stream("other", C))
        for step in self.draw(st.lists(st.sampled_from(STEPS), max_size=6)):
            stream = getattr(self, step)(stream)
        send(stream)
        return self.builder.build()

    def store(self, value: Any = TEXT) -> Any:
        self.number += 1
        return kept(f"s{self.number}", value)

    def any_table(self, stream: Any) -> Any:
        if not self.tables:
            self.to_table(stream)
        return self.draw(st.sampled_from(self.tables))

    def changes(self, table: Any) -> Any:
        self.tables.append(table)
        return table.to_stream().map_values(text)

    # ---- steps

    def map_values(self, stream: Any) -> Any:
        return stream.map_values(lambda v: None if v == "b" else f"{text(v)}!")

    def filter(self, stream: Any) -> Any:
        return stream.filter(lambda _, v: v != "c")

    def join(self, stream: Any) -> Any:
        return stream.join(self.any_table(stream), joined)

    def left_join(self, stream: Any) -> Any:
        return stream.left_join(self.any_table(stream), joined)

    def to_table(self, stream: Any) -> Any:
        return self.changes(stream.to_table(self.store()))

    def count(self, stream: Any) -> Any:
        return self.changes(stream.group_by_key().count(self.store(LONG)))

    def reduce(self, stream: Any) -> Any:
        return self.changes(stream.group_by_key().reduce(lambda a, v: (a + v)[-9:], self.store()))

    def join_tables(self, stream: Any) -> Any:
        one, two = self.any_table(stream), self.any_table(stream)
        stored = self.store() if self.draw(st.booleans()) else None
        return self.changes(getattr(one, self.draw(st.sampled_from(("join", "left_join", "outer_join"))))(two, joined, stored))

    def map_table(self, stream: Any) -> Any:
        stored = self.store() if self.draw(st.booleans()) else None
        return self.changes(self.any_table(stream).map_values(lambda v: f"{v}?", stored))

    def filter_table(self, stream: Any) -> Any:
        # With the serde of its table, which may hold counts.
        stored = self.store(None) if self.draw(st.booleans()) else None
        return self.changes(self.any_table(stream).filter(lambda _, v: "b" not in str(v), stored))

    def aside(self, stream: Any) -> Any:
        send(stream, "all")
        return stream

    def apart_and_together(self, stream: Any) -> Any:
        return stream.filter(lambda _, v: v != "d").merge(stream.map_values(lambda v: f"m{text(v)}"))


STEPS = (
    "map_values",
    "filter",
    "join",
    "left_join",
    "to_table",
    "count",
    "reduce",
    "join_tables",
    "map_table",
    "filter_table",
    "aside",
    "apart_and_together",
)


@settings(max_examples=examples(75))
@given(data=st.data(), steps=ROWS)
def test_any_chain_gives_in_batches_what_it_gives_one_by_one(data: Any, steps: list[dict[str, Any]]) -> None:
    """Its nodes may share any stores, along the chain or across branches."""
    in_batches, one_by_one = outputs_of(Maker(data.draw).topology(), steps, 0)
    assert in_batches == one_by_one


# ---- headers


def names_in(directory: Path, *but: str) -> list[str]:
    names = sorted(path.name.removesuffix(".jsonl.xz") for path in directory.iterdir())
    return [name for name in names if not name.startswith(but)]


def check_batches(directory: Path, name: str) -> None:
    for case in read_cases(directory, name)[:6]:
        assert reason_out_of_reach(name, case["params"]) is None
        rebuilt = REBUILT[name]
        runs = [run_steps(rebuilt.build(case["params"]), rebuilt.outputs, case["steps"], config_of(case), one_by_one=one) for one in (False, True)]
        assert runs[0] == runs[1], case["id"]


@pytest.mark.parametrize("name", names_in(WITH_HEADERS, "fk_"))
def test_headers_are_in_batches_as_one_by_one(name: str) -> None:
    """Each result has the headers of its own record. (Joins by a foreign key may be overtaken: see test_batches.)"""
    check_batches(WITH_HEADERS, name)


# ---- speed


def stateless(builder: StreamsBuilder) -> None:
    send(builder.stream("in", C).filter(lambda _, v: v != "c").flat_map_values(lambda v: [v, v]))


def a_table(builder: StreamsBuilder) -> None:
    send(source(builder).filter(lambda _, v: v != "c").map_values(text).to_stream())


def a_count(builder: StreamsBuilder) -> None:
    send(builder.stream("in", C).group_by_key().count(kept("t", LONG)).to_stream())


def an_aggregation(builder: StreamsBuilder) -> None:
    send(builder.stream("in", C).group_by_key().aggregate(str, lambda _, v, a: a + v, kept("t")).to_stream())


def a_count_behind_a_reduction(builder: StreamsBuilder) -> None:
    reduced = builder.stream("in", C).group_by_key().reduce(lambda a, v: a + v, kept("t"))
    send(reduced.to_stream().group_by_key().count(kept("n", LONG)).to_stream())


def tumbling_counts(builder: StreamsBuilder) -> None:
    send(windowed(builder).to_stream())


def hopping_counts(builder: StreamsBuilder) -> None:
    send(windowed(builder, 5).to_stream())


def a_stream_with_a_table(builder: StreamsBuilder) -> None:
    send(builder.stream("other", C).join(source(builder), joined))


def a_stream_with_a_table_twice(builder: StreamsBuilder) -> None:
    table = source(builder)
    send(builder.stream("other", C).left_join(table, joined).left_join(table, joined))


def a_table_with_another_one(builder: StreamsBuilder) -> None:
    send(source(builder).to_stream().left_join(builder.table("other", C, kept("o")), joined))


def a_count_of_a_stream_with_a_table(builder: StreamsBuilder) -> None:
    enriched = builder.stream("other", C).left_join(source(builder), joined)
    send(enriched.group_by_key().count(kept("n", LONG)).to_stream())


def branches_with_stores_of_their_own(builder: StreamsBuilder) -> None:
    grouped = builder.stream("in", C).group_by_key()
    send(grouped.count(kept("t", LONG)).to_stream())
    send(grouped.reduce(lambda a, v: a + v, kept("n")).to_stream(), "all")


IN_BATCHES: tuple[Build, ...] = (
    stateless,
    a_table,
    a_count,
    an_aggregation,
    a_count_behind_a_reduction,
    tumbling_counts,
    hopping_counts,
    a_stream_with_a_table,
    a_stream_with_a_table_twice,
    a_table_with_another_one,
    a_count_of_a_stream_with_a_table,
    branches_with_stores_of_their_own,
)


@pytest.fixture
def singles(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each batch adds its length that a node takes record by record."""
    lengths: list[int] = []
    one_by_one = _node.one_by_one

    def counted(process: Any, current: Any) -> Any:
        batch = one_by_one(process, current)

        def noted(records: Batch) -> None:
            lengths.append(len(records))
            batch(records)

        return noted

    for module in (_node, _compiler):
        monkeypatch.setattr(module, "one_by_one", counted)
    return lengths


STEPS_OF_BOTH = records("other", ["x", "y"]) + [{**step, "timestamp": 10 + number} for number, step in enumerate(records("in", ["a", "b"] * 20))]


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("build", IN_BATCHES, ids=lambda build: build.__name__)
def test_common_graphs_are_processed_in_batches(build: Build, cache: int, singles: list[int]) -> None:
    """No node takes records one by one where nodes share no store that one of them changes."""
    in_batches, one_by_one = outputs_of(built(build), STEPS_OF_BOTH, cache)
    assert in_batches == one_by_one
    assert singles == []


@pytest.mark.parametrize("build", CHAINS, ids=lambda build: build.__name__)
def test_chains_are_processed_record_by_record(build: Build, singles: list[int]) -> None:
    """From the node on whose store is read further down; so the test above can see the difference."""
    outputs_of(built(build), STEPS_OF_BOTH, 0)
    assert max(singles) >= 30
