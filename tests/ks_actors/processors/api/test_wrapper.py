"""A wrapper has its code around every processor, of the DSL and the Processor API (KIP-1112)."""

from __future__ import annotations

from typing import Any

import pytest

from ks_actors import ConfigError, HandlerResponse, ProcessingFailed, Record, RecordMetadata, StreamsConfig, Topology, TopologyError, WrappedNode
from ks_actors.dsl import Consumed, Materialized, Produced, StreamsBuilder
from ks_actors.processors import AsyncProcess, BatchProcess, Process, Processor, ProcessorWrapper
from ks_actors.serdes import STRING
from ks_actors.testing import TopologyTestDriver

TEXTS, TO_TEXTS = Consumed(STRING, STRING), Produced(STRING, STRING)


class Tracing(ProcessorWrapper):
    """Notes what goes into each node and when the node is done, and the order of the wraps."""

    def __init__(self) -> None:
        self.wrapped: list[str] = []
        self.events: list[tuple[Any, ...]] = []

    def wrap(self, node: WrappedNode, process: Process) -> Process:
        self.wrapped.append(node.name)

        def traced(key: Any, value: Any, timestamp: int, headers: Any) -> None:
            self.events.append(("into", node.name, key, value, timestamp))
            process(key, value, timestamp, headers)
            self.events.append(("out of", node.name))

        return traced

    def wrap_async(self, node: WrappedNode, call: AsyncProcess) -> AsyncProcess:
        async def traced(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
            self.events.append(("begin", node.name, value))
            found = await call(key, value, timestamp, headers)
            self.events.append(("end", node.name, value))
            return found

        return traced

    def wrap_batch(self, node: WrappedNode, call: BatchProcess) -> BatchProcess:
        async def traced(records: list[Record[Any, Any]]) -> list[Record[Any, Any]]:
            found = await call(records)
            self.events.append(("batch", node.name, len(records), len(found)))
            return found

        return traced


class Upper(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(record.value.upper()))


class AsyncUpper(Processor[str, str, str, str]):
    async def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(record.value.upper()))


def topology_of(stream: Any) -> Topology:
    builder = StreamsBuilder()
    stream(builder.stream("in", TEXTS)).to("out", TO_TEXTS)
    return builder.build()


def piped(topology: Topology, wrapper: Any, *values: str, **settings: Any) -> list[tuple[str | None, str | None]]:
    with TopologyTestDriver(topology, {"processor_wrapper_class": wrapper, **settings}) as driver:
        records = driver.create_input_topic("in", STRING, STRING)
        for number, value in enumerate(values):
            records.pipe_input("k", value, number)
        return driver.create_output_topic("out", STRING, STRING).read_key_values_to_list()


def test_it_is_around_processors_of_the_dsl_and_the_processor_api() -> None:
    """Depth first: a node is done when all that is below it is done."""
    wrapper = Tracing()
    topology = topology_of(lambda stream: stream.filter(lambda _, value: value != "b", name="some").process(Upper, name="upper"))
    assert piped(topology, wrapper, "a", "b") == [("k", "A")]
    assert sorted(wrapper.wrapped) == ["some", "upper"]
    assert wrapper.events == [
        ("into", "some", "k", "a", 0),
        ("into", "upper", "k", "a", 0),
        ("out of", "upper"),
        ("out of", "some"),
        ("into", "some", "k", "b", 1),
        ("out of", "some"),
    ]


@pytest.mark.parametrize("asynchronous", [AsyncUpper, None])
def test_it_is_around_async_calls(asynchronous: type[AsyncUpper] | None) -> None:
    """Of processors and of the DSL's functions: the wrapper awaits the call, and forwards nothing itself."""

    async def upper(value: str) -> str:
        return value.upper()

    wrapper = Tracing()
    topology = topology_of(
        lambda stream: stream.map_values(upper, name="work") if asynchronous is None else stream.process(asynchronous, name="work")
    )
    assert piped(topology, wrapper, "a", "b") == [("k", "A"), ("k", "B")]
    assert wrapper.events == [("begin", "work", "a"), ("end", "work", "a"), ("begin", "work", "b"), ("end", "work", "b")]


def test_it_is_around_calls_with_many_records() -> None:
    """One call of the function is one call of the wrapper."""

    async def doubled(records: list[Record[str, str]]) -> list[Record[str, str]]:
        return [*records, *records]

    wrapper = Tracing()
    topology = topology_of(lambda stream: stream.batch(doubled, name="twice"))
    assert piped(topology, wrapper, "a") == [("k", "a"), ("k", "a")]
    assert wrapper.events == [("batch", "twice", 1, 2)]


class Changing(ProcessorWrapper):
    """Changes the timestamp and headers of each record, and the rows of each batch."""

    def __init__(self, timestamp: Any, headers: Any) -> None:
        self.changes: tuple[Any, Any] = timestamp, headers

    def wrap(self, node: WrappedNode, process: Process) -> Process:
        return lambda key, value, _timestamp, _headers: process(key, value, *self.changes)

    def wrap_batch(self, node: WrappedNode, call: BatchProcess) -> BatchProcess:
        async def changed(records: list[Record[Any, Any]]) -> list[Record[Any, Any]]:
            return [Record(record.key, record.value, *self.changes) for record in await call(records)]

        return changed


@pytest.mark.parametrize(
    ("timestamp", "headers", "said"),
    [
        (1.5, (), "timestamp 1.5: give a whole number of ms"),
        (-1, (), "timestamp -1: give 0 or more"),
        (1, (("name", "text"),), "header .* give a pair of name and bytes"),
    ],
)
@pytest.mark.parametrize("batch", [True, False])
def test_a_record_that_a_wrapper_makes_wrong_is_its_own_error(timestamp: Any, headers: Any, said: str, batch: bool) -> None:
    """It is found at the node, and not when a batch with it is written: topic, partition and offset are told."""

    async def same(records: list[Record[str, str]]) -> list[Record[str, str]]:
        return records

    topology = topology_of(lambda stream: stream.batch(same, name="n") if batch else stream.map_values(str.upper, name="n"))
    with pytest.raises(ProcessingFailed, match=said) as raised:
        piped(topology, Changing(timestamp, headers), "a")
    assert (raised.value.node, raised.value.topic, raised.value.partition, raised.value.offset) == ("n", "in", 0, 0)


def test_it_is_around_the_processors_of_global_stores() -> None:
    """They belong to a task of their own."""
    wrapper = Tracing()
    builder = StreamsBuilder()
    table = builder.global_table("all", TEXTS, Materialized("all", STRING, STRING))
    stream = builder.stream("in", TEXTS)
    stream.join(table, lambda key, _: key, lambda one, row: one + row).to("out", TO_TEXTS)
    with TopologyTestDriver(builder.build(), {"processor_wrapper_class": wrapper}) as driver:
        driver.create_input_topic("all", STRING, STRING).pipe_input("k", "row", 5)
        driver.create_input_topic("in", STRING, STRING).pipe_input("k", "one", 6)
        assert driver.create_output_topic("out", STRING, STRING).read_value() == "onerow"
    assert [event[1:] for event in wrapper.events if event[0] == "into"] == [
        (wrapper.wrapped[0], "k", "row", 5),
        (wrapper.wrapped[1], "k", "one", 6),
    ]


class Choosy(ProcessorWrapper):
    """Drops what is empty, changes what is long, raises at what is bad; elsewhere it is told where it is."""

    def wrap(self, node: WrappedNode, process: Process) -> Process:
        def chosen(key: Any, value: Any, timestamp: int, headers: Any) -> None:
            assert node.application_id
            assert str(node.task_id) == "0_0"
            where = node.record_metadata()
            assert isinstance(where, RecordMetadata)
            assert where.topic == "in"
            if value == "bad":
                raise ValueError(f"bad at {where.offset}")
            if value:
                process(key, value[:3], timestamp, headers)

        return chosen


def test_it_decides_about_records() -> None:
    """It may pass on others, or none, and an error of its own goes to the handler with the node's name."""
    failed: list[tuple[str, str]] = []

    def skip(context: Any, _record: Any, error: Exception) -> HandlerResponse:
        failed.append((context.processor_node_id, str(error)))
        return HandlerResponse.RESUME

    topology = topology_of(lambda stream: stream.peek(lambda *_: None, name="look"))
    assert piped(topology, Choosy, "", "long", "bad", "ok", processing_exception_handler=skip) == [("k", "lon"), ("k", "ok")]
    assert failed == [("look", "bad at 2")]


def test_it_may_be_an_object_a_class_or_a_name() -> None:
    """Anything else is refused."""
    for given in (Tracing(), Tracing, f"{__name__}.Tracing"):
        assert isinstance(StreamsConfig.of({"application.id": "app", "processor.wrapper.class": given}).processor_wrapper_class, Tracing)
    assert StreamsConfig(application_id="app", processor_wrapper_class=None).processor_wrapper_class is None
    for wrong in (Upper, "collections.OrderedDict"):
        with pytest.raises(ConfigError, match=r"processor_wrapper_class \(mapping\): .* is not a ProcessorWrapper"):
            StreamsConfig.of({"application.id": "app", "processor.wrapper.class": wrong})


def test_without_overriding_it_wraps_nothing() -> None:
    """Its methods return the function that they are given."""
    topology = topology_of(lambda stream: stream.process(AsyncUpper).process(Upper).map_values(str.lower))
    assert piped(topology, ProcessorWrapper, "a", "b") == [("k", "a"), ("k", "b")]


@pytest.mark.parametrize("method", ["wrap", "wrap_async", "wrap_batch"])
def test_what_it_returns_must_be_a_function(method: str) -> None:
    """The error names the method and the node."""

    async def same(records: list[Record[str, str]]) -> list[Record[str, str]]:
        return records

    made = {
        "wrap": lambda stream: stream.process(Upper, name="n"),
        "wrap_async": lambda stream: stream.process(AsyncUpper, name="n"),
        "wrap_batch": lambda stream: stream.batch(same, name="n"),
    }
    wrong = type("Wrong", (ProcessorWrapper,), {method: lambda *_: None})
    with pytest.raises(TopologyError, match=f"^{method} of processor_wrapper_class returned None for node n: return the function to call for it"):
        piped(topology_of(made[method]), wrong, "a")
