"""The health of an app: live, ready, and the reasons why not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import perf_counter

import pytest

from ks_actors import App, Health, HealthBounds, HealthReason, InstanceState, NotRunning, StreamsBuilder, StreamsConfig, TaskId, WaitReason
from ks_actors.log import TopicPartition
from ks_actors.log._types import Outage
from ks_actors.task import RecordQueue
from ks_actors.testing import AppHarness, TestRecord, _harness
from ks_actors.testing._connection import Connection
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, counting, echo, feed_all, in_app, in_virtual_time
from tests.waiting import until

IN_AND_OUT = {"in": 2, "out": 1}


def reasons(health: Health) -> set[HealthReason]:
    return {problem.reason for problem in health.problems}


@in_app(counting(), topics=IN_AND_OUT)
async def test_an_app_that_runs_is_live_and_ready_and_one_that_has_ended_is_neither(harness: AppHarness) -> None:
    """Before the start it is live but not ready; at the end the error that ended it is in the text."""
    fresh = App(counting(), harness.config, log=harness.log)
    assert reasons(fresh.health()) == {HealthReason.STATE}
    assert fresh.health().live
    app = harness.app
    found = app.health()
    assert (found.live, found.ready, found.problems, str(found)) == (True, True, (), "ready, RUNNING")
    await harness.close()
    ended = app.health()
    assert (ended.live, ended.ready, ended.state) == (False, False, InstanceState.NOT_RUNNING)
    assert str(ended) == "not live, NOT_RUNNING (ended: the app is NOT_RUNNING: it was closed)"


@in_virtual_time
async def test_the_error_that_ended_an_app_is_told() -> None:
    """An app in ERROR is not live, and says which error it was."""

    def explode(_: str) -> str:
        raise ValueError("no such plane")

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(explode).to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics=IN_AND_OUT) as harness:
        await harness.produce_all("in", [TestRecord("a", "1", 0)])
        assert await harness.ended() is not None
        (problem,) = harness.app.health().problems
        assert problem.reason is HealthReason.ENDED
        assert "no such plane" in problem.text
        assert problem.reason.fatal


@in_app(echo(), topics=IN_AND_OUT)
async def test_a_paused_app_and_one_without_workers_are_not_ready(harness: AppHarness) -> None:
    """The app is live in both cases: `resume` and `add_worker` make it ready again."""
    app = harness.app
    await app.pause()
    await harness.turns(10)
    assert reasons(app.health()) == {HealthReason.PAUSED}
    await app.resume()
    await harness.kit.clock.advance(1)
    assert app.health().ready
    await harness.remove_worker()
    assert reasons(app.health()) == {HealthReason.NO_WORKER}
    assert app.health().live
    await harness.add_worker()
    assert app.health().ready


@in_app(echo(), topics=IN_AND_OUT)
async def test_lag_counts_only_beyond_its_bound(harness: AppHarness) -> None:
    """The records of one partition, in memory and in the log; without `max_lag` any lag is ready."""
    app = harness.app
    await app.remove_worker()
    await harness.produce_all("in", [TestRecord("a", f"{number}", 0) for number in range(8)], partition=1)
    await harness.kit.clock.advance(1)
    assert reasons(app.health()) == {HealthReason.NO_WORKER}
    assert reasons(app.health(HealthBounds(max_lag=8))) == {HealthReason.NO_WORKER}
    _, problem = app.health(HealthBounds(max_lag=7)).problems
    assert (problem.reason, problem.partition, problem.task) == (HealthReason.LAG, TopicPartition("in", 1), TaskId(0, 1))
    assert "in-1 has 8 records to process, more than 7" in problem.text
    await app.add_worker()


@pytest.mark.parametrize("seed", range(8))
@in_virtual_time
async def test_an_app_whose_handlers_drop_most_records_is_not_ready(seed: int) -> None:
    """More than `max_drop_ratio` of the last minute's records, and ten at least; it is live, and ready again a minute later."""

    def maybe(value: str) -> str:
        if value == "bad":
            raise ConnectionError("nobody answers")
        return value

    random = Random(seed)
    ratio = random.choice((0.2, 0.5, 0.9))
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(maybe).to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics=IN_AND_OUT, processing_exception_handler="continue") as harness:
        clock, app = harness.kit.clock, harness.app
        await clock.advance(2)
        events: list[tuple[float, int, int]] = []
        for _ in range(12):
            good, bad = random.choice((0, 5, 30)), random.choice((0, 5, 15, 60))
            events.append((clock.time(), good, bad))
            await harness.produce_all("in", [TestRecord("a", value, 0) for value in ["good"] * good + ["bad"] * bad])
            await clock.advance(random.choice((2, 10, 25, 63)))
            # A look comes once a second: what is a minute old to the second may count or not.
            if not any(57 < clock.time() - at < 63 for at, _, _ in events):
                goods = sum(one for at, one, _ in events if clock.time() - at < 60)
                bads = sum(one for at, _, one in events if clock.time() - at < 60)
                found = app.health(HealthBounds(max_drop_ratio=ratio))
                assert reasons(found) == ({HealthReason.DROPPING} if bads >= 10 and bads > ratio * (goods + bads) else set()), (goods, bads)
                assert found.live
                assert app.health(HealthBounds(max_drop_ratio=None)).ready
        await clock.advance(70)
        assert app.health().ready


@in_virtual_time
async def test_a_call_that_does_not_return_makes_an_app_not_ready() -> None:
    """After `stall_warning_ms` the partition is told, with the node of the call; other tasks go on, so the app is live."""
    gate = asyncio.Event()

    async def call(value: str) -> str:
        if value == "stuck":
            await gate.wait()
        return value

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(call, name="asks").to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics=IN_AND_OUT) as harness:
        await harness.produce_all("in", [TestRecord("a", "stuck", 0)], partition=1)
        await harness.kit.clock.advance(5)
        assert harness.app.health().ready
        await harness.kit.clock.advance(10)
        found = harness.app.health()
        (problem,) = found.problems
        assert (problem.reason, problem.task, problem.partition) == (HealthReason.STALLED, TaskId(0, 1), TopicPartition("in", 1))
        assert problem.waited_ms >= 10_000
        assert "asks has not returned" in problem.text
        assert found.live
        gate.set()
        await harness.kit.clock.advance(2)
        assert harness.app.health().ready


@in_app(counting(), topics=IN_AND_OUT)
async def test_a_task_that_restores_makes_an_app_not_ready(harness: AppHarness) -> None:
    """Each such task is named, until its stores are as of the last commit."""
    await feed_all(harness, "in", [TestRecord(f"k{number}", "v", 0) for number in range(50)])
    await harness.close()
    harness.wipe_state()
    seen: list[Health] = []

    def look() -> bool:
        seen.append(harness.app.health())
        return seen[-1].ready

    async with asyncio.TaskGroup() as group:
        restarted = group.create_task(harness.restart())
        await asyncio.sleep(0)
        group.create_task(until(look))
        await restarted
    told = {problem.task for health in seen for problem in health.problems if problem.reason is HealthReason.RESTORING}
    assert told == {TaskId(0, 0), TaskId(0, 1)}
    assert all(health.live for health in seen if health.state is not InstanceState.NOT_RUNNING)


@in_virtual_time
async def test_an_outage_counts_from_its_bound_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that was away for less than `outage_ms` is no reason; after it the text has the broker's address."""
    away = [Outage(1.5, "broker 1 at kafka:9092 cannot be reached")]

    class Away(Connection):
        def outages(self) -> Sequence[Outage]:
            return away

    monkeypatch.setattr(_harness, "Connection", Away)
    async with AppHarness(echo(), topics=IN_AND_OUT) as harness:
        assert harness.app.health().ready
        away[0] = Outage(2.0, away[0].reason)
        (problem,) = harness.app.health().problems
        assert (problem.reason, problem.waited_ms) == (HealthReason.LOG, 2_000)
        assert "broker 1 at kafka:9092 cannot be reached" in problem.text
        assert harness.app.health().live
        assert harness.app.health(HealthBounds(outage_ms=3_000)).ready
        away.clear()
        assert harness.app.health().ready


@in_app(echo(), topics=IN_AND_OUT)
async def test_a_blocking_function_that_does_not_return_is_fatal(harness: AppHarness) -> None:
    """After `stuck_ms`, by default `max_poll_interval_ms`: nothing but a restart ends a thread."""
    task = harness.app._metrics.tasks[TaskId(0, 1)]
    task.thread_guard.since = perf_counter() - 200
    assert harness.app.health().ready
    found = harness.app.health(HealthBounds(stuck_ms=100_000))
    assert not found.live
    assert reasons(found) == {HealthReason.WORKER}
    assert "a blocking function of task 0_1 has not returned for 200 s, more than 100000 ms" in str(found)
    task.thread_guard.since = perf_counter() - 400
    assert not harness.app.health().live
    task.thread_guard.since = None
    assert harness.app.health().ready


@pytest.mark.parametrize("stall_warning_ms", [10_000, 0])
@in_virtual_time
async def test_a_loop_that_does_not_turn_is_fatal(stall_warning_ms: int) -> None:
    """The watchdog notes each second that the loop turns, even where it looks for no stalls."""
    async with AppHarness(echo(), topics=IN_AND_OUT, stall_warning_ms=stall_warning_ms) as harness:
        await harness.kit.clock.advance(30)
        assert harness.app.health().live
        instance = harness.app._instance
        assert instance is not None
        assert instance.watch is not None
        assert instance.watch.looked_ms is not None
        instance.watch.looked_ms -= 11_000
        found = harness.app.health()
        assert reasons(found) == {HealthReason.EVENT_LOOP}
        assert not found.live
        assert harness.app.health(HealthBounds(loop_ms=20_000)).ready


async def test_another_thread_learns_of_a_blocked_loop(tmp_path: Path) -> None:
    """While a function blocks the real loop, `health` called in a thread says that it does not turn."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to("out", STRINGS_OUT)
    config = StreamsConfig(application_id="blocked", log="memory://", state_dir=tmp_path)
    async with App(builder.build(), config, topics=IN_AND_OUT) as app:
        instance = app._instance
        assert instance is not None
        watch = instance.watch
        assert watch is not None
        await until(lambda: watch.looked_ms is not None)
        seen: list[Health] = []

        def dead() -> bool:
            seen.append(app.health(HealthBounds(loop_ms=0)))
            return not seen[-1].live

        thread = threading.Thread(target=lambda: asyncio.run(until(dead)))
        thread.start()
        thread.join(60)  # on the loop: it is this that blocks it
        assert reasons(seen[-1]) == {HealthReason.EVENT_LOOP}


@in_app(echo(), topics=IN_AND_OUT)
async def test_members_are_those_of_the_whole_group(harness: AppHarness) -> None:
    """Each instance tells of all, in the order of their client ids, with their partitions; before the start it raises NotRunning."""
    fresh = App(echo(), harness.config, log=harness.log)
    with pytest.raises(NotRunning):
        await fresh.members()
    async with harness.another() as second:
        await harness.caught_up()
        await harness.kit.clock.advance(5)  # the partition that moves is nobody's for a moment
        found = await harness.app.members()
        ids = [member.client_id for member in found]
        assert ids == sorted(ids)
        assert [sum(name.startswith(f"{each.config.client_id}-") for name in ids) for each in (harness, second)] == [2, 1]
        given = [partition for member in found for partition in member.partitions or ()]
        assert sorted(given) == [TopicPartition("in", 0), TopicPartition("in", 1)]
        assert await second.app.members() == found
        assert {harness.app.member_id, second.app.member_id} == {member.member_id for member in found}
        assert fresh.member_id is None


@in_app(counting(), topics=IN_AND_OUT)
async def test_the_repr_of_an_app_says_what_it_does(harness: AppHarness) -> None:
    """It has the ids, the state, and how many tasks, standbys and workers there are."""
    client = harness.config.client_id
    assert repr(harness.app) == f"<App app ({client}): RUNNING, 2 active tasks, 0 standbys, 1 worker>"
    app = harness.app
    await harness.close()
    assert repr(app) == f"<App app ({client}): NOT_RUNNING, 0 active tasks, 0 standbys, 0 workers>"


@in_app(counting(), topics=IN_AND_OUT)
async def test_health_reads_no_records(harness: AppHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lag comes from numbers alone: in another thread, records may move while it looks at them."""

    def moved(_: RecordQueue) -> int:
        raise IndexError("the loop has taken the record")

    app = harness.app
    await app.pause()
    await harness.produce_all("in", [TestRecord("a", f"{number}", 0) for number in range(5)], partition=1)
    await harness.kit.clock.advance(1.5)
    with monkeypatch.context() as patch:
        patch.setattr(RecordQueue, "position", property(moved))
        found = app.health(HealthBounds(max_lag=4))
    assert reasons(found) == {HealthReason.PAUSED, HealthReason.LAG}
    await app.resume()


@in_virtual_time
async def test_tasks_tell_how_far_they_are() -> None:
    """Each has its positions and ends, its calls in flight and its waits; one that restores, its changelogs' positions and ends."""
    gate = asyncio.Event()

    async def call(value: str) -> str:
        await gate.wait()
        return value

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(call, name="asks", max_in_flight=3).to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics=IN_AND_OUT) as harness:
        await harness.produce_all("in", [TestRecord("a", f"{number}", 0) for number in range(5)], partition=1)
        await harness.kit.clock.advance(2)
        idle, busy = harness.app.tasks()
        assert (idle.task, idle.progress[0].position, idle.progress[0].lag) == (TaskId(0, 0), 0, 0)  # looked up: nothing was ever fetched
        assert [wait.reason for wait in idle.waits] == [WaitReason.RECORDS]
        (progress,) = busy.progress
        assert (progress.partition, progress.end) == (TopicPartition("in", 1), 5)
        assert [(one.node, one.in_flight, one.room) for one in busy.calls] == [("asks", 2, 0)]
        assert [wait.reason for wait in busy.waits] == [WaitReason.ASYNC_CALL]
        gate.set()
        await harness.caught_up()
        assert harness.app.tasks()[1].progress[0].lag == 0


@in_app(counting(), topics=IN_AND_OUT)
async def test_restores_tell_their_positions_and_ends(harness: AppHarness) -> None:
    """While changelogs are read, the task has them with position and end; afterwards it has none."""
    await feed_all(harness, "in", [TestRecord(f"k{number % 30}", "v", 0) for number in range(300)], partition=1)
    await harness.close()
    harness.wipe_state()
    seen: set[tuple[str, int, int | None]] = set()

    def look() -> bool:
        seen.update((str(one.changelog), one.position, one.end) for task in harness.app.tasks() for one in task.restores)
        return restarted.done()

    restarted = asyncio.ensure_future(harness.restart())
    await asyncio.sleep(0)
    await until(look)
    assert {(name, position) for name, position, _ in seen} == {("app-counts-changelog-1", 0)}
    assert all(end is not None and end >= 30 for _, _, end in seen)
    assert [task.restores for task in harness.app.tasks()] == [(), ()]
