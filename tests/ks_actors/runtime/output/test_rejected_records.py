"""Records that the log refuses."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from typing import Any

import pytest

from ks_actors import FailedRecord, HandlerResponse, LogError, NotAuthorized, ProductionFailed, Response, StreamsConfig, TransactionAborted
from ks_actors._errors import InvalidRecord, ProduceFailed, RecordTooLarge
from ks_actors.config import ErrorContext
from ks_actors.config._exception_handlers import DeadLetter
from ks_actors.dsl import StreamsBuilder
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.metrics import RecordingLevel
from ks_actors.records._batch import Batch
from ks_actors.runtime import InstanceState, UncaughtResponse
from ks_actors.runtime.output import RejectedRecords
from ks_actors.runtime.output._rejected_records import BARREN_ATTEMPTS
from ks_actors.runtime.shared import Metrics
from ks_actors.testing import AppHarness, TestRecord, run_app
from tests.ks_actors.runtime.helpers import EOS, STRINGS, STRINGS_OUT, by_key, counting, echo, feed, feed_all, in_app, in_virtual_time

SMALL: dict[str, Any] = {"in": 1, "out": NewTopic("out", 1, {"max.message.bytes": "200"}), "letters": 2}
BIG = "x" * 1000


class Asked:
    """A handler that goes on, and notes its questions."""

    def __init__(self, answer: HandlerResponse = HandlerResponse.RESUME) -> None:
        self.values: list[bytes] = []
        self._answer = answer

    def __call__(self, context: ErrorContext, record: FailedRecord, error: Exception) -> Response:
        assert isinstance(error, LogError)
        self.values.append(record.value)
        return Response(self._answer, context.dead_letters(error))


@in_virtual_time
async def test_only_refused_records_are_left_out(guarantee: str) -> None:
    """Of a batch with records that are too large these are left out, asked about and counted once; all others are written, in order, once."""
    asked = Asked()
    async with AppHarness(echo(), topics=SMALL, production_exception_handler=asked, processing_guarantee=guarantee) as harness:
        await feed_all(harness, "in", [TestRecord("a", BIG + str(number) if number % 10 == 3 else str(number), 0) for number in range(40)])
        assert by_key(await harness.read("out")) == {"a": [str(number) for number in range(40) if number % 10 != 3]}
        assert asked.values == [f"{BIG}{number}".encode() for number in (3, 13, 23, 33)]
        assert harness.app.metrics()["dropped-records-total"] == 4
        assert harness.app.state is InstanceState.RUNNING
        await feed_all(harness, "in", [TestRecord("a", value, 0) for value in ("next", BIG, "last")])
        assert [record.value for record in await harness.read("out")][-2:] == ["next", "last"]
        assert harness.app.metrics()["dropped-records-total"] == 5


@in_virtual_time
async def test_equal_records_are_each_left_out(guarantee: str) -> None:
    """Records with the same key and value are asked about one by one, and counted so."""
    asked = Asked()
    async with AppHarness(echo(), topics=SMALL, production_exception_handler=asked, processing_guarantee=guarantee) as harness:
        for _ in range(3):
            await feed_all(harness, "in", [TestRecord("a", value, 0) for value in (BIG, "small", BIG)])
        assert by_key(await harness.read("out")) == {"a": ["small"] * 3}
        assert len(asked.values) == harness.app.metrics()["dropped-records-total"] == 6


@in_app(echo(), topics=SMALL, production_exception_handler="continue", errors_dead_letter_queue_topic_name="letters")
async def test_refused_records_go_to_the_dead_letter_queue(harness: AppHarness, guarantee: str) -> None:
    """With `continue` and a dead letter queue each refused record is there once, with the error, committed with all the rest."""
    await feed_all(harness, "in", [TestRecord("a", value, 7) for value in ("1", BIG, "2")])
    assert by_key(await harness.read("out")) == {"a": ["1", "2"]}
    (letter,) = await harness.read("letters")
    assert (letter.key, letter.value, letter.timestamp) == (b"a", BIG.encode(), 7)
    headers = dict(letter.headers)
    assert headers["__streams.errors.exception"] == b"ks_actors._errors.RecordTooLarge"


@in_virtual_time
async def test_a_letter_that_is_refused_too(guarantee: str) -> None:
    """A dead letter that its topic cannot hold either is asked about, and left out: no letter is written about it."""
    topics: dict[str, Any] = {**SMALL, "letters": NewTopic("letters", 1, {"max.message.bytes": "200"})}
    async with AppHarness(
        echo(), topics=topics, production_exception_handler="continue", errors_dead_letter_queue_topic_name="letters", processing_guarantee=guarantee
    ) as harness:
        await feed_all(harness, "in", [TestRecord("a", value, 7) for value in ("1", BIG, "2")])
        assert by_key(await harness.read("out")) == {"a": ["1", "2"]}
        assert await harness.read("letters") == []
        assert harness.app.metrics()["dropped-records-total"] == 2


@in_virtual_time
async def test_a_record_without_a_key_for_a_compacted_topic(guarantee: str) -> None:
    """A record that a compacted topic cannot hold is dropped like one that is too large."""
    topics: dict[str, Any] = {"in": 1, "out": NewTopic("out", 1, {"cleanup.policy": "compact"})}
    async with AppHarness(echo(), topics=topics, production_exception_handler="continue", processing_guarantee=guarantee) as harness:
        await feed_all(harness, "in", [TestRecord(key, "v", 0) for key in ("a", None, "b", None)])
        assert by_key(await harness.read("out")) == {"a": ["v"], "b": ["v"]}
        assert harness.app.metrics()["dropped-records-total"] == 2


@in_virtual_time
async def test_a_topic_that_is_not_there(guarantee: str) -> None:
    """Where the error is about no record in particular all of the partition are dropped; those of other topics are written."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.to(lambda key, value, context: "nowhere", STRINGS_OUT)
    stream.to("out", STRINGS_OUT)
    async with AppHarness(
        builder.build(), topics={"in": 1, "out": 1}, production_exception_handler="continue", processing_guarantee=guarantee
    ) as harness:
        await feed_all(harness, "in", [TestRecord("a", str(number), 0) for number in range(5)])
        assert by_key(await harness.read("out")) == {"a": [str(number) for number in range(5)]}
        assert harness.app.metrics()["dropped-records-total"] == 5


@in_virtual_time
async def test_a_handler_that_fails_ends_the_app(guarantee: str) -> None:
    """With FAIL the app ends by ProductionFailed."""
    asked = Asked(HandlerResponse.FAIL)
    async with AppHarness(echo(), topics=SMALL, production_exception_handler=asked, processing_guarantee=guarantee) as harness:
        await harness.produce_all("in", [TestRecord("a", value, 0) for value in (BIG, BIG)])
        assert isinstance(await harness.ended(1000), ProductionFailed)
        assert set(asked.values) == {BIG.encode()}


@in_virtual_time
async def test_refused_records_whose_bytes_differ_in_each_attempt_end_the_app(guarantee: str) -> None:
    """At least once they are left out; exactly once the app tells the cause after eleven attempts, and repeats nothing for ever."""
    asked = Asked()
    numbers = count()
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.map_values(lambda value: f"{value}{next(numbers)}" if value == BIG else value).to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics=SMALL, production_exception_handler=asked, processing_guarantee=guarantee) as harness:
        await harness.produce_all("in", [TestRecord("a", value, 0) for value in ("first", BIG, "last")])
        if guarantee != EOS:
            await harness.caught_up()
            assert by_key(await harness.read("out")) == {"a": ["first", "last"]}
            return
        error = await harness.ended(10_000)
        assert isinstance(error, ProductionFailed)
        assert "their bytes differ in each attempt" in str(error)
        assert len(asked.values) == BARREN_ATTEMPTS + 1


@in_virtual_time
async def test_a_transaction_that_is_void_each_time_ends_the_app() -> None:
    """Transactions that the log declares void are repeated for `task_timeout_ms`; then the handler is asked."""
    async with AppHarness(echo(), topics=SMALL, processing_guarantee=EOS, task_timeout_ms=20_000) as harness:
        harness.fail("commit", TransactionAborted("it took too long"), 10_000)
        await harness.produce_all("in", [TestRecord("a", "1", 0)])
        assert isinstance(await harness.ended(100_000), TransactionAborted)


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_state_and_output_stay_exact(seed: int) -> None:
    """Counts with output that is refused now and then are right all the same: state, offsets and the rest of the output are of one commit."""
    topics: dict[str, Any] = {"in": 2, "out": NewTopic("out", 1, {"max.message.bytes": "60"})}
    async with AppHarness(
        counting("rocksdb"), seed=seed, topics=topics, production_exception_handler="continue", processing_guarantee=EOS, commit_interval_ms=50
    ) as harness:
        for number in range(60):
            await harness.produce("in", "k" * 80 if number % 9 == 4 else f"k{number % 4}", "v")
        await harness.caught_up()
        await harness.crash()
        await harness.restart()
        await feed(harness, "in", "k0", "v")
        sent = [f"k{number % 4}" for number in range(60) if number % 9 != 4] + ["k0"]
        assert by_key(await harness.read("out")) == {key: list(range(1, sent.count(key) + 1)) for key in ("k0", "k1", "k2", "k3")}


@in_virtual_time
async def test_letters_of_a_handler_to_the_same_topic_are_not_written() -> None:
    """A handler that writes about a refused record to the topic that refused it is not asked for ever."""

    def handler(context: Any, record: Any, error: Exception) -> Response:
        return Response(HandlerResponse.RESUME, (DeadLetter("out", record.key, record.value, 0),))

    async with AppHarness(echo(), topics=SMALL, production_exception_handler=handler) as harness:
        await feed(harness, "in", "a", BIG)
        assert await harness.read("out") == []


def forgets(*_: object) -> None:
    """Answer nothing."""


def fails(*_: object) -> Response:
    raise ValueError("a bug of the handler")


@pytest.mark.parametrize(
    ("handler", "text"), [(forgets, "TypeError: "), (fails, "ValueError: a bug of the handler, about: the log refused records: ")]
)
def test_a_handler_that_raises_about_a_refused_record_ends_the_app_by_an_error_that_tells_both(guarantee: str, handler: Any, text: str) -> None:
    """It is an error of the output, as FAIL is: the uncaught handler is asked, and may go on."""
    asked: list[Exception] = []

    def uncaught(error: Exception) -> UncaughtResponse:
        asked.append(error)
        return UncaughtResponse.REPLACE_WORKER if len(asked) == 1 else UncaughtResponse.SHUTDOWN_CLIENT

    async def test(harness: AppHarness) -> None:
        await harness.produce("in", "a", BIG)
        while harness.app.state is not InstanceState.ERROR:
            await asyncio.sleep(0.1)

    with pytest.raises(ProductionFailed, match="the exception handler itself raised " + text) as failed:
        run_app(test, echo(), topics=SMALL, production_exception_handler=handler, processing_guarantee=guarantee, uncaught_handler=uncaught)
    assert "max.message.bytes" in str(failed.value)
    assert (failed.value.topic, failed.value.partition) == ("out", 0)
    assert len(asked) == 2


@pytest.mark.parametrize("error", [LogError("UNKNOWN_SERVER_ERROR"), NotAuthorized("no right"), TransactionAborted("void"), RuntimeError("a bug")])
def test_the_handler_is_not_asked_about_errors_that_are_not_about_records(error: Exception) -> None:
    """A right that is withdrawn, or a fault of the broker, would befall all records: RESUME must not empty the output."""
    asked = Asked()
    config = StreamsConfig(application_id="a", log="memory://", production_exception_handler=asked)
    records = [Batch([b"k"], [b"v"], [0])]
    assert RejectedRecords(config, Counter(), Metrics(RecordingLevel.INFO)).refused(TopicPartition("out", 0), records, error) is None
    assert asked.values == []


@pytest.mark.parametrize("records", [(3,), ()])
def test_records_that_are_written_before_a_refused_one_are_neither_asked_about_nor_written_again(records: tuple[int, ...]) -> None:
    """Those behind it are written again, in their order, whether the log names the refused record or not."""
    asked = Asked()
    config = StreamsConfig(application_id="a", log="memory://", production_exception_handler=asked)
    batches = [Batch([b"k"] * 2, [b"%d" % number, b"%d" % (number + 1)], [0, 0]) for number in (0, 2, 4)]
    found = RejectedRecords(config, Counter(), Metrics(RecordingLevel.INFO)).refused(
        TopicPartition("out", 0), batches, InvalidRecord("no", records), 3
    )
    assert found is not None
    assert [value for outgoing in found.rest for value in outgoing.batch.values] == ([b"4", b"5"] if records else [])
    assert [value for (_, value), _ in found.dropped] == ([b"3"] if records else [b"3", b"4", b"5"])


async def test_the_log_names_the_refused_records() -> None:
    """Numbers go through all batches of a partition in a call; the first kind of error is reported."""
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("t", 1, {"max.message.bytes": "50", "cleanup.policy": "compact"})])
        producer = await log.producer(client_id="p")
        partition = TopicPartition("t", 0)

        def batch(*records: tuple[bytes | None, int]) -> Outgoing:
            return Outgoing(partition, Batch([key for key, _ in records], [b"v" * size for _, size in records], [0] * len(records)))

        with pytest.raises(ProduceFailed) as failed:
            await producer.send([batch((b"k", 1), (b"k", 99), (b"k", 98)), batch((b"k", 1)), batch((b"k", 100)), batch((None, 1))])
        error = failed.value.errors[partition]
        assert isinstance(error, RecordTooLarge)
        assert error.records == {1, 2, 4}
        with pytest.raises(ProduceFailed) as failed:
            await producer.send([batch((b"k", 1)), batch((None, 1))])
        error = failed.value.errors[partition]
        assert isinstance(error, InvalidRecord)
        assert error.records == {1}
