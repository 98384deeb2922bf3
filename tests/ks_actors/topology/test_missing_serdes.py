"""A serde that nobody has told is found before anything runs, and the error names the node, the topic or the store that needs it."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import (
    App,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
    Windowed,
    dsl,
    serdes,
)
from ks_actors.batch import backfill
from ks_actors.dsl import BufferConfig, Consumed, Grouped, Joined, JoinWindows, Materialized, Produced, Repartitioned, SessionWindows, SlidingWindows
from ks_actors.dsl.graph import _graph
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.processors import FixedKeyProcessor, Processor
from ks_actors.records import Window
from ks_actors.task import DefaultSerdes
from ks_actors.testing import TopologyTestDriver
from ks_actors.topology import ProcessorNode, SinkNode, SourceNode, Topology, stores
from tests.examples_of import examples

S = serdes.STRING
TEXT: Any = Consumed(S, S)
OUT: Any = Produced(S, S)
NONE: Any = None
TEN = TimeWindows.of_size_with_no_grace(10)
SESSIONS = SessionWindows.of_inactivity_gap_with_no_grace(5)


class Nothing(Processor[Any, Any, Any, Any]):
    """Do nothing."""

    def process(self, record: Any) -> None: ...


class Fixed(FixedKeyProcessor[Any, Any, Any]):
    """Do nothing."""

    def process(self, record: Any) -> None: ...


def first(one: Any, _: Any) -> Any:
    return one


def stream(builder: StreamsBuilder) -> Any:
    """Return a stream with known serdes."""
    return builder.stream("in", TEXT)


def unknown(builder: StreamsBuilder) -> Any:
    """Return a stream with serdes that are not known any more."""
    return stream(builder).map(lambda key, value: (key, value))


def by_windows(builder: StreamsBuilder, windows: Any) -> Any:
    return unknown(builder).group_by_key(Grouped(name="g")).windowed_by(windows)


def joined(builder: StreamsBuilder, how: str) -> Any:
    one, two = unknown(builder), builder.stream("others", TEXT).map(lambda key, value: (key, value))
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    return getattr(one, how)(two, first, windows, StreamJoined(name="j", store_name="s")).to("out", OUT)


def by_hand(add: Callable[[Topology], Any]) -> Topology:
    topology = Topology().add_source("source", ["in"], key=S, value=S).add_processor("work", Nothing, "source")
    add(topology)
    return topology


def rows(builder: StreamsBuilder, **options: Any) -> Any:
    return builder.table("rows", Consumed(S, S), Materialized("rows", **options))


# Each place that needs serdes, without these, and words that name it: a node, a topic or a store.
DSL: dict[str, tuple[Callable[[StreamsBuilder], Any], tuple[str, ...]]] = {
    "source": (lambda b: b.stream("in").foreach(lambda *_: None), ("source KSTREAM-SOURCE-0000000000, which reads in",)),
    "named source": (lambda b: b.stream("in", Consumed(name="reads")).foreach(lambda *_: None), ("source reads, which reads in",)),
    "source of topics": (lambda b: b.stream(["in", "too"]).foreach(lambda *_: None), ("which reads in, too",)),
    "sink": (lambda b: unknown(b).to("out"), ("sink KSTREAM-SINK-0000000002, which writes to out",)),
    "sink chosen by a function": (
        lambda b: unknown(b).to(lambda *_: "out", Produced(name="s")),
        ("sink s, which writes to topics chosen by a function",),
    ),
    "repartition": (lambda b: unknown(b).repartition(Repartitioned(name="r")).to("out", OUT), ("to r-repartition", "reads r-repartition")),
    "group by": (lambda b: stream(b).group_by(first, Grouped(name="g")).count().to_stream().to("out", OUT), ("writes to g-repartition",)),
    "store of count": (
        lambda b: unknown(b).group_by_key(Grouped(name="g")).count(Materialized("counts")).to_stream().to("out", OUT),
        ("store counts",),
    ),
    "store of reduce": (lambda b: unknown(b).group_by_key().reduce(first, Materialized("last")).to_stream().to("out", OUT), ("store last",)),
    "store of aggregate": (
        lambda b: stream(b).group_by_key().aggregate(lambda: "", lambda k, v, a: a, Materialized("all")).to_stream().to("out", OUT),
        ("value of store all",),
    ),
    "windows": (lambda b: by_windows(b, TEN).count(Materialized("w")).to_stream().to("out"), ("key of store w", "key of sink")),
    "hopping windows": (lambda b: by_windows(b, TEN.advance_by(5)).reduce(first, Materialized("w")).to_stream().to("out"), ("store w", "sink")),
    "sliding windows": (
        lambda b: by_windows(b, SlidingWindows.of_time_difference_with_no_grace(5)).count(Materialized("w")).to_stream().to("out"),
        ("key of store w", "key of sink"),
    ),
    "unlimited windows": (lambda b: by_windows(b, UnlimitedWindows.of()).count(Materialized("w")).to_stream().to("out"), ("key of store w",)),
    "sessions": (
        lambda b: by_windows(b, SESSIONS).count(Materialized("w")).to_stream().to("out"),
        ("key of store w", "key of sink"),
    ),
    "suppress": (
        lambda b: (
            by_windows(b, TEN).count(Materialized("w")).suppress(Suppressed.until_window_closes(BufferConfig.unbounded())).to_stream().to("out", OUT)
        ),
        ("key of store KTABLE-SUPPRESS-STATE-STORE", "key of store w"),
    ),
    "suppressed rows": (
        lambda b: unknown(b).to_table().suppress(Suppressed.until_time_limit(5, BufferConfig.unbounded())).to_stream().to("out", OUT),
        ("store KTABLE-SUPPRESS-STATE-STORE",),
    ),
    "cogroup": (
        lambda b: unknown(b).group_by_key().cogroup(lambda k, v, a: a).aggregate(lambda: "", Materialized("c")).to_stream().to("out", OUT),
        ("key and value of store c",),
    ),
    "table": (lambda b: b.table("rows").to_stream().to("out", OUT), ("which reads rows",)),
    "table with a store": (lambda b: b.table("rows", None, Materialized("rows")).to_stream().to("out", OUT), ("which reads rows", "store rows")),
    "versioned table": (lambda b: b.table("rows", Consumed(), Materialized("rows", history_retention_ms=50)), ("store rows", "reads rows")),
    "to table": (lambda b: unknown(b).to_table(Materialized("t")).to_stream().to("out", OUT), ("store t",)),
    "mapped table": (lambda b: rows(b).map_values(lambda v: len(v), materialized=Materialized("m")), ("value of store m",)),
    "filtered table": (
        lambda b: rows(b).map_values(lambda v: len(v)).filter(lambda *_: True, materialized=Materialized("f")),
        ("value of store f",),
    ),
    "grouped table": (
        lambda b: rows(b).group_by(lambda k, v: (v, k), Grouped(name="g")).count(Materialized("counts")),
        ("to g-repartition", "reads g-repartition", "store counts"),
    ),
    "joined tables": (lambda b: rows(b).join(b.table("more", TEXT), first, materialized=Materialized("j")), ("value of store j",)),
    "stream and table": (lambda b: unknown(b).join(rows(b), first, Joined(name="j")).to("out", OUT), ("writes to j-repartition",)),
    "stream and table that waits": (
        lambda b: b.stream("in").join(rows(b, history_retention_ms=50), first, Joined(name="j", grace_ms=5)).to("out", OUT),
        ("store j-Buffer", "which reads in"),
    ),
    "streams": (
        lambda b: joined(b, "join"),
        ("writes to j-left-repartition", "writes to j-right-repartition", "store s-this-join-store", "store s-other-join-store"),
    ),
    "streams that wait": (
        lambda b: joined(b, "left_join"),
        ("store s-left-shared-join-store",),
    ),
    "windows that are joined": (
        lambda b: (
            by_windows(b, TEN)
            .count(Materialized("w"))
            .to_stream()
            .left_join(
                b.stream("others", Consumed(serdes.windowed(S, 10), S)),
                first,
                JoinWindows.of_time_difference_with_no_grace(5),
                StreamJoined(value=serdes.LONG, other_value=S, store_name="s"),
            )
            .to("out", Produced(value=S))
        ),
        ("key of store s-left-shared-join-store", "key of store s-this-join-store", "key of store w", "key of sink"),
    ),
    "global table": (lambda b: b.global_table("world"), ("which reads world", "store world-STATE-STORE")),
    "global table with a store": (lambda b: b.global_table("world", None, Materialized("world")), ("which reads world", "store world")),
    "store of a processor": (
        lambda b: stream(b.add_state_store(stores.key_value("mine", NONE, NONE))).process(Nothing, "mine"),
        ("key and value of store mine",),
    ),
}
HAND: dict[str, tuple[Callable[[Topology], Any], tuple[str, ...]]] = {
    "source": (lambda t: t.add_source("more", ["else"]), ("key and value of source more, which reads else",)),
    "sink": (lambda t: t.add_sink("end", "out", "work"), ("key and value of sink end, which writes to out",)),
    "key-value store": (lambda t: t.add_state_store(stores.key_value("kv", NONE, NONE), "work"), ("store kv, which work uses",)),
    "window store": (lambda t: t.add_state_store(stores.window("ws", NONE, S, retention_ms=50, window_size_ms=5), "work"), ("key of store ws",)),
    "session store": (lambda t: t.add_state_store(stores.session("ss", S, NONE, retention_ms=50), "work"), ("value of store ss",)),
    "global store": (
        lambda t: t.add_global_store(stores.key_value("gs", NONE, NONE), "gsource", "world", "keeps", Nothing),
        ("source gsource, which reads world", "store gs, which keeps uses"),
    ),
}


def built(make: Callable[[StreamsBuilder], Any], config: StreamsConfig | None = None) -> Topology:
    builder = StreamsBuilder()
    make(builder)
    return builder.build(config)


PLACES: dict[str, tuple[Callable[[], Topology], tuple[str, ...]]] = {
    **{f"DSL, {name}": (partial(built, make), words) for name, (make, words) in DSL.items()},
    **{f"by hand, {name}": (partial(by_hand, add), words) for name, (add, words) in HAND.items()},
}


MAKERS: dict[str, tuple[Callable[[StreamsBuilder], Any], tuple[str, ...]]] = {
    "map_values": (
        lambda b: stream(b).map_values(lambda v: v).filter(lambda *_: True).merge(stream(b)).peek(lambda *_: None).to("out"),
        ("value of sink KSTREAM-SINK-0000000006, which writes to out, at LINE, made by map_values at LINE: write Produced(value=Order)",),
    ),
    "select_key and process_values": (
        lambda b: stream(b).select_key(first).process_values(Fixed).to("out"),
        ("which writes to out, at LINE, made by select_key at LINE and process_values at LINE: write Produced(str, Order)",),
    ),
    "map": (
        lambda b: unknown(b).group_by_key(Grouped(name="g")).count(Materialized("counts")).to_stream().to("out"),
        (
            "sink g-repartition-sink, which writes to g-repartition, at LINE, made by map at LINE: write Grouped(",
            "source g-repartition-source, which reads g-repartition, at LINE, made by map at LINE: write Grouped(",
            "uses, at LINE, made by map at LINE: write Materialized(",
            "which writes to out, at LINE, made by map at LINE: write Produced(",
        ),
    ),
    "the last of several": (
        lambda b: stream(b).map_values(lambda v: v).flat_map_values(lambda v: [v]).to("out"),
        ("made by flat_map_values at LINE: write",),
    ),
    "a table's map_values": (
        lambda b: rows(b).map_values(lambda v: v).filter(lambda *_: True).to_stream().to("out"),
        ("made by map_values at LINE: write",),
    ),
    "a table's group_by": (
        lambda b: rows(b).group_by(lambda k, v: (v, k), Grouped(name="g")).count(Materialized("counts")),
        ("which writes to g-repartition, at LINE, made by group_by at LINE: write", "uses, at LINE, made by group_by at LINE: write"),
    ),
    "a join": (lambda b: stream(b).join(rows(b), first).to("out"), ("which writes to out, at LINE, made by join at LINE: write",)),
    "no function": (lambda b: b.stream("in").filter(lambda *_: True).to("out"), ("which writes to out, at LINE: write Produced(str, Order)",)),
    "the store's own function": (
        lambda b: stream(b).group_by_key().aggregate(list, lambda k, v, a: a, "all"),
        ("value of store all, which KSTREAM-AGGREGATE-0000000001 uses, at LINE: write",),
    ),
}


@pytest.mark.parametrize("of", MAKERS)
def test_the_operation_is_named_whose_function_makes_what_has_no_serde(of: str) -> None:
    """A type is lost where a function does not tell it: the error names that operation of the user's, with its line, not only the sink behind it."""
    make, words = MAKERS[of]
    with pytest.raises(TopologyError) as missing:
        built(make, config_of())
    told = re.sub(r"test_missing_serdes\.py:\d+", "LINE", str(missing.value))
    for word in words:
        assert word in told


def test_the_operations_that_make_nothing_are_methods() -> None:
    """One that was renamed would be named as if it made the values."""
    methods = {each.__qualname__ for of in (dsl.Stream, dsl.Table, dsl.BranchedStream) for _, each in inspect.getmembers(of, inspect.isfunction)}
    assert methods >= {*_graph._KEEP_VALUES, _graph._GROUP_TABLE}


def config_of(**defaults: Any) -> StreamsConfig:
    return StreamsConfig(application_id="app", **defaults)


@pytest.mark.parametrize("place", PLACES)
def test_each_place_is_named_for_any_first_reader(place: str) -> None:
    """`App`, the test driver and a backfill say the same, before they do anything; with defaults nothing is missing."""
    make, words = PLACES[place]

    async def fill_back() -> None:
        async with EmbeddedLog() as log:
            await backfill(make(), config_of(), log=log)

    looks: list[Callable[[], Any]] = [lambda: App(make(), config_of()), lambda: TopologyTestDriver(make()), lambda: asyncio.run(fill_back())]
    told = []
    for look in looks:
        with pytest.raises(TopologyError, match="serdes are missing") as missing:
            look()
        told.append(str(missing.value))
    assert len(set(told)) == 1
    for word in words:
        assert word in told[0]
    App(make(), config_of(default_key_serde=S, default_value_serde=S))


@pytest.mark.parametrize("place", DSL)
def test_the_builder_names_it_if_it_knows_the_config(place: str) -> None:
    """`build(config)` refuses it already: defaults can come from nowhere else."""
    make, words = DSL[place]
    with pytest.raises(TopologyError) as missing:
        built(make, config_of())
    for word in words:
        assert word in str(missing.value)


@pytest.mark.parametrize("place", PLACES)
@given(defaults=st.sets(st.sampled_from(["key", "value"])))
@settings(max_examples=examples(4))
def test_later_readers_name_it_too(place: str, defaults: set[str]) -> None:
    """Each node and store, asked for one by one, has all its serdes, or its error names it; the whole topology is refused exactly if one is."""
    topology = PLACES[place][0]()
    config = config_of(**{f"default_{which}_serde": S for which in defaults})
    serdes_of = DefaultSerdes(config)
    missing: dict[str, str] = {}
    asked: list[tuple[str, Any]] = [(f"node {name}", node) for name, node in topology.nodes.items() if isinstance(node, SourceNode | SinkNode)]
    asked += [(f"store {name}", spec) for name, spec in {**topology.stores, **topology.global_stores}.items()]
    for name, found in asked:
        try:
            key, value = serdes_of.pair(found.key, found.value, of=name)
        except TopologyError as error:
            missing[name] = str(error)
        else:
            for serde, is_key in ((key, True), (value, False)):
                serde.serializer("topic", is_key=is_key)
                serde.deserializer("topic", is_key=is_key)
    assert all(f"serde of {name} is missing" in text for name, text in missing.items())
    if missing:
        with pytest.raises(TopologyError, match="serdes are missing"):
            App(topology, config)
    else:
        App(topology, config)


def test_processors_need_no_serdes() -> None:
    """Where nothing is read, written or stored, there is nothing to name."""
    topology = by_hand(lambda _: None)
    assert isinstance(topology.nodes["work"], ProcessorNode)
    App(topology, config_of())


@pytest.mark.parametrize(("windows", "wrap"), [(TEN, lambda key: serdes.windowed(key, 10)), (SESSIONS, serdes.session_windowed)])
def test_windows_of_keys_have_the_default_serde_of_keys(windows: Any, wrap: Callable[[Any], Any]) -> None:
    """As in Kafka Streams: the default is that of the key in the window, be it one of windows itself."""
    cases: list[tuple[Any, Any]] = [("k", S), (Windowed("k", Window(0, 7)), serdes.windowed(S, 7))]
    for key, serde in cases:
        builder = StreamsBuilder()
        builder.stream("in").group_by_key().windowed_by(windows).reduce(first).to_stream().to("out")
        with TopologyTestDriver(builder.build(), {"default_key_serde": serde, "default_value_serde": S}) as driver:
            driver.create_input_topic("in", serde, S).pipe_input(key, "v", 3)
            ((found, value),) = driver.create_output_topic("out", wrap(serde), S).read_key_values_to_list()
            assert found is not None
            assert (found.key, value) == (key, "v")
