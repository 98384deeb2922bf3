"""A function of many records at once in a running app: its batches, its results, and their commits."""

from __future__ import annotations

import asyncio
import threading
from random import Random
from typing import Any

import pytest

from ks_actors import App, MissingSourceTopics, ProcessingFailed, Record, Retry, StreamsConfig, TaskTimeout, TopologyError, log_and_continue, serdes
from ks_actors.dsl import Grouped, Materialized, Produced, StreamsBuilder
from ks_actors.log import TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.testing import AppHarness, TestRecord, TopologyTestDriver, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, Load, by_key, feed_all, in_virtual_time

Texts = list[Record[str, str]]


class Lots:
    """A function for `batch` that takes its time, and notes its batches."""

    def __init__(self, seconds: float = 0.0, seed: int | None = None) -> None:
        self.given: list[list[str]] = []
        self.running: int = 0
        self.most: int = 0
        self._seconds = seconds
        self._random = None if seed is None else Random(seed)

    @property
    def sizes(self) -> list[int]:
        return [len(lot) for lot in self.given]

    async def __call__(self, records: Texts) -> Texts:
        self.given.append([record.value for record in records])
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self._seconds if self._random is None else self._random.random() * self._seconds)
        finally:
            self.running -= 1
        return records


def numbered(number: int, keys: int = 3) -> list[TestRecord[str, str]]:
    return [TestRecord(f"k{index % keys}", f"{index:04}", index) for index in range(number)]


def through(function: Any, **options: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).batch(function, **options).to("out", STRINGS_OUT)
    return builder.build()


def run_through(function: Any, records: list[TestRecord[str, str]], seed: int = 0, **options: Any) -> list[TestRecord[Any, Any]]:
    config = {name: options.pop(name) for name in list(options) if name.endswith("handler") or name == "commit_interval_ms"}

    async def test(harness: AppHarness) -> list[TestRecord[Any, Any]]:
        await harness.produce_all("in", records)
        await asyncio.sleep(20)
        await harness.caught_up()
        return await harness.read("out")

    return run_app(test, through(function, **options), seed=seed, topics={"in": 1, "out": 1}, **{"commit_interval_ms": 60_000, **config})


def committed(harness: AppHarness) -> int:
    found = harness.log._groups.get("app").committed().get(TopicPartition("in", 0))
    return 0 if found is None else found.offset


# --- what goes together -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_as_many_records_as_wanted_go_together(seed: int) -> None:
    """Full lots go at once, the last one when its first record has waited long enough; rows come in the order of the records."""
    lots = Lots(0.5)
    out = run_through(lots, numbered(100), seed, max_records=30, max_wait_ms=2_000)
    assert lots.sizes == [30, 30, 30, 10]
    assert lots.most == 1
    assert [record.value for record in out] == [f"{index:04}" for index in range(100)]


@in_virtual_time
async def test_records_wait_for_others_for_so_long() -> None:
    """The time of a lot counts from its first record on."""
    lots = Lots()
    times: list[float] = []
    async with AppHarness(through(lots, max_wait_ms=1_000), topics={"in": 1, "out": 1}, commit_interval_ms=60_000) as harness:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for index in range(5):
            await harness.produce("in", "k", str(index))
            await asyncio.sleep(0.4)
            times.append(loop.time() - began)
        assert lots.given == [["0", "1", "2"]]
        await asyncio.sleep(1)
        assert lots.given == [["0", "1", "2"], ["3", "4"]]


@in_virtual_time
async def test_a_commit_waits_for_no_more_records() -> None:
    """Waiting records go when a commit begins, and the commit waits for them."""
    lots = Lots(0.2)
    async with AppHarness(through(lots, max_wait_ms=3_600_000), topics={"in": 1, "out": 1}, commit_interval_ms=1_000) as harness:
        await harness.produce_all("in", numbered(7))
        await asyncio.sleep(3)
        assert lots.sizes == [7]
        assert committed(harness) == 7


def test_records_that_came_late_go_when_the_function_is_free() -> None:
    """While the function is called records are collected, and no lot is sent before it can be called, however long its records have waited."""
    lots = Lots(5.0)

    async def test(harness: AppHarness) -> None:
        for index in range(6):
            await harness.produce("in", "k", str(index))
            await asyncio.sleep(0.5)
        await harness.caught_up()

    run_app(test, through(lots, max_wait_ms=100), topics={"in": 1, "out": 1}, commit_interval_ms=60_000)
    assert lots.given == [["0"], ["1", "2", "3", "4", "5"]]


@pytest.mark.parametrize("seed", range(4))
def test_several_calls_run_side_by_side_and_keep_their_order(seed: int) -> None:
    """Up to max_in_flight of them; rows are handed on in the order in which the calls began, whichever ends first."""
    lots = Lots(3.0, seed)
    out = run_through(lots, numbered(200), seed, max_records=10, max_in_flight=4)
    assert lots.most == 4
    assert [record.value for record in out] == [f"{index:04}" for index in range(200)]


def test_a_node_in_front_that_makes_many_records_is_waited_for() -> None:
    """Of one record come more than there is room for: lots are never larger than wanted, and no more run at once."""
    lots = Lots(0.1)
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).flat_map_values(lambda value: [value] * 50).batch(lots, max_records=8).to("out", STRINGS_OUT)

    async def test(harness: AppHarness) -> int:
        await feed_all(harness, "in", numbered(10))
        return len(await harness.read("out"))

    assert run_app(test, builder.build(), topics={"in": 1, "out": 1}) == 500
    assert max(lots.sizes) == 8
    assert lots.most == 1


# --- what comes back --------------------------------------------------------------------------------------------------------------


def test_rows_are_records_of_their_own() -> None:
    """As many as the function likes, with the key, time and headers that it gives them."""

    async def summed(records: Texts) -> list[Record[str, str]]:
        await asyncio.sleep(0.1)
        keys = sorted({record.key for record in records})
        return [Record(f"{key}!", str(sum(record.key == key for record in records)), 7, (("by", b"sum"),)) for key in keys]

    out = run_through(summed, numbered(10))
    assert [(row.key, row.value, row.timestamp, row.headers) for row in out] == [
        (f"k{key}!", count, 7, (("by", b"sum"),)) for key, count in ((0, "4"), (1, "3"), (2, "3"))
    ]


def test_rows_may_be_many_or_none() -> None:
    """Thousands of one record are handed on; of a lot of which nothing comes the offsets are committed all the same."""

    async def many(records: Texts) -> list[Record[str, str]]:
        return [record.with_value(f"{record.value}-{copy}") for record in records for copy in range(2_500)]

    assert [row.value for row in run_through(many, numbered(2))] == [f"{index:04}-{copy}" for index in range(2) for copy in range(2_500)]

    async def nothing(_: Texts) -> Texts:
        return []

    assert run_through(nothing, numbered(50)) == []


def test_a_function_may_change_its_list() -> None:
    """The records of a lot are its own list."""

    async def emptied(records: Texts) -> Texts:
        taken = list(records)
        records.clear()
        return taken

    assert len(run_through(emptied, numbered(5))) == 5


def test_a_plain_function_is_called_in_a_thread() -> None:
    """It may block: the event loop goes on."""
    threads: set[int] = set()

    def blocks(records: Texts) -> Texts:
        threads.add(threading.get_ident())
        return [record.with_value(record.value.upper()) for record in records]

    assert [row.value for row in run_through(blocks, [TestRecord("k", "a", 0), TestRecord("k", "b", 1)])] == ["A", "B"]
    assert threads
    assert threading.get_ident() not in threads


def test_the_driver_gives_one_record_at_a_time() -> None:
    """It commits after each record that is piped into it."""
    lots = Lots()
    with TopologyTestDriver(through(lots)) as driver:
        source = driver.create_input_topic("in", serdes.STRING, serdes.STRING)
        for value in "abc":
            source.pipe_input("k", value)
        out = driver.create_output_topic("out", serdes.STRING, serdes.STRING)
        assert [value for _, value in out.read_key_values_to_list()] == ["a", "b", "c"]
    assert lots.sizes == [1, 1, 1]


# --- what fails -------------------------------------------------------------------------------------------------------------------


def failing_at(value: str) -> Any:
    async def function(records: Texts) -> Texts:
        if any(record.value == value for record in records):
            raise ValueError(f"{value} is bad")
        return records

    return function


def test_a_failed_call_is_a_failure_of_each_of_its_records() -> None:
    """The handler is asked about one after the other, each with where it came from; the other lots go on."""
    asked: list[tuple[int, str]] = []

    def handler(context: Any, record: Any, error: Exception) -> Any:
        asked.append((context.offset, record.value))
        return log_and_continue(context, record, error)

    out = run_through(failing_at("0012"), numbered(30), max_records=10, processing_exception_handler=handler)
    assert asked == [(index, f"{index:04}") for index in range(10, 20)]
    assert [row.value for row in out] == [f"{index:04}" for index in (*range(10), *range(20, 30))]


def test_a_failure_ends_the_app_unless_it_is_handled() -> None:
    """At the first record of the lot; nothing of the lot is committed."""

    async def test(harness: AppHarness) -> tuple[Exception | None, int]:
        await harness.produce_all("in", numbered(30))
        return await harness.ended(), committed(harness)

    error, position = run_app(test, through(failing_at("0012"), max_records=10), topics={"in": 1, "out": 1}, commit_interval_ms=60_000)
    assert isinstance(error, ProcessingFailed)
    assert (error.topic, error.partition, error.offset, error.node) == ("in", 0, 10, "KSTREAM-BATCH-0000000001")
    assert position <= 10


def test_a_failed_call_is_tried_again() -> None:
    """With all of its records, as Retry says."""
    calls: list[int] = []

    async def second_time(records: Texts) -> Texts:
        calls.append(len(records))
        if len(calls) == 1:
            raise OSError("not yet")
        return records

    assert len(run_through(second_time, numbered(5), retry=Retry(attempts=2, backoff_ms=10))) == 5
    assert calls == [5, 5]


def test_a_call_has_its_time() -> None:
    """One that takes longer is cancelled, and a failure of its records."""
    cancelled: list[int] = []

    async def hangs(records: Texts) -> Texts:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            cancelled.append(len(records))
            raise
        return records

    assert run_through(hangs, numbered(3), timeout_ms=500, processing_exception_handler=log_and_continue) == []
    assert cancelled == [3]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (None, "return records, or an empty list"),
        ([("k", "v")], "return a Record for each"),
        ([Record("k", "v", -1)], "give 0 or more"),
        ([Record("k", "v", 1 << 63)], "below 2"),
        ([Record("k", "v", 1.5)], "give a whole number of ms"),  # type: ignore[arg-type]
        ([Record("k", "v", 1, [("a", "b")])], "give a pair of name and bytes"),  # type: ignore[arg-type]
        ([Record("k", "v", 1, "ab")], "give a tuple of pairs"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("plain", [True, False])
def test_results_that_are_no_rows_are_a_failure(rows: Any, said: str, plain: bool) -> None:
    """It is said before any row is handed on."""
    told: list[str] = []

    def handler(context: Any, record: Any, error: Exception) -> Any:
        told.append(str(error))
        return log_and_continue(context, record, error)

    async def function(_: Texts) -> Any:
        return rows

    assert run_through((lambda _: rows) if plain else function, numbered(2), processing_exception_handler=handler) == []
    assert len(told) == 2
    assert said in told[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_records": 0}, "max_records of .* is 0"),
        ({"max_wait_ms": -1}, "max_wait_ms of .* is -1"),
        ({"max_in_flight": 0}, "max_in_flight is 0"),
        ({"timeout_ms": 0}, "timeout_ms is 0"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    """When the topology is built."""
    with pytest.raises(TopologyError, match=said):
        through(Lots(), **options)
    with pytest.raises(TopologyError, match="cannot be called"):
        through(3)


# --- commits and crashes ----------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_nothing_is_committed_that_is_not_back(guarantee: str) -> None:
    """Neither offsets nor rows, as long as the function has not returned."""
    may = asyncio.Event()

    async def held(records: Texts) -> Texts:
        await may.wait()
        return records

    async with AppHarness(through(held), topics={"in": 1, "out": 1}, commit_interval_ms=500, processing_guarantee=guarantee) as harness:
        await harness.produce_all("in", numbered(5))
        await asyncio.sleep(2)
        assert committed(harness) == 0
        assert await harness.read("out") == []
        may.set()
        await harness.caught_up()
        assert len(await harness.read("out")) == 5


def test_a_call_that_does_not_come_back_fails_the_commit() -> None:
    """Within max_drain_ms, by the name of the node, and with the remedy."""

    async def never(records: Texts) -> Texts:
        await asyncio.Event().wait()
        return records

    async def test(harness: AppHarness) -> Exception | None:
        await harness.produce_all("in", numbered(5))
        return await harness.ended()

    error = run_app(test, through(never), topics={"in": 1, "out": 1}, commit_interval_ms=500, max_drain_ms=1_000)
    assert isinstance(error, TaskTimeout)
    assert "KSTREAM-BATCH-0000000001. If a call may take so long, raise max_drain_ms; if not" in str(error)


def counted(seed: int) -> Topology:
    """Give records to an async function, to one of many, and count its results, by another key."""

    async def slow(value: str) -> str:
        await asyncio.sleep(random.random() * 0.02)
        return value

    random = Random(seed)
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS).map_values(slow).batch(Lots(0.3, seed), max_records=13, max_wait_ms=150, max_in_flight=2)
    counts = stream.group_by(lambda key, _: key, Grouped(serdes.STRING, serdes.STRING)).count(Materialized("counts", serdes.STRING, serdes.LONG))
    counts.to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    return builder.build()


@pytest.mark.parametrize("seed", range(5))
@in_virtual_time
async def test_after_a_crash_the_lot_is_given_again(seed: int, guarantee: str) -> None:
    """In the middle of anything: exactly once nothing is lost or there twice, at least once nothing is lost."""
    topics = {"in": 2, "out": 2}
    async with AppHarness(
        counted(seed), seed=seed, topics=topics, commit_interval_ms=200, processing_guarantee=guarantee, num_stream_threads=2
    ) as harness:
        load = Load(harness, harness.kit.random)
        for _ in range(3):
            await load.send(60)
            await harness.turns(harness.kit.random.randrange(400))
            await asyncio.sleep(harness.kit.random.random())
            await harness.crash()
            await harness.restart()
        await load.check(guarantee)


@pytest.mark.parametrize("seed", range(3))
def test_cached_updates_go_through_a_commit(seed: int) -> None:
    """Updates that are held back go to the function when a commit sends them, and that commit waits for them."""
    lots = Lots(0.2, seed)
    builder = StreamsBuilder()
    counts = builder.stream("in", STRINGS).group_by_key().count(Materialized("counts", serdes.STRING, serdes.LONG))
    asked: Any = lots
    counts.to_stream().batch(asked, max_wait_ms=3_600_000, max_records=2).to("out", Produced(serdes.STRING, serdes.LONG))

    async def test(harness: AppHarness) -> list[TestRecord[Any, Any]]:
        await feed_all(harness, "in", numbered(60, keys=5))
        return await harness.read("out")

    out = run_app(test, builder.build(), seed=seed, topics={"in": 1, "out": 1}, statestore_cache_max_bytes=1 << 20, commit_interval_ms=1_000)
    assert {key: values[-1] for key, values in by_key(out).items()} == {f"k{key}": 12 for key in range(5)}


def test_it_is_a_node_of_its_own_in_descriptions() -> None:
    """Named like the others, or freely; results are repartitioned before they are grouped by key."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS).batch(Lots()).batch(Lots(), name="scored")
    stream.group_by_key(Grouped(serdes.STRING, serdes.STRING, name="by-key")).count()
    text = str(builder.build().describe())
    assert "    Processor: KSTREAM-BATCH-0000000001 (stores: [])\n      --> scored\n      <-- KSTREAM-SOURCE-0000000000\n" in text
    assert "    Sink: by-key-repartition-sink (topic: by-key-repartition)" in text


# --- services ---------------------------------------------------------------------------------------------------------------------


class Service:
    """Something that a function needs, and that says whether it is open."""

    def __init__(self) -> None:
        self.entered: int = 0
        self._open: bool = False

    async def __aenter__(self) -> None:
        assert not self._open
        self.entered += 1
        self._open = True

    async def __aexit__(self, *_: object) -> None:
        self._open = False

    def open(self) -> bool:
        return self._open


class Asks:
    """A function that needs a service."""

    def __init__(self, service: Service) -> None:
        self.service: Service = service

    async def __call__(self, records: Texts) -> Texts:
        assert self.service.open()
        return records


def test_services_of_functions_are_open_while_the_app_is() -> None:
    """Entered once before the start, however many functions have it, and left when all has ended, be it by a crash."""
    service = Service()
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).batch(Asks(service)).batch(Asks(service)).to("out", STRINGS_OUT)

    async def test(harness: AppHarness) -> int:
        assert service.open()
        await harness.produce_all("in", numbered(3))
        await harness.crash()
        assert not service.open()
        await harness.restart()
        await harness.caught_up()
        await harness.close()
        assert not service.open()
        return len(await harness.read("out"))

    assert run_app(test, builder.build(), topics={"in": 1, "out": 1}) == 3
    assert service.entered == 2


async def test_services_of_an_app_are_open_while_it_is() -> None:
    """Services given to the app are closed as well, also when the app does not start."""
    service = Service()
    async with EmbeddedLog() as log:
        config = StreamsConfig(application_id="served")
        with pytest.raises(MissingSourceTopics):
            await App(through(Lots()), config, log=log, services=[service]).start()
        assert (service.entered, service.open()) == (1, False)
