"""Dead letters of global tables and global stores are written as those of tasks are."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import DeserializationFailed, LogTimeout, ProcessingFailed, ProduceFailed, ProductionFailed, RecordTooLarge, Response, serdes
from ks_actors.config import ErrorContext, FailedRecord, HandlerResponse
from ks_actors.config._exception_handlers import DeadLetter
from ks_actors.dsl import Consumed, StreamsBuilder
from ks_actors.log import NewTopic, TopicPartition
from ks_actors.processors import Processor, ProcessorContext, Record
from ks_actors.testing import AppHarness, AsyncTopologyTestDriver, TestRecord, TopologyTestDriver, run_app
from ks_actors.topology import Topology, stores
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import ALOS, GUARANTEES, STRINGS, STRINGS_OUT, feed, in_app, in_virtual_time

TOPICS = {"in": 1, "out": 1, "names": 2, "letters": 2}
GOOD, NO_KEY, NO_VALUE, RAISES = "good", "no key", "no value", "raises"
RECORDS: dict[str, tuple[bytes, bytes]] = {
    GOOD: (b"a", b"n"),
    NO_KEY: (b"\xff", b"n"),
    NO_VALUE: (b"a", b"\xff"),
    RAISES: (b"a", b"bad"),
}


class Keeps(Processor[str, str, None, None]):
    """Put each record into the store; a bad value raises."""

    came: ClassVar[list[str]] = []

    def init(self, context: ProcessorContext[None, None]) -> None:
        super().init(context)
        self._names = context.get_state_store("names")

    def process(self, record: Record[str, str]) -> None:
        if record.value == "bad":
            raise ValueError("a bad name")
        self.came.append(record.key)
        self._names.put(record.key, record.value)


@pytest.fixture(autouse=True)
def _nothing_came() -> None:
    Keeps.came.clear()


def keeping(store: Any = "rocksdb") -> Topology:
    """Return a topology with a global store of the topic `names`, beside a stream."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to("out", STRINGS_OUT)
    spec = stores.key_value("names", serdes.STRING, serdes.STRING, type=store)
    return builder.build().add_global_store(spec, "names-source", "names", "keeps", Keeps, key=serdes.STRING, value=serdes.STRING)


def handling(answer: str = "continue", **more: Any) -> dict[str, Any]:
    names = ("deserialization_exception_handler", "processing_exception_handler", "production_exception_handler")
    return {"errors_dead_letter_queue_topic_name": "letters", **dict.fromkeys(names, answer), **more}


async def bad(harness: AppHarness, kind: str, partition: int = 0) -> None:
    key, value = RECORDS[kind]
    await harness.produce("names", key, value, 7, partition=partition, headers=(("h", b"1"),))


async def until_letters(harness: AppHarness, count: int) -> list[TestRecord[Any, Any]]:
    async with asyncio.timeout(600):
        while len(letters := await harness.read("letters")) < count:
            await asyncio.sleep(0.1)
    return letters


def place(letter: TestRecord[Any, Any]) -> tuple[bytes | None, ...]:
    headers = dict(letter.headers)
    return tuple(headers[f"__streams.errors.{name}"] for name in ("topic", "partition", "offset"))


@pytest.mark.parametrize(("kind", "error"), [(NO_KEY, b"UnicodeDecodeError"), (NO_VALUE, b"UnicodeDecodeError"), (RAISES, b"ValueError")])
@in_app(keeping(), topics=TOPICS, start=False, **handling())
async def test_a_letter_of_a_global_store_is_written_like_one_of_a_task(harness: AppHarness, kind: str, error: bytes, guarantee: str) -> None:
    """At the start and later: the record as it came, with its headers, and headers that name error, topic, partition and offset."""
    await bad(harness, GOOD, 1)
    await bad(harness, kind, 1)
    await harness.start()
    await bad(harness, kind)
    await bad(harness, GOOD)
    letters = await until_letters(harness, 2)
    assert {(letter.key, letter.value, letter.timestamp, letter.headers[0]) for letter in letters} == {(*RECORDS[kind], 7, ("h", b"1"))}
    assert {place(letter) for letter in letters} == {(b"names", b"1", b"1"), (b"names", b"0", b"0")}
    assert {dict(letter.headers)["__streams.errors.exception"] for letter in letters} == {error}
    assert harness.app.metrics()["dropped-records-total"] == 2
    assert harness.app.metrics()["produced-records-total"] == 2
    assert await harness.app.store("names").get("a") == "n"


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize(("kind", "error"), [(NO_VALUE, DeserializationFailed), (RAISES, ProcessingFailed)])
@in_virtual_time
async def test_the_letter_of_a_record_that_ends_the_app_is_there(kind: str, error: type[Exception], guarantee: str, *, running: bool) -> None:
    """Where the handler answers FAIL the letter is written first, during the start and later; the error is that of the record."""
    async with AppHarness(keeping(), topics=TOPICS, start=False, processing_guarantee=guarantee, **handling("fail")) as harness:
        if running:
            await harness.start()
            await bad(harness, kind)
            assert isinstance(await harness.ended(), error)
        else:
            await bad(harness, kind)
            with pytest.raises(error):
                await harness.start()
        (letter,) = await harness.read("letters")
        assert (letter.key, letter.value) == RECORDS[kind]


@in_app(keeping(), topics=TOPICS, start=False, close_timeout_ms=2_000, **handling())
async def test_a_position_is_never_ahead_of_a_letter(harness: AppHarness) -> None:
    """If the app dies before the log has the letter, the record is read again; once it has, a start goes on behind it."""
    await harness.start()
    answers = harness.log.hold("send")
    await bad(harness, NO_VALUE)
    await harness.kit.clock.advance(5)
    await bad(harness, GOOD)
    await harness.kit.clock.advance(1)
    assert Keeps.came == []
    await harness.close()
    assert await harness.read("letters") == []
    answers.set()
    await harness.restart()
    assert len(await harness.read("letters")) == 1
    assert Keeps.came == ["a"]
    await harness.restart()
    assert len(await harness.read("letters")) == 1


@in_app(keeping(), topics=TOPICS, start=False, **handling())
async def test_a_log_that_does_not_answer_is_asked_again(harness: AppHarness) -> None:
    """The letter is written when it answers, and records behind it wait until then."""
    await harness.start()
    harness.fail("send", LogTimeout("injected: nobody answers"), 5)
    await bad(harness, NO_VALUE)
    await bad(harness, GOOD)
    (letter,) = await until_letters(harness, 1)
    assert letter.value == b"\xff"
    await harness.kit.clock.advance(1)
    assert Keeps.came == ["a"]


@pytest.mark.parametrize("answer", ["continue", "fail"])
@in_virtual_time
async def test_the_production_handler_is_asked_about_letters_that_are_refused(answer: str) -> None:
    """A letter that is too large is left out, or ends the app by ProductionFailed; the others of the same send are written."""
    topics: dict[str, Any] = {**TOPICS, "letters": NewTopic("letters", 1, {"max.message.bytes": "5000"})}
    async with AppHarness(keeping(), topics=topics, start=False, **handling(production_exception_handler=answer)) as harness:
        await harness.produce("names", b"\xff", b"x" * 5_000, 0, partition=0)
        await bad(harness, NO_KEY)
        if answer == "continue":
            await harness.start()
            (letter,) = await harness.read("letters")
            assert letter.value == b"n"
            assert harness.app.metrics()["dropped-records-total"] == 3
        else:
            with pytest.raises(ProductionFailed, match="refused dead letters") as caught:
                await harness.start()
            assert isinstance(caught.value.__cause__, RecordTooLarge)


@in_virtual_time
async def test_a_handler_may_send_letters_to_any_topics() -> None:
    """Their partitions are found by their keys, also of topics that were made after the start."""

    def to_two(context: ErrorContext, record: FailedRecord | None, error: Exception) -> Response:
        letters = [DeadLetter(topic, context.source_raw_key, b"told", context.timestamp) for topic in ("letters", "late")]
        return Response(HandlerResponse.RESUME, tuple(letters))

    async with AppHarness(keeping(), topics=TOPICS, start=False, **handling(deserialization_exception_handler=to_two)) as harness:
        await harness.start()
        harness.create_topics({"late": 3})
        await bad(harness, NO_VALUE)
        await until_letters(harness, 1)
        (letter,) = await harness.read("late")
        assert (letter.key, letter.value) == (b"a", b"told")


@in_app(keeping(), topics=TOPICS, start=False, **handling(production_exception_handler="fail"))
async def test_a_topic_of_letters_that_is_gone_ends_the_app(harness: AppHarness) -> None:
    """The production handler says so: the topic of the error is that of the letters, and the table does not go on."""
    await harness.start()
    harness.delete_topics("letters")
    await bad(harness, NO_VALUE)
    error = await harness.ended()
    assert isinstance(error, ProductionFailed)
    assert error.topic == "letters"


@in_app(keeping(), topics=TOPICS, processing_guarantee=ALOS, **handling())
async def test_each_instance_writes_its_letters(harness: AppHarness) -> None:
    """All of them read the whole table: of one bad record there is a letter from each."""
    async with harness.another():
        await bad(harness, NO_VALUE)
        letters = await until_letters(harness, 2)
        await harness.kit.clock.advance(5)
        assert {place(letter) for letter in letters} == {(b"names", b"0", b"0")}
        assert len(await harness.read("letters")) == 2


@in_virtual_time
async def test_a_table_of_the_dsl_has_letters_too() -> None:
    """A global table that streams are joined with is filled by the same code."""
    builder = StreamsBuilder()
    table = builder.global_table("names", Consumed(serdes.STRING, serdes.STRING))
    builder.stream("in", STRINGS).join(table, lambda key, _: key, lambda left, right: f"{left}+{right}").to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics=TOPICS, start=False, **handling()) as harness:
        await bad(harness, NO_VALUE)
        await bad(harness, GOOD)
        await harness.start()
        assert len(await harness.read("letters")) == 1
        await feed(harness, "in", "a", "v")
        assert [record.value for record in await harness.read("out")] == ["v+n"]


@pytest.mark.parametrize("kind", [NO_KEY, NO_VALUE, RAISES])
def test_the_drivers_show_letters_of_global_stores_at_once(kind: str) -> None:
    """When the call that pipes the record returns; the asynchronous driver does as the other one."""
    key, value = RECORDS[kind]
    with TopologyTestDriver(keeping(), handling()) as driver:
        driver.create_input_topic("names", serdes.BYTES, serdes.BYTES).pipe_raw(key, value, 5)
        (letter,) = driver.create_output_topic("letters", serdes.BYTES, serdes.BYTES).read_records_to_list()
        assert (letter.key, letter.value, letter.timestamp) == (key, value, 5)
        assert dict(letter.headers)["__streams.errors.topic"] == b"names"

    async def other() -> None:
        async with AsyncTopologyTestDriver(keeping(), handling()) as driver:
            await driver.pipe_input("names", key, value)
            assert driver.count("letters") == 1

    asyncio.run(other())


@pytest.mark.parametrize(("kind", "error"), [(NO_VALUE, DeserializationFailed), (RAISES, ProcessingFailed)])
def test_the_driver_shows_the_letter_of_a_record_that_ends_a_global_store(kind: str, error: type[Exception], guarantee: str) -> None:
    """The call raises, and the letter is there, as it is when an app ends."""
    with TopologyTestDriver(keeping(), handling("fail", processing_guarantee=guarantee)) as driver:
        with pytest.raises(error):
            driver.create_input_topic("names", serdes.BYTES, serdes.BYTES).pipe_raw(*RECORDS[kind], 5)
        assert driver.count("letters") == 1


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@given(kinds=st.lists(st.sampled_from(sorted(RECORDS)), max_size=12))
@settings(max_examples=examples(10))
def test_the_driver_shows_the_letters_of_global_stores_that_an_app_writes(guarantee: str, store: str, kinds: list[str]) -> None:
    """The same records give the same letters, whether they come before the start of an app or behind it."""
    wanted: list[tuple[Any, ...]] = []
    with TopologyTestDriver(keeping(store), handling()) as driver:
        source = driver.create_input_topic("names", serdes.BYTES, serdes.BYTES)
        output = driver.create_output_topic("letters", serdes.BYTES, serdes.BYTES)
        for number, kind in enumerate(kinds):
            source.pipe_raw(*RECORDS[kind], number)
            wanted += [(letter.key, letter.value, letter.timestamp, place(letter)) for letter in output.read_records_to_list()]

    async def test(harness: AppHarness) -> None:
        for number, kind in enumerate(kinds):
            if number == len(kinds) // 2:
                await harness.start()
            await harness.produce("names", *RECORDS[kind], number, partition=0)
        await until_letters(harness, len(wanted))
        await harness.kit.clock.advance(1)
        found = [(letter.key, letter.value, letter.timestamp, place(letter)) for letter in await harness.read("letters")]
        assert sorted(found) == sorted(wanted)

    run_app(test, keeping(store), topics={**TOPICS, "names": 1, "letters": 1}, start=False, processing_guarantee=guarantee, **handling())


@in_app(keeping(), topics=TOPICS, start=False, **handling(production_exception_handler="fail"))
async def test_a_refused_letter_names_its_partition(harness: AppHarness) -> None:
    """The error of letters that cannot be written says which topic and partition refused them."""
    refusals = {TopicPartition("letters", number): RecordTooLarge("injected: too large") for number in range(2)}
    harness.fail("send", ProduceFailed(refusals))
    await bad(harness, NO_VALUE)
    with pytest.raises(ProductionFailed) as caught:
        await harness.start()
    assert (caught.value.topic, caught.value.partition) in refusals
