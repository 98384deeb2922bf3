"""Code that holds a thread: it runs in its worker's own, and the event loop stays free."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, ProcessingFailed, SlidingWindows, StreamsBuilder, TableJoined, TimeWindows, TopologyError, UnlimitedWindows, serdes
from ks_actors.config import StreamsConfig
from ks_actors.dsl import CalendarWindows, Consumed, EmitStrategy, Grouped, JoinWindows, Materialized, Produced, Repartitioned, SessionWindows, Window
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.processors import Processor, ProcessorContext, Record, ValueTransformer
from ks_actors.records._batch import Batch
from ks_actors.runtime import UncaughtResponse, blocking
from ks_actors.task.calls._blocking import needs_thread
from ks_actors.testing import AppHarness, TestRecord, TopologyTestDriver
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, Load, in_virtual_time
from tests.waiting import PATIENCE_S, until


@blocking
def held(value: Any) -> Any:
    """Be declared."""
    return value


@blocking
def held_pair(key: Any, value: Any) -> Any:
    """Be declared, of two arguments."""
    return key, value


@blocking
class Held(Processor[str, str, str, str]):
    """A processor class that is declared."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context

    def process(self, record: Record[str, str]) -> None:
        self._context.forward(record)


class HeldMethod(Held):
    """A processor with a declared process."""

    @blocking
    def process(self, record: Record[str, str]) -> None:
        self._context.forward(record)


class Free(Processor[str, str, str, str]):
    """A processor that does not block."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context

    def process(self, record: Record[str, str]) -> None:
        self._context.forward(record)


@blocking
def held_three(key: Any, value: Any, total: Any) -> Any:
    """Be declared, of three arguments."""
    return total


def free_three(key: Any, value: Any, total: Any) -> Any:
    """Be an aggregator or a merger that is not declared."""
    return total


class HeldTransformer(ValueTransformer[str, str, str]):
    """A transformer with a declared transform."""

    @blocking
    def transform(self, key: str, value: str | None) -> str | None:
        return value


class HeldWindows:
    """Windows of the user's own, with a declared windows_for."""

    size_ms: int = 10
    grace_ms: int = 0

    @blocking
    def windows_for(self, timestamp: int) -> list[Window]:
        return [Window(timestamp, timestamp + 10)]


TUMBLING: TimeWindows = TimeWindows.of_size_and_grace(100, 50)
SLIDING: SlidingWindows = SlidingWindows.of_time_difference_and_grace(10, 0)
SESSIONS: SessionWindows = SessionWindows.of_inactivity_gap_and_grace(10, 0)
CLOSE: EmitStrategy = EmitStrategy.ON_WINDOW_CLOSE


def blocks(topology: Topology) -> bool:
    return any(map(needs_thread, topology.nodes.values()))


def shapes() -> dict[str, Callable[[Any], Any]]:
    """Return ways to give a declared function to a stream."""

    class Caller:
        @blocking
        def __call__(self, value: Any) -> Any:
            return value

    return {
        "map_values": lambda stream: stream.map_values(held),
        "partial": lambda stream: stream.map_values(partial(held)),
        "object": lambda stream: stream.map_values(Caller()),
        "lambda": lambda stream: stream.map_values(blocking(lambda value: value)),
        "filter": lambda stream: stream.filter(held_pair),
        "branch": lambda stream: stream.split().branch(held_pair).default_branch(),
        "reduce": lambda stream: stream.group_by_key().reduce(held_pair, Materialized("r", serdes.STRING, serdes.STRING)),
        "aggregate": lambda stream: stream.group_by_key().aggregate(
            str, blocking(lambda key, value, total: value), Materialized("a", serdes.STRING, serdes.STRING)
        ),
        "table": lambda stream: stream.to_table().map_values(held),
        "join": lambda stream: stream.join(stream, held_pair, JoinWindows.of_time_difference_with_no_grace(10)),
        "table join": lambda stream: stream.to_table().join(stream.to_table(), held_pair),
        "foreign key": lambda stream: stream.to_table().join(stream.to_table(), lambda one, other: one, foreign_key=held),
        "foreign key: joiner": lambda stream: stream.to_table().join(stream.to_table(), held_pair, foreign_key=str.upper),
        "print": lambda stream: stream.print(mapper=held_pair),
        "select": lambda stream: stream.to_table().group_by(held_pair, Grouped(serdes.STRING, serdes.STRING)).count(),
        "subtractor": lambda stream: (
            stream.to_table().group_by(lambda key, value: (key, value)).aggregate(str, free_three, held_three, Materialized("t"))
        ),
        "class": lambda stream: stream.process(Held),
        "lambda that makes one": lambda stream: stream.process(lambda: Held()),
        "method": lambda stream: stream.process(lambda: HeldMethod()),
        "transformer": lambda stream: stream.to_table().transform_values(HeldTransformer),
        "lambda that makes a transformer": lambda stream: stream.to_table().transform_values(lambda: HeldTransformer()),
    } | {f"windowed: {name}": shape for name, shape in windowed_shapes().items()}


def windowed_shapes() -> dict[str, Callable[[Any], Any]]:
    """Return ways to give a declared function to an aggregation by windows."""

    def grouped(stream: Any) -> Any:
        return stream.group_by_key()

    return {
        "tumbling": lambda stream: grouped(stream).windowed_by(TUMBLING).aggregate(str, held_three),
        "initializer": lambda stream: grouped(stream).windowed_by(TUMBLING).aggregate(blocking(lambda: ""), free_three),
        "hopping": lambda stream: grouped(stream).windowed_by(TUMBLING.advance_by(10)).reduce(held_pair),
        "unlimited": lambda stream: grouped(stream).windowed_by(UnlimitedWindows.of()).aggregate(str, held_three),
        "final": lambda stream: grouped(stream).windowed_by(TUMBLING).emit_strategy(CLOSE).aggregate(str, held_three),
        "calendar": lambda stream: grouped(stream).windowed_by(CalendarWindows.days("UTC")).aggregate(str, held_three),
        "final calendar": lambda stream: grouped(stream).windowed_by(CalendarWindows.days("UTC")).emit_strategy(CLOSE).reduce(held_pair),
        "own windows": lambda stream: grouped(stream).windowed_by(HeldWindows()).count(),
        "final own windows": lambda stream: grouped(stream).windowed_by(HeldWindows()).emit_strategy(CLOSE).count(),
        "sliding": lambda stream: grouped(stream).windowed_by(SLIDING).aggregate(str, held_three),
        "final sliding": lambda stream: grouped(stream).windowed_by(SLIDING).emit_strategy(CLOSE).reduce(held_pair),
        "session": lambda stream: grouped(stream).windowed_by(SESSIONS).aggregate(str, held_three, free_three),
        "merger": lambda stream: grouped(stream).windowed_by(SESSIONS).aggregate(str, free_three, held_three),
        "final session": lambda stream: grouped(stream).windowed_by(SESSIONS).emit_strategy(CLOSE).reduce(held_pair),
        "cogroup": lambda stream: grouped(stream).cogroup(held_three).windowed_by(TUMBLING).aggregate(str),
        "cogroup of sliding": lambda stream: grouped(stream).cogroup(held_three).windowed_by(SLIDING).aggregate(str),
        "cogroup of sessions": lambda stream: grouped(stream).cogroup(held_three).windowed_by(SESSIONS).aggregate(str, free_three),
    }


def partitioned_shapes() -> dict[str, Callable[[Any], Any]]:
    """Return ways to give a declared partitioner."""
    choose = blocking(lambda topic, key, value, count: 0)

    def joined(stream: Any, options: TableJoined[Any, Any]) -> None:
        stream.to_table().join(stream.to_table(), lambda one, other: one, foreign_key=str.upper, joined=options)

    return {
        "to": lambda stream: stream.to("out", Produced(partitioner=choose)),
        "repartition": lambda stream: stream.repartition(Repartitioned(partitioner=choose)),
        "foreign key": lambda stream: joined(stream, TableJoined(partitioner=choose)),
        "foreign key: other": lambda stream: joined(stream, TableJoined(other_partitioner=choose)),
    }


@pytest.mark.parametrize("shape", partitioned_shapes())
def test_declared_partitioners_are_found(shape: str) -> None:
    """A partitioner is known to block, whichever options have it."""
    builder = StreamsBuilder()
    partitioned_shapes()[shape](builder.stream("in", STRINGS))
    assert blocks(builder.build())


@pytest.mark.parametrize("shape", shapes())
def test_declared_functions_are_found(shape: str) -> None:
    """A function, an object's call, a processor class or its process is known to block, however the topology comes by it."""
    builder = StreamsBuilder()
    shapes()[shape](builder.stream("in", STRINGS))
    assert blocks(builder.build())


def test_undeclared_functions_do_not_block() -> None:
    """Plain functions and processors run on the loop."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(str.upper).process(Free).filter(lambda _, value: bool(value)).to("out", STRINGS_OUT)
    assert not blocks(builder.build())


def test_async_code_cannot_be_declared() -> None:
    """A coroutine function waits without a thread, so to declare it is a mistake that is told at once."""

    async def wait(value: str) -> str:
        return value

    class Waits(Free):
        async def process(self, record: Record[str, str]) -> None:  # type: ignore[override]  # as the runtime allows
            self._context.forward(record)

    for what in (wait, Waits):
        with pytest.raises(TopologyError, match=r"await asyncio\.to_thread"):
            blocking(what)


def test_one_task_cannot_need_both_a_thread_and_the_loop() -> None:
    """Blocking and async code in one subtopology is refused, with both named; in two it is fine."""

    async def wait(value: str) -> str:
        return value

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(held, name="holds").map_values(wait, name="waits").to("out", STRINGS_OUT)
    with pytest.raises(TopologyError, match="holds is declared as blocking and waits is 'async def'"):
        TopologyTestDriver(builder.build())
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(held).repartition(Repartitioned(serdes.STRING, serdes.STRING)).map_values(wait).to("out", STRINGS_OUT)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", serdes.STRING, serdes.STRING).pipe_input("k", "v", 1)
        assert driver.create_output_topic("out", serdes.STRING, serdes.STRING).read_records_to_list() == [TestRecord("k", "v", 1)]


# --- in threads -------------------------------------------------------------------------------------------------------------------


class Gate:
    """A function that says when it is called, in which thread, and goes on when it may."""

    def __init__(self) -> None:
        self.entered: threading.Event = threading.Event()
        self.may: threading.Event = threading.Event()
        self.threads: set[str] = set()

    @blocking
    def __call__(self, value: str) -> str:
        self.threads.add(threading.current_thread().name)
        self.entered.set()
        assert self.may.wait(PATIENCE_S)
        if value == "bad":
            raise ValueError("bad value")
        return value.upper()


class _Running:
    """An app in real time on an embedded log, and means to look at it."""

    def __init__(self, log: EmbeddedLog, app: App) -> None:
        self.log: EmbeddedLog = log
        self.app: App = app

    async def write(self, *values: str) -> None:
        producer = await self.log.producer(client_id="test")
        count = len(values)
        batch = Batch([b"k"] * count, [value.encode() for value in values], list(range(count)))
        await producer.send([Outgoing(TopicPartition("in", 0), batch)])
        await producer.close()

    async def values(self) -> list[bytes | None]:
        fetcher = self.log.fetcher(client_id="test", isolation=IsolationLevel.READ_COMMITTED)
        fetcher.assign({TopicPartition("out", 0): 0})
        found: list[bytes | None] = []
        while fetched := await fetcher.fetch(max_wait_ms=0):
            found += [value for one in fetched for value in one.batch.values]
        await fetcher.close()
        return found


def run_for_real(topology: Topology, directory: Path, test: Callable[[_Running], Awaitable[None]], **config: Any) -> None:
    async def main() -> None:
        log = EmbeddedLog()
        await log.start()
        await log.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
        uncaught = config.pop("uncaught_handler", None)
        settings = StreamsConfig(application_id="app", state_dir=directory, poll_ms=1, **config)
        app = App(topology, settings, log=log) if uncaught is None else App(topology, settings, log=log, uncaught_handler=uncaught)
        try:
            async with app:
                await test(_Running(log, app))
        finally:
            await log.close()

    asyncio.run(main())


def gated(gate: Gate) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(gate).to("out", STRINGS_OUT)
    return builder.build()


def test_the_loop_is_free_while_code_blocks(guarantee: str, tmp_path: Path) -> None:
    """While a function holds its thread the loop goes round, records that are fetched meanwhile are kept, and a commit waits for the slice."""
    gate = Gate()

    async def while_blocked(running: _Running) -> asyncio.Future[None]:
        await until(gate.entered.is_set)
        await running.write("c", "d")
        commit = asyncio.ensure_future(running.app.commit())
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not commit.done()
        assert await running.values() == []
        return commit

    async def test(running: _Running) -> None:
        await running.write("a", "b")
        try:
            commit = await while_blocked(running)
        finally:
            gate.may.set()
        await commit
        await running.app.wait_until_caught_up()
        assert await running.values() == [b"A", b"B", b"C", b"D"]
        assert threading.current_thread().name not in gate.threads
        assert len(gate.threads) == 1

    run_for_real(gated(gate), tmp_path, test, processing_guarantee=guarantee, commit_interval_ms=10_000)


def test_errors_out_of_a_thread_are_handled(guarantee: str, tmp_path: Path) -> None:
    """An error of blocking code goes the way of all errors: the handler, the end of the worker, the rollback, and a new worker."""
    gate, errors = Gate(), []
    gate.may.set()

    def note(error: Exception) -> UncaughtResponse:
        errors.append(error)
        return UncaughtResponse.REPLACE_WORKER if len(errors) < 3 else UncaughtResponse.SHUTDOWN_CLIENT

    async def test(running: _Running) -> None:
        await running.write("a", "bad", "c")
        with pytest.raises(ProcessingFailed):
            await running.app.run()

    run_for_real(gated(gate), tmp_path, test, processing_guarantee=guarantee, uncaught_handler=note)
    assert len(errors) == 3
    assert all("ValueError: bad value" in str(error) and "offset 1" in str(error) for error in errors)


@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_crashes_with_blocking_code(seed: int, guarantee: str) -> None:
    """Counts behind blocking code are as promised after crashes."""
    builder = StreamsBuilder()
    counts = builder.stream("in", STRINGS).map_values(held).group_by_key().count(Materialized("counts", serdes.STRING, serdes.LONG))
    counts.to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    async with AppHarness(builder.build(), seed=seed, topics={"in": 2, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=100) as harness:
        load = Load(harness, harness.kit.random)
        for _ in range(4):
            await load.send(40)
            await asyncio.sleep(harness.kit.random.random() * 0.2)
            await harness.crash()
            await harness.restart()
        await load.check(guarantee)


# --- other functions ------------------------------------------------------------------------------------------------------------


def chosen_by(function: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to("out", Produced(serdes.STRING, serdes.STRING, partitioner=function))
    return builder.build()


def named_by(function: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to(function, STRINGS_OUT)
    return builder.build()


@pytest.mark.parametrize("kind", ["partitioner", "topic"])
def test_sinks_may_block(kind: str, guarantee: str, tmp_path: Path) -> None:
    """A partitioner, and a function that names the topic of a sink, have a thread when they are declared; the loop stays free."""
    gate = Gate()

    @blocking
    def choose(*arguments: Any) -> Any:
        gate(str(arguments[1]))
        return 0 if kind == "partitioner" else "out"

    async def test(running: _Running) -> None:
        await running.write("a", "b")
        await until(gate.entered.is_set)
        for _ in range(1000):
            await asyncio.sleep(0)
        gate.may.set()
        await running.app.wait_until_caught_up()
        assert await running.values() == [b"a", b"b"]
        assert threading.current_thread().name not in gate.threads

    run_for_real((chosen_by if kind == "partitioner" else named_by)(choose), tmp_path, test, processing_guarantee=guarantee)


def test_extractors_cannot_be_declared() -> None:
    """A timestamp extractor runs on the loop: one that is declared as blocking is refused, whether of a source or the app's."""

    @blocking
    def slow(record: Any, previous: int) -> int:
        return 0

    builder = StreamsBuilder()
    builder.stream("in", Consumed(serdes.STRING, serdes.STRING, timestamp_extractor=slow)).to("out", STRINGS_OUT)
    with pytest.raises(TopologyError, match="timestamp extractor of KSTREAM-SOURCE-0000000000 is declared as blocking"):
        TopologyTestDriver(builder.build())
    with pytest.raises(TopologyError, match="is declared as blocking, but extractors run on the event loop"):
        TopologyTestDriver(named_by(lambda key, value, context: "out"), {"default_timestamp_extractor": slow})
