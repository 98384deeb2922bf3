"""Traces of records by OpenTelemetry."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode

from ks_actors import App, Processor, Record, StreamsBuilder, StreamsConfig, TopologyError, serdes
from ks_actors.config import log_and_continue
from ks_actors.dsl import BufferConfig, Consumed, Grouped, Materialized, Produced, Suppressed, TimeWindows
from ks_actors.testing import AppHarness, TestRecord, TopologyTestDriver, run_app
from ks_actors.topology import Topology
from ks_actors.tracing import OtelTracing
from tests.ks_actors.runtime.helpers import feed, feed_all
from tests.ks_actors.tracing.spans import HEADER, PARENT, TRACE, UNSAMPLED, Recorded, context_in, id_of, of_trace, parent_of, trace_of

if TYPE_CHECKING:
    from opentelemetry.propagators.textmap import TextMapPropagator

TEXT = serdes.STRING
READ: Consumed[str, str] = Consumed(TEXT, TEXT)
WRITE: Produced[str, str] = Produced(TEXT, TEXT)
WORDS = "app-words-repartition"
BOTH = {"in": 1, "out": 1}


def pipeline(recorded: Recorded, prefix: str = "") -> Topology:
    """Return an async call, a repartition topic, an aggregate and an output; the topics have the prefix."""

    async def looked_up(value: str) -> str:
        with trace.get_tracer("user", tracer_provider=recorded.provider).start_as_current_span("lookup"):
            await asyncio.sleep(0.1)
        return value.upper()

    builder = StreamsBuilder()
    stream = builder.stream(f"{prefix}in", READ).map_values(looked_up, name="look-up")
    counts = stream.group_by(lambda _, value: value, Grouped(TEXT, TEXT, name="words")).count(Materialized("counts", TEXT, serdes.LONG))
    counts.to_stream().map_values(str).to(f"{prefix}out", WRITE)
    return builder.build()


def copied() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", READ).map_values(lambda value: value).to("out", WRITE)
    return builder.build()


@pytest.mark.parametrize("propagator", [CompositePropagator([]), W3CBaggagePropagator()], ids=["none", "baggage"])
def test_all_spans_end_where_headers_have_no_context(propagator: TextMapPropagator) -> None:
    """As with OTEL_PROPAGATORS=none or baggage: each record has its spans, and an error is never that of another record."""
    recorded = Recorded(propagator=propagator)
    keys = [f"k{number}" for number in range(10)]

    async def test(harness: AppHarness) -> None:
        await feed_all(harness, "in", [TestRecord(key, "value", 1, headers=(("baggage", b"who=me"),)) for key in keys])
        assert len(await harness.read("out")) == 9

    def failing(value: str, key: str) -> str:
        if key == "k3":
            raise ValueError(value)
        return value

    builder = StreamsBuilder()
    builder.stream("in", READ).map_values(lambda key, value: failing(value, key)).to("out", WRITE)
    run_app(test, builder.build(), topics=BOTH, tracing=recorded.tracing, processing_exception_handler=log_and_continue)
    assert (len(recorded.named("process in")), len(recorded.named("send out"))) == (10, 9)
    assert all(span.status.status_code is StatusCode.UNSET for span in recorded.spans)
    assert len({trace_of(span) for span in recorded.spans}) == 19


def check_one_trace(recorded: Recorded, prefix: str = "", words: str = WORDS) -> None:
    """Check that each span of the pipeline is the child of the one before it."""
    process, call = recorded.one(f"process {prefix}in"), recorded.one("call look-up")
    sent, counted = recorded.one(f"send {words}"), recorded.one(f"process {words}")
    output = recorded.one(f"send {prefix}out")
    assert {trace_of(span) for span in recorded.spans} == {TRACE}
    assert parent_of(process) == PARENT
    assert parent_of(call) == id_of(process)
    assert parent_of(recorded.one("lookup")) == id_of(call)
    assert parent_of(sent) == id_of(process)
    assert parent_of(counted) == id_of(sent)
    assert parent_of(output) == id_of(counted)


@pytest.mark.parametrize("cache", [0, 1 << 20])
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_one_trace_leads_from_the_input_through_a_call_a_repartition_and_an_aggregate_to_the_output(guarantee: str, cache: int) -> None:
    """Each span is the child of the one before, also where a cache holds the update back, and the output has the last context."""
    recorded = Recorded()

    async def test(harness: AppHarness) -> None:
        await feed(harness, "in", "key", "value", headers=(("own", b"1"), HEADER))
        (record,) = await harness.read("out")
        assert record.value == "1"
        assert context_in(record.headers) == (TRACE, id_of(recorded.one("send out")))
        assert ("own", b"1") in record.headers

    run_app(
        test,
        pipeline(recorded),
        topics=BOTH,
        tracing=recorded.tracing,
        processing_guarantee=guarantee,
        statestore_cache_max_bytes=cache,
    )
    check_one_trace(recorded)


def test_a_trace_goes_on_in_another_instance() -> None:
    """Where the aggregate runs in another instance, its spans belong to the same trace."""
    recorded = Recorded()

    async def test(harness: AppHarness) -> None:
        async with harness.another():
            await asyncio.sleep(60)
            await harness.caught_up()
            for key in range(8):
                await harness.produce("in", str(key), f"value-{key}", partition=key % 2, headers=(HEADER,))
            await harness.caught_up()
            assert len(await harness.read("out")) == 8

    run_app(test, pipeline(recorded), topics={"in": 2, "out": 1}, tracing=recorded.tracing)
    assert {trace_of(span) for span in recorded.spans} == {TRACE}
    by_id = {id_of(span): span for span in recorded.spans}
    crossed = 0
    for counted in recorded.named(f"process {WORDS}"):
        sent = by_id[parent_of(counted) or ""]
        assert counted.attributes is not None
        assert sent.attributes is not None
        crossed += counted.attributes["messaging.client.id"] != sent.attributes["messaging.client.id"]
    assert crossed > 0


def test_spans_have_the_attributes_of_the_conventions() -> None:
    """Kind, system, operation, destination, partition, offset, group and task are those of the record."""
    recorded = Recorded()
    with TopologyTestDriver(copied(), tracing=recorded.tracing) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("key", "value")
    process, sent = recorded.one("process in"), recorded.one("send out")
    assert (process.kind, sent.kind) == (SpanKind.CONSUMER, SpanKind.PRODUCER)
    common = {
        "messaging.system": "kafka",
        "messaging.client.id": "test",
        "messaging.consumer.group.name": "test",
        "ks_actors.task": "0_0",
    }
    assert dict(process.attributes or {}) == {
        **common,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "in",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
    }
    assert dict(sent.attributes or {}) == {
        **common,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "out",
    }


def test_a_record_without_a_context_begins_a_trace() -> None:
    """Each record that comes without a context has a trace of its own."""
    recorded = Recorded()
    with TopologyTestDriver(copied(), tracing=recorded.tracing) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("key", "one")
        topic.pipe_input("key", "two")
    first, second = recorded.named("process in")
    assert first.parent is None
    assert trace_of(first) != trace_of(second)


@pytest.mark.parametrize("value", [b"", b"\xff\xfe", b"00-xyz", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01", None])
def test_a_malformed_context_counts_as_none(value: bytes | None) -> None:
    """A header that is no context is replaced by that of a new trace, and the record is processed."""
    recorded = Recorded()
    with TopologyTestDriver(copied(), tracing=recorded.tracing) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("key", "value", headers=(("traceparent", value),))
        record = driver.create_output_topic("out", TEXT, TEXT).read_record()
    assert record.value == "value"
    assert context_in(record.headers) == (trace_of(recorded.one("process in")), id_of(recorded.one("send out")))


def test_a_record_that_is_not_sampled_makes_no_spans_and_keeps_its_trace() -> None:
    """The decision of whoever began the trace travels on."""
    recorded = Recorded()
    with TopologyTestDriver(pipeline(recorded), tracing=recorded.tracing) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("key", "value", headers=(UNSAMPLED,))
        record = driver.create_output_topic("out", TEXT, TEXT).read_record()
    assert not recorded.spans
    assert context_in(record.headers)[0] == TRACE
    assert dict(record.headers)["traceparent"] is not None
    assert (dict(record.headers)["traceparent"] or b"").endswith(b"-00")


def test_the_sampler_decides_about_records_without_a_context() -> None:
    """With a sampler that takes none, only records with a sampled context are traced."""
    recorded = Recorded(ParentBased(ALWAYS_OFF))
    with TopologyTestDriver(copied(), tracing=recorded.tracing) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("key", "value")
        assert not recorded.spans
        topic.pipe_input("key", "value", headers=(HEADER,))
    assert [span.name for span in recorded.spans] == ["process in", "send out"]


def test_each_record_of_a_batch_has_its_own_spans() -> None:
    """Records that are processed together do not share contexts."""
    recorded = Recorded()

    async def test(harness: AppHarness) -> None:
        await feed_all(harness, "in", [TestRecord("key", "value", number, of_trace(number)) for number in range(1, 101)])
        records = await harness.read("out")
        assert [context_in(record.headers)[0] for record in records] == [f"{number:032x}" for number in range(1, 101)]

    run_app(test, copied(), topics=BOTH, tracing=recorded.tracing)
    assert len(recorded.named("process in")) == len(recorded.named("send out")) == 100


def test_a_processor_runs_within_the_span_of_its_record_and_its_own_records_keep_the_trace() -> None:
    """The current span is that of the record, and a record that is forwarded without headers belongs to it."""
    recorded = Recorded()
    seen: list[int] = []

    class Anew(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            seen.append(trace.get_current_span().get_span_context().span_id)
            self.context.forward(Record(record.key, record.value, record.timestamp))

        def init(self, context: Any) -> None:
            self.context = context

    builder = StreamsBuilder()
    builder.stream("in", READ).process(Anew).to("out", WRITE)
    with TopologyTestDriver(builder.build(), tracing=recorded.tracing) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("key", "value", headers=(HEADER,))
        record = driver.create_output_topic("out", TEXT, TEXT).read_record()
    process = recorded.one("process in")
    assert [f"{span:016x}" for span in seen] == [id_of(process)]
    assert parent_of(recorded.one("send out")) == id_of(process)
    assert context_in(record.headers)[0] == TRACE
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("bad", ["value", b"\xff"])
def test_a_record_that_fails_has_a_failed_span_and_its_letter_belongs_to_the_trace(bad: str | bytes) -> None:
    """The span has the error, whether the value cannot be read or a function raises, and the letter has its context."""
    recorded = Recorded()

    def refuse(value: str) -> str:
        raise ValueError(f"no {value}")

    builder = StreamsBuilder()
    builder.stream("in", READ).map_values(refuse).to("out", WRITE)
    config = {
        "errors_dead_letter_queue_topic_name": "letters",
        "processing_exception_handler": log_and_continue,
        "deserialization_exception_handler": log_and_continue,
    }
    with TopologyTestDriver(builder.build(), config, tracing=recorded.tracing) as driver:
        raw = bad if isinstance(bad, bytes) else bad.encode()
        driver.create_input_topic("in", TEXT, serdes.BYTES).pipe_input("key", raw, headers=(HEADER,))
        letter = driver.create_output_topic("letters", TEXT, serdes.BYTES).read_record()
    process, sent = recorded.one("process in"), recorded.one("send letters")
    assert process.status.status_code is StatusCode.ERROR
    assert [event.name for event in process.events] == ["exception"]
    assert process.attributes is not None
    assert process.attributes["error.type"] == ("UnicodeDecodeError" if isinstance(bad, bytes) else "ValueError")
    assert parent_of(sent) == id_of(process)
    assert context_in(letter.headers) == (TRACE, id_of(sent))


def test_a_call_that_fails_has_a_failed_span() -> None:
    """The span of an asynchronous call has its error, and the trace goes on to the letter."""
    recorded = Recorded()

    async def refuse(value: str) -> str:
        await asyncio.sleep(0)
        raise ValueError(f"no {value}")

    builder = StreamsBuilder()
    builder.stream("in", READ).map_values(refuse, name="refuse").to("out", WRITE)

    async def test(harness: AppHarness) -> None:
        await feed(harness, "in", "key", "value", headers=(HEADER,))
        (letter,) = await harness.read("letters")
        assert context_in(letter.headers) == (TRACE, id_of(recorded.one("send letters")))

    run_app(
        test,
        builder.build(),
        topics={"in": 1, "out": 1, "letters": 1},
        tracing=recorded.tracing,
        errors_dead_letter_queue_topic_name="letters",
        processing_exception_handler=log_and_continue,
    )
    call = recorded.one("call refuse")
    assert call.status.status_code is StatusCode.ERROR
    assert parent_of(call) == parent_of(recorded.one("send letters")) == id_of(recorded.one("process in"))


def test_a_call_for_many_records_is_linked_to_each() -> None:
    """Its parent is the last record, whose headers the rows go on with; the others are links."""
    recorded = Recorded()

    async def doubled(records: list[Record[str, str]]) -> list[Record[str, str]]:
        await asyncio.sleep(0)
        return records

    builder = StreamsBuilder()
    builder.stream("in", READ).batch(doubled, max_records=3, max_wait_ms=50, name="double").to("out", WRITE)

    async def test(harness: AppHarness) -> None:
        await feed_all(harness, "in", [TestRecord("key", "value", 0, of_trace(number)) for number in range(1, 4)])

    run_app(test, builder.build(), topics=BOTH, tracing=recorded.tracing)
    call = recorded.one("call double")
    first, second, last = recorded.named("process in")
    assert parent_of(call) == id_of(last)
    assert [f"{link.context.span_id:016x}" for link in call.links] == [id_of(first), id_of(second)]


def test_a_result_that_was_held_back_goes_on_with_the_trace_of_its_last_record() -> None:
    """Stores keep the context in the headers: a result that comes later belongs to the trace of the input that it is of."""
    recorded = Recorded()
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_with_no_grace(10)
    windowed = builder.stream("in", READ).group_by_key(Grouped(TEXT, TEXT)).windowed_by(windows)
    counts = windowed.count(Materialized("counts", TEXT, serdes.LONG)).suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    counts.to_stream().map(lambda key, count: (key.key, str(count))).to("out", WRITE)
    with TopologyTestDriver(builder.build(), {"dsl_store_format": "HEADERS"}, tracing=recorded.tracing) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("key", "first", 0)
        topic.pipe_input("key", "last", 1, headers=(HEADER,))
        topic.pipe_input("other", "later", 1000)
        record = driver.create_output_topic("out", TEXT, TEXT).read_record()
    assert (record.key, record.value) == ("key", "2")
    assert context_in(record.headers) == (TRACE, id_of(recorded.one("send out")))


def test_a_crash_loses_no_context() -> None:
    """Records that are processed again have the trace that they came with, and the output has one context each."""
    recorded = Recorded()

    async def test(harness: AppHarness) -> None:
        await harness.produce("in", "key", "value", headers=(HEADER,))
        await asyncio.sleep(0.05)  # within the call
        await harness.crash()
        await harness.restart()
        await harness.caught_up()
        (record,) = await harness.read("out")
        assert context_in(record.headers)[0] == TRACE

    run_app(test, pipeline(recorded), topics=BOTH, tracing=recorded.tracing, processing_guarantee="exactly_once_v2")
    assert {trace_of(span) for span in recorded.spans} == {TRACE}
    assert len(recorded.named("send out")) == 1


def test_without_opentelemetry_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making a tracing without the package fails at once, and says how to install it."""
    monkeypatch.setitem(sys.modules, "ks_actors.tracing._otel_spans", None)
    monkeypatch.delattr("ks_actors.tracing._otel_spans", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'ks-actors\[otel\]'"):
        OtelTracing()


def test_an_app_refuses_what_is_no_tracing() -> None:
    """A provider in place of a tracing is refused with the name of the class to use."""
    with pytest.raises(TopologyError, match="OtelTracing"):
        App(copied(), StreamsConfig(application_id="app"), tracing=Recorded().provider)  # type: ignore[arg-type]
