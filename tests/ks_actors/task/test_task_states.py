"""The states of tasks, through whole lives (Task.State of Kafka Streams)."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from random import Random

import pytest

from ks_actors import App, Processor, Record, RestoreListener, TaskMetadata, TaskState, UncaughtResponse
from ks_actors.dsl import StreamsBuilder
from ks_actors.processors.api import ProcessorContext
from ks_actors.records import TopicPartition
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.commit.test_separate_commits import Calls, side_by_side
from tests.ks_actors.runtime.helpers import EOS, STRINGS, STRINGS_OUT, Load, check_counts, counting, echo, feed, in_app
from tests.ks_actors.runtime.instance.test_worker_states import CHANGE, lives
from tests.ks_actors.runtime.stores.standbys import all_caught_up, other, settled
from tests.ks_actors.runtime.stores.test_corrupted import damaged
from tests.ks_actors.task.calls.test_moves_during_calls import PARTITIONS, SLOW, TOPICS, call_slowly, settings

pytestmark = pytest.mark.unmeasured

LIFE = ["CREATED", "RESTORING", "RUNNING", "SUSPENDED", "CLOSED"]
WAYS = [LIFE, ["CREATED", "RESTORING", "SUSPENDED", "CLOSED"], ["CREATED", "SUSPENDED", "CLOSED"]]


def lifetimes(caplog: pytest.LogCaptureFixture) -> dict[str, list[list[str]]]:
    """Return the lives of each task, one after the other, each from CREATED on."""
    return {task: split(states) for task, states in lives(caplog, "task").items()}


def split(states: list[str]) -> list[list[str]]:
    starts = [index for index, state in enumerate(states) if state == "CREATED"]
    return [states[begin:end] for begin, end in zip(starts, [*starts[1:], len(states)], strict=True)]


def shown(app: App) -> dict[str, TaskMetadata]:
    return {str(task.task): task for task in app.tasks()}


def states_of(app: App) -> dict[str, str]:
    return {task: one.state.name for task, one in shown(app).items()}


class Watched:
    """A topology with a store, whose processor notes the state of its task each time that it is called."""

    def __init__(self) -> None:
        self.apps: list[App] = []
        self.seen: list[tuple[str, str]] = []

    def note(self, event: str, task: str) -> None:
        self.seen += [(event, states_of(app)[task]) for app in self.apps]

    def topology(self) -> Topology:
        watched = self

        class Noting(Processor[str, str, str, str]):
            def init(self, context: ProcessorContext[str, str]) -> None:
                self.context = context
                watched.note("init", str(context.task_id))

            def process(self, record: Record[str, str]) -> None:
                watched.note("process", str(self.context.task_id))
                self.context.forward(record)

            def close(self) -> None:
                watched.note("close", str(self.context.task_id))

        builder = StreamsBuilder()
        stream = builder.stream("in", STRINGS)
        stream.group_by_key().count()
        stream.process(Noting).to("out", STRINGS_OUT)
        return builder.build()


def test_a_task_is_where_its_processors_are() -> None:
    """It is RESTORING in `init`, RUNNING in `process`, and SUSPENDED in `close`; before the start and after the end there is none."""
    watched = Watched()

    async def test(harness: AppHarness) -> None:
        app = harness.app
        watched.apps.append(app)
        assert states_of(app) == {"0_0": "RUNNING"}
        assert [str(partition) for partition in shown(app)["0_0"].partitions] == ["in-0"]
        await feed(harness, "in", "a", "1")
        harness.lose_membership()
        await harness.kit.clock.advance(1)
        await harness.caught_up()
        await harness.close()
        assert app.tasks() == ()

    run_app(test, watched.topology(), topics={"in": 1, "out": 1})
    assert set(watched.seen) == {("init", "RESTORING"), ("process", "RUNNING"), ("close", "SUSPENDED")}


class Restores(RestoreListener):
    """Note the states of the tasks that restore."""

    def __init__(self) -> None:
        self.apps: list[App] = []
        self.seen: list[str] = []

    def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        """Note it."""
        self._note(partition.partition)

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        """Note it."""
        self._note(partition.partition)

    def _note(self, partition: int) -> None:
        self.seen += [state for app in self.apps if (state := states_of(app).get(f"0_{partition}")) is not None]


def test_tasks_live_through_rebalances_to_the_end(guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each life goes CREATED, RESTORING, RUNNING, SUSPENDED, CLOSED: of tasks that move, are lost with a membership, and are closed with the app."""
    caplog.set_level(logging.DEBUG, logger="ks_actors")
    heard = Restores()

    async def test(harness: AppHarness) -> None:
        assert states_of(harness.app) == {f"0_{number}": "RUNNING" for number in range(4)}
        heard.apps.append(harness.app)
        load = Load(harness, Random(1))
        await load.through(100)
        async with harness.another(client_id="other") as second:
            await harness.kit.clock.advance(1)
            mine, others = states_of(harness.app), states_of(second.app)
            assert set(mine.values()) == set(others.values()) == {"RUNNING"}
            assert (len(mine), len(others), len({*mine, *others})) == (2, 2, 4)
        await harness.kit.clock.advance(1)
        assert len(states_of(harness.app)) == 4
        harness.lose_membership()
        await harness.kit.clock.advance(1)
        await harness.caught_up()
        assert set(states_of(harness.app).values()) == {"RUNNING"}
        check_counts(await harness.read("out"), load.sent, guarantee)

    run_app(test, counting("in_memory"), topics={"in": 4, "out": 1}, processing_guarantee=guarantee, restore_listener=heard)
    walked = lifetimes(caplog)
    assert walked.keys() == {f"0_{number}" for number in range(4)}
    assert sorted(len(each) for each in walked.values()) == [2, 2, 4, 4]
    assert all(life == LIFE for each in walked.values() for life in each)
    assert set(heard.seen) == {"RESTORING"}


def test_a_task_without_stores_lives_likewise(caplog: pytest.LogCaptureFixture) -> None:
    """It has nothing to restore, and is RESTORING for a moment, as in Kafka Streams."""
    caplog.set_level(logging.DEBUG, logger="ks_actors")

    async def test(harness: AppHarness) -> None:
        assert states_of(harness.app) == {"0_0": "RUNNING"}

    run_app(test, echo(), topics={"in": 1, "out": 1})
    assert lifetimes(caplog) == {"0_0": [LIFE]}


def test_a_task_that_is_to_move_is_suspended_until_its_calls_have_ended(guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """A task with a call in flight is SUSPENDED here while the call lasts; the others go, and the new owner has it RUNNING after that."""
    caplog.set_level(logging.DEBUG, logger="ks_actors")
    slow = Calls(lambda: 10.0)

    def slow_ones(harness: AppHarness) -> list[TaskState]:
        return sorted((task.state for task in harness.app.tasks() if task.task.subtopology == SLOW), key=lambda state: state.value)

    async def test(harness: AppHarness) -> None:
        await call_slowly(harness)
        async with harness.another(client_id="other") as second:
            await harness.kit.clock.advance(1)
            assert slow_ones(harness).count(TaskState.SUSPENDED) == PARTITIONS // 2
            assert slow_ones(second) == []
            await harness.kit.clock.advance(20)
            assert slow_ones(harness) == slow_ones(second) == [TaskState.RUNNING] * (PARTITIONS // 2)
            await harness.caught_up()

    run_app(test, side_by_side(Calls(lambda: 0.001), slow), topics=TOPICS, **settings(guarantee))
    walked = lifetimes(caplog)
    assert [life for each in walked.values() for life in each if life not in WAYS] == []


@in_app(counting("rocksdb"), topics={"in": 4, "out": 1}, num_standby_replicas=1)
async def test_a_standby_is_running_and_begins_again_as_an_active_task(harness: AppHarness, guarantee: str) -> None:
    """A standby that follows its changelogs is RUNNING and reads no input; promoted, it restores, and runs."""
    load = Load(harness, Random(2))
    await load.through(100)
    async with other(harness) as second:
        await settled(harness.kit)
        for app in (harness.app, second.app):
            tasks = app.tasks()
            assert [str(task.task) for task in tasks] == [f"0_{number}" for number in range(4)]
            assert {task.state for task in tasks} == {TaskState.RUNNING}
            assert sum(task.standby for task in tasks) == 2
            assert all(bool(task.partitions) is not task.standby for task in tasks)
        assert {one.task for one in harness.app.tasks() if one.standby} == {two.task for two in second.app.tasks() if not two.standby}
    await settled(harness.kit)
    assert [(task.state, task.standby) for task in harness.app.tasks()] == [(TaskState.RUNNING, False)] * 4


def test_a_corrupted_task_is_created_again(caplog: pytest.LogCaptureFixture) -> None:
    """A task with files that cannot be trusted ends before it runs, and its next life restores all."""
    caplog.set_level(logging.DEBUG, logger="ks_actors")

    async def test(harness: AppHarness) -> None:
        load = Load(harness, Random(3))
        await load.through(100)
        await harness.close()
        damaged(harness.state_dir / "0_0" / "rocksdb")
        caplog.clear()
        await harness.restart()
        await harness.caught_up()

    run_app(test, counting("rocksdb"), topics={"in": 2, "out": 1}, processing_guarantee=EOS)
    assert lifetimes(caplog) == {"0_0": [["CREATED", "SUSPENDED", "CLOSED"], LIFE], "0_1": [LIFE]}


@pytest.mark.parametrize("store", [None, "in_memory"])
def test_a_task_that_cannot_begin_ends(store: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """A processor whose `init` raises ends its task's life; the next life of the task goes on."""
    caplog.set_level(logging.DEBUG, logger="ks_actors")
    failures = [1]

    class Failing(Processor[str, str, str, str]):
        def init(self, context: ProcessorContext[str, str]) -> None:
            if failures:
                failures.pop()
                raise RuntimeError("not yet")

        def process(self, record: Record[str, str]) -> None:
            """Do nothing."""

    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    if store is not None:
        stream.group_by_key().count()
    stream.process(Failing)

    async def test(harness: AppHarness) -> None:
        assert states_of(harness.app) == {"0_0": "RUNNING"}

    run_app(test, builder.build(), topics={"in": 1}, uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER)
    first, last = lifetimes(caplog)["0_0"]
    assert (first, last) == (WAYS[1], LIFE)


@pytest.mark.parametrize("seed", range(3))
def test_any_life_is_one_of_kafka_streams(seed: int, guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """While instances join, leave and lose their memberships: what comes to rest runs somewhere, once, and every life that began comes to its end."""
    caplog.set_level(logging.DEBUG, logger="ks_actors")
    random = Random(seed)

    async def test(harness: AppHarness) -> None:
        load = Load(harness, random)
        for number in range(4):
            async with harness.another(client_id=f"other{number}") as second:
                await load.send(random.randrange(1, 40))
                await asyncio.sleep(random.uniform(0.0, 2.0))
                if random.random() < 0.5:
                    random.choice((harness, second)).lose_membership()
                    await asyncio.sleep(random.uniform(0.0, 1.0))
                if random.random() < 0.5:
                    await all_caught_up(harness)
                    running = [str(task.task) for app in (harness.app, second.app) for task in app.tasks() if task.state is TaskState.RUNNING]
                    assert sorted(running) == [f"0_{partition}" for partition in range(3)]
        await all_caught_up(harness)
        assert states_of(harness.app) == {f"0_{partition}": "RUNNING" for partition in range(3)}
        check_counts(await harness.read("out"), load.sent, guarantee)

    run_app(test, counting("in_memory"), topics={"in": 3, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=100)
    changes = [change for record in caplog.records if (change := CHANGE.fullmatch(record.getMessage())) is not None and change[1] == "task"]
    assert {(change[4], change[3]) for change in changes} <= {pair for way in WAYS for pair in pairwise(way)}
    assert sum(change[4] == "CREATED" for change in changes) == sum(change[3] == "CLOSED" for change in changes) >= 3
