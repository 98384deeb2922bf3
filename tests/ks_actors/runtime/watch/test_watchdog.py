"""Records that wait for too long are told of, with the reason."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import pytest

from ks_actors import HealthReason, TaskId, UncaughtResponse, Wait, WaitReason
from ks_actors.dsl import StreamsBuilder
from ks_actors.log import TopicPartition
from ks_actors.log._types import Outage
from ks_actors.runtime import messages as m
from ks_actors.runtime.watch._standstills import warnings_due
from ks_actors.runtime.watch._unread_partitions import UnreadPartitions
from ks_actors.testing import AppHarness, TestRecord, _harness, run_app
from ks_actors.testing._connection import Connection
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, Bomb, counting, echo, in_app, in_virtual_time
from tests.ks_actors.runtime.outages import Line, Weather

IN_AND_OUT = {"in": 2, "out": 1}
FIRST, SECOND = TopicPartition("in", 0), TopicPartition("in", 1)
LEFT, RIGHT = TopicPartition("left", 0), TopicPartition("right", 0)


def merged() -> Topology:
    builder = StreamsBuilder()
    builder.stream("left", STRINGS).merge(builder.stream("right", STRINGS)).to("out", STRINGS_OUT)
    return builder.build()


class Told:
    """The lines in the log of the program about records that wait."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, logger="ks_actors")
        self._caplog = caplog

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records if "has waited for" in record.getMessage()]

    @property
    def went_on(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records if "continues, after" in record.getMessage()]

    def nothing(self) -> None:
        assert self.lines == []
        assert self.went_on == []

    def one(self, partition: TopicPartition, reason: WaitReason, *words: str) -> None:
        """Exactly one line, about this partition and with this reason."""
        (line,) = self.lines
        assert line.startswith(f"{partition} of task 0_{partition.partition} has waited for")
        assert f"({reason.value})" in line
        for word in words:
            assert word in line


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    return Told(caplog)


@pytest.fixture
def weather(monkeypatch: pytest.MonkeyPatch) -> Weather:
    """The log of the harness, to be made away and back."""
    weather = Weather(Random(0), 60.0)
    monkeypatch.setattr(_harness, "Connection", partial(Line, weather))
    return weather


def poller(harness: AppHarness) -> Any:
    assert harness.app._parts is not None
    return harness.app._parts.poller


def waits(harness: AppHarness) -> dict[TopicPartition | None, Wait]:
    return {wait.partition: wait for wait in harness.app.waiting()}


async def fill(harness: AppHarness, partition: TopicPartition, count: int = 1) -> None:
    await harness.produce_all(partition.topic, [TestRecord("a", f"{number}", 0) for number in range(count)], partition=partition.partition)


# --- nothing to tell of -----------------------------------------------------------------------------------------------------------


def test_nothing_is_told_when_all_is_well(guarantee: str, told: Told) -> None:
    """An app that processes its records, or has none, logs no line and counts no stall; its tasks wait for records."""

    async def test(harness: AppHarness) -> None:
        for _ in range(30):
            await fill(harness, FIRST, 50)
            await fill(harness, SECOND, 1)
            await harness.kit.clock.advance(1)
        await harness.kit.clock.advance(100)
        figures = harness.app.metrics()
        assert (figures["longest-wait-ms"], figures["stalled-partitions"], figures["log-unreachable-ms"]) == (0, 0, 0)
        found = harness.app.waiting()
        assert [(wait.task, wait.partition, wait.reason) for wait in found] == [
            (TaskId(0, 0), None, WaitReason.RECORDS),
            (TaskId(0, 1), None, WaitReason.RECORDS),
        ]
        assert all(wait.waited_ms >= 90_000 for wait in found)

    run_app(test, counting(), topics=IN_AND_OUT, processing_guarantee=guarantee)
    told.nothing()


def test_nothing_is_told_of_an_app_that_the_user_has_paused(told: Told) -> None:
    """No warning comes however long it is paused; `App.waiting` says why. The time counts anew from the resume."""

    async def test(harness: AppHarness) -> None:
        await harness.app.pause()
        await fill(harness, FIRST, 10)
        await harness.kit.clock.advance(100)
        assert {wait.reason for wait in harness.app.waiting()} == {WaitReason.PAUSED}
        assert waits(harness)[FIRST].buffered == 10
        assert harness.app.metrics()["stalled-partitions"] == 0
        await harness.app.resume()
        await harness.caught_up()

    run_app(test, echo(), topics=IN_AND_OUT)
    told.nothing()


@pytest.mark.parametrize("off", [0, -1])
def test_it_can_be_turned_off(off: int, told: Told) -> None:
    """With 0 or -1 the app looks for no stalls; `App.waiting` still gives the reasons."""

    async def test(harness: AppHarness) -> None:
        await harness.remove_worker()
        await fill(harness, FIRST, 10)
        await harness.kit.clock.advance(100)
        assert waits(harness)[FIRST].reason is WaitReason.NO_WORKER
        assert harness.app.metrics()["longest-wait-ms"] == 0

    run_app(test, echo(), topics=IN_AND_OUT, stall_warning_ms=off)
    told.nothing()


@in_app(echo(), topics=IN_AND_OUT)
async def test_an_app_that_does_not_run_waits_for_nothing(harness: AppHarness) -> None:
    """Before the start and after the end there are no tasks."""
    app = harness.app
    await harness.close()
    assert app.waiting() == ()


# --- reasons ----------------------------------------------------------------------------------------------------------------------


def test_a_wait_is_told_ever_more_rarely_and_so_is_its_end(told: Told) -> None:
    """After the bound, twice the bound, four times the bound; when it goes on that is told once, and the figures are 0 again."""

    async def test(harness: AppHarness) -> None:
        await harness.remove_worker()
        await fill(harness, SECOND, 3)
        for seconds, lines in ((9, 0), (2.5, 1), (7, 1), (3, 2), (17, 2), (3, 3), (37, 3), (3, 4)):
            await harness.kit.clock.advance(seconds)
            assert len(told.lines) == lines
        figures = harness.app.metrics()
        assert figures["stalled-partitions"] == 1
        assert figures["longest-wait-ms"] == pytest.approx(81_500, abs=1_500)
        assert told.went_on == []
        await harness.add_worker()
        await harness.kit.clock.advance(2)
        assert len(told.went_on) == 1
        assert told.went_on[0].startswith("in-1 of task 0_1 continues, after it had waited for 8")
        assert harness.app.metrics()["longest-wait-ms"] == 0
        await harness.kit.clock.advance(100)

    run_app(test, echo(), topics=IN_AND_OUT)
    assert len(told.lines) == 4
    assert all("(no worker): there is no worker; App.add_worker starts one; 3 records are in memory" in line for line in told.lines)
    assert len(told.went_on) == 1


@in_app(echo(), topics={"in": 40, "out": 1})
async def test_many_partitions_that_wait_do_not_flood_the_log(harness: AppHarness, told: Told, caplog: pytest.LogCaptureFixture) -> None:
    """Ten have a line each, the others are named in one; all of them are counted, and are in `App.waiting`."""
    await harness.remove_worker()
    for partition in range(40):
        await fill(harness, TopicPartition("in", partition))
    await harness.kit.clock.advance(12)
    assert len(told.lines) == 10
    assert caplog.text.count("30 more partitions have waited as long; App.waiting() gives the reasons: in-10, in-11") == 1
    assert harness.app.metrics()["stalled-partitions"] == len(harness.app.waiting()) == 40
    await harness.add_worker()
    await harness.caught_up()


def test_a_task_that_waits_for_another_partition(told: Told) -> None:
    """The line names the partition that is waited for, and whether the log is known to have more of it."""

    async def test(harness: AppHarness) -> None:
        await harness.kit.clock.advance(1)
        await fill(harness, LEFT, 2)
        await harness.kit.clock.advance(15)
        told.one(LEFT, WaitReason.PARTITION, "the task waits for right-0, and records of it may come within max_task_idle_ms (100000 ms)")
        wait = waits(harness)[LEFT]
        assert (wait.task, wait.reason, wait.buffered, wait.lag) == (TaskId(0, 0), WaitReason.PARTITION, 2, 0)
        assert 14_000 <= wait.waited_ms <= 16_000
        assert wait.since_ms == harness.kit.wall_time_ms() - wait.waited_ms
        await fill(harness, RIGHT, 3)
        await harness.kit.clock.advance(2)

    run_app(test, merged(), topics={"left": 1, "right": 1, "out": 1}, max_task_idle_ms=100_000)
    assert len(told.went_on) == 1


def test_a_task_that_waits_for_unfetched_records(told: Told) -> None:
    """Of a task with two inputs of which the log has more of one, but brings nothing, both are told of."""

    async def test(harness: AppHarness) -> None:
        await fill(harness, LEFT)
        await fill(harness, RIGHT)
        await harness.caught_up()
        poller(harness).ctx.self_ref.tell(m.BufferHigh((RIGHT,)))
        await harness.kit.clock.advance(1)
        await fill(harness, RIGHT, 4)
        await harness.kit.clock.advance(40)
        assert f"{RIGHT} of task 0_0 has waited" in told.lines[0]
        assert "(input buffer): fetching has stopped" in told.lines[0]
        assert waits(harness)[RIGHT].lag == 4

    run_app(test, merged(), topics={"left": 1, "right": 1, "out": 1})
    assert {line.split(" ")[0] for line in told.lines} == {str(RIGHT)}


def test_an_asynchronous_call_that_does_not_return(told: Told) -> None:
    """The line names the node and the record, also when other records go on beside it."""
    gate = asyncio.Event()

    async def call(value: str) -> str:
        if value == "3":
            await gate.wait()
        return value

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(call, name="asks", max_in_flight=100, order="none").to("out", STRINGS_OUT)

    async def test(harness: AppHarness) -> None:
        await fill(harness, SECOND, 5)
        for _ in range(15):
            await harness.kit.clock.advance(1)
            await harness.produce_all("in", [TestRecord("b", "x", 0)], partition=1)
        told.one(SECOND, WaitReason.ASYNC_CALL, "a call of the asynchronous processor asks has not returned, for in-1 offset 3")
        assert waits(harness)[SECOND].reason is WaitReason.ASYNC_CALL
        gate.set()
        await harness.kit.clock.advance(2)

    run_app(test, builder.build(), topics=IN_AND_OUT)
    assert len(told.went_on) == 1


def test_a_record_that_fails_again_and_again(told: Told) -> None:
    """A task that is rolled back each time has not gone on: the line has the error."""
    bomb = Bomb()

    async def test(harness: AppHarness) -> None:
        await fill(harness, FIRST, 5)
        await harness.caught_up()
        bomb.armed = 1_000
        await fill(harness, FIRST, 5)
        await harness.kit.clock.advance(9)
        told.nothing()
        await harness.kit.clock.advance(8)
        told.one(FIRST, WaitReason.RESTING, "the task rests after a failure", "boom at a")
        bomb.armed = 0
        await harness.kit.clock.advance(10)
        assert harness.app.metrics()["longest-wait-ms"] == 0

    run_app(test, echo(bomb), topics=IN_AND_OUT, uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER)
    assert len(told.went_on) == 1


def test_records_that_no_fetch_brings(guarantee: str, told: Told, caplog: pytest.LogCaptureFixture) -> None:
    """The app asks the log how far it goes, finds records that nobody fetches, and fetches them anew, with one error that asks for a report."""

    async def test(harness: AppHarness) -> None:
        # As if the fetcher had lost the resume.
        poller(harness)._fetcher.pause([SECOND])
        await fill(harness, FIRST, 3)
        await fill(harness, SECOND, 7)
        await harness.kit.clock.advance(9)
        assert harness.app.metrics()["stalls-mended-total"] == 0
        await harness.kit.clock.advance(8)
        told.one(SECOND, WaitReason.NOT_FETCHED, "the log has 7 offsets from 0 on, and no fetch brings them")
        figures = harness.app.metrics()
        assert (figures["stalls-mended-total"], figures["stalled-partitions"]) == (1, 0)
        await harness.caught_up()
        assert len(await harness.read("out")) == 10

    run_app(test, echo(), topics=IN_AND_OUT, processing_guarantee=guarantee)
    assert len(told.went_on) == 1
    (error,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert error.startswith("in-1 was not fetched from offset 0 on")
    assert "please report this with the state of its fetch: position 0, paused True" in error


@in_virtual_time
async def test_a_log_that_does_not_answer_is_named(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is the log when that tells of an outage; the figure says for how long, in ms."""

    class Away(Connection):
        def outages(self) -> Sequence[Outage]:
            return [Outage(12.5, "broker 1 at kafka:9092 cannot be reached")]

    monkeypatch.setattr(_harness, "Connection", Away)
    async with AppHarness(echo(), topics=IN_AND_OUT) as harness:
        poller(harness)._fetcher.pause([SECOND])
        await fill(harness, SECOND, 7)
        await harness.kit.clock.advance(17)
        told.one(SECOND, WaitReason.LOG, "the log has not answered for 12 s: broker 1 at kafka:9092 cannot be reached")
        poller(harness)._fetcher.resume([SECOND])


def test_a_task_whose_offsets_are_not_known(told: Told, weather: Weather) -> None:
    """A task that is assigned, and waits for the log to tell where it goes on, is told of."""

    async def test(harness: AppHarness) -> None:
        weather.down_at("committed")
        starting = asyncio.ensure_future(harness.start())
        await harness.kit.clock.advance(12)
        assert {line.split(" ")[0] for line in told.lines} == {"in-0", "in-1"}
        assert all("(rebalancing): the group has assigned the task" in line for line in told.lines)
        assert {wait.reason for wait in harness.app.waiting()} == {WaitReason.REBALANCING}
        weather.up()
        await starting
        await harness.kit.clock.advance(2)

    run_app(test, counting(), topics=IN_AND_OUT, start=False)
    assert len(told.lines) == len(told.went_on) == 2


@in_app(counting(), topics=IN_AND_OUT, start=False)
async def test_a_task_that_is_restored(harness: AppHarness, told: Told, weather: Weather) -> None:
    """Records of a task with stores that are not restored yet are reported, when the log has some; `App.waiting` has them, too."""
    await harness.start()
    await fill(harness, FIRST, 5)
    await harness.caught_up()
    await harness.close()
    harness.wipe_state()
    await fill(harness, FIRST, 5)
    weather.down_at("fetch")
    starting = asyncio.ensure_future(harness.start())
    await harness.kit.clock.advance(12)
    # One of the two may have been restored before the log went away.
    wait = next(wait for wait in harness.app.waiting() if wait.reason is WaitReason.RESTORING)
    where = f"{wait.partition} of task {wait.task}"
    assert any(line.startswith(where) and "(restoring): its stores are being restored" in line for line in told.lines)
    weather.up()
    await starting


@in_app(counting(), topics=IN_AND_OUT, start=False)
async def test_an_instance_without_tasks_waits_for_its_group(harness: AppHarness, weather: Weather) -> None:
    """Before there are tasks the report is about the instance."""
    weather.down_at("join")
    starting = asyncio.ensure_future(harness.start())
    await harness.kit.clock.advance(5)
    (wait,) = harness.app.waiting()
    assert (wait.task, wait.partition, wait.reason) == (None, None, WaitReason.REBALANCING)
    weather.up()
    await starting


def test_a_fault_of_the_watch_does_not_end_the_app(caplog: pytest.LogCaptureFixture) -> None:
    """It is told with its stack, and the app goes on."""

    async def test(harness: AppHarness) -> None:
        assert harness.app._instance is not None
        watch = harness.app._instance.watch
        assert watch is not None
        watch._stills = None  # type: ignore[assignment]  # as a fault would leave it
        await fill(harness, FIRST, 5)
        await harness.kit.clock.advance(3)
        await harness.caught_up()

    run_app(test, echo(), topics=IN_AND_OUT)
    assert "the check for waiting records failed; retrying" in caplog.text


@in_virtual_time
async def test_asking_for_waits_or_metrics_makes_nothing_stand_still() -> None:
    """Records that are processed again after a failure move between two looks, however often somebody asks between them."""
    failed: list[str] = []

    async def slow(value: str) -> str:
        await asyncio.sleep(0.3)
        if value == "20" and not failed:
            failed.append(value)
            raise ValueError("once")
        return value

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(slow, name="slow", max_in_flight=1).to("out", STRINGS_OUT)
    async with AppHarness(
        builder.build(),
        topics={"in": 1, "out": 1},
        commit_interval_ms=3_600_000,
        stall_warning_ms=4_000,
        uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER,
    ) as harness:
        await harness.produce_all("in", [TestRecord("a", f"{number}", 0) for number in range(40)])
        for _ in range(260):
            await harness.kit.clock.advance(0.05)
            harness.app.waiting()
            assert HealthReason.STALLED not in {problem.reason for problem in harness.app.health().problems}
        assert failed


def test_a_wait_that_is_known_late_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """One warning covers all that would have come before, and the next one comes after twice the time."""
    partition = TopicPartition("in", 0)
    unread = UnreadPartitions(10.0)
    unread.note({partition: 3}, 0.0)
    told = []
    for now in range(66, 200):
        caplog.clear()
        assert unread.tell(unread.all(lambda: frozenset({partition})), float(now)) == 1
        told += [now] * len(caplog.records)
    assert told == [66, 80, 160]
    assert [warnings_due(waited, 10.0) for waited in (9.9, 10.0, 19.9, 20.0, 66.0, 80.0)] == [0, 1, 1, 2, 3, 4]
