"""Plain functions that return awaitables, as a lambda around an `async def` does: nothing awaits these, so they are errors."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from ks_actors import App, ErrorContext, HandlerResponse, ProcessingFailed, StreamsConfig, StreamsError, TopologyError, ValueTransformer, serdes
from ks_actors.dsl import Consumed, GlobalTable, Materialized, Produced, Stream, StreamsBuilder, Window
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.processors import Processor, ProcessorContext, PunctuationType, Record
from ks_actors.testing import AppHarness, TestRecord, TopologyTestDriver, run_app
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, feed_all

pytestmark = pytest.mark.filterwarnings("error")
COUNTS: Materialized[str, int] = Materialized(key=serdes.STRING, value=serdes.LONG)
ITSELF = "which nothing awaits: give the 'async def' itself, not a function that calls it"
BEFORE = "which nothing awaits: give a plain function, and await in a map or processor before it"


async def slow(*_: object) -> bool:
    """Be awaited, or do nothing."""
    return True


def around(*arguments: object) -> Any:
    """Call an `async def` without awaiting it."""
    return slow(*arguments)


class Around(Processor[str, str, str, str]):
    """A processor that hands its records to a coroutine that nothing awaits."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context

    def process(self, record: Record[str, str]) -> None:
        return around(record)  # type: ignore[no-any-return]


class AroundTimer(Processor[str, str, str, str]):
    """A processor with such a punctuator."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        context.schedule(10, PunctuationType.STREAM_TIME, around)

    def process(self, record: Record[str, str]) -> None:
        pass


class AroundTimerOfTransformer(ValueTransformer[str, str, str]):
    """A transformer with such a punctuator."""

    def init(self, context: Any) -> None:
        context.schedule(10, PunctuationType.STREAM_TIME, around)

    def transform(self, key: str, value: str | None) -> str | None:
        return value


class AroundWindows:
    """Windows of the user's own that are found by a coroutine."""

    size_ms: int = 10
    grace_ms: int = 0

    def windows_for(self, timestamp: int) -> list[Window]:
        return around(timestamp)  # type: ignore[no-any-return]


def people(stream: Stream[str, str]) -> GlobalTable[str, str]:
    return builders[stream.graph].global_table("people", STRINGS)


builders: dict[Any, StreamsBuilder] = {}


PLACES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "filter": (lambda stream: stream.filter(around, name="here"), ITSELF),
    "filter_not": (lambda stream: stream.filter_not(around, name="here"), ITSELF),
    "peek": (lambda stream: stream.peek(around, name="here"), ITSELF),
    "foreach": (lambda stream: stream.foreach(around, name="here"), ITSELF),
    "map_values": (lambda stream: stream.map_values(lambda value: around(value), name="here"), ITSELF),
    "map_values, with key": (lambda stream: stream.map_values(lambda key, value: around(value), name="here"), ITSELF),
    "select_key": (lambda stream: stream.select_key(around, name="here"), ITSELF),
    "branch": (lambda stream: stream.split("here").branch(around).default_branch(), BEFORE),
    "print": (lambda stream: stream.print(mapper=around, file=io.StringIO(), name="here"), BEFORE),
    "table filter": (lambda stream: stream.to_table().filter(around, name="here"), BEFORE),
    "stored table filter": (lambda stream: stream.to_table().filter_not(around, Materialized("kept"), name="here"), BEFORE),
    "windows": (lambda stream: stream.group_by_key().windowed_by(AroundWindows()).count(COUNTS, name="here"), BEFORE),
    "global join": (lambda stream: stream.join(people(stream), around, max, name="here"), BEFORE),
    "global left join": (lambda stream: stream.left_join(people(stream), around, lambda one, _: one, name="here"), BEFORE),
    "process": (lambda stream: stream.process(Around, name="here"), ITSELF),
}


def built(place: str, *, lone: bool) -> StreamsBuilder:
    """Return the program of one place; `lone` adds a processor, because of which tasks take records one by one."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    builders.clear()
    builders[stream.graph] = builder
    if lone:
        stream = stream.process(Passing)
    PLACES[place][0](stream)
    return builder


class Passing(Processor[str, str, str, str]):
    """A processor that forwards its records."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context

    def process(self, record: Record[str, str]) -> None:
        self._context.forward(record)


@pytest.mark.parametrize("lone", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_each_awaitable_is_an_error_of_its_record(place: str, lone: bool) -> None:
    """The processing handler is asked about each record, in batches and alone; the error names the node, and says what to give."""
    asked: list[tuple[str, int, str]] = []

    def ask(context: ErrorContext, record: Any, error: Exception) -> HandlerResponse:
        asked.append((context.processor_node_id, context.offset, str(error)))
        return HandlerResponse.RESUME

    async def test(harness: AppHarness) -> None:
        await feed_all(harness, "in", [TestRecord("k", value, 1, ()) for value in "abc"])

    topology = built(place, lone=lone).build()
    topics = {"in": 1} | ({"people": 1} if "global" in place else {})
    run_app(test, topology, topics=topics, processing_exception_handler=ask, default_key_serde=serdes.STRING, default_value_serde=serdes.STRING)
    assert [offset for _, offset, _ in asked] == [0, 1, 2]
    assert {node for node, _, _ in asked} == {"here"}
    assert all(" returned <coroutine object slow at" in text and PLACES[place][1] in text for _, _, text in asked)


@pytest.mark.parametrize("processor", [AroundTimer, AroundTimerOfTransformer])
def test_an_awaitable_of_a_punctuator_is_an_error(processor: Any) -> None:
    """A punctuator that returns an awaitable has failed; the error says so."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    if processor is AroundTimer:
        stream.process(processor)
    else:
        stream.to_table().transform_values(processor)
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingFailed, match=BEFORE):
        driver.create_input_topic("in", serdes.STRING, serdes.STRING).pipe_input("k", "v", 50)


def test_other_awaitables_are_errors_too() -> None:
    """Objects that have to be awaited, such as futures, are refused like coroutines."""

    class Promise:
        def __await__(self) -> Any:
            yield

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).filter(lambda key, value: Promise()).to("out", STRINGS_OUT)
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingFailed, match=r"Promise object .* which nothing awaits"):
        driver.create_input_topic("in", serdes.STRING, serdes.STRING).pipe_input("k", "v", 50)


@pytest.mark.parametrize("lone", [False, True])
def test_predicates_may_return_any_value(lone: bool) -> None:
    """The truth of a result counts, if it is no awaitable."""
    answers: dict[str, Any] = {"a": 1, "b": 0, "c": "yes", "d": "", "e": None, "f": [0], "g": True, "h": False}
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    if lone:
        stream = stream.process(Passing)
    stream.filter(lambda _, value: answers[value]).to("kept", STRINGS_OUT)
    stream.filter_not(lambda _, value: answers[value]).to("left", STRINGS_OUT)
    stream.split("s-").branch(lambda _, value: answers[value], "yes").default_branch("no")["s-yes"].to("branch", STRINGS_OUT)
    stream.to_table(Materialized(key=serdes.STRING, value=serdes.STRING)).filter(lambda _, value: answers[value]).to_stream().to("table", STRINGS_OUT)

    async def test(harness: AppHarness) -> dict[str, list[Any]]:
        await feed_all(harness, "in", [TestRecord(value, value, 1, ()) for value in answers])
        return {topic: [record.value for record in await harness.read(topic)] for topic in ("kept", "left", "branch", "table")}

    found = run_app(test, builder.build(), topics=dict.fromkeys(("in", "kept", "left", "branch", "table"), 1))
    found["table"] = [value for value in found["table"] if value is not None]
    assert found == {"kept": list("acfg"), "left": list("bdeh"), "branch": list("acfg"), "table": list("acfg")}


# --- functions whose errors end processing ------------------------------------------------------------------------------------


def error_of(builder: StreamsBuilder) -> StreamsError:
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(StreamsError) as caught:
        driver.create_input_topic("in", serdes.STRING, serdes.STRING).pipe_input("k", "v", 50)
    return caught.value


@pytest.mark.parametrize("role", ["topic name extractor", "partitioner", "timestamp extractor"])
def test_awaitables_of_sinks_and_sources_end_processing(role: str) -> None:
    """As all errors of these functions do; the error names the node and the record, and says what to give."""
    builder = StreamsBuilder()
    if role == "timestamp extractor":
        builder.stream("in", Consumed(serdes.STRING, serdes.STRING, timestamp_extractor=around)).to("out", STRINGS_OUT)
    elif role == "partitioner":
        builder.stream("in", STRINGS).to("out", Produced(serdes.STRING, serdes.STRING, partitioner=around))
    else:
        builder.stream("in", STRINGS).to(around, STRINGS_OUT)
    error = error_of(builder)
    assert role in str(error)
    assert BEFORE in str(error)
    node = "KSTREAM-SOURCE-0000000000" if role == "timestamp extractor" else "KSTREAM-SINK-0000000001"
    assert (error.node, error.topic, error.partition, error.offset) == (node, "in", 0, 0)


def test_an_awaitable_of_a_batch_function_is_an_error() -> None:
    """A plain function given to `batch` runs in a thread, and returns rows; a coroutine is refused by the right hint."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).batch(lambda records: around(records)).to("out", STRINGS_OUT)
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingFailed, match=ITSELF):
        driver.create_input_topic("in", serdes.STRING, serdes.STRING).pipe_input("k", "v", 50)


# --- at the build -------------------------------------------------------------------------------------------------------------


def promised(key: object, value: object) -> Awaitable[bool]:
    """Return an awaitable, and say so."""
    return slow(key, value)


def promised_coroutine(key: object, value: object) -> Coroutine[Any, Any, bool]:
    """Return a coroutine, and say so."""
    return slow(key, value)


def promised_future(key: object, value: object) -> Any:
    """Return a future, and say so by a class."""
    return asyncio.ensure_future(slow(key, value))


promised_future.__annotations__["return"] = asyncio.Future[bool]


class Promising:
    """An object whose call says that it returns an awaitable."""

    def __call__(self, key: object, value: object) -> Awaitable[bool]:
        return slow(key, value)


class Waiting:
    """An object whose call is `async def`."""

    async def __call__(self, key: object, value: object) -> bool:
        return True


@pytest.mark.parametrize("function", [promised, promised_coroutine, promised_future, Promising(), partial(promised), partial(Promising())])
def test_a_function_that_promises_an_awaitable_is_refused_at_the_build(function: Any) -> None:
    """A plain function whose annotation says that it returns an awaitable is refused where it is given."""
    stream = StreamsBuilder().stream("in", STRINGS)
    for give in (stream.filter, stream.filter_not, stream.peek, stream.foreach, stream.map_values, stream.map, stream.flat_map, stream.select_key):
        with pytest.raises(TopologyError, match=r"is not an 'async def' and returns an awaitable, by its annotation.*: give the 'async def' itself"):
            give(function)
    for plain in (stream.split().branch, stream.to_table().filter, lambda mapper: stream.print(mapper=mapper)):
        with pytest.raises(TopologyError, match="returns an awaitable, by its annotation, and nothing awaits it there: give a plain function"):
            plain(function)


def test_a_batch_function_or_a_process_that_promises_an_awaitable_is_refused() -> None:
    """Both may be `async def`, so the error says to give that."""

    def rows(records: Any) -> Awaitable[list[Record[str, str]]]:
        return around(records)  # type: ignore[no-any-return]

    class Promised(Around):
        def process(self, record: Record[str, str]) -> Awaitable[None]:  # type: ignore[override]  # the mistake
            return around(record)  # type: ignore[no-any-return]

    stream = StreamsBuilder().stream("in", STRINGS)
    gives: tuple[Callable[[], object], ...] = (lambda: stream.batch(rows), lambda: stream.process(Promised))
    for give in gives:
        with pytest.raises(TopologyError, match="returns an awaitable, by its annotation"):
            give()


def test_an_object_with_an_async_call_behind_a_partial_is_async() -> None:
    """It is awaited where an `async def` may be given, and refused elsewhere."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.filter(partial(Waiting()), max_in_flight=2).to("out", STRINGS_OUT)
    with pytest.raises(TopologyError, match="is the 'async def'"):
        stream.split().branch(partial(Waiting()))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", serdes.STRING, serdes.STRING).pipe_input("k", "v", 1)
        assert driver.create_output_topic("out", serdes.STRING, serdes.STRING).read_values_to_list() == ["v"]


def test_an_uncaught_handler_may_be_a_plain_function_that_returns_an_awaitable() -> None:
    """An app awaits whatever its handler returns."""

    def handler(error: Exception) -> Awaitable[Any]:
        return slow(error)

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).foreach(print)
    App(builder.build(), StreamsConfig(application_id="app"), log=EmbeddedLog(), uncaught_handler=handler)
