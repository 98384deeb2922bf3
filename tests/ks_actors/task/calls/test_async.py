"""Asynchronous user code in a running app: calls at once, order, failures and timeouts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ks_actors import ErrorContext, FailedRecord, ProcessingFailed, Record, RecordMetadata, Response, Retry, log_and_continue, serdes, stores
from ks_actors.dsl import StreamsBuilder
from ks_actors.processors import Processor, ProcessorContext, PunctuationType
from ks_actors.processors.api._async_options import Order
from ks_actors.testing import AppHarness, AsyncTopologyTestDriver, TestRecord, TopologyTestDriver, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, by_key, feed, feed_all, in_virtual_time

SEEDS = range(4)


class Calls:
    """A function for `map_values` that takes a random time, and notes which calls run at once."""

    def __init__(self, seed: int, longest: float = 0.03) -> None:
        self.most: int = 0
        self.most_of_a_key: int = 0
        self.ended: list[str] = []
        self._random = Random(seed)
        self._longest = longest
        self._running: Counter[str] = Counter()

    async def __call__(self, key: str, value: str) -> str:
        self._running[key] += 1
        self.most = max(self.most, self._running.total())
        self.most_of_a_key = max(self.most_of_a_key, self._running[key])
        try:
            await asyncio.sleep(self._random.random() * self._longest)
        finally:
            self._running[key] -= 1
        self.ended.append(value)
        return value


def numbered(number: int, keys: int) -> list[TestRecord[str, str]]:
    return [TestRecord(f"k{index % keys}", f"{index:04}", index) for index in range(number)]


def through(calls: Any, **options: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(calls, **options).to("out", STRINGS_OUT)
    return builder.build()


def run_through(calls: Any, records: list[TestRecord[str, str]], seed: int, *, partitions: int = 1, **options: Any) -> list[TestRecord[str, str]]:
    async def test(harness: AppHarness) -> list[TestRecord[Any, Any]]:
        await feed_all(harness, "in", records)
        return await harness.read("out")

    return run_app(test, through(calls, **options), seed=seed, topics={"in": partitions, "out": partitions}, commit_interval_ms=100)


@pytest.mark.parametrize("order", ["key", "partition", "none"])
@pytest.mark.parametrize("seed", SEEDS)
def test_as_many_calls_as_allowed_run_at_once(seed: int, order: str) -> None:
    """max_in_flight calls run at the same time in a task when there are records for them, and never more."""
    calls = Calls(seed)
    out = run_through(calls, numbered(300, 40), seed, order=order, max_in_flight=7)
    assert calls.most == 7
    assert sorted(str(record.value) for record in out) == [f"{index:04}" for index in range(300)]


@pytest.mark.parametrize("order", ["key", "partition", "none"])
@pytest.mark.parametrize("seed", SEEDS)
def test_records_made_of_one_wait_for_room(seed: int, order: Order) -> None:
    """A node in front that makes many records of one, asynchronous or not, does not exceed the max_in_flight behind it, and nothing is lost."""
    first, second = Calls(seed), Calls(seed + 1)

    async def test(harness: AppHarness) -> None:
        await feed_all(harness, "in", numbered(60, 9))
        out = by_key(await harness.read("out"))
        wanted = {f"k{key}-{copy}": [f"{index:04}" for index in range(60) if index % 9 == key] for key in range(9) for copy in range(20)}
        assert {key: sorted(map(str, values)) for key, values in out.items()} == wanted
        if order != "none":
            assert out == wanted

    builder = StreamsBuilder()
    (
        builder.stream("in", STRINGS)
        .map_values(first, max_in_flight=20, order=order)
        .flat_map(lambda key, value: [(f"{key}-{copy}", value) for copy in range(20)])
        .map_values(second, max_in_flight=6, order=order)
        .to("out", STRINGS_OUT)
    )
    run_app(test, builder.build(), seed=seed, topics={"in": 1, "out": 1}, commit_interval_ms=100)
    assert (first.most, second.most) == (9 if order == "key" else 20, 6)


@pytest.mark.parametrize("seed", SEEDS)
def test_calls_of_one_key_follow_each_other(seed: int) -> None:
    """By key: never two calls of a key at once, those of different keys side by side, and results in the order of the records of a key."""
    calls = Calls(seed)
    out = run_through(calls, numbered(300, 10), seed, partitions=2, max_in_flight=50)
    assert calls.most_of_a_key == 1
    assert calls.most > 8
    assert by_key(out) == {f"k{key}": [f"{index:04}" for index in range(key, 300, 10)] for key in range(10)}
    assert calls.ended != sorted(calls.ended)


@pytest.mark.parametrize("seed", SEEDS)
def test_results_are_in_the_order_of_the_partition(seed: int) -> None:
    """By partition: calls overlap, also those of one key, and results come in the order of the records."""
    calls = Calls(seed)
    out = run_through(calls, numbered(200, 2), seed, order="partition", max_in_flight=50)
    assert calls.most_of_a_key > 5
    assert [record.value for record in out] == [f"{index:04}" for index in range(200)]
    assert calls.ended != sorted(calls.ended)


@pytest.mark.parametrize("seed", SEEDS)
def test_results_come_as_they_come(seed: int) -> None:
    """With no order results come in the order in which calls end."""
    calls = Calls(seed)
    out = run_through(calls, numbered(200, 2), seed, order="none", max_in_flight=50)
    assert [record.value for record in out] == calls.ended
    assert calls.ended != sorted(calls.ended)


# --- all operations ---------------------------------------------------------------------------------------------------------------


def operations(kind: Callable[[Callable[..., Any]], Callable[..., Any]], seen: list[Any]) -> Topology:
    """Return a topology with every operation that takes an async function; `kind` turns plain functions into its kind."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.foreach(kind(lambda key, value: seen.append((key, value))))
    (
        stream.filter(kind(lambda _, value: value != "drop"))
        .filter_not(kind(lambda _, value: value == "drop too"))
        .map_values(kind(lambda value: value.upper()))
        .flat_map_values(kind(lambda value: [value, value + "!"]))
        .select_key(kind(lambda key, value: key + value[0]))
        .map(kind(lambda key, value: (key, value + "?")))
        .flat_map(kind(lambda key, value: [(key, value), (key + "2", value)]))
        .peek(kind(lambda key, value: seen.append((key, value))))
        .to("out", STRINGS_OUT)
    )
    return builder.build()


def later(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as a coroutine function of as many arguments."""
    if function.__code__.co_argcount == 1:

        async def of_one(value: Any) -> Any:
            await asyncio.sleep(0.01)
            return function(value)

        return of_one

    async def of_two(key: Any, value: Any) -> Any:
        await asyncio.sleep(0.01)
        return function(key, value)

    return of_two


def test_every_operation_takes_async_functions() -> None:
    """Operations give the same results with async functions as with plain ones, in the driver."""
    found = []
    for kind in (lambda function: function, later):
        seen: list[Any] = []
        with TopologyTestDriver(operations(kind, seen)) as driver:
            topic = driver.create_input_topic("in", serdes.STRING, serdes.STRING)
            for value in ("a", "drop", "b", "drop too", "c"):
                topic.pipe_input("k", value, 7, (("h", b"1"),))
            found.append((driver.create_output_topic("out", serdes.STRING, serdes.STRING).read_records_to_list(), sorted(seen)))
    assert found[0] == found[1]
    assert len(found[0][0]) == 12


def test_the_async_driver_runs_async_functions() -> None:
    """The asynchronous driver runs them on the present loop: a call may wait for actions of the test."""

    async def main() -> list[Any]:
        may = asyncio.Event()

        async def wait(value: str) -> str:
            await may.wait()
            return value.upper()

        async with AsyncTopologyTestDriver(through(wait)) as driver:
            piped = asyncio.ensure_future(driver.pipe_input("in", b"k", b"v", 3))
            await asyncio.sleep(0)
            assert not piped.done()
            may.set()
            await piped
            return driver.create_output_topic("out", serdes.STRING, serdes.STRING).read_records_to_list()

    assert asyncio.run(main()) == [TestRecord("k", "V", 3)]


# --- processors -------------------------------------------------------------------------------------------------------------------


class Spread(Processor[str, str, str, str]):
    """Forwards twice, before and after a wait, and reports the metadata of its record each time."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context

    async def process(self, record: Record[str, str]) -> None:
        before = self._context.record_metadata()
        self._context.forward(record.with_value(f"{record.value}-1"))
        await asyncio.sleep(self._random.random() * 0.02)
        assert self._context.record_metadata() == before
        self._context.forward(record.with_value(f"{record.value}-2").with_timestamp(record.timestamp + 1))


class Told(Processor[str, str, str, str]):
    """Notes where the record comes from that it is given."""

    def __init__(self, seen: list[tuple[str, int, RecordMetadata | None]]) -> None:
        self._seen = seen

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context

    def process(self, record: Record[str, str]) -> None:
        self._seen.append((record.value, record.timestamp, self._context.record_metadata()))
        self._context.forward(record)


@pytest.mark.parametrize("seed", SEEDS)
def test_forwards_of_a_processor_know_their_source(seed: int) -> None:
    """Forwards of one call come together and in order, with the metadata of its record, and a processor behind sees the same."""
    seen: list[tuple[str, int, RecordMetadata | None]] = []

    async def test(harness: AppHarness) -> None:
        await feed_all(harness, "in", numbered(100, 10))
        out = by_key(await harness.read("out"))
        assert out == {f"k{key}": [f"{index:04}-{part}" for index in range(key, 100, 10) for part in (1, 2)] for key in range(10)}

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).process(lambda: Spread(Random(seed))).process(lambda: Told(seen)).to("out", STRINGS_OUT)
    run_app(test, builder.build(), seed=seed, topics={"in": 1, "out": 1}, commit_interval_ms=100)
    assert len(seen) == 200
    for (value, timestamp, first), (again, following, second) in zip(seen[::2], seen[1::2], strict=True):
        offset = int(value[:4])
        assert (value, again) == (f"{offset:04}-1", f"{offset:04}-2")
        assert (timestamp, following) == (offset, offset + 1)
        assert first == second == ("in", 0, offset)


class Remember(Processor[str, str, str, str]):
    """Puts each record into a store after it has waited."""

    stores = (stores.key_value("kept", serdes.STRING, serdes.STRING),)

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._store = context.get_state_store("kept")

    async def process(self, record: Record[str, str]) -> None:
        await asyncio.sleep(0.01 * (10 - record.timestamp))
        self._store.put(record.key, record.value)


@in_virtual_time
async def test_a_put_has_the_time_of_its_own_record() -> None:
    """A put of an async processor goes to the changelog with the timestamp of its record, wherever the task is meanwhile."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).process(Remember)
    async with AppHarness(builder.build(), topics={"in": 1}, commit_interval_ms=100) as harness:
        await feed_all(harness, "in", [TestRecord(f"k{index}", "v", index) for index in range(10)])
        found = await harness.read("app-kept-changelog")
        assert {record.key: record.timestamp for record in found} == {b"k%d" % index: index for index in range(10)}


class Ticking(Processor[str, str, str, str]):
    """Forwards a tick every 10 ms of the wall clock, and takes a second for a record."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, lambda now: context.forward(Record("tick", str(now), now)))

    async def process(self, record: Record[str, str]) -> None:
        await asyncio.sleep(1)
        self._context.forward(record)


@in_virtual_time
async def test_punctuators_run_while_calls_are_in_flight() -> None:
    """Wall-clock punctuators are called while records are in flight, and stand still only while a commit drains."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).process(Ticking).to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics={"in": 1, "out": 1}, commit_interval_ms=30_000) as harness:
        await harness.produce("in", "k", "v", 0)
        await asyncio.sleep(0.6)
        await harness.app.close()
        out = await harness.read("out")
        before = [record.value for record in out[: [record.key for record in out].index("k")]]
        assert len(before) > 50
        assert all(int(value or 0) < 700 for value in before)


# --- failures ---------------------------------------------------------------------------------------------------------------------


class Clockwork:
    """A function for `map_values` that notes its calls, and does as ordered for each: a number is its duration in s."""

    def __init__(self, *orders: float | Exception) -> None:
        self.at: list[float] = []
        self._orders = orders

    async def __call__(self, value: str) -> str:
        loop = asyncio.get_running_loop()
        self.at.append(loop.time())
        order = self._orders[len(self.at) - 1]
        if isinstance(order, Exception):
            raise order
        await asyncio.sleep(order)
        return value

    @property
    def gaps(self) -> list[int]:
        """The time in ms from call to call."""
        return [round((after - before) * 1000) for before, after in zip(self.at, self.at[1:], strict=False)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_failed_call_is_tried_again(seed: int) -> None:
    """A call is tried again after the backoff, which doubles up to its limit; a call that takes too long counts as failed by then."""
    calls = Clockwork(OSError("1"), 9.0, OSError("3"), OSError("4"), 0.2)
    retry = Retry(attempts=5, backoff_ms=100, max_backoff_ms=350)
    out = run_through(calls, [TestRecord("k", "v", 0)], seed, timeout_ms=250, retry=retry)
    assert [record.value for record in out] == ["v"]
    assert calls.gaps == [100, 250 + 200, 350, 350]


@pytest.mark.parametrize("backoff_ms", [100, 5000])
def test_a_backoff_is_no_part_of_the_call(backoff_ms: int) -> None:
    """The time that a call may take does not run while the next one is waited for."""
    calls = Clockwork(OSError("1"), OSError("2"), 0.01)
    out = run_through(calls, [TestRecord("k", "v", 0)], 0, timeout_ms=30, retry=Retry(backoff_ms=backoff_ms))
    assert [record.value for record in out] == ["v"]
    assert calls.gaps == [backoff_ms, 2 * backoff_ms]


def ends_by(calls: Any, seed: int, **options: Any) -> Exception:
    """Return the final error of an app in which only the record at offset 2 of partition 1 reaches `calls`."""

    async def test(harness: AppHarness) -> Exception | None:
        for value in ("skip", "skip", "v"):
            await harness.produce("in", "k", value, 5, partition=1)
        return await harness.ended()

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).filter(lambda _, value: value == "v").map_values(calls, name="slow", **options).to("out", STRINGS_OUT)
    error = run_app(test, builder.build(), seed=seed, topics={"in": 2, "out": 1}, commit_interval_ms=100)
    assert error is not None
    return error


@pytest.mark.parametrize("seed", SEEDS)
def test_an_error_that_is_not_to_be_tried_again_is_not(seed: int) -> None:
    """Only errors of the types named are tried again; then the handler fails the task, by an error that tells where."""
    calls = Clockwork(OSError("away"), ValueError("wrong"))
    error = ends_by(calls, seed, retry=Retry(attempts=9, on=(OSError,)))
    assert isinstance(error, ProcessingFailed)
    assert isinstance(error.__cause__, ValueError)
    assert len(calls.at) == 2
    for told in ("ValueError: wrong", "slow", "in", "partition 1", "offset 2"):
        assert told in str(error)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_call_that_never_ends_times_out(seed: int) -> None:
    """A call beyond timeout_ms is cancelled and is a TimeoutError that names processor, partition and offset."""
    calls = Clockwork(3600.0, 3600.0)
    error = ends_by(calls, seed, timeout_ms=50, retry=Retry(attempts=2, backoff_ms=10))
    assert isinstance(error, ProcessingFailed)
    assert isinstance(error.__cause__, TimeoutError)
    assert calls.gaps == [60]
    for told in ("did not return within 50 ms", "slow", "in-1", "offset 2"):
        assert told in str(error.__cause__)


@pytest.mark.parametrize("seed", SEEDS)
def test_dead_letters_have_the_record_as_it_came(seed: int) -> None:
    """With a handler that goes on, failed records are dead letters with the bytes they came as, even when thousands of records came after them."""
    contexts: list[ErrorContext] = []

    def handler(context: ErrorContext, record: FailedRecord | None, error: Exception) -> Response:
        contexts.append(context)
        return log_and_continue(context, record, error)

    async def fail_late(value: str) -> str:
        await asyncio.sleep(0.05 if value.endswith("7") else 0)
        if value.endswith("7"):
            raise ValueError(value)
        return value

    async def test(harness: AppHarness) -> None:
        await feed_all(harness, "in", numbered(2500, 500))
        assert len(await harness.read("out")) == 2250
        letters = await harness.read("dead", serdes.STRING, serdes.STRING)
        assert sorted((letter.key, letter.value) for letter in letters) == sorted((f"k{i % 500}", f"{i:04}") for i in range(7, 2500, 10))
        assert harness.app.metrics()["dropped-records-total"] == 250

    run_app(
        test,
        through(fail_late, max_in_flight=1000),
        seed=seed,
        topics={"in": 1, "out": 1, "dead": 1},
        commit_interval_ms=100,
        processing_exception_handler=handler,
        errors_dead_letter_queue_topic_name="dead",
    )
    assert sorted(context.offset for context in contexts) == list(range(7, 2500, 10))
    assert all((context.topic, context.partition) == ("in", 0) for context in contexts)


# --- what is documented -----------------------------------------------------------------------------------------------------------


class Twice(Processor[str, str, str, str]):
    """Count attempts in a store; fail at the first two."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context
        self._store = context.get_state_store("attempts")

    async def process(self, record: Record[str, str]) -> None:
        count = int(self._store.get(record.key) or 0) + 1
        self._store.put(record.key, str(count))
        self._context.forward(record.with_value(f"attempt {count}"))
        await asyncio.sleep(0)
        if count < 3:
            raise ConnectionError("away")


@in_virtual_time
async def test_the_output_of_failed_attempts() -> None:
    """Forwards of a failed attempt are dropped; its writes to a store are there for the next one."""
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("attempts", serdes.STRING, serdes.STRING))
    builder.stream("in", STRINGS).process(Twice, "attempts", retry=Retry(attempts=3)).to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics={"in": 1, "out": 1}) as harness:
        await feed(harness, "in", "a", "v")
        assert by_key(await harness.read("out")) == {"a": ["attempt 3"]}


@pytest.mark.parametrize("seed", SEEDS)
def test_calls_of_records_without_a_key_run_side_by_side(seed: int) -> None:
    """With order "key" records without a key have no order among them, as with none."""
    for order in ("key", "none"):
        running, seen = Counter[int](), 0

        async def call(value: str, running: Counter[int] = running) -> str:
            nonlocal seen
            running[0] += 1
            seen = max(seen, running[0])
            await asyncio.sleep(0.01)
            running[0] -= 1
            return value

        async def test(harness: AppHarness) -> None:
            for partition in (0, 1):
                await harness.produce_all("in", [TestRecord(None, str(number), number) for number in range(20)], partition=partition)
            await harness.kit.clock.advance(1)
            await harness.caught_up()
            assert len(await harness.read("out")) == 40

        builder = StreamsBuilder()
        builder.stream("in", STRINGS).map_values(call, order=order).to("out", STRINGS_OUT)
        run_app(test, builder.build(), seed=seed, topics={"in": 2, "out": 1})
        assert 10 < seen <= 40
