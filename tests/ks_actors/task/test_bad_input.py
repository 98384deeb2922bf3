"""Records that cannot be processed, and the app's errors about them: each one names its place."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ks_actors import (
    ConfigError,
    DeserializationFailed,
    ErrorContext,
    FailedRecord,
    HandlerResponse,
    OffsetOutOfRange,
    ProcessingFailed,
    Processor,
    ProductionFailed,
    Record,
    Response,
    StateError,
    StorageFull,
    StoreNotConnected,
    StreamsConfig,
    StreamsError,
    TaskId,
    TimestampInvalid,
    TimeWindows,
    log_and_continue,
    serdes,
)
from ks_actors.dsl import Consumed, Produced, StreamsBuilder
from ks_actors.log import NewTopic, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.processors import PunctuationType
from ks_actors.runtime import InstanceState, UncaughtResponse
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.topology import Topology, stores
from tests.ks_actors.runtime.helpers import (
    EOS,
    STRINGS,
    STRINGS_OUT,
    Bomb,
    Load,
    by_key,
    check_counts,
    counting,
    echo,
    feed,
    feed_all,
    in_app,
    in_virtual_time,
)

TOPICS = {"in": 1, "out": 1, "dead": 1}


def numbers(**options: Any) -> Topology:
    """Read integers."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed(serdes.STRING, serdes.INTEGER, **options)).to("out", Produced(serdes.STRING, serdes.INTEGER))
    return builder.build()


def processing(supplier: Callable[[], Processor[Any, Any, Any, Any]], *store_names: str, add: bool = True) -> Topology:
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_processor("mine", supplier, "source")
    topology.add_sink("sink", "out", "mine", key=serdes.STRING, value=serdes.STRING)
    for name in store_names:
        topology.add_state_store(stores.key_value(name, serdes.STRING, serdes.STRING), *(("mine",) if add else ()))
    return topology


def error_of(topology: Topology, *records: TestRecord[Any, Any], topics: dict[str, int] | None = None, **config: Any) -> Exception:
    """Return the final error of the app when it reads these records."""

    async def test(harness: AppHarness) -> Exception:
        await harness.produce_all("in", records)
        error = await harness.ended()
        assert error is not None
        assert harness.app.state is InstanceState.ERROR
        return error

    return run_app(test, topology, topics=topics or TOPICS, **config)


# --- records that cannot be read ------------------------------------------------------------------------------------------------


def test_a_malformed_record_ends_the_app() -> None:
    """Unless told otherwise the app ends at a record that cannot be read; the error names task, node, topic, partition and offset."""
    good, bad = TestRecord("a", 1, 0), TestRecord("a", b"four", 0)
    error = error_of(numbers(), good, good, TestRecord("a", b"too long", 0), bad)
    assert isinstance(error, DeserializationFailed)
    assert (error.task, error.node, error.topic, error.partition, error.offset) == (TaskId(0, 0), "KSTREAM-SOURCE-0000000000", "in", 0, 2)
    assert "(task 0_0, node KSTREAM-SOURCE-0000000000, topic in, partition 0, offset 2)" in str(error)
    assert error.__cause__ is not None


@in_app(numbers(), topics=TOPICS, deserialization_exception_handler="continue", errors_dead_letter_queue_topic_name="dead")
async def test_malformed_records_may_be_left_out(harness: AppHarness, guarantee: str) -> None:
    """With `continue` they are left out, counted, and committed over; with a dead letter queue they are there as they were, and why."""
    mixed = [TestRecord("a", number if number % 3 else b"bad", number, (("h", b"1"),)) for number in range(30)]
    await feed_all(harness, "in", mixed)
    assert [record.value for record in await harness.read("out")] == [number for number in range(30) if number % 3]
    assert harness.app.metrics()["dropped-records-total"] == 10
    letters = await harness.read("dead")
    assert [(letter.key, letter.value, letter.timestamp) for letter in letters] == [(b"a", b"bad", number) for number in range(0, 30, 3)]
    headers = dict(letters[1].headers)
    assert headers["h"] == b"1"
    assert headers["__streams.errors.topic"] == b"in"
    assert headers["__streams.errors.offset"] == b"3"
    await harness.close()
    await harness.restart()
    await harness.caught_up()
    assert harness.app.metrics()["process-total"] == 0


@in_app(numbers(), topics=TOPICS, deserialization_exception_handler="continue")
async def test_only_malformed_records(harness: AppHarness) -> None:
    """A topic with nothing but malformed records is passed over, and committed."""
    await feed_all(harness, "in", [TestRecord("a", b"bad", 0)] * 10)
    assert [one.offset for one in harness.log._groups.get("app").committed().values()] == [10]


def test_a_handler_that_fails_is_told_of() -> None:
    """An exception handler that raises, or answers nonsense, ends the app with an error that names both."""

    def broken(context: ErrorContext, record: FailedRecord, error: Exception) -> HandlerResponse:
        raise LookupError("handler broken")

    def nonsense(context: ErrorContext, record: FailedRecord, error: Exception) -> Any:
        return "whatever"

    for handler, told in ((broken, "LookupError: handler broken"), (nonsense, "this one returned 'whatever'")):
        error = error_of(numbers(), TestRecord("a", b"bad", 0), deserialization_exception_handler=handler)
        assert isinstance(error, DeserializationFailed)
        assert told in str(error)
        assert "offset 0" in str(error)


# --- timestamps -----------------------------------------------------------------------------------------------------------------


def test_a_timestamp_that_is_negative() -> None:
    """A record without a valid time ends the app, and the message says where it is."""
    error = error_of(numbers(), TestRecord("a", 1, 5), TestRecord("a", 2, -3))
    assert isinstance(error, TimestampInvalid)
    assert (error.topic, error.partition, error.offset) == ("in", 0, 1)


@pytest.mark.parametrize("nonsense", ["soon", None, 1.5, True, 1 << 63, float("nan")])
def test_an_extractor_that_answers_nonsense(nonsense: Any) -> None:
    """A timestamp extractor that gives no whole number is an error that names the source and the record."""
    error = error_of(numbers(timestamp_extractor=lambda record, time: nonsense), TestRecord("a", 1, 5))
    assert isinstance(error, StreamsError)
    assert (error.node, error.topic, error.partition, error.offset) == ("KSTREAM-SOURCE-0000000000", "in", 0, 0)
    assert f"it returned {nonsense!r}: return a" in str(error)


@in_virtual_time
async def test_an_extractor_may_answer_the_latest_time_and_numbers_of_other_types() -> None:
    """A whole number of Python is one here, also one of numpy."""

    class Whole:
        def __index__(self) -> int:
            return 7

    topology = numbers(timestamp_extractor=lambda record, _: (1 << 63) - 1 if record.value else Whole())
    async with AppHarness(topology, topics=TOPICS) as harness:
        await feed_all(harness, "in", [TestRecord("a", number, 5) for number in (0, 1)])
        assert [record.timestamp for record in await harness.read("out")] == [7, (1 << 63) - 1]


def test_an_extractor_that_raises() -> None:
    """Records in front of the one that an extractor raises at are processed; the error names that one."""

    def extract(record: Any, time: int) -> int:
        if record.value == 3:
            raise LookupError("no time")
        return 0

    error = error_of(numbers(timestamp_extractor=extract), *(TestRecord("a", number, 5) for number in range(5)))
    assert isinstance(error, StreamsError)
    assert error.offset == 3
    assert isinstance(error.__cause__, LookupError)


# --- processors -----------------------------------------------------------------------------------------------------------------


class Raising(Processor[str, str, str, str]):
    """Raise at each request."""

    def process(self, record: Record[str, str]) -> None:
        if record.value == "bad":
            raise LookupError("cannot do that")
        self.context.forward(record)


def test_a_processor_that_raises() -> None:
    """The error names node, task and record, and has the processor's error as its cause."""
    error = error_of(processing(Raising), TestRecord("a", "good", 0), TestRecord("a", "bad", 0))
    assert isinstance(error, ProcessingFailed)
    assert (error.task, error.node, error.topic, error.partition, error.offset) == (TaskId(0, 0), "mine", "in", 0, 1)
    assert "LookupError: cannot do that" in str(error)


@in_app(processing(Raising), topics=TOPICS, processing_exception_handler="continue", errors_dead_letter_queue_topic_name="dead")
async def test_a_processor_that_raises_may_go_on(harness: AppHarness) -> None:
    """With `continue` the record is left out, counted, and sent to the dead letter queue."""
    await feed_all(harness, "in", [TestRecord("a", value, 0) for value in ("1", "bad", "2")])
    assert by_key(await harness.read("out")) == {"a": ["1", "2"]}
    (letter,) = await harness.read("dead")
    assert letter.value == b"bad"
    assert harness.app.metrics()["dropped-records-total"] == 1


class Greedy(Processor[str, str, str, str]):
    """Ask for a store that it is not connected to."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.get_state_store("treasure")

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


class LateGreedy(Raising):
    """Likewise, when a record comes."""

    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("treasure")


def test_a_store_that_is_not_connected() -> None:
    """Using a store that is not connected is an error that says how to connect it: at the start when init asks, else at the record."""
    with pytest.raises(StoreNotConnected, match="mine is not allowed to use store 'treasure'"):
        run_app(lambda _: pytest.fail("it started"), processing(Greedy), topics=TOPICS)
    error = error_of(processing(LateGreedy), TestRecord("a", "1", 0))
    assert isinstance(error, StoreNotConnected)
    assert "connect_processor_and_state_stores('mine', 'treasure')" in str(error)


class BadStart(Raising):
    def init(self, context: Any) -> None:
        raise OSError("no such device")


def test_a_processor_that_cannot_be_made_ready() -> None:
    """An error of `init` fails the start."""
    with pytest.raises(StreamsError, match="could not initialize a processor: OSError: no such device"):
        run_app(lambda _: pytest.fail("it started"), processing(BadStart), topics=TOPICS)


class BadEnd(Raising):
    def close(self) -> None:
        raise OSError("stuck")


@in_app(processing(BadEnd), topics=TOPICS)
async def test_a_processor_that_cannot_be_closed(harness: AppHarness) -> None:
    """An error of `close` comes out of closing the app, after everything was committed and closed."""
    await feed(harness, "in", "a", "1")
    with pytest.raises(StreamsError, match="stuck"):
        await harness.close()
    await harness.restart()
    await feed(harness, "in", "b", "2")
    assert by_key(await harness.read("out")) == {"a": ["1"], "b": ["2"]}
    with pytest.raises(StreamsError, match="stuck"):
        await harness.close()


class BadTick(Raising):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(1000, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def tick(self, now: int) -> None:
        raise LookupError("tick")


@in_app(processing(BadTick), topics=TOPICS)
async def test_a_punctuator_that_raises(harness: AppHarness) -> None:
    """The error names the node; there is no record to name."""
    error = await harness.ended()
    assert isinstance(error, ProcessingFailed)
    assert (error.node, error.topic, error.offset) == ("mine", None, None)
    assert "LookupError: tick" in str(error)


@in_app(processing(BadTick), topics=TOPICS, processing_exception_handler=log_and_continue)
async def test_punctuators_that_raise_may_go_on(harness: AppHarness) -> None:
    """With `continue` the next one is due as if nothing had been."""
    await harness.kit.clock.advance(3.5)
    assert harness.app.metrics()["dropped-records-total"] == 3


class OwnErrors(Processor[str, str, str, Any]):
    """Cause an error of the framework's own, in `process` or in a punctuation."""

    cause: Callable[[Any, int], Any]
    ticks: PunctuationType | None = None

    def init(self, context: Any) -> None:
        super().init(context)
        if self.ticks is not None:
            context.schedule(1_000, self.ticks, lambda now: type(self).cause(context, now))

    def process(self, record: Record[str, str]) -> None:
        if self.ticks is None:
            type(self).cause(self.context, record.timestamp)


def unwritable(context: Any, now: int) -> None:
    context.forward(Record("k", 42, now))


def unconnected(context: Any, _: int) -> None:
    context.get_state_store("nowhere")


@pytest.mark.parametrize("ticks", [None, *PunctuationType])
@pytest.mark.parametrize(("cause", "expected"), [(unwritable, ProductionFailed), (unconnected, StoreNotConnected)], ids=["serde", "store"])
@in_virtual_time
async def test_the_frameworks_own_errors_go_to_no_processing_handler(ticks: PunctuationType | None, cause: Any, expected: type[Exception]) -> None:
    """A punctuator is no other than `process`: FAIL of the production handler ends the app, though the processing handler goes on."""

    class Causing(OwnErrors):
        pass

    Causing.ticks, Causing.cause = ticks, staticmethod(cause)
    async with AppHarness(processing(Causing), topics=TOPICS, processing_exception_handler=log_and_continue) as harness:
        await harness.produce("in", "k", "v", 5_000)
        error = await harness.ended()
        assert type(error) is expected


class NoTime(Raising):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(0, PunctuationType.WALL_CLOCK_TIME, lambda now: None)


def test_a_punctuation_interval_has_to_be_positive() -> None:
    """An interval of nothing fails the start, naming the node."""
    with pytest.raises(StreamsError, match="ValueError: node mine cannot punctuate with interval_ms 0"):
        run_app(lambda _: pytest.fail("it started"), processing(NoTime), topics=TOPICS)


# --- output ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", [7, -1, [0, 9], "first", 0.5])
def test_a_partitioner_that_answers_nonsense(chosen: Any) -> None:
    """A partition that does not exist is an error that names the topic, the node and the choice."""
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_sink("sink", "out", "source", key=serdes.STRING, value=serdes.STRING, partitioner=lambda *record: chosen if record[2] else 0)
    error = error_of(topology, TestRecord("a", "", 0), TestRecord("a", "1", 0))
    assert isinstance(error, StreamsError)
    assert "of topic out, which has 1" in str(error)
    assert (error.task, error.node, error.topic, error.partition, error.offset) == (TaskId(0, 0), "sink", "in", 0, 1)


def test_a_partitioner_that_raises() -> None:
    """An error of a partitioner is the cause of an error that names topic, node and record."""
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_sink("sink", "out", "source", key=serdes.STRING, value=serdes.STRING, partitioner=lambda topic, key, value, count: 1 // 0)
    error = error_of(topology, TestRecord("a", "1", 0))
    assert isinstance(error, StreamsError)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert (error.node, error.topic, error.offset) == ("sink", "in", 0)


@in_virtual_time
async def test_a_partitioner_may_choose_several_or_none() -> None:
    """A list of partitions writes to all of them, an empty one drops the record, None leaves it to the default."""
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)

    def choose(topic: str, key: str, value: str, count: int) -> Any:
        return {"all": list(range(count)), "none": [], "first": 0, "default": None}[value]

    topology.add_sink("sink", "out", "source", key=serdes.STRING, value=serdes.STRING, partitioner=choose)
    async with AppHarness(topology, topics={"in": 1, "out": 3}) as harness:
        for value in ("all", "none", "first", "default"):
            await harness.produce("in", "a", value)
        await harness.caught_up()
        found = by_key(await harness.read("out"))["a"]
        assert sorted(found) == ["all", "all", "all", "default", "first"]
        assert harness.app.metrics()["dropped-records-total"] == 1


@pytest.mark.parametrize("nonsense", ["", None, 5])
def test_a_topic_extractor_that_answers_nonsense(nonsense: Any) -> None:
    """A topic name extractor has to name a topic; the error has its answer, and its node."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to(lambda key, value, context: nonsense, STRINGS_OUT)
    error = error_of(builder.build(), TestRecord("a", "1", 0))
    assert isinstance(error, StreamsError)
    assert repr(nonsense) in str(error)
    assert error.node == "KSTREAM-SINK-0000000001"


def test_a_topic_extractor_that_raises() -> None:
    """An error of a topic name extractor is the cause of an error that names node and record."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to(lambda key, value, context: str(1 // 0), STRINGS_OUT)
    error = error_of(builder.build(), TestRecord("a", "1", 0))
    assert isinstance(error, StreamsError)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert (error.node, error.topic, error.offset) == ("KSTREAM-SINK-0000000001", "in", 0)


def test_an_extracted_topic_that_does_not_exist() -> None:
    """Records for a topic that nobody has made are ProductionFailed, naming the topic."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to(lambda key, value, context: value, STRINGS_OUT)
    error = error_of(builder.build(), TestRecord("a", "nowhere", 0))
    assert isinstance(error, ProductionFailed)
    assert error.topic == "nowhere"


def wrong_type() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(lambda value: value if value == "bad" else 1).to("out", Produced(serdes.STRING, serdes.INTEGER))  # type: ignore[arg-type]
    return builder.build()


def test_a_value_that_cannot_be_written() -> None:
    """A value that a serde cannot write ends the app; the error names its record, its type and the serde, and the remedy."""
    error = error_of(wrong_type(), TestRecord("a", b"1", 0), TestRecord("a", b"bad", 0))
    assert isinstance(error, ProductionFailed)
    assert (error.topic, error.partition) == ("in", 0)
    assert "topic out cannot be serialized: its value, a str, does not fit <Serde INTEGER>" in str(error)
    assert "name another serde for the topic, as in Produced(…)" in str(error)


def test_a_windowed_key_that_cannot_be_written() -> None:
    """The error names the serde that is missing."""
    builder = StreamsBuilder()
    counts = builder.stream("in", STRINGS).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10)).count()
    counts.to_stream().to("out", Produced(serdes.STRING, serdes.LONG))  # type: ignore[arg-type]
    error = error_of(builder.build(), TestRecord("a", b"1", 0))
    assert "its key, a Windowed, does not fit <Serde STRING>" in str(error)
    assert "serdes.windowed(…)" in str(error)


@in_app(wrong_type(), topics=TOPICS, production_exception_handler="continue")
async def test_values_that_cannot_be_written_may_be_left_out(harness: AppHarness) -> None:
    """With `continue` they are dropped and counted."""
    await feed_all(harness, "in", [TestRecord("a", value, 0) for value in (b"1", b"bad", b"2")])
    assert by_key(await harness.read("out")) == {"a": [1, 1]}
    assert harness.app.metrics()["dropped-records-total"] == 1


SMALL: dict[str, Any] = {"in": 1, "out": NewTopic("out", 1, {"max.message.bytes": "200"})}


def test_a_record_that_is_too_large_for_its_topic() -> None:
    """The error names topic and partition."""
    error = error_of(echo(), TestRecord("a", "x" * 1000, 0), topics=SMALL)
    assert isinstance(error, ProductionFailed)
    assert (error.topic, error.partition) == ("out", 0)


@in_virtual_time
async def test_records_that_are_too_large_may_be_left_out() -> None:
    """With `continue`, at least once, the batch is dropped, and counted; the handler is asked about each record of it."""
    asked: list[tuple[str, Any]] = []

    def handler(context: ErrorContext, record: FailedRecord, error: Exception) -> Response:
        asked.append((context.processor_node_id, record.value))
        return Response(HandlerResponse.RESUME)

    async with AppHarness(echo(), topics=SMALL, production_exception_handler=handler) as harness:
        await feed(harness, "in", "a", "x" * 1000)
        await feed(harness, "in", "a", "small")
        assert by_key(await harness.read("out")) == {"a": ["small"]}
        assert harness.app.metrics()["dropped-records-total"] == 1
        assert asked == [("collector", b"x" * 1000)]


# --- the log and the disk -------------------------------------------------------------------------------------------------------


def largest(directory: Path) -> int:
    """The size of the largest log file in a directory."""
    return max(path.stat().st_size for path in directory.glob("*.log"))


def limit(size: int) -> None:
    """Let no file of this process grow beyond `size`: a full disk, as far as files can tell."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


def test_a_full_disk_under_the_log(tmp_path: Path, guarantee: str) -> None:
    """When the log has no room the app ends with StorageFull, or goes on when told to; after there is room nothing is lost and nothing doubled."""
    asked: list[Exception] = []

    def handler(error: Exception) -> UncaughtResponse:
        asked.append(error)
        limit(resource.RLIM_INFINITY)
        return UncaughtResponse.REPLACE_WORKER

    async def main() -> None:
        from random import Random  # noqa: PLC0415 - of this test alone

        async with EmbeddedLog(tmp_path) as log:
            config: dict[str, Any] = {"processing_guarantee": guarantee, "commit_interval_ms": 1000}
            async with AppHarness(counting("in_memory"), topics={"in": 1, "out": 1}, embedded=log, uncaught_handler=handler, **config) as harness:
                load = Load(harness, Random(1))
                await load.through(50)
                await load.send(50)
                limit(largest(tmp_path))
                try:
                    await harness.caught_up()
                finally:
                    limit(resource.RLIM_INFINITY)
                check_counts(await harness.read("out"), load.sent, guarantee)

    import asyncio  # noqa: PLC0415 - likewise

    from actors.testing import VirtualLoop  # noqa: PLC0415 - likewise

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    assert asked
    assert all(isinstance(error, ProductionFailed | StorageFull) for error in asked)


@in_app(counting("rocksdb"), topics={"in": 1, "out": 1}, processing_guarantee=EOS)
async def test_a_full_disk_under_the_state(harness: AppHarness) -> None:
    """When state cannot be written the app ends with an error that names the task and its directory; the next one restores the missing rows."""
    await feed_all(harness, "in", [TestRecord(f"k{number}", "v", 0) for number in range(5000)])
    limit(100)
    try:
        with pytest.raises(StateError, match=r"0_0.*the disk is full"):
            await harness.close()
    finally:
        limit(resource.RLIM_INFINITY)
    await harness.restart()
    await feed(harness, "in", "k1", "v")
    assert by_key(await harness.read("out"))["k1"] == [1, 2]


def test_a_position_that_is_gone_follows_the_reset_policy() -> None:
    """When unread records were deleted, reading goes on where `auto_offset_reset` says; with `none` that is an error."""

    def run(policy: str) -> list[Any]:
        async def test(harness: AppHarness) -> list[Any]:
            await harness.app.pause()
            await harness.produce_all("in", [TestRecord("a", str(number), 0) for number in range(10)])
            harness.log._broker.truncate(harness.log._broker.partitions[TopicPartition("in", 0)], 7)
            await harness.app.resume()
            if policy == "none":
                error = await harness.ended()
                assert isinstance(error, StreamsError)
                assert (error.topic, error.partition) == ("in", 0)
                assert "auto_offset_reset" in str(error)
                return []
            await harness.kit.clock.advance(1)
            await feed(harness, "in", "a", "last")
            return by_key(await harness.read("out"))["a"]

        topics = {"in": 1, "out": 1}

        async def begin(harness: AppHarness) -> list[Any]:
            await harness.produce("in", "a", "0")
            await harness.start()
            await harness.caught_up()
            return await test(harness)

        return run_app(begin, echo(), topics=topics, auto_offset_reset="earliest" if policy == "none" else policy, start=False)

    assert run("earliest")[-1] == "last"


def test_offsets_out_of_range_while_the_app_was_away() -> None:
    """Likewise at the start: deleted records are skipped, from the earliest record there is, or to the end; or it is an error."""

    def run(policy: str) -> list[Any]:
        async def test(harness: AppHarness) -> list[Any]:
            await harness.produce("in", "a", "first")
            await harness.start()
            await harness.caught_up()
            await harness.close()
            await harness.produce_all("in", [TestRecord("a", str(number), 0) for number in range(10)])
            harness.log._broker.truncate(harness.log._broker.partitions[TopicPartition("in", 0)], 8)
            harness.config = harness.config.replace(auto_offset_reset=policy)
            await harness.start()
            if policy == "none":
                error = await harness.ended()
                assert isinstance(error, StreamsError)
                assert isinstance(error.__cause__, OffsetOutOfRange) or "8" in str(error)
                return []
            await harness.kit.clock.advance(1)
            await feed(harness, "in", "a", "last")
            return by_key(await harness.read("out"))["a"]

        return run_app(test, echo(), topics={"in": 1, "out": 1}, start=False)

    assert run("earliest") == ["first", "7", "8", "9", "last"]
    assert run("latest") == ["first", "last"]
    assert run("none") == []


def test_the_start_without_a_committed_offset() -> None:
    """Without one, `latest` begins at the end, and `none` is an error with the remedy."""

    async def latest(harness: AppHarness) -> None:
        await harness.produce("in", "a", "early")
        await harness.start()
        await feed(harness, "in", "a", "late")
        assert by_key(await harness.read("out")) == {"a": ["late"]}

    run_app(latest, echo(), topics={"in": 1, "out": 1}, start=False, auto_offset_reset="latest")
    with pytest.raises(StreamsError, match="no committed offset and auto_offset_reset is none"):
        run_app(latest, echo(), topics={"in": 1, "out": 1}, auto_offset_reset="none")


def test_settings_that_do_not_exist() -> None:
    """A wrong name is refused, with the one that was probably meant."""
    with pytest.raises(ConfigError, match="did you mean commit_interval_ms"):
        StreamsConfig.of({"application_id": "app", "comit_interval_ms": 5})
    with pytest.raises(ConfigError, match="num_stream_threads"):
        run_app(lambda _: pytest.fail("it started"), echo(Bomb()), num_workers=0)
