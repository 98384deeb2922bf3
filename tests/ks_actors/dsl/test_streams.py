"""The types and options that streams carry along, and the DSL's refusals."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from ks_actors._errors import TopologyError
from ks_actors.dsl import Consumed, Grouped, Materialized, Produced, Repartitioned, Stream, StreamsBuilder, Windowed
from ks_actors.processors import AsyncOptions, FixedKeyProcessor, FixedKeyRecord, Processor, Record, Retry
from ks_actors.processors.api._adapter import ProcessorOperator
from ks_actors.processors.api._argument_checks import check_function
from ks_actors.processors.stateless._stateless import DropNullKeys, PassThrough, Stateless
from ks_actors.serdes import LONG, STRING, VOID, windowed, with_default
from ks_actors.topology import ProcessorNode, SinkNode, SourceNode, Topology, stores
from tests.ks_actors.dsl.test_names import F, P, first, pair, pairs, second, yes

READ: Consumed[str, int] = Consumed(STRING, LONG)


def operator(topology: Topology, name: str) -> Any:
    node = topology.nodes[name]
    assert isinstance(node, ProcessorNode)
    return node.operator


def sink(topology: Topology) -> SinkNode:
    return next(node for node in topology.nodes.values() if isinstance(node, SinkNode))


def test_serdes_travel_as_far_as_types_are_known() -> None:
    """A changed key or value forgets its serde; the ends of a split keep both, and so does a merge, for apps without default serdes."""
    s = StreamsBuilder().stream("in", READ)
    carried: dict[str, Stream[Any, Any]] = {
        "filter": s.filter(yes),
        "peek": s.peek(yes),
        "branch": s.split().branch(yes).no_default_branch()["KSTREAM-BRANCH-00000000031"],
        "map_values": s.map_values(lambda value: value),
        "flat_map_values": s.flat_map_values(range),
        "process_values": s.process_values(F),
        "select_key": s.select_key(second),
        "map": s.map(pair),
        "flat_map": s.flat_map(pairs),
        "process": s.process(P),
    }
    serdes = {name: (stream.key, stream.value) for name, stream in carried.items()}
    merged = carried["merge"] = s.merge(s)
    assert (repr(merged.key), repr(merged.value)) == (repr(STRING), repr(LONG))
    assert [with_default(serde, VOID) for serde in (merged.key, merged.value)] == [VOID, VOID]
    assert serdes == {
        **dict.fromkeys(("filter", "peek", "branch"), (STRING, LONG)),
        **dict.fromkeys(("map_values", "flat_map_values", "process_values"), (STRING, None)),
        "select_key": (None, LONG),
        **dict.fromkeys(("map", "flat_map", "process"), (None, None)),
    }
    required = {name for name, stream in carried.items() if stream.repartition_required}
    assert required == {"select_key", "map", "flat_map", "process"}


def test_a_sink_has_the_serdes_told_or_else_the_streams() -> None:
    """Likewise the topics of repartitions."""
    b = StreamsBuilder()
    s = b.stream("in", READ)
    s.to("a", Produced(value=LONG, name="a"))
    s.map_values(str).to("b", Produced(value=STRING, name="b"))
    s.repartition(Repartitioned(name="r", value=LONG))
    nodes = b.build().nodes
    for name, serdes in [("a", (STRING, LONG)), ("b", (STRING, STRING)), ("r-repartition-sink", (STRING, LONG))]:
        node = nodes[name]
        assert isinstance(node, SinkNode)
        assert (node.key, node.value) == serdes
    source = nodes["r-repartition-source"]
    assert isinstance(source, SourceNode)
    assert (source.key, source.value) == (STRING, LONG)


def test_windowed_keys_are_partitioned_by_the_key_inside() -> None:
    """All windows of a key are in one partition; a given partitioner takes precedence."""
    b = StreamsBuilder()
    key = windowed(STRING, 10)
    b.stream("in", Consumed(key, LONG)).to("out")
    partitioner: Any = sink(b.build()).partitioner
    assert partitioner is not None
    found = {partitioner("out", Windowed("k", (start, start + 10)), 1, 7) for start in range(0, 1000, 10)}  # type: ignore[arg-type]
    assert len(found) == 1
    assert partitioner("out", None, 1, 7) is None

    def told(topic: str, key: object, value: object, partitions: int) -> int:
        return 0

    b = StreamsBuilder()
    b.stream("in", Consumed(key, LONG)).to("out", Produced(partitioner=told))
    assert sink(b.build()).partitioner is told


def test_consumed_options_reach_the_source() -> None:
    """Extractor, reset, serdes and name; topics of a list in its order."""
    b = StreamsBuilder()

    def extractor(record: Any, time: int) -> int:
        return time

    b.stream(["x", "a"], Consumed(STRING, LONG, "read", extractor, "latest"))
    assert b.build().nodes["read"] == SourceNode(
        name="read", topics=("x", "a"), key=STRING, value=LONG, timestamp_extractor=extractor, offset_reset="latest"
    )


@pytest.mark.parametrize(("left", "kind"), [(True, PassThrough), (False, DropNullKeys)])
def test_records_without_a_key_pass_a_repartition_for_left_joins_only(left: bool, kind: type) -> None:
    """KIP-962: a left join has a result for them; also behind operations in between."""
    b = StreamsBuilder()
    table = b.table("t")
    s = b.stream("in").select_key(second).repartition(Repartitioned(name="r")).filter(yes)
    (s.left_join if left else s.join)(table, first)
    assert type(operator(b.build(), "r-repartition-filter")) is kind


async def later(key: Any, value: Any) -> Any:
    return [(key, value)]


async def later_value(value: Any) -> Any:
    return [value]


def test_async_functions_are_recorded_with_their_options() -> None:
    """For any operation."""
    b = StreamsBuilder()
    s: Stream[Any, Any] = b.stream("in")
    retry = Retry(attempts=2)
    s.map_values(later_value, name="a", max_in_flight=7, order="none", timeout_ms=5, retry=retry)
    s.filter(later, name="b")
    s.filter_not(later, name="c")
    s.map(later, name="d")
    s.flat_map(later, name="e")
    s.flat_map_values(later, name="f")
    s.select_key(later, name="g")
    s.peek(later, name="h")
    s.foreach(later, name="i")
    s.group_by(later, Grouped(name="j"))
    topology = b.build()
    assert operator(topology, "a").asynchronous == AsyncOptions(max_in_flight=7, order="none", timeout_ms=5, retry=retry)
    for name in "bcdefghij":
        found = operator(topology, name)
        assert isinstance(found, Stateless)
        assert found.asynchronous == AsyncOptions(), name


class AsyncF(FixedKeyProcessor[Any, Any, Any]):
    async def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        """Do nothing, later."""


def test_async_processors_have_options_too() -> None:
    """Those of process and process_values."""
    b = StreamsBuilder()
    b.stream("in").process_values(AsyncF, name="work", max_in_flight=2)
    found = operator(b.build(), "work")
    assert isinstance(found, ProcessorOperator)
    assert found.asynchronous == AsyncOptions(max_in_flight=2)


@pytest.mark.parametrize("mapper", [None, lambda key, value: f"{key}={value}"])
def test_print_writes_a_line_for_each_record(mapper: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """With the label told, or the stream's name."""
    b = StreamsBuilder()
    file = io.StringIO()
    s = b.stream("in")
    s.print("here", file=file, mapper=mapper, name="p")
    s.print(name="q")
    topology = b.build()
    operator(topology, "p").function("k", 1)
    operator(topology, "q").function("k", None)
    assert file.getvalue() == ("[here]: k=1\n" if mapper else "[here]: k, 1\n")
    assert capsys.readouterr().out == "[KSTREAM-SOURCE-0000000000]: k, None\n"


def test_a_builder_can_build_again() -> None:
    """Later operations are in the second topology; both are complete."""
    b = StreamsBuilder()
    s = b.stream("in")
    s.to("a")
    one = b.build()
    s.to("b")
    assert (len(one.nodes), len(b.build().nodes)) == (2, 3)


def test_a_global_store_has_a_processor_of_ones_own() -> None:
    """Named and read as told."""
    b = StreamsBuilder()
    b.add_global_store(stores.key_value("raw"), "topic", P, Consumed(STRING, name="g"))
    topology = b.build()
    assert list(topology.nodes) == ["g-source", "g"]
    assert list(topology.global_stores) == ["raw"]


class Sub(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        """Do nothing."""


class Kept(FixedKeyProcessor[Any, Any, Any]):
    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        """Do nothing."""


def no_arguments() -> None:
    """Do nothing."""


def only_by_name(*, value: int) -> None:
    """Do nothing."""


def ended(b: StreamsBuilder) -> None:
    split = b.stream("in").split("s")
    split.no_default_branch()
    split.branch(yes)


def resets(b: StreamsBuilder) -> None:
    b.stream("in", Consumed(offset_reset="latest"))
    b.stream("in", Consumed(offset_reset="earliest"))


def overlap(b: StreamsBuilder) -> None:
    b.stream("in")
    b.stream(["in", "other"])


def two_named(b: StreamsBuilder) -> None:
    b.stream("in").filter(yes, name="x").filter(yes, name="x")


REFUSED: dict[str, tuple[Any, str]] = {
    "options for a plain function": (
        lambda b: b.stream("in").map_values(str, max_in_flight=3),
        "max_in_flight of KSTREAM-MAPVALUES-0000000001 have no meaning, because",
    ),
    "options for a plain processor": (lambda b: b.stream("in").process(Sub, max_in_flight=3), "has options for asynchronous calls"),
    "process with fixed keys": (lambda b: b.stream("in").process(Kept), "give a Processor for process"),
    "process_values with free keys": (lambda b: b.stream("in").process_values(Sub), "give a FixedKeyProcessor for process_values"),
    "too few arguments": (lambda b: b.stream("in").map_values(no_arguments), "cannot be called with 1 or 2 positional arguments"),
    "arguments by name": (lambda b: b.stream("in").flat_map_values(only_by_name), r"requires 0 and \['value'\] by keyword"),
    "bad name": (lambda b: b.stream("in").filter(yes, name="no good"), "'no good' is not a valid name"),
    "bad branch name": (lambda b: b.stream("in").split("s").branch(yes, "a/b"), "'sa/b' is not a valid name"),
    "async predicate of a branch": (
        lambda b: b.stream("in").split("s").branch(later),
        "predicate of split s is the 'async def' .*, which nothing awaits",
    ),
    "branch twice": (lambda b: b.stream("in").split("s").branch(yes, "a").branch(yes, "a"), "split s already has a branch sa"),
    "branch behind the end": (ended, "split s has ended, branch s1 comes too late"),
    "two resets": (resets, "read topic in but have different options, offset_reset is latest and earliest"),
    "overlapping topics": (overlap, "read topic 'in', and only one of them reads other topics, too"),
    "pattern of a read topic": (lambda b: (b.stream("in"), b.stream(re.compile("i."))), "matches topic in of source"),
    "two nodes of a name": (two_named, "node x has already been added"),
    "unknown store": (lambda b: b.stream("in").process(P, "nowhere"), "store nowhere of processor KSTREAM-PROCESSOR-0000000001 is unknown"),
    "join with a stream": (lambda b: b.stream("in").join(b.stream("x"), first), "cannot be joined with"),
    "different partitions": (
        lambda b: (
            b.stream("in").repartition(Repartitioned(partitions=2)).join(b.stream("x").repartition(Repartitioned(partitions=3)).to_table(), first)
        ),
        "different numbers of partitions: .* [(]2[)], .* [(]3[)]",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_mistakes_are_refused_with_names(what: str) -> None:
    """When they are made, or when the topology is built."""
    mistake, message = REFUSED[what]
    builder = StreamsBuilder()

    def make() -> None:
        mistake(builder)
        builder.build()

    with pytest.raises(TopologyError, match=message):
        make()


def test_global_tables_are_joined_by_a_key_told() -> None:
    """No repartition, with any change of the key before."""
    b = StreamsBuilder()
    table = b.global_table("g", materialized=Materialized("gs"))
    s: Stream[Any, Any] = b.stream("in").map(pair)
    s.join(table, second, first)
    s.left_join(table, second, lambda key, left, right: key)
    assert b.build().internal_topics == {}


class Bound:
    def method(self, key: object, value: object) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda v: v, 1),
        (lambda k, v: v, 2),
        (lambda v, x=1: v, 1),
        (lambda *values: values, 1),
        (lambda k, v, *rest: v, 2),
        (str, 1),
        (len, 1),
        (int, 1),
        (Bound().method, 2),
        (min, 1),
    ],
)
def test_a_function_is_called_with_its_required_arguments(function: Any, wanted: int) -> None:
    """Optional parameters are left alone; a function without a signature gets the fewest."""
    assert check_function(function, 1, 2, role="mapper", of="map") == wanted
