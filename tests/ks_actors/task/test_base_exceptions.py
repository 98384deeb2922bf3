"""Errors of users' functions that are no Exception: panics of Rust extensions, failed tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import App, HandlerResponse, ProcessingFailed, Record, StreamsConfig, StreamsError, Topology, UncaughtResponse, blocking
from ks_actors.dsl import Consumed, Produced, StreamsBuilder
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.processors import Processor, PunctuationType
from ks_actors.processors.api import ProcessorContext
from ks_actors.records import Batch
from ks_actors.runtime import InstanceState
from ks_actors.serdes import STRING
from ks_actors.testing import AppHarness, TopologyTestDriver, run_app
from tests.ks_actors.runtime.helpers import Asked, in_app
from tests.waiting import soon

TOPICS = {"in": 1, "out": 1}


class PanicException(BaseException):
    """As the panics of Rust extensions, such as polars, are: no Exception."""


def panics(value: str) -> str:
    if value == "bad":
        raise PanicException("index out of bounds")
    return value.upper()


@blocking
def panics_in_thread(value: str) -> str:
    return panics(value)


async def panics_async(value: str) -> str:
    await asyncio.sleep(0.01)
    return panics(value)


def meets_cancelled(value: str) -> str:
    if value == "bad":
        raise asyncio.CancelledError
    return value.upper()


FUNCTIONS = [panics, panics_in_thread, panics_async]


def mapped(function: Callable[[str], Any]) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).map_values(function).to("out", Produced(STRING, STRING))
    return builder.build()


async def ended(harness: AppHarness) -> None:
    while harness.app.state is not InstanceState.ERROR:
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_error_that_is_no_exception_goes_to_the_uncaught_handler_and_names_its_record(function: Callable[[str], Any]) -> None:
    """As in Kafka Streams, where the exception handlers are not asked about a Throwable that is no Exception, and the app's end has it."""
    asked = Asked(UncaughtResponse.SHUTDOWN_CLIENT)
    decided: list[Exception] = []

    def resume(_context: Any, _record: Any, error: Exception) -> HandlerResponse:
        decided.append(error)
        return HandlerResponse.RESUME

    async def test(harness: AppHarness) -> None:
        await harness.produce("in", "a", "good")
        await harness.produce("in", "a", "bad")
        await ended(harness)
        error = harness.app.error
        assert isinstance(error, ProcessingFailed)
        assert isinstance(error.__cause__, PanicException)
        assert "PanicException: index out of bounds" in str(error)
        assert (error.topic, error.partition, error.offset) == ("in", 0, 1)
        assert error.node == "KSTREAM-MAPVALUES-0000000001"
        assert asked == [error]
        assert decided == []

    with pytest.raises(ProcessingFailed, match="index out of bounds"):
        run_app(test, mapped(function), topics=TOPICS, uncaught_handler=asked, processing_exception_handler=resume)


@pytest.mark.parametrize("function", FUNCTIONS)
@in_app(lambda function: mapped(function), topics={"in": 2, "out": 1}, uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER)
async def test_a_worker_that_such_an_error_ends_is_replaced_and_other_tasks_go_on(harness: AppHarness, function: Callable[[str], Any]) -> None:
    """REPLACE_WORKER means the same for all errors; here the task of one partition rests, and that of the other is processed."""
    await harness.produce("in", "a", "bad", partition=0)
    await asyncio.sleep(5)
    await harness.produce("in", "b", "good", partition=1)
    await asyncio.sleep(5)
    assert [record.value for record in await harness.read("out")] == ["GOOD"]
    assert harness.app.state is InstanceState.RUNNING
    assert harness.app.workers()


@pytest.mark.parametrize("function", FUNCTIONS)
async def test_the_task_that_has_started_an_app_is_not_cancelled_by_such_an_error(function: Callable[[str], Any]) -> None:
    """An app is often started by a task that has ended since, or by one that serves something else."""
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic(topic, count) for topic, count in TOPICS.items()])
        builder = StreamsBuilder()
        builder.stream("in", Consumed(STRING, STRING)).map_values(function).to("out", Produced(STRING, STRING))
        app = App(builder.build(), StreamsConfig(application_id="a"), log=log)
        await asyncio.create_task(app.start())
        await _write(log, "bad")
        await soon(app._ended.wait())
        assert app.state is InstanceState.ERROR
        with pytest.raises(ProcessingFailed, match="index out of bounds"):
            await app.close()


def closes_itself(value: str) -> str:
    raise GeneratorExit(value)


@blocking
def closes_itself_in_thread(value: str) -> str:
    raise GeneratorExit(value)


async def closes_itself_async(value: str) -> str:
    await asyncio.sleep(0.01)
    raise GeneratorExit(value)


@pytest.mark.parametrize("function", [closes_itself, closes_itself_in_thread, closes_itself_async])
def test_a_generator_exit_out_of_a_function_is_an_error_of_its_record(function: Callable[[str], Any]) -> None:
    """Nothing has closed the coroutine that calls it: the error names the record, at once, as other errors do."""

    async def test(harness: AppHarness) -> None:
        await harness.produce("in", "a", "x")
        async with asyncio.timeout(1):
            await ended(harness)

    with pytest.raises(ProcessingFailed, match=r"GeneratorExit: x .*topic in, partition 0, offset 0"):
        run_app(test, mapped(function), topics=TOPICS)


async def _write(log: EmbeddedLog, value: str) -> None:
    producer = await log.producer(client_id="writer")
    await producer.send([Outgoing(TopicPartition("in", 0), Batch([b"a"], [value.encode()], [0]))])
    await producer.close()


@pytest.mark.parametrize("function", [meets_cancelled])
@in_app(lambda function: mapped(function), topics=TOPICS, processing_exception_handler="continue")
async def test_a_cancelled_future_in_a_plain_function_is_a_failure_of_the_record(harness: AppHarness, function: Callable[[str], Any]) -> None:
    """Nobody has cancelled the task: the processing handler decides, as about any exception."""
    for value in ("one", "bad", "two"):
        await harness.produce("in", "a", value)
    await harness.caught_up()
    assert [record.value for record in await harness.read("out")] == ["ONE", "TWO"]
    assert harness.app.metrics()["dropped-records-total"] == 1


class Panicking(Processor[str, str, str, str]):
    """A processor that panics in the method that is named."""

    def __init__(self, where: str) -> None:
        self.where = where

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        if self.where == "punctuate":
            context.schedule(100, PunctuationType.WALL_CLOCK_TIME, lambda _: self._at("punctuate"))
        self._at("init")

    def process(self, record: Record[str, str]) -> None:
        self._at("process")

    def close(self) -> None:
        self._at("close")

    def _at(self, where: str) -> None:
        if where == self.where:
            raise PanicException(where)


@pytest.mark.parametrize("where", ["init", "punctuate", "process", "close"])
def test_a_panic_in_any_method_of_a_processor_ends_the_app_by_a_named_error(where: str) -> None:
    """Also where the actor of the tasks calls it, and not a worker."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).process(lambda: Panicking(where))

    async def test(harness: AppHarness) -> None:
        await harness.produce("in", "a", "x")
        if where != "close":
            await ended(harness)

    with pytest.raises(StreamsError, match=f"PanicException: {where}"):
        run_app(test, builder.build(), topics=TOPICS)


def test_an_uncaught_handler_that_panics_shuts_the_app_down() -> None:
    """As one that raises an Exception does: with a note, and with the error that it was asked about."""

    def handler(_: Exception) -> UncaughtResponse:
        raise PanicException("in the handler")

    async def test(harness: AppHarness) -> None:
        await harness.produce("in", "a", "bad")
        await ended(harness)
        assert harness.app.error is not None
        assert "in the handler" in harness.app.error.__notes__[0]

    with pytest.raises(ProcessingFailed):
        run_app(test, mapped(panics), topics=TOPICS, uncaught_handler=handler)


@pytest.mark.parametrize("function", [panics, panics_async])
def test_a_test_driver_raises_such_an_error_at_once(function: Callable[[str], Any]) -> None:
    """A failed check of pytest within a function is one, and its text must not get lost."""
    with TopologyTestDriver(mapped(function)) as driver:
        topic = driver.create_input_topic("in", STRING, STRING)
        with pytest.raises(ProcessingFailed, match="index out of bounds"):
            topic.pipe_input("a", "bad")


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
def test_what_ends_the_program_passes_through(ends: type[BaseException]) -> None:
    """sys.exit and Ctrl-C mean the program, not the record."""

    def exits(_: str) -> str:
        raise ends

    with TopologyTestDriver(mapped(exits)) as driver, pytest.raises(ends):
        driver.create_input_topic("in", STRING, STRING).pipe_input("a", "x")
