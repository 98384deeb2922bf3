"""Functions that name the topic of each record: the context that they get, and what they may do with it."""

from __future__ import annotations

from typing import Any

from ks_actors import Processor, ProcessorContext, PunctuationType, Record, RecordContext, serdes
from ks_actors.dsl import BufferConfig, EmitStrategy, Materialized, Produced, StreamsBuilder, Suppressed, TimeWindows
from ks_actors.records import Headers
from ks_actors.testing import AppHarness, TestRecord, TopologyTestDriver, run_app
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, feed_all

TYPED: Headers = (("type", b"a"),)
WINDOWS: TimeWindows = TimeWindows.of_size_and_grace(10, 0)
COUNTS: Produced[Any, int] = Produced(serdes.windowed(serdes.STRING, 10), serdes.LONG)


class Contexts:
    """An extractor that keeps what it gets."""

    def __init__(self) -> None:
        self.seen: list[RecordContext] = []

    def __call__(self, _key: Any, _value: Any, context: RecordContext) -> str:
        self.seen.append(context)
        return "out"


def test_an_extractor_may_route_by_a_header() -> None:
    """The context has the record's headers, so each record may go to the topic that one of them names."""

    def route(key: str, value: str, context: RecordContext) -> str:
        return "a" if dict(context.headers).get("type") == b"a" else "b"

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to(route, STRINGS_OUT)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", serdes.STRING, serdes.STRING)
        topic.pipe_input("k", "typed", 5, headers=TYPED)
        topic.pipe_input("k", "plain", 6)
        assert [driver.create_output_topic(name, serdes.STRING, serdes.STRING).read_values_to_list() for name in ("a", "b")] == [["typed"], ["plain"]]


def test_the_context_is_that_of_each_record() -> None:
    """Records that come in one batch have each its own timestamp, headers, topic, partition and offset."""
    contexts = Contexts()
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(str.upper).to(contexts, STRINGS_OUT)

    async def test(harness: AppHarness) -> None:
        await feed_all(harness, "in", [TestRecord("k", "v", time, TYPED if time == 6 else ()) for time in (5, 6, 7)])

    run_app(test, builder.build(), topics={"in": 1, "out": 1})
    assert contexts.seen == [
        RecordContext(5, (), "in", 0, 0),
        RecordContext(6, TYPED, "in", 0, 1),
        RecordContext(7, (), "in", 0, 2),
    ]
    assert all(type(context) is RecordContext for context in contexts.seen)


class Stamping(Processor[str, str, str, str]):
    """A processor that gives its records another time and other headers, and forwards by the clock, too."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self._tick)

    def process(self, record: Record[str, str]) -> None:
        self._context.forward(Record(record.key, record.value, 77, TYPED))

    def _tick(self, now: int) -> None:
        self._context.forward(Record("k", "v", now, TYPED))


def test_time_and_headers_are_those_of_the_record_that_is_written() -> None:
    """The context has the time and the headers that a processor has given, and the place of the input record."""
    contexts = Contexts()
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).process(Stamping).to(contexts, STRINGS_OUT)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", serdes.STRING, serdes.STRING).pipe_input("k", "v", 5)
    assert contexts.seen == [RecordContext(77, TYPED, "in", 0, 0)]


def test_a_punctuation_has_a_context_without_a_place() -> None:
    """In a punctuation the context has an empty topic, and -1 for partition and offset, with time and headers of the record."""
    contexts = Contexts()
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).process(Stamping).to(contexts, STRINGS_OUT)
    with TopologyTestDriver(builder.build(), initial_wall_clock_ms=0) as driver:
        driver.create_input_topic("in", serdes.STRING, serdes.STRING).pipe_input("k", "v", 5)
        driver.advance_wall_clock_time(20)
    assert contexts.seen[1:] == [RecordContext(20, TYPED, "", -1, -1)]


def test_results_that_were_held_back_have_a_context() -> None:
    """Behind suppress the context has the place of the row's last record; a window that closes has none, of many records."""
    closed, suppressed = Contexts(), Contexts()
    builder = StreamsBuilder()
    grouped = builder.stream("in", STRINGS).group_by_key()
    final = grouped.windowed_by(WINDOWS).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    final.count(Materialized(key=serdes.STRING, value=serdes.LONG)).to_stream().to(closed, COUNTS)
    counts = grouped.windowed_by(WINDOWS).count(Materialized(key=serdes.STRING, value=serdes.LONG))
    counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded())).to_stream().to(suppressed, COUNTS)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", serdes.STRING, serdes.STRING)
        for time in (1, 3, 30):
            topic.pipe_input("k", "v", time)
    assert closed.seen == [RecordContext(3, (), "", -1, -1)]
    assert suppressed.seen == [RecordContext(3, (), "in", 0, 1)]


def test_rows_of_a_batch_function_have_a_context() -> None:
    """Behind `batch` the context has no place, since a row has no input record of its own among several."""
    contexts = Contexts()
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).batch(lambda records: records, max_records=2).to(contexts, STRINGS_OUT)

    async def test(harness: AppHarness) -> None:
        await feed_all(harness, "in", [TestRecord("k", "v", time, TYPED) for time in (5, 6)])

    run_app(test, builder.build(), topics={"in": 1, "out": 1})
    assert contexts.seen == [RecordContext(5, TYPED, "", -1, -1), RecordContext(6, TYPED, "", -1, -1)]
