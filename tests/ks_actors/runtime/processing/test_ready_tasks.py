"""The tasks with work to do, known without asking all of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ks_actors import KsActorsError, Processor, Record, TaskId, serdes
from ks_actors.dsl import Grouped, Materialized, Produced, StreamsBuilder
from ks_actors.log import TopicPartition
from ks_actors.processors import ProcessorContext, PunctuationType
from ks_actors.runtime import UncaughtResponse
from ks_actors.runtime.processing._ready_tasks import ReadyTasks
from ks_actors.runtime.processing._task_manager import TaskManager
from ks_actors.task._task import Task
from ks_actors.testing import AppHarness
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, Bomb, echo, in_app, in_virtual_time

dispatch = TaskManager._dispatch


def fits(manager: TaskManager, task: Task) -> bool:
    """Ask a task itself."""
    wants = manager._wants(task)
    if wants is None:
        return False
    if wants:
        return task.can_drain
    due = task.next_punctuation
    clocks = manager._parts.clocks
    return (due is not None and due <= clocks.wall_time()) or task.ready(clocks.steady_time())


def checked(manager: TaskManager) -> None:
    """Give out work, and compare the known ready tasks with all tasks, asked one by one."""
    dispatch(manager)
    manager._update_ready(manager._ready.due())
    # A task of which a call has just ended is about to be looked at.
    known = manager._tasks.keys() - manager._woken
    assert known & set(manager._ready.ids) == {task_id for task_id in known if fits(manager, manager._tasks[task_id])}
    touched = {task.id for task in manager._tasks.values() if task.commit_needed or not task.drained}
    assert touched | manager._leased.keys() <= manager._touched.keys()
    assert manager._uncommitted._total >= 0
    dispatch(manager)


class Ticking(Processor[str, str, str, str]):
    """Forward records, and something every half second."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(500, PunctuationType.WALL_CLOCK_TIME, lambda now: context.forward(Record("tick", "t", now)))

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


def everything(bomb: Bomb) -> Topology:
    """Two inputs that are waited for, calls that take their time, a count behind a cache, and a clock."""

    async def slow(value: str) -> str:
        await asyncio.sleep(0.03)
        return value

    builder = StreamsBuilder()
    both = builder.stream("left", STRINGS).merge(builder.stream("right", STRINGS)).peek(bomb)
    both.process(Ticking).to("ticks", STRINGS_OUT)
    both.map_values(slow, max_in_flight=3).to("out", STRINGS_OUT)
    counts = both.group_by(lambda _, value: value, Grouped(serdes.STRING, serdes.STRING)).count(Materialized("counts", serdes.STRING, serdes.LONG))
    counts.to_stream().to("counts", Produced(serdes.STRING, serdes.LONG))
    return builder.build()


@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_the_known_ready_tasks_are_the_ready_ones(guarantee: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each message, of any kind, the ready tasks are those that say so when all are asked; and in the end all is processed."""
    monkeypatch.setattr(TaskManager, "_dispatch", checked)
    random = Random(seed)
    bomb = Bomb()

    async def records(harness: AppHarness) -> None:
        for number in range(random.choice([1, 3, 30])):
            side = random.choice(["left", "right"])
            await harness.produce(side, f"k{number}", f"v{number % 3}", random.randrange(1_000), partition=random.randrange(4))

    async def time(harness: AppHarness) -> None:
        await harness.kit.clock.advance(random.choice([0.001, 0.05, 0.4, 1.0]))

    async def pause(harness: AppHarness) -> None:
        await harness.app.pause()
        await harness.kit.clock.advance(random.random())
        await harness.app.resume()

    async def boom(harness: AppHarness) -> None:
        bomb.armed = 1

    async def commit(harness: AppHarness) -> None:
        with suppress(KsActorsError):
            await harness.app.commit()

    async def worker(harness: AppHarness) -> None:
        await harness.add_worker()
        await harness.remove_worker()

    async def delete(harness: AppHarness) -> None:
        partition = TopicPartition(random.choice(["left", "right"]), random.randrange(4))
        await harness.log.delete_records({partition: harness.log._broker.partitions[partition].end})

    async def lose(harness: AppHarness) -> None:
        harness.lose_membership()

    async with AppHarness(
        everything(bomb),
        seed=seed,
        topics={"left": 4, "right": 4, "out": 2, "ticks": 1, "counts": 1},
        processing_guarantee=guarantee,
        statestore_cache_max_bytes=10_000,
        max_task_idle_ms=100,
        commit_interval_ms=200,
        num_workers=2,
        buffered_records_per_partition=20,
        input_buffer_max_bytes=5_000,
        uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER,
    ) as harness:
        for _ in range(25):
            await random.choice([records, records, records, time, time, pause, boom, commit, worker, delete, lose])(harness)
        bomb.armed = 0
        await harness.kit.clock.advance(3)
        await harness.caught_up()


@in_virtual_time
async def test_a_clock_that_is_set_back_holds_nothing_up() -> None:
    """Priorities age, and waiting for empty partitions ends, by a time that goes on when the wall clock is set back by an hour."""
    builder = StreamsBuilder()
    builder.stream("left", STRINGS).merge(builder.stream("right", STRINGS)).to("out", STRINGS_OUT)
    async with AppHarness(
        builder.build(), topics={"left": 1, "right": 1, "out": 1}, wall_clock_ms=10_000_000, max_task_idle_ms=500, commit_interval_ms=100
    ) as harness:
        await harness.produce("left", "a", "1")
        await harness.kit.clock.advance(0.1)
        harness.kit.set_clock_back(3_600)
        await harness.kit.clock.advance(1)
        assert [record.value for record in await harness.read("out")] == ["1"]


@pytest.mark.parametrize("interval_s", [1, 600])
@in_virtual_time
async def test_punctuators_go_back_with_the_wall_clock(interval_s: int) -> None:
    """A wall-clock punctuator is called within two intervals when the clock is set back by an hour, on its grid, and as often as ever from there."""
    called: list[int] = []

    class Ticking(Processor[str, str, str, str]):
        def init(self, context: ProcessorContext[str, str]) -> None:
            context.schedule(interval_s * 1000, PunctuationType.WALL_CLOCK_TIME, called.append, start_ms=0)

        def process(self, record: Record[str, str]) -> None:
            """Do nothing."""

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).process(Ticking)
    async with AppHarness(builder.build(), topics={"in": 1}, wall_clock_ms=36_000_000) as harness:
        await harness.kit.clock.advance(2.5 * interval_s)
        assert len(called) == 2
        harness.kit.set_clock_back(3_600)
        await harness.kit.clock.advance(2 * interval_s)
        before = len(called)
        assert before > 2
        assert called[-1] < called[1]
        await harness.kit.clock.advance(3 * interval_s)
        assert len(called) == before + 3
        assert all(at % (interval_s * 1000) < 10 for at in called)


@pytest.mark.parametrize("interval_s", [60, 3_600])
@pytest.mark.parametrize("step_s", [-7_200, -1_800, 900, 7_200])
@in_virtual_time
async def test_an_idle_app_notices_a_clock_that_was_set(step_s: int, interval_s: int) -> None:
    """A call that is due by then comes within 5 s, another one within an interval: no timer tells of the step, and no record comes."""
    called: list[float] = []

    class Ticking(Processor[str, str, str, str]):
        def init(self, context: ProcessorContext[str, str]) -> None:
            context.schedule(interval_s * 1000, PunctuationType.WALL_CLOCK_TIME, lambda _: called.append(asyncio.get_running_loop().time()))

        def process(self, record: Record[str, str]) -> None:
            """Do nothing."""

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).process(Ticking)
    async with AppHarness(builder.build(), topics={"in": 1}, wall_clock_ms=36_000_000) as harness:
        await harness.kit.clock.advance(1.7 * interval_s)
        assert len(called) == 1
        harness.kit.set_clock_back(-step_s)
        at = asyncio.get_running_loop().time()
        await harness.kit.clock.advance(interval_s + 10)
        assert len(called) in {2, 3}
        passed = called[1] - at
        assert passed <= (5.1 if step_s >= 0.3 * interval_s + 1 else interval_s + 5.1)


@in_app(echo(), topics={"in": 2, "out": 1}, task_priority=lambda task: -task.partition, worker_slice_ms=1)
async def test_a_task_of_low_priority_gets_its_turn(harness: AppHarness) -> None:
    """While a task of a higher priority always has something to do, one of a lower priority is processed within a second, and a commit."""
    behind = TopicPartition("in", 1)
    await harness.produce("in", "low", "low", partition=1)
    for _ in range(400):
        await harness.produce_all("in", [], partition=0)
        for _ in range(20):
            await harness.produce("in", "high", "high", partition=0)
        await harness.kit.clock.advance(0.005)
    await harness.app.commit()
    assert harness.log._groups.get("app").committed()[behind].offset == 1


def test_a_commit_behind_each_slice_does_not_take_a_task_its_turn() -> None:
    """A drain does not restart the time that a task waits: it gets its turn after 100 ms, though others have more to do."""
    now, draining = 0.0, False
    many: Any
    few: Any
    many, few = (
        SimpleNamespace(
            id=TaskId(0, number),
            group=SimpleNamespace(buffered=buffered, wakes_at=lambda: None),
            can_drain=False,
            next_punctuation=None,
            ready=lambda _: True,
            blocking=False,
            work_ms=5.0,
        )
        for number, buffered in enumerate((1_000, 1))
    )
    tasks: dict[TaskId, Any] = {many.id: many, few.id: few}
    clocks: Any = SimpleNamespace(wall_time=lambda: 0, steady_time=lambda: now * 1_000)
    ready = ReadyTasks(clocks, lambda task: draining and task.id == few.id, None, slice_ms=5)
    turns: list[int] = []
    for each in tasks.values():
        ready.update(each)
    while len(turns) < 100:
        picked = ready.pick()
        assert picked is not None
        ((task,), _) = picked
        turns.append(task.id.partition)
        now += 0.005
        ready.had_turn(((task.id, 0.005),))
        ready.update(task)
        draining = True
        ready.update(few)
        draining = False
        ready.update(few)
    assert turns.count(1) >= 4
