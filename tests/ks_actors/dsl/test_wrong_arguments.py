"""Each argument of each operation: the call itself refuses an invalid one, with an error that names the operation and the argument."""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import fields, replace
from datetime import timedelta
from inspect import signature
from typing import Any

import pytest

from ks_actors import SlidingWindows, StreamJoined, StreamsBuilder, Suppressed, TableJoined, TimeWindows, Topology, UnlimitedWindows, stores
from ks_actors._errors import TopologyError
from ks_actors.dsl import BufferConfig, Consumed, EmitStrategy, Grouped, Joined, JoinWindows, Materialized, Produced, Repartitioned, SessionWindows
from ks_actors.processors import Processor, ProcessorContext, Record
from ks_actors.serdes import LONG, STRING
from ks_actors.testing import TopologyTestDriver

CONSUMED = Consumed(STRING, STRING)
MINUTE = TimeWindows.of_size_with_no_grace(60_000)
GAP = SessionWindows.of_inactivity_gap_with_no_grace(60_000)
MEETING = JoinWindows.of_time_difference_with_no_grace(60_000)


def stream(b: StreamsBuilder) -> Any:
    return b.stream("in", CONSUMED)


def other(b: StreamsBuilder) -> Any:
    return b.stream("other", CONSUMED)


def table(b: StreamsBuilder) -> Any:
    return b.table("rows", CONSUMED)


def second(b: StreamsBuilder) -> Any:
    return b.table("more", CONSUMED)


def world(b: StreamsBuilder) -> Any:
    return b.global_table("world", CONSUMED)


def grouped(b: StreamsBuilder) -> Any:
    return stream(b).group_by_key()


def rows(b: StreamsBuilder) -> Any:
    return table(b).group_by(lambda key, value: (key, value), Grouped(STRING, STRING))


def windowed(b: StreamsBuilder) -> Any:
    return grouped(b).windowed_by(MINUTE)


def sessions(b: StreamsBuilder) -> Any:
    return grouped(b).windowed_by(GAP)


def cogrouped(b: StreamsBuilder) -> Any:
    return grouped(b).cogroup(three)


def none() -> Any:
    return 1


def one(_: Any) -> Any:
    return 1


def two(_: Any, __: Any) -> Any:
    return 1


def three(_: Any, __: Any, ___: Any) -> Any:
    return 1


def four(_: Any, __: Any, ___: Any, ____: Any) -> Any:
    return 1


def five(_: Any, __: Any, ___: Any, ____: Any, _____: Any) -> Any:
    return 1


FITTING = (none, one, two, three, four, five)

# Operation and role, how it is called with that argument, with how many arguments it is called itself, and whether it may be an `async def`.
FUNCTIONS: dict[str, tuple[Callable[[StreamsBuilder, Any], Any], tuple[int, ...], bool]] = {
    "filter: predicate": (lambda b, f: stream(b).filter(f), (2,), True),
    "filter_not: predicate": (lambda b, f: stream(b).filter_not(f), (2,), True),
    "map_values: mapper": (lambda b, f: stream(b).map_values(f), (1, 2), True),
    "map: mapper": (lambda b, f: stream(b).map(f), (2,), True),
    "flat_map_values: mapper": (lambda b, f: stream(b).flat_map_values(f), (1, 2), True),
    "flat_map: mapper": (lambda b, f: stream(b).flat_map(f), (2,), True),
    "select_key: selector": (lambda b, f: stream(b).select_key(f), (2,), True),
    "peek: action": (lambda b, f: stream(b).peek(f), (2,), True),
    "foreach: action": (lambda b, f: stream(b).foreach(f), (2,), True),
    "print: mapper": (lambda b, f: stream(b).print(mapper=f), (2,), False),
    "split s: predicate": (lambda b, f: stream(b).split("s").branch(f), (2,), False),
    "group_by: selector": (lambda b, f: stream(b).group_by(f), (2,), True),
    "batch: function": (lambda b, f: stream(b).batch(f), (1,), True),
    "Consumed: timestamp_extractor": (lambda _, f: Consumed(timestamp_extractor=f), (2,), False),
    "Produced: partitioner": (lambda _, f: Produced(partitioner=f), (4, 5), False),
    "Repartitioned: partitioner": (lambda _, f: Repartitioned(partitioner=f), (4, 5), False),
    "reduce: reducer": (lambda b, f: grouped(b).reduce(f), (2,), False),
    "aggregate: initializer": (lambda b, f: grouped(b).aggregate(f, three), (0,), False),
    "aggregate: aggregator": (lambda b, f: grouped(b).aggregate(none, f), (3,), False),
    "reduce (windows): reducer": (lambda b, f: windowed(b).reduce(f), (2,), False),
    "aggregate (windows): initializer": (lambda b, f: windowed(b).aggregate(f, three), (0,), False),
    "aggregate (windows): aggregator": (lambda b, f: windowed(b).aggregate(none, f), (3,), False),
    "reduce (sessions): reducer": (lambda b, f: sessions(b).reduce(f), (2,), False),
    "aggregate (sessions): initializer": (lambda b, f: sessions(b).aggregate(f, three, three), (0,), False),
    "aggregate (sessions): aggregator": (lambda b, f: sessions(b).aggregate(none, f, three), (3,), False),
    "aggregate (sessions): merger": (lambda b, f: sessions(b).aggregate(none, three, f), (3,), False),
    "cogroup: aggregator": (lambda b, f: grouped(b).cogroup(f), (3,), False),
    "cogrouped aggregate: initializer": (lambda b, f: cogrouped(b).aggregate(f), (0,), False),
    "cogrouped aggregate (windows): initializer": (lambda b, f: cogrouped(b).windowed_by(MINUTE).aggregate(f), (0,), False),
    "cogrouped aggregate (sessions): initializer": (lambda b, f: cogrouped(b).windowed_by(GAP).aggregate(f, three), (0,), False),
    "cogrouped aggregate (sessions): merger": (lambda b, f: cogrouped(b).windowed_by(GAP).aggregate(none, f), (3,), False),
    "join (table): joiner": (lambda b, f: stream(b).join(table(b), f), (2, 3), False),
    "left_join (table): joiner": (lambda b, f: stream(b).left_join(table(b), f), (2, 3), False),
    "join (global): key_selector": (lambda b, f: stream(b).join(world(b), f, two), (2,), False),
    "join (global): joiner": (lambda b, f: stream(b).join(world(b), two, f), (2, 3, 4), False),
    "left_join (global): joiner": (lambda b, f: stream(b).left_join(world(b), two, f), (2, 3, 4), False),
    "join (stream): joiner": (lambda b, f: stream(b).join(other(b), f, MEETING), (2, 3), False),
    "left_join (stream): joiner": (lambda b, f: stream(b).left_join(other(b), f, MEETING), (2, 3), False),
    "outer_join (stream): joiner": (lambda b, f: stream(b).outer_join(other(b), f, MEETING), (2, 3), False),
    "filter (table): predicate": (lambda b, f: table(b).filter(f), (2,), False),
    "filter_not (table): predicate": (lambda b, f: table(b).filter_not(f), (2,), False),
    "map_values (table): mapper": (lambda b, f: table(b).map_values(f), (1, 2), False),
    "transform_values: supplier": (lambda b, f: table(b).transform_values(f), (0,), False),
    "group_by (table): selector": (lambda b, f: table(b).group_by(f), (2,), False),
    "reduce (table): adder": (lambda b, f: rows(b).reduce(f, two), (2,), False),
    "reduce (table): subtractor": (lambda b, f: rows(b).reduce(two, f), (2,), False),
    "aggregate (table): initializer": (lambda b, f: rows(b).aggregate(f, three, three), (0,), False),
    "aggregate (table): adder": (lambda b, f: rows(b).aggregate(none, f, three), (3,), False),
    "aggregate (table): subtractor": (lambda b, f: rows(b).aggregate(none, three, f), (3,), False),
    "join (tables): joiner": (lambda b, f: table(b).join(second(b), f), (2, 3), False),
    "left_join (tables): joiner": (lambda b, f: table(b).left_join(second(b), f), (2, 3), False),
    "outer_join (tables): joiner": (lambda b, f: table(b).outer_join(second(b), f), (2, 3), False),
    "join (by foreign key): foreign_key": (lambda b, f: table(b).join(second(b), two, foreign_key=f), (1, 2), False),
    "join (by foreign key): joiner": (lambda b, f: table(b).join(second(b), f, foreign_key=one), (2, 3, 4), False),
    "left_join (by foreign key): foreign_key": (lambda b, f: table(b).left_join(second(b), two, foreign_key=f), (1, 2), False),
    "left_join (by foreign key): joiner": (lambda b, f: table(b).left_join(second(b), f, foreign_key=one), (2, 3, 4), False),
    "TableJoined: partitioner": (lambda _, f: TableJoined(partitioner=f), (4, 5), False),
    "TableJoined: other_partitioner": (lambda _, f: TableJoined(other_partitioner=f), (4, 5), False),
    "node x: supplier": (lambda _, f: source().add_processor("x", f, "in"), (0,), False),
    "process: supplier": (lambda b, f: stream(b).process(f), (0,), False),
    "process_values: supplier": (lambda b, f: stream(b).process_values(f), (0,), False),
    "store s: supplier": (lambda _, f: stores.custom("s", f), (0,), False),
    "source x: timestamp_extractor": (lambda _, f: Topology().add_source("x", "t", timestamp_extractor=f), (2,), False),
    "sink x: partitioner": (lambda _, f: source().add_sink("x", "out", "in", partitioner=f), (4, 5), False),
}
OPTIONAL = {"print: mapper", "Consumed: timestamp_extractor", "Produced: partitioner", "Repartitioned: partitioner"}
OPTIONAL |= {"source x: timestamp_extractor", "sink x: partitioner", "TableJoined: partitioner", "TableJoined: other_partitioner"}
OPTIONAL |= {"join (by foreign key): foreign_key", "left_join (by foreign key): foreign_key"}  # None joins on the key


def source() -> Topology:
    return Topology().add_source("in", "t", key=STRING, value=STRING)


async def later(*_: Any) -> Any: ...
async def some(*_: Any) -> AsyncIterator[Any]:
    yield None


class Later:
    async def __call__(self, *_: Any) -> Any: ...


def by_name(*_: Any, must: Any) -> Any:
    return must


def wrong_functions(name: str, counts: tuple[int, ...], awaited: bool) -> list[Any]:
    """Return invalid values for an argument of so many arguments."""
    values: list[Any] = ["upper", 5, 1.5, b"f", [two], {"f": two}, object(), STRING, some, by_name]
    values += [each for number, each in enumerate(FITTING) if number not in counts]
    values += [] if name in OPTIONAL else [None]
    values += [] if awaited else [later, Later(), functools.partial(later, 1)]
    return values


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_cannot_be_called_so_are_refused_by_name(name: str) -> None:
    """Any value that is no function, has other parameters, or is an `async def` where nothing is awaited; the error names role and operation."""
    call, counts, awaited = FUNCTIONS[name]
    operation, role = name.split(": ")
    wrong = wrong_functions(name, counts, awaited)
    assert len(wrong) >= 10
    for value in wrong:
        with pytest.raises(TopologyError) as refused:
            call(StreamsBuilder(), value)
        words = operation.partition(" (")[0]
        assert role in str(refused.value), value
        assert words in str(refused.value) or (words in ("process", "process_values") and "node KSTREAM" in str(refused.value)), value


@pytest.mark.parametrize("name", [name for name, (_, _, awaited) in FUNCTIONS.items() if awaited])
def test_functions_that_are_awaited_may_be_asynchronous(name: str) -> None:
    """The documented ones take an `async def`."""
    call, counts, _ = FUNCTIONS[name]

    async def first(_: Any) -> Any: ...
    async def both(_: Any, __: Any) -> Any:
        return 1

    call(StreamsBuilder(), both if 2 in counts else first)


# Operation, how it is called with options, and of which kind these have to be.
OPTIONS: dict[str, tuple[Callable[[StreamsBuilder, Any], Any], type]] = {
    "stream": (lambda b, o: b.stream("t", o), Consumed),
    "table of topic t": (lambda b, o: b.table("t", o), Consumed),
    "table of topic t: materialized": (lambda b, o: b.table("t", CONSUMED, o), Materialized),
    "global_table of topic t": (lambda b, o: b.global_table("t", o), Consumed),
    "global_table of topic t: materialized": (lambda b, o: b.global_table("t", CONSUMED, o), Materialized),
    "global store s": (lambda b, o: b.add_global_store(stores.key_value("s"), "t", Keeper, o), Consumed),
    "repartition": (lambda b, o: stream(b).repartition(o), Repartitioned),
    "to": (lambda b, o: stream(b).to("t", o), Produced),
    "to_table": (lambda b, o: stream(b).to_table(o), Materialized),
    "group_by": (lambda b, o: stream(b).group_by(two, o), Grouped),
    "group_by_key": (lambda b, o: stream(b).group_by_key(o), Grouped),
    "count": (lambda b, o: grouped(b).count(o), Materialized),
    "reduce": (lambda b, o: grouped(b).reduce(two, o), Materialized),
    "aggregate": (lambda b, o: grouped(b).aggregate(none, three, o), Materialized),
    "count: windows": (lambda b, o: windowed(b).count(o), Materialized),
    "reduce: windows": (lambda b, o: windowed(b).reduce(two, o), Materialized),
    "aggregate: windows": (lambda b, o: windowed(b).aggregate(none, three, o), Materialized),
    "count: sessions": (lambda b, o: sessions(b).count(o), Materialized),
    "reduce: sessions": (lambda b, o: sessions(b).reduce(two, o), Materialized),
    "aggregate: sessions": (lambda b, o: sessions(b).aggregate(none, three, three, o), Materialized),
    "cogrouped aggregate": (lambda b, o: cogrouped(b).aggregate(none, o), Materialized),
    "cogrouped aggregate: windows": (lambda b, o: cogrouped(b).windowed_by(MINUTE).aggregate(none, o), Materialized),
    "cogrouped aggregate: sessions": (lambda b, o: cogrouped(b).windowed_by(GAP).aggregate(none, three, o), Materialized),
    "join": (lambda b, o: stream(b).join(table(b), two, o), Joined),
    "left_join": (lambda b, o: stream(b).left_join(table(b), two, o), Joined),
    "join: streams": (lambda b, o: stream(b).join(other(b), two, MEETING, o), StreamJoined),
    "left_join: streams": (lambda b, o: stream(b).left_join(other(b), two, MEETING, o), StreamJoined),
    "outer_join: streams": (lambda b, o: stream(b).outer_join(other(b), two, MEETING, o), StreamJoined),
    "filter": (lambda b, o: table(b).filter(two, o), Materialized),
    "filter_not": (lambda b, o: table(b).filter_not(two, o), Materialized),
    "map_values": (lambda b, o: table(b).map_values(one, o), Materialized),
    "group_by: table": (lambda b, o: table(b).group_by(two, o), Grouped),
    "count: table": (lambda b, o: rows(b).count(o), Materialized),
    "reduce: table": (lambda b, o: rows(b).reduce(two, two, o), Materialized),
    "aggregate: table": (lambda b, o: rows(b).aggregate(none, three, three, o), Materialized),
    "join: tables": (lambda b, o: table(b).join(second(b), two, o), Materialized),
    "left_join: tables": (lambda b, o: table(b).left_join(second(b), two, o), Materialized),
    "outer_join: tables": (lambda b, o: table(b).outer_join(second(b), two, o), Materialized),
    "join: by foreign key": (lambda b, o: table(b).join(second(b), two, foreign_key=one, joined=o), TableJoined),
    "left_join: by foreign key": (lambda b, o: table(b).left_join(second(b), two, foreign_key=one, joined=o), TableJoined),
    "join: materialized": (lambda b, o: table(b).join(second(b), two, o, foreign_key=one), Materialized),
    "left_join: materialized": (lambda b, o: table(b).left_join(second(b), two, o, foreign_key=two), Materialized),
}
KINDS = (Consumed, Produced, Grouped, Joined, Repartitioned, Materialized, StreamJoined, TableJoined)


class Keeper(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None: ...


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_another_kind_are_refused_by_name(name: str) -> None:
    """A serde, a name (except of a store), or the options of another operation: the error names the operation, and the kind to give."""
    call, kind = OPTIONS[name]
    wrong = [
        STRING,
        "name" if kind is not Materialized else 1.5,
        5,
        b"x",
        ["x"],
        {"key": STRING},
        object(),
        kind,
        (STRING, STRING),
        *(each() for each in KINDS if each is not kind),
    ]
    assert len(wrong) >= 10
    for value in wrong:
        with pytest.raises(TopologyError, match=rf"of {re.escape(name.partition(':')[0])}.*give .*{kind.__name__}"):
            call(StreamsBuilder(), value)
    call(StreamsBuilder(), None)


NO_SERDES = [object, type(STRING), "STRING", 5, object(), [STRING], STRING.serializer, Consumed(), b"", lambda value: value]
NO_INTS = ["5", 1.5, None, True, [5], object(), int, b"5", {5}, 5j]
NO_FLAGS = ["yes", 1, 0, None, "False", [], object(), bool, 1.0, b""]
NO_NAMES = ["", ".", "..", "a b", "ä", "a/b", "x" * 250, 5, b"name", ["name"], True, "a\n"]
NO_CONFIGS = ["retention.ms", 5, {"retention.ms": 5}, {5: "x"}, [1], object(), True, {"a": None}, 1.5, {b"a": "x"}]
NO_STORE_TYPES = ["memory", "RocksDB", 5, b"rocksdb", True, [], object(), str, "in-memory", ""]


@pytest.mark.parametrize("kind", [*KINDS, BufferConfig])
def test_fields_of_options_are_refused_by_name(kind: type[Any]) -> None:
    """Each field of each kind of options: no serde, no name, no number, no flag, no mapping of str; the error names field and kind."""
    wrong = {"key": NO_SERDES, "value": NO_SERDES, "other_value": NO_SERDES, "name": NO_NAMES, "store_name": NO_NAMES, "store_type": NO_STORE_TYPES}
    wrong |= {key: [*NO_INTS, -1] for key in ("grace_ms", "partitions", "retention_ms", "history_retention_ms", "max_records", "max_bytes")}
    wrong |= {"logging": NO_FLAGS, "caching": NO_FLAGS, "changelog_configs": NO_CONFIGS}
    wrong |= {
        "offset_reset": ["first", "EARLIEST", 5, True, b"latest", [], object(), 0, timedelta(seconds=-1), ""],
        "when_full": ["wait", 5, None, True, b"", [], "", 0, 1.5, {}],
    }
    functions = {"timestamp_extractor", "partitioner", "other_partitioner"}
    assert {field.name for field in fields(kind)} <= wrong.keys() | functions
    optional = {name for name, parameter in signature(kind).parameters.items() if parameter.default is None}
    for field in {field.name for field in fields(kind)} - functions:
        for value in wrong[field]:
            if value is None and field in optional:
                continue
            with pytest.raises(TopologyError) as refused:
                replace(kind(), **{field: value})
            assert "name" in field or (field in str(refused.value) and kind.__name__ in str(refused.value)), (field, value)


WINDOWS: dict[str, Callable[[Any], Any]] = {
    "TimeWindows: size_ms": lambda ms: TimeWindows.of_size_with_no_grace(ms),
    "TimeWindows: grace_ms": lambda ms: TimeWindows.of_size_and_grace(5, ms),
    "TimeWindows: advance_ms": lambda ms: MINUTE.advance_by(ms),
    "SlidingWindows: time_difference_ms": lambda ms: SlidingWindows.of_time_difference_with_no_grace(ms),
    "SlidingWindows: grace_ms": lambda ms: SlidingWindows.of_time_difference_and_grace(5, ms),
    "SessionWindows: inactivity_gap_ms": lambda ms: SessionWindows.of_inactivity_gap_with_no_grace(ms),
    "SessionWindows: grace_ms": lambda ms: SessionWindows.of_inactivity_gap_and_grace(5, ms),
    "UnlimitedWindows: start_ms": lambda ms: UnlimitedWindows.of().start_on(ms),
    "JoinWindows: before_ms": lambda ms: MEETING.before(ms),
    "JoinWindows: after_ms": lambda ms: MEETING.after(ms),
    "JoinWindows: grace_ms": lambda ms: JoinWindows.of_time_difference_and_grace(5, ms),
    "Suppressed: wait_ms": lambda ms: Suppressed.until_time_limit(ms, BufferConfig.unbounded()),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_times_that_are_no_ints_are_refused_by_name(name: str) -> None:
    """Times are ints of ms; the error names the kind and the field."""
    kind, field = name.split(": ")
    for value in NO_INTS:
        if value is None and kind == "Suppressed":
            continue
        with pytest.raises(TopologyError, match=f"{field} of {kind} is .*: give an int"):
            WINDOWS[name](value)


OTHERS: dict[str, tuple[Callable[[StreamsBuilder, Any], Any], str, list[Any]]] = {
    "windowed_by": (
        lambda b, w: grouped(b).windowed_by(w),
        "argument 'windows' of windowed_by",
        [MEETING, 5, "1m", None, TimeWindows, STRING, [], object(), {}, 1.5],
    ),
    "windowed_by (cogrouped)": (
        lambda b, w: cogrouped(b).windowed_by(w),
        "of cogrouped windowed_by",
        [MEETING, 5, "1m", None, GAP.__class__, STRING, [], object(), {}, 1.5],
    ),
    "windows of a join": (
        lambda b, w: stream(b).join(other(b), two, w),
        "of join",
        [MINUTE, GAP, 5, "1m", JoinWindows, STRING, [], object(), {}, StreamJoined()],
    ),
    "emit_strategy": (
        lambda b, e: windowed(b).emit_strategy(e),
        "argument 'emit' of emit_strategy",
        ["on_window_close", 1, None, EmitStrategy, True, [], object(), {}, STRING, b""],
    ),
    "emit_strategy (sessions)": (
        lambda b, e: sessions(b).emit_strategy(e),
        "argument 'emit'",
        ["on_window_close", 1, None, EmitStrategy, True, [], object(), {}, STRING, b""],
    ),
    "suppress": (
        lambda b, s: windowed(b).count().suppress(s),
        "argument 'suppressed' of suppress",
        [BufferConfig(), 5, None, "close", Suppressed, [], object(), {}, STRING, MINUTE],
    ),
    "buffer": (
        lambda _, s: Suppressed.until_window_closes(s),
        "buffer of Suppressed",
        [None, 5, "x", BufferConfig, [], object(), {}, STRING, MINUTE, True],
    ),
    "merge": (
        lambda b, s: stream(b).merge(s),
        "argument 'other' of merge",
        ["in", None, 5, [], object(), {}, STRING, Consumed(), StreamsBuilder(), table(StreamsBuilder())],
    ),
    "join": (
        lambda b, t: stream(b).join(t, two),
        "cannot be joined with",
        ["rows", None, 5, [], object(), {}, STRING, Consumed(), StreamsBuilder(), Topology()],
    ),
    "join (tables)": (
        lambda b, t: table(b).join(t, two),
        "argument 'other' of join",
        ["rows", None, 5, [], object(), {}, STRING, stream(StreamsBuilder()), StreamsBuilder(), Consumed()],
    ),
    "join (by foreign key)": (
        lambda b, t: table(b).join(t, two, foreign_key=one),
        "argument 'other' of join",
        ["rows", None, 5, [], object(), {}, STRING, stream(StreamsBuilder()), world(StreamsBuilder()), Consumed()],
    ),
    "cogroup": (
        lambda b, g: cogrouped(b).cogroup(g, three),
        "argument 'grouped' of cogroup",
        ["in", None, 5, [], object(), {}, STRING, stream(StreamsBuilder()), three, Grouped()],
    ),
    "print": (lambda b, f: stream(b).print(file=f), "file of print", ["out.txt", 5, [], object(), {}, STRING, b"", 1.5, True, two]),
    "add_state_store": (
        lambda b, s: b.add_state_store(s),
        "argument 'spec' of add_state_store",
        ["s", None, 5, [], object(), {}, STRING, Materialized(), stores.key_value, True],
    ),
    "topic of stream": (lambda b, t: b.stream(t), "stream", ["", "a b", "ä", ".", "..", 5, None, [], [5], ["a", "b c"], "x" * 250, re.compile(b"a")]),
    "topic of table": (lambda b, t: b.table(t, CONSUMED), "of table", ["", "a b", "ä", ".", "..", 5, None, [], ["a"], "x" * 250, re.compile("a")]),
    "topic of global table": (
        lambda b, t: b.global_table(t, CONSUMED),
        "of global_table",
        ["", "a b", "ä", ".", "..", 5, None, [], ["a"], "x" * 250],
    ),
    "topic of topic": (
        lambda b, t: stream(b).to(t),
        "of to behind KSTREAM-SOURCE-0000000000",
        ["", "a b", "ä", ".", "..", 5, None, [], ["a"], two, later, "x" * 250],
    ),
    "topics of a source": (lambda _, t: Topology().add_source("x", t), "source x", ["", "a b", "ä", ".", "..", 5, None, [], [5], ["a", "b c"]]),
    "topic of a sink": (lambda _, t: source().add_sink("x", t, "in"), "of sink x", ["", "a b", "ä", ".", "..", 5, None, [], ["a"], two]),
    "name of a node": (lambda _, n: Topology().add_source(n, "t"), "not a valid node name", ["", 5, None, [], b"x", True, 1.5, object(), {}, STRING]),
    "name of a store": (lambda _, n: stores.key_value(n), "is not a valid name", NO_NAMES),
    "serdes of a store": (lambda _, s: stores.key_value("s", s), "key of store s", NO_SERDES),
    "serdes of a source": (lambda _, s: Topology().add_source("x", "t", value=s), "value of source x", NO_SERDES),
    "serdes of a sink": (lambda _, s: source().add_sink("x", "out", "in", key=s), "key of sink x", NO_SERDES),
    "type of a store": (lambda _, t: stores.window("s", retention_ms=5, window_size_ms=5, type=t), "type of store s", NO_STORE_TYPES),
    "retention": (lambda _, ms: stores.session("s", retention_ms=ms), "retention_ms of session store s", NO_INTS),
    "history": (lambda _, ms: stores.versioned_key_value("s", history_retention_ms=ms), "history_retention_ms of versioned store s", NO_INTS),
    "size": (lambda _, ms: stores.window("s", retention_ms=5, window_size_ms=ms), "window_size_ms of window store s", NO_INTS),
    "logging": (lambda _, f: stores.key_value("s", logging=f), "logging of store s", NO_FLAGS),
    "configs": (lambda _, c: stores.key_value("s", changelog_configs=c), "changelog_configs of store s", NO_CONFIGS),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_arguments_are_refused_by_name(name: str) -> None:
    """Windows, streams, tables, topics, stores, files and numbers; the error names the operation and the argument."""
    call, words, wrong = OTHERS[name]
    assert len(wrong) >= 10
    for value in wrong:
        with pytest.raises(TopologyError, match=re.escape(words)):
            call(StreamsBuilder(), value)


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: stream(a).merge(stream(b)),
        lambda a, b: stream(a).join(table(b), two),
        lambda a, b: stream(a).join(other(b), two, MEETING),
        lambda a, b: table(a).join(second(b), two),
        lambda a, b: table(a).join(second(b), two, foreign_key=one),
        lambda a, b: cogrouped(a).cogroup(grouped(b), three),
    ],
)
def test_streams_and_tables_of_two_builders_do_not_meet(call: Callable[[StreamsBuilder, StreamsBuilder], Any]) -> None:
    """Each builder makes a topology of its own."""
    with pytest.raises(TopologyError, match="a stream or table of another StreamsBuilder"):
        call(StreamsBuilder(), StreamsBuilder())


class Greedy(Processor[Any, Any, Any, Any]):
    def __init__(self, needed: int) -> None:
        raise AssertionError("never made")

    def process(self, record: Record[Any, Any]) -> None: ...


class Broken(Processor[Any, Any, Any, Any]):
    def __init__(self) -> None:
        raise LookupError("no connection")

    def process(self, record: Record[Any, Any]) -> None: ...


class Narrow(Processor[Any, Any, Any, Any]):
    def process(self) -> None: ...  # type: ignore[override]


class Wide(Processor[Any, Any, Any, Any]):
    def init(self, context: ProcessorContext[Any, Any], more: int) -> None: ...  # type: ignore[override]
    def process(self, record: Record[Any, Any]) -> None: ...


class Stored(Processor[Any, Any, Any, Any]):
    stores = ("counts",)

    def process(self, record: Record[Any, Any]) -> None: ...


@pytest.mark.parametrize(
    ("supplier", "words"),
    [
        (Greedy, "supplier of node x cannot be called with 0 positional arguments"),
        (Broken, "supplier of node x is .*, which raises LookupError when it is called: no connection"),
        (Narrow, "process of node x cannot be called with 1 positional arguments"),
        (Wide, "init of node x cannot be called with 1 positional arguments"),
        (Stored, "'counts' is not a StoreSpec, but node x needs a store"),
        (Keeper(), "is a processor, not a supplier: give its class"),
    ],
)
def test_processors_that_cannot_work_are_refused_when_they_are_added(supplier: Any, words: str) -> None:
    """Their supplier, methods and stores are looked at in the call."""
    with pytest.raises(TopologyError, match=words):
        source().add_processor("x", supplier, "in")


def test_a_good_topology_passes_all_checks() -> None:
    """The checks refuse nothing that works: unusual callables among it."""

    class Callable2:
        def __call__(self, key: str, value: str) -> str:
            return key + value

    builder = StreamsBuilder()
    rows_ = table(builder)
    stream(builder).map_values(str).map_values(Callable2()).map_values(functools.partial(str.replace, "a", "b")).filter(max).join(
        rows_, lambda *values: values
    ).to(lambda key, value, context: "out", Produced(STRING, LONG, partitioner=lambda topic, key, value, count: None))
    assert builder.build() is not None


def test_options_of_one_kind_of_join_are_refused_by_the_other() -> None:
    """A join on the key has a name, one by a foreign key has a TableJoined; the error says which to give."""
    builder = StreamsBuilder()
    left, right = table(builder), second(builder)
    with pytest.raises(TopologyError, match=r"argument 'joined' of join behind KTABLE-SOURCE-0000000002 .*give foreign_key=…, or leave it out"):
        left.join(right, two, joined=TableJoined("j"))
    with pytest.raises(TopologyError, match=r"argument 'name' of left_join j is for joins on the key: .*give joined=TableJoined\('j'\)"):
        left.left_join(right, two, foreign_key=one, name="j")


@pytest.mark.parametrize("method", ["join", "left_join"])
def test_missing_serdes_of_a_foreign_key_join_are_named(method: str) -> None:
    """Each topic, store and node that lacks one: mapped values have no serde, and their hash is written by one."""
    builder = StreamsBuilder()
    left = builder.table("left", CONSUMED).map_values(lambda text: text)
    right = builder.table("right", Consumed(STRING, STRING)).map_values(lambda text: text)
    getattr(left, method)(right, two, foreign_key=one, joined=TableJoined("j"))
    with pytest.raises(TopologyError) as refused:
        TopologyTestDriver(builder.build())
    assert "value of processor j-subscription-registration-processor, which compares foreign keys and hashes values of the left table" in str(
        refused.value
    )
    assert "value of sink j-subscription-response-sink, which writes to j-subscription-response-topic" in str(refused.value)
    assert "value of source j-subscription-response-source, which reads j-subscription-response-topic" in str(refused.value)
    assert "key of" not in str(refused.value)
    TopologyTestDriver(builder.build(), config={"default_value_serde": STRING}).close()


def test_keys_without_a_serde_take_the_default_of_keys() -> None:
    """In subscriptions, too, which are values with the left key in them."""
    builder = StreamsBuilder()
    options: Any = Consumed(None, STRING)
    left, right = builder.table("left", options), builder.table("right", options)
    left.join(right, lambda one, other: one + other, foreign_key=len, joined=TableJoined("j")).to_stream().to("out", Produced(None, STRING))
    topology = builder.build()
    with pytest.raises(TopologyError, match="value of sink j-subscription-registration-sink"):
        TopologyTestDriver(topology, config={"default_value_serde": STRING})
    with TopologyTestDriver(topology, config={"default_key_serde": LONG}) as driver:
        driver.create_input_topic("right", LONG, STRING).pipe_input(3, "!")
        driver.create_input_topic("left", LONG, STRING).pipe_input(7, "abc")
        assert driver.create_output_topic("out", LONG, STRING).read_key_values_to_list() == [(7, "abc!")]


def test_a_build_takes_a_config_alone() -> None:
    """The word of the setting is refused, with the remedy."""
    build: Any = StreamsBuilder().build
    with pytest.raises(TopologyError, match="argument 'config' of build is 'all': give a StreamsConfig"):
        build("all")
