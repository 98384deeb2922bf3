"""Wrong guesses of users of Kafka Streams, Faust, Quix Streams, FastStream and Bytewax are answered by the right line."""

# mypy: disable-error-code="attr-defined, arg-type, call-arg, call-overload, index, func-returns-value, var-annotated"
from __future__ import annotations

import asyncio
import copy
import pickle
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import ks_actors
from ks_actors import (
    App,
    BufferConfig,
    Consumed,
    EmitStrategy,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    Processor,
    Produced,
    QueryFailed,
    Record,
    Repartitioned,
    SessionStore,
    SessionWindows,
    SlidingWindows,
    Stream,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    TimeWindows,
    Topology,
    serdes,
    stores,
)
from ks_actors._hints import HINTS, MODULES, snake
from ks_actors.serdes import LONG, STRING, json
from ks_actors.testing import AppHarness, AsyncTopologyTestDriver, TopologyTestDriver
from tests.ks_actors.runtime.helpers import in_virtual_time

DEFAULTS: dict[str, Any] = {"default_key_serde": STRING, "default_value_serde": STRING}

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - the wrong way


def builder() -> Any:
    made = StreamsBuilder()
    made.stream("in", Consumed(STRING, STRING)).to("out")
    return made


def stream() -> Any:
    return StreamsBuilder().stream("in", Consumed(STRING, STRING))


def table() -> Any:
    return StreamsBuilder().table("in", Consumed(STRING, STRING))


def grouped() -> Any:
    return stream().group_by_key()


def windowed() -> Any:
    return grouped().windowed_by(TimeWindows.of_size_with_no_grace(5))


def app() -> Any:
    return App(builder(), "shop")


def driver() -> Any:
    return TopologyTestDriver(builder())


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(application_id="shop", **settings)


def imported(name: str, module: str = "ks_actors") -> None:
    exec(f"from {module} import {name}", {})  # noqa: S102 - the statement of a user


async def looped() -> None:
    async for _ in stream():
        pass


async def entered(manager: Any) -> None:
    async with manager:
        pass


def within(manager: Any) -> None:
    with manager:
        pass


def piped(describe: Callable[[Any], Any], value: str = "hi") -> None:
    """Process one record."""
    made = StreamsBuilder()
    describe(made.stream("in", Consumed(STRING, STRING)))
    with TopologyTestDriver(made, **DEFAULTS) as of_test:
        of_test.create_input_topic("in", STRING, STRING).pipe_input("k", value)


def counting() -> StreamsBuilder:
    made = StreamsBuilder()
    records = made.stream("in", Consumed(STRING, STRING)).group_by_key()
    records.count("counts")
    records.windowed_by(TimeWindows.of_size_with_no_grace(5)).count("windows")
    records.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)).count("sessions")
    return made


def stored(call: Callable[[Any], Any], name: str = "counts", *, plain: bool = False) -> None:
    with TopologyTestDriver(counting(), **DEFAULTS) as of_test:
        call(of_test.get_key_value_store(name) if plain else of_test.get_state_store(name))


class Reads(Processor[str, str, str, str]):
    read: Callable[[Any], Any]

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Record[str, str]) -> None:
        del record
        type(self).read(self.context)


def read(call: Callable[[Any], Any]) -> None:
    kind = type("Reads", (Reads,), {"read": staticmethod(call)})
    piped(lambda records: records.process(kind))


TUMBLING = "windowed_by(TimeWindows.of_size_with_no_grace("
BY_BUILDER = "describe it by a StreamsBuilder: builder.stream(topic"

JAVA: dict[str, tuple[Callable[[], Any], str]] = {
    "KStream": (lambda: imported("KStream"), "write Stream; StreamsBuilder().stream(topic) makes one"),
    "KTable": (lambda: imported("KTable"), "write Table; StreamsBuilder().table(topic) makes one"),
    "GlobalKTable": (lambda: imported("GlobalKTable"), "write GlobalTable; StreamsBuilder().global_table"),
    "KGroupedStream": (lambda: imported("KGroupedStream"), "write GroupedStream"),
    "KafkaStreams": (lambda: imported("KafkaStreams"), "write App"),
    "KafkaStreams, as an attribute": (lambda: ks_actors.KafkaStreams, "write App"),
    "KeyValue": (lambda: imported("KeyValue"), "write a tuple, (key, value)"),
    "Serdes": (lambda: imported("Serdes"), "write from ks_actors.serdes import STRING, LONG, json"),
    "Serdes.String": (lambda: imported("String", "ks_actors.serdes"), "cannot import name 'String' from 'ks_actors.serdes': write STRING"),
    "serdes.Long": (lambda: serdes.Long, "write LONG"),
    "Stores": (lambda: imported("Stores"), "write from ks_actors import stores"),
    "Stores.persistentKeyValueStore": (lambda: stores.persistentKeyValueStore, "'ks_actors.stores' has .*: write stores.key_value(name, key, value)"),
    "Stores.keyValueStoreBuilder": (lambda: stores.keyValueStoreBuilder, "write stores.key_value("),
    "TopologyTestDriver": (lambda: imported("TopologyTestDriver"), "write from ks_actors.testing import TopologyTestDriver"),
    "Transformer": (lambda: imported("Transformer"), "write Processor"),
    "StoreQueryParameters": (lambda: imported("StoreQueryParameters"), "write app.store(name)"),
    "mapValues": (lambda: stream().mapValues(str), "'Stream' object has no attribute 'mapValues': its name here is map_values"),
    "flatMapValues": (lambda: stream().flatMapValues(str), "its name here is flat_map_values"),
    "groupByKey": (lambda: stream().groupByKey(), "its name here is group_by_key"),
    "windowedBy": (lambda: grouped().windowedBy(5), "its name here is windowed_by"),
    "toStream": (lambda: table().toStream(), "its name here is to_stream"),
    "queryableStoreName": (lambda: table().queryableStoreName(), "its name here is queryable_store_name"),
    "globalTable": (lambda: builder().globalTable("t"), "its name here is global_table"),
    "addStateStore": (lambda: builder().addStateStore("s"), "its name here is add_state_store"),
    "addSource": (lambda: Topology().addSource("s", "t"), "its name here is add_source"),
    "through": (lambda: stream().through("t"), "stream.repartition(), or stream.to(topic) and builder.stream(topic)"),
    "branch": (lambda: stream().branch(str), "stream.split().branch(predicate, name)"),
    "transform": (lambda: stream().transform(str), "stream.process(supplier, *stores)"),
    "transformValues": (lambda: stream().transformValues(str), "stream.process_values(supplier, *stores)"),
    "Table.to": (lambda: table().to("t"), "a table is written by its changes: table.to_stream().to(topic)"),
    "Table.foreach": (lambda: table().foreach(print), "take its changes, table.to_stream().foreach(…)"),
    "TimeWindows.of": (lambda: TimeWindows.of(5), "TimeWindows.of_size_with_no_grace(size), or of_size_and_grace(size, grace)"),
    "TimeWindows.ofSizeWithNoGrace": (lambda: TimeWindows.ofSizeWithNoGrace(5), "its name here is of_size_with_no_grace"),
    "grace": (lambda: TimeWindows.of_size_with_no_grace(5).grace(1), "TimeWindows.of_size_and_grace(size, grace)"),
    "advanceBy": (lambda: TimeWindows.of_size_with_no_grace(5).advanceBy(1), "its name here is advance_by"),
    "JoinWindows.of": (lambda: JoinWindows.of(5), "JoinWindows.of_time_difference_with_no_grace(time_difference)"),
    "SessionWindows.with": (lambda: SessionWindows.with_(5), "SessionWindows.of_inactivity_gap_with_no_grace("),
    "SlidingWindows.of": (lambda: SlidingWindows.of(5), "SlidingWindows.of_time_difference_with_no_grace("),
    "Consumed.with": (lambda: Consumed.with_(STRING, STRING), "options are arguments: Consumed(key, value, name, "),
    "Consumed.withTimestampExtractor": (lambda: Consumed(STRING, STRING).withTimestampExtractor, "options are arguments: Consumed("),
    "Produced.with": (lambda: Produced.with_(STRING, STRING), "options are arguments: Produced(key, value, name, partitioner)"),
    "Grouped.with": (lambda: Grouped.with_(STRING, STRING), "options are arguments: Grouped(key, value, name)"),
    "Joined.with": (lambda: Joined.with_(STRING), "options are arguments: Joined(key, value, other_value"),
    "StreamJoined.with": (lambda: StreamJoined.with_(STRING), "options are arguments: StreamJoined("),
    "Repartitioned.as": (lambda: Repartitioned.as_("x"), "options are arguments: Repartitioned("),
    "Materialized.as": (lambda: Materialized.as_("x"), "options are arguments: Materialized(name, key, value"),
    "withCachingDisabled": (lambda: Materialized("x").withCachingDisabled, "options are arguments: Materialized("),
    "untilWindowCloses": (lambda: Suppressed.untilWindowCloses(BufferConfig.unbounded()), "its name here is until_window_closes"),
    "BufferConfig.maxRecords": (lambda: BufferConfig.maxRecords(5), "its name here is max_records, an argument of BufferConfig"),
    "withMaxBytes": (lambda: BufferConfig().withMaxBytes, "BufferConfig(max_bytes=…)"),
    "table(topic, Materialized)": (
        lambda: builder().table("t", Materialized("x")),
        "'consumed' of table of topic t .*; a Materialized is the argument 'materialized', where there is one",
    ),
    "group_by(…, name)": (lambda: stream().group_by(lambda k, v: v, "x"), "such as Grouped(name='x')"),
    "cleanUp": (lambda: app().cleanUp(), "await app.reset(execute=True), before the start, or `ks-actors reset`"),
    "setUncaughtExceptionHandler": (lambda: app().setUncaughtExceptionHandler(str), "App(uncaught_handler=function)"),
    "setStateListener": (lambda: app().setStateListener(str), "App(on_state=function)"),
    "getStateStore": (lambda: read(lambda context: context.getStateStore("s")), "context.get_state_store(name)"),
    "context.topic()": (lambda: read(lambda context: context.topic()), "context.record_metadata().topic"),
    "context.timestamp()": (lambda: read(lambda context: context.timestamp()), "record.timestamp, of the record that process gets"),
    "createInputTopic": (lambda: driver().createInputTopic("in"), "its name here is create_input_topic"),
    "driver.pipeInput": (lambda: driver().pipeInput("in", "k", "v"), "driver.create_input_topic(name, key, value).pipe_input(key, value)"),
    "readKeyValue": (lambda: driver().create_output_topic("out", STRING, STRING).readKeyValue(), "its name here is read_key_value"),
    "approximateNumEntries": (lambda: stored(lambda store: store.approximateNumEntries()), "store.approximate_num_entries()"),
    "get of a window store": (lambda: stored(lambda store: store.get("a"), "windows"), "store.fetch(key, start) has one window"),
    "get of a session store": (lambda: stored(lambda store: store.get("a"), "sessions"), "store.fetch(key) has the sessions of a key"),
    "a key of another type": (lambda: stored(lambda store: store.get(5)), "the serde cannot write key 5, of type int: give a key for <Serde STRING>"),
    "exactly_once_beta": (lambda: config(processing_guarantee="exactly_once_beta"), "did you mean exactly_once_v2?"),
    "exactly-once": (lambda: config(processing_guarantee="exactly-once"), "did you mean exactly_once_v2?"),
    "with app": (lambda: within(app()), "App is entered by `async with`; app.main() runs it as a program"),
    "with AppHarness": (lambda: within(AppHarness(builder())), "AppHarness is entered by `async with`"),
    "async with a driver": (
        lambda: asyncio.run(entered(driver())),
        "TopologyTestDriver is entered by `with`; Async",
    ),
    "with an async driver": (lambda: within(AsyncTopologyTestDriver(builder())), "AsyncTopologyTestDriver is entered by `async with`"),
}
FAUST: dict[str, tuple[Callable[[], Any], str]] = {
    "import faust": (lambda: imported("faust"), "write App and StreamsBuilder"),
    "faust.App": (
        lambda: App("shop", broker="kafka://localhost"),
        "give a StreamsBuilder or a Topology first, such as App(builder, 'shop')",
    ),
    "broker": (lambda: App(builder(), "shop", broker="kafka://localhost"), "broker .* is unknown; did you mean bootstrap_servers?"),
    "app id": (lambda: config(id="shop"), "id .* is unknown; did you mean application_id?"),
    "datadir": (lambda: config(datadir="data"), "datadir .* is unknown; did you mean state_dir?"),
    "@app.agent": (lambda: app().agent("t"), f"{BY_BUILDER}).map_values(function)"),
    "app.topic": (lambda: app().topic("t"), "ks_actors.Topic(name, key, value)"),
    "app.Table": (lambda: app().Table("t"), "grouped.count(store) makes a table, and app.store(name) reads it"),
    "@app.timer": (lambda: app().timer(5), "context.schedule(interval, PunctuationType.WALL_CLOCK_TIME, callback)"),
    "@app.task": (lambda: app().task(str), "an asyncio.TaskGroup beside `async with app:`"),
    "app.finalize": (lambda: app().run_forever(), "app.main() runs the app until a signal"),
    "table['a']": (lambda: table()["a"], "Table describes rows and has none: the app that runs it has them, app.store(name).get(key)"),
    "table.items": (lambda: table().items(), "async for key, value in app.store(name).all()"),
    "async for": (lambda: asyncio.run(looped()), "Stream describes records and has none: give functions of them"),
    "for": (lambda: list(stream()), "Stream describes records and has none: give functions of them"),
    "stream.items": (lambda: stream().items(), "stream.map(function) has key and value"),
    "stream.events": (lambda: stream().events(), "stream.map_values(function), or process(Processor)"),
    "stream.take": (lambda: stream().take(5), "stream.batch(function, max_records=…, max_wait_ms=…)"),
    "stream.echo": (lambda: stream().echo("a", "b"), "stream.to(topic)"),
    "store['a']": (lambda: stored(lambda store: store["a"]), "has no []: store.get(key)"),
    "store['a'], of values": (lambda: stored(lambda store: store["a"], plain=True), "has no []: store.get(key)"),
    "store['a'] = 1": (lambda: stored(lambda store: store.__setitem__("a", 1)), "has no []: store.put(key, value)"),
    "store.items": (lambda: stored(lambda store: store.items()), "has no attribute 'items': store.all() iterates over keys and values"),
}
QUIX: dict[str, tuple[Callable[[], Any], str]] = {
    "Application": (lambda: imported("Application"), "write App"),
    "broker_address": (lambda: config(broker_address="x:1"), "did you mean bootstrap_servers?"),
    "consumer_group": (lambda: config(consumer_group="x"), "did you mean application_id?"),
    "app.dataframe": (lambda: app().dataframe("t"), "describe it by a StreamsBuilder: builder.stream(Topic(name, key, value))"),
    "sdf.apply": (lambda: stream().apply(str), "stream.map_values(function), or map"),
    "sdf.update": (lambda: stream().update(print), "stream.peek(function)"),
    "sdf.to_topic": (lambda: stream().to_topic("t"), "stream.to(topic)"),
    "sdf['a']": (lambda: stream()["a"], "stream.map_values(lambda value: value['a'])"),
    "sdf[sdf['a'] > 1]": (lambda: stream()[stream()["a"] > 1], "filter(lambda key, value: value['a'])"),
    "sdf.tumbling_window": (lambda: stream().tumbling_window(5), f"group first: stream.group_by_key().{TUMBLING}timedelta(minutes=1))).count()"),
    "sdf.hopping_window": (lambda: stream().hopping_window(5, 1), ".advance_by(timedelta(seconds=10))"),
    "final": (lambda: windowed().count().final(), "windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)"),
    "current": (lambda: windowed().current(), "windowed.emit_strategy(EmitStrategy.ON_WINDOW_UPDATE), which is the default"),
    "sum": (lambda: grouped().sum(), "grouped.reduce(lambda total, value: total + value)"),
    "join_latest": (lambda: stream().join_latest(stream()), "stream.join(table, joiner)"),
    "state.set": (lambda: stored(lambda store: store.set("a", 1)), "store.put(key, value)"),
    "count without a group": (lambda: stream().count(), "group first: stream.group_by_key().count(store)"),
    "get_producer": (lambda: app().get_producer(), "await app.send(topic, key, value), or a ks_actors.Publisher"),
}
FASTSTREAM: dict[str, tuple[Callable[[], Any], str]] = {
    "KafkaBroker": (lambda: imported("KafkaBroker"), "write App(builder, application_id, servers)"),
    "FastStream": (lambda: imported("FastStream"), "write App"),
    "@broker.subscriber": (lambda: app().subscriber("t"), f"{BY_BUILDER}).map_values(function)"),
    "@broker.publisher": (lambda: app().publisher("t"), "await app.send(topic, key, value), or a ks_actors.Publisher"),
    "@app.on_startup": (lambda: app().on_startup(str), "App(services=[…]) enters what it gives before the start"),
}
BYTEWAX: dict[str, tuple[Callable[[], Any], str]] = {
    "operators": (lambda: imported("operators as op"), "write Stream; StreamsBuilder().stream(topic) makes one"),
    "Dataflow": (lambda: imported("Dataflow"), "write StreamsBuilder"),
    "op.input": (lambda: builder().input("t"), "builder.stream(Topic(name, key, value))"),
    "key_on": (lambda: stream().key_on(str), "stream.select_key(function)"),
    "stateful_map": (lambda: stream().stateful_map(str), "stream.process_values(supplier, store)"),
    "filter_map": (lambda: stream().filter_map(str), "stream.flat_map_values(function), which returns no result or [result]"),
    "collect": (lambda: grouped().collect(), "grouped.aggregate(list, lambda key, value, found: [*found, value])"),
    "max": (lambda: grouped().max(), "grouped.reduce(max)"),
}
OWN: dict[str, tuple[Callable[[], Any], str]] = {
    "map returns a str": (lambda: piped(lambda s: s.map(lambda _, v: v)), "returned a str as a pair: return (key, value), or use map_values"),
    "map returns a dict": (
        lambda: piped(lambda s: s.map(lambda *_: {"a": 1, "b": 2})),
        "returned a dict as a pair: return (key, value)",
    ),
    "flat_map_values returns a str": (lambda: piped(lambda s: s.flat_map_values(str.upper)), "returned a str in place of its results: return a list"),
    "flat_map_values returns a dict": (
        lambda: piped(lambda s: s.flat_map_values(lambda _: {"a": 1})),
        "returned a dict in place of its results",
    ),
    "filter without return": (lambda: stream().filter(lambda *_: None), "returns None in all cases: add the 'return'"),
    "filter of the value": (lambda: stream().filter(lambda v: v), "requires 1; give a function of two arguments"),
    "json without a type": (lambda: Consumed(STRING, json), "give its result for a type, such as serdes.json(Order)"),
    "no serde for a window": (
        lambda: piped(lambda s: s.group_by_key().windowed_by(TimeWindows(5, 0, 5)).count().to_stream().to("out", Produced(STRING, LONG))),
        "name serdes.windowed(…) of the key's own serde",
    ),
    "map_values to another type": (lambda: piped(lambda s: s.map_values(len).to("out")), "an int, does not fit <Serde STRING>"),
    "emit_strategy of a str": (
        lambda: windowed().emit_strategy("on_window_close"),
        "or EmitStrategy.ON_WINDOW_CLOSE",
    ),
    "a misspelt setting": (lambda: config(comit_interval_ms=5), "did you mean commit_interval_ms?"),
    "settings without names": (lambda: StreamsConfig("shop", "a:1"), "give StreamsConfig(application_id='shop', bootstrap_servers='a:1', …)"),
    "a naive time": (
        lambda: stored(lambda store: store.fetch("a", NAIVE), "windows"),
        "give time.replace(tzinfo=UTC)",
    ),
}
ALL = {
    f"{tool}: {name}": guess
    for tool, guesses in {
        "Kafka Streams": JAVA,
        "Faust": FAUST,
        "Quix": QUIX,
        "FastStream": FASTSTREAM,
        "Bytewax": BYTEWAX,
        "": OWN,
    }.items()
    for name, guess in guesses.items()
}


@pytest.mark.parametrize("guess", ALL)
def test_a_wrong_guess_is_answered_by_the_right_line(guess: str) -> None:
    """The error says what to write."""
    call, told = ALL[guess]
    with pytest.raises(Exception) as refused:
        call()
    words = re.escape(told).replace(re.escape(".*"), ".*")
    assert re.search(words, str(refused.value), flags=re.DOTALL), refused.value


RIGHT: dict[str, Callable[[], Any]] = {
    "the scheme of Faust": lambda: config(bootstrap_servers="kafka://a:1,kafka://b:2").bootstrap_servers == "a:1,b:2",
    "the handlers' names": lambda: config(processing_exception_handler="log_and_continue") == config(processing_exception_handler="continue"),
    "App with a dict": lambda: App(builder(), {"application_id": "shop"}).config == config(),
    "several topics": lambda: builder().stream(["a", "b"]) is not None,
    "the name of a store": lambda: grouped().count("counts").queryable_store_name == "counts",
    "a datetime": lambda: stored(lambda store: store.fetch("a", datetime.now(UTC)), "windows") is None,
    "on_window_close": lambda: windowed().emit_strategy(EmitStrategy.ON_WINDOW_CLOSE) is not None,
}


@pytest.mark.parametrize("guess", RIGHT)
def test_a_right_guess_works(guess: str) -> None:
    """These are what users expect."""
    assert RIGHT[guess]()


@in_virtual_time
async def test_a_query_of_another_kind_says_what_the_store_has() -> None:
    """By the kind of the store."""
    async with AppHarness(counting(), topics={"in": 1}, **DEFAULTS) as harness:
        for name, told in {"windows": "it has fetch, backward_fetch, fetch_all and all", "sessions": "it has fetch, fetch_session"}.items():
            with pytest.raises(QueryFailed, match=f"cannot be queried for a key; {told}"):
                await harness.app.store(name).get("a")
        with pytest.raises(QueryFailed, match="cannot be queried for a window; it has get, range, prefix_scan and all"):
            await harness.app.store("counts").fetch("a", 0)
        with pytest.raises(TypeError, match=r"has no \[\]: await app.store\(name\).get\(key\)"):
            harness.app.store("counts")["a"]


PUBLIC = [kind for name in ks_actors.__all__ if isinstance(kind := getattr(ks_actors, name), type)]


def test_the_hints_are_of_classes_that_lack_these_names() -> None:
    """Each class with hints exists, and has none of the names; their form is that in which they are looked up."""
    kinds = {kind.__name__: kind for kind in (*PUBLIC, TopologyTestDriver, AppHarness)}
    for name, hints in HINTS.items():
        for missing in hints:
            assert not hasattr(kinds[name], missing), (name, missing)
            assert missing == "Table" or snake(missing) == missing.rstrip("_")
    modules = {"ks_actors": ks_actors, "ks_actors.serdes": serdes, "ks_actors.topology._store_specs": stores}
    assert modules.keys() == MODULES.keys()
    for name, module in modules.items():
        assert [missing for missing in MODULES[name] if hasattr(module, missing)] == []


def test_what_is_unknown_everywhere_has_the_usual_error() -> None:
    """Also special names, and those of modules."""
    for thing, text in {
        stream(): "'Stream' object has no attribute 'frobnicate'",
        Stream: "type object 'Stream' has no attribute 'frobnicate'",
        ks_actors: "module 'ks_actors' has no attribute 'frobnicate'",
        app(): "'App' object has no attribute 'frobnicate'",
    }.items():
        with pytest.raises(AttributeError) as missing:
            thing.frobnicate  # noqa: B018 - it raises
        assert str(missing.value) == text
        assert getattr(thing, "frobnicate", 5) == 5
        assert not hasattr(thing, "__length_hint__")
    with pytest.raises(ImportError, match="cannot import name 'frobnicate' from 'ks_actors'"):
        imported("frobnicate")


def test_what_is_read_for_each_record_has_no_hook_for_missing_attributes() -> None:
    """A `__getattr__` slows the attributes that are there."""
    hot = (Record, ks_actors.Window, TimestampedKeyValueStore, TimestampedWindowStore, SessionStore)
    assert [kind for kind in hot if hasattr(kind, "__getattr__")] == []


def test_objects_with_hints_are_copied_and_pickled() -> None:
    """As others are."""
    for thing in (TimeWindows.of_size_with_no_grace(5), Consumed(), Materialized("a"), BufferConfig(), config(), EmitStrategy.ON_WINDOW_CLOSE):
        assert copy.copy(thing) == copy.deepcopy(thing) == pickle.loads(pickle.dumps(thing)) == thing  # noqa: S301 - our own
        assert not hasattr(thing, "mapValues")
