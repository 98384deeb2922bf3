"""Standbys: other instances keep the state of tasks up to date, and take over from there."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from ks_actors import Processor, QueryFailed, Record, TaskId, serdes, stores
from ks_actors.dsl import Consumed, Materialized, Produced, StreamsBuilder, TimeWindows
from ks_actors.query import FailureReason
from ks_actors.runtime import InstanceState
from ks_actors.runtime.output import _collector
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import EOS, STRINGS, Load, check_counts, counting, echo, in_app, in_virtual_time, replace
from tests.ks_actors.runtime.stores.standbys import (
    Heard,
    active,
    all_caught_up,
    check_places,
    contents,
    engines_of,
    keeper,
    other,
    settled,
    standing,
    stores_of,
)
from tests.ks_actors.state.sqlite_engine import SqliteEngine

pytestmark = pytest.mark.unmeasured

TOPICS = {"in": 4, "out": 1}
ALL = {"0_0", "0_1", "0_2", "0_3"}
STORES = ("rocksdb", "in_memory", SqliteEngine)


# --- who has what ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
@in_app(lambda store: counting(store), topics=TOPICS, num_standby_replicas=1)
async def test_each_task_has_a_standby_on_another_instance(harness: AppHarness, store: str, guarantee: str) -> None:
    """Committed records are soon in the standby's stores, for any owner of the task; alone, an instance has no standbys."""
    load = Load(harness, Random(1), keys=40)
    await load.through(200)
    assert standing(harness) == set()
    async with other(harness) as second:
        await settled(harness.kit)
        assert active(harness) | active(second) == ALL
        assert standing(harness) == active(second)
        assert standing(second) == active(harness)
        assert harness.app.metrics()["standby-tasks"] == second.app.metrics()["standby-tasks"] == 2
        await load.through(200)
        await settled(harness.kit)
        check_places(harness, second)
        for one, two in ((harness, second), (second, harness)):
            mine, copies = stores_of(one), {str(task): stores for task, stores in keeper(two).standby_stores().items()}
            assert {task: contents(mine[task]) for task in active(one)} == {task: contents(copies[task]) for task in active(one)}
        assert sum(len(contents(stores)) for stores in keeper(second).standby_stores().values()) > 5
    await harness.caught_up()
    assert active(harness) == ALL
    assert standing(harness) == set()
    check_counts(await harness.read("out"), load.sent, guarantee)


@in_app(counting(), topics=TOPICS, num_standby_replicas=2)
async def test_there_are_as_many_standbys_as_wanted_or_as_can_be(harness: AppHarness) -> None:
    """Two of each task on three instances; more instances than that leave the others free of it."""
    async with other(harness) as second, other(harness) as third:
        await settled(harness.kit)
        every = (harness, second, third)
        assert sum(len(active(one)) for one in every) == 4
        assert sum(len(standing(one)) for one in every) == 8
        async with other(harness) as fourth:
            await settled(harness.kit)
            assert sum(len(standing(one)) for one in (*every, fourth)) == 8
            assert [len(active(one)) + len(standing(one)) for one in (*every, fourth)] == [3, 3, 3, 3]
        await settled(harness.kit)
        assert [len(active(one)) + len(standing(one)) for one in every] == [4, 4, 4]
        check_places(*every)


def test_without_state_there_is_nothing_to_keep() -> None:
    """Tasks without stores have no standbys, and neither do those with stores without a changelog."""
    builder = StreamsBuilder()
    unlogged = Materialized("counts", serdes.STRING, serdes.LONG, logging=False)
    builder.stream("in", STRINGS).group_by_key().count(unlogged).to_stream().to("out", Produced(serdes.STRING, serdes.LONG))

    async def test(harness: AppHarness) -> None:
        async with other(harness) as second:
            await settled(harness.kit)
            assert active(harness) | active(second) == ALL
            assert standing(harness) == standing(second) == set()

    for topology in (echo(), builder.build()):
        run_app(test, topology, topics=TOPICS, num_standby_replicas=1)


@pytest.mark.parametrize("store", STORES)
@in_app(lambda store: counting(store), topics=TOPICS, num_standby_replicas=1)
async def test_standbys_can_be_queried(harness: AppHarness, store: str, guarantee: str) -> None:
    """By a query that allows stale reads; others get NOT_ACTIVE. Queries go on when a standby becomes a task, and back."""
    load = Load(harness, Random(8), keys=60)
    await load.send(200)
    for _ in range(2):
        async with other(harness) as second:
            await load.through(100)
            await settled(harness.kit)
            for one in (harness, second):
                found = {key: value async for key, value in one.app.store("counts", stale=True).all()}
                assert found == load.sent
                assert {key: await one.app.store("counts", stale=True).get(key) for key in load.sent} == load.sent
                with pytest.raises(QueryFailed, match="standby") as refused:
                    await one.app.store("counts", partition=int(min(standing(one))[2:])).get("k1")
                assert refused.value.reason is FailureReason.NOT_ACTIVE
            await second.crash()
            await harness.kit.clock.advance(60)
            assert active(harness) == ALL
            assert {key: await harness.app.store("counts").get(key) for key in load.sent} == load.sent


# --- taking over ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
@in_virtual_time
async def test_a_standby_takes_over_from_its_position(store: str, guarantee: str) -> None:
    """When an instance is killed its tasks go on where their standbys are, with the same stores: next to nothing is read from the changelogs."""
    heard = Heard()
    async with AppHarness(
        counting(store),
        topics=TOPICS,
        num_standby_replicas=1,
        processing_guarantee=guarantee,
        commit_interval_ms=100,
        restore_listener=heard,
        standby_listener=heard,
    ) as harness:
        load = Load(harness, Random(2), keys=300)
        async with other(harness) as second:
            await load.through(1500)
            await settled(harness.kit)
            taken_over = active(second)
            before, engines = stores_of(harness), engines_of(harness)
            assert standing(harness) == taken_over
            loaded = heard.count("loaded")
            assert loaded > 100
            await load.send(20)
            heard.told.clear()
            await second.crash()
            await harness.caught_up()
            assert active(harness) == ALL
            # All that came between the last commit and the crash, of either instance, is a few records: the standbys had the rest.
            partitions = {int(task[2:]) for task in taken_over}
            assert heard.take("promoted").keys() == heard.take("running").keys() == partitions
            assert sum(heard.take("running").values()) <= 20
            assert all(start is not None and start > 0 for start in heard.take("restore").values())
            for partition in partitions:
                kinds = [kind for kind, number, _ in heard.told if number == partition and kind in {"promoted", "restore", "running"}]
                assert kinds == ["promoted", "restore", "running"]
            assert {task: stores for task, stores in stores_of(harness).items() if task in taken_over} == {task: before[task] for task in taken_over}
            assert all(engines_of(harness)[task] is engines[task] for task in taken_over)
            await load.send(100)
            await load.check(guarantee)


@pytest.mark.parametrize("store", STORES)
@in_virtual_time
async def test_stores_stay_open_both_ways(store: str, guarantee: str) -> None:
    """A task that goes to an instance which joins is a standby here, one that comes back is processed again: with the same stores."""
    heard = Heard()
    async with AppHarness(
        counting(store),
        topics=TOPICS,
        num_standby_replicas=1,
        processing_guarantee=guarantee,
        commit_interval_ms=100,
        restore_listener=heard,
        standby_listener=heard,
    ) as harness:
        load = Load(harness, Random(3), keys=200)
        await load.through(800)
        heard.told.clear()
        first, engines = stores_of(harness), engines_of(harness)
        for _ in range(3):
            async with other(harness) as second:
                await all_caught_up(harness)
                moved = active(second)
                assert standing(harness) == moved
                assert all(start is not None and start > 0 for start in heard.take("follow").values())
                await load.through(100)
                await settled(harness.kit)
            await all_caught_up(harness)
            assert active(harness) == ALL
            assert stores_of(harness) == first
            assert engines_of(harness) == engines
            await load.send(100)
        await harness.caught_up()
        assert heard.count("running") == 0
        assert heard.count("loaded") <= 300 + 200 * 2  # what the others have processed meanwhile, and what was under way
        check_counts(await harness.read("out"), load.sent, guarantee)
        assert {key: value for stores in stores_of(harness).values() for key, value in contents(stores).items()} == load.sent


def windowed(store: str) -> Topology:
    builder = StreamsBuilder()
    counts: Any = Materialized("counts", serdes.STRING, serdes.LONG, store_type=store, retention_ms=100_000)  # type: ignore[arg-type]  # of two words
    grouped = builder.stream("in", Consumed(serdes.STRING, serdes.STRING)).group_by_key()
    table = grouped.windowed_by(TimeWindows.of_size_and_grace(1000, 10_000)).count(counts)
    table.to_stream(lambda windowed, _: f"{windowed.key}@{windowed.window.start}").to("out", Produced(serdes.STRING, serdes.LONG))
    return builder.build()


@pytest.mark.parametrize("store", STORES)
@in_app(lambda store: windowed(store), topics=TOPICS, num_standby_replicas=1, processing_guarantee=EOS)
async def test_window_stores_are_recycled(harness: AppHarness, store: str) -> None:
    """Windows that are counted now here, now there, have all their records, and those that are long over leave memory in both places."""
    sent: dict[str, int] = {}
    random = Random(4)
    time = 0
    for round_ in range(4):
        async with other(harness):
            for _ in range(150):
                time += random.randrange(60)
                key = f"k{random.randrange(8)}"
                sent[f"{key}@{time // 1000 * 1000}"] = sent.get(f"{key}@{time // 1000 * 1000}", 0) + 1
                await harness.produce("in", key, "v", time)
            if round_ % 2:
                await all_caught_up(harness)
        await harness.caught_up()
    check_counts(await harness.read("out"), sent, EOS)


# --- what a standby must not see ----------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_standbys_have_committed_records_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of an open transaction in a changelog are not in the standby's stores, nor are aborted ones, ever."""
    monkeypatch.setattr(_collector, "_ENOUGH", 10)  # records that are written before their commit
    async with AppHarness(
        counting("in_memory"),
        topics=TOPICS,
        num_standby_replicas=1,
        processing_guarantee=EOS,
        commit_interval_ms=5_000,
        transaction_timeout_ms=600_000,
    ) as harness:
        load = Load(harness, Random(5), keys=30)
        async with other(harness) as second:
            await load.through(100)
            await settled(harness.kit)

            def copies() -> dict[Any, Any]:
                return {key: value for stores in keeper(harness).standby_stores().values() for key, value in contents(stores).items()}

            before = copies()
            frozen = {task: contents(stores_of(second)[task]) for task in active(second)}
            assert before == {key: value for each in frozen.values() for key, value in each.items()}
            await load.send(300)
            await harness.turns(400)
            assert any(each.partitions for each in harness.log._broker.transactions.values())
            assert copies() == before
            await second.crash()
            await harness.turns(50)
            assert copies() == before
            await load.check(EOS)


class Parting(Processor[str, str, str, str]):
    """Remember the last value of each key, and, on closing, a value without a commit."""

    stores = (stores.key_value("counts", serdes.STRING, serdes.STRING),)

    def init(self, context: Any) -> None:
        super().init(context)
        self.store = context.get_state_store("counts")

    def process(self, record: Record[str, str]) -> None:
        self.store.put(record.key, record.value)

    def close(self) -> None:
        self.store.put("closed", "not committed")


@in_virtual_time
async def test_uncommitted_changes_do_not_stay_in_a_standby(guarantee: str) -> None:
    """A processor that is closed may put something: nobody commits that any more, so the standby that its task becomes does not have it."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).process(Parting)
    async with AppHarness(builder.build(), topics=TOPICS, num_standby_replicas=1, processing_guarantee=guarantee) as harness:
        for number in range(40):
            await harness.produce("in", f"k{number}", "v")
        await harness.caught_up()
        async with other(harness):
            await all_caught_up(harness)
            copies = [dict(each.store("counts").all()) for each in keeper(harness).standby_stores().values()]
            assert len(copies) == 2
            assert all(copies)
            assert not any("closed" in each for each in copies)


# --- under load -------------------------------------------------------------------------------------------------------------------


@pytest.mark.heavy("four instances for virtual minutes")
@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_instances_with_standbys_come_and_go_under_load(seed: int, guarantee: str) -> None:
    """Instances join, leave, crash, are thrown out of the group, come back with or without their disks: results are as exact as promised.

    No task is ever in two places.
    """
    random = Random(seed)
    async with AppHarness(
        counting("in_memory" if seed % 3 else "rocksdb"),
        seed=seed,
        topics=TOPICS,
        processing_guarantee=guarantee,
        commit_interval_ms=100,
        num_standby_replicas=1 + seed % 2,
        uncaught_handler=replace,
    ) as harness:
        load = Load(harness, random)
        over = False
        every = [harness]

        async def produce() -> None:
            while not over:
                await load.send(random.randrange(1, 30))
                await asyncio.sleep(random.uniform(0.02, 0.3))
                check_places(*every)

        async def come_and_go(name: str) -> None:
            for _ in range(2):
                async with other(harness, client_id=name) as one:
                    every.append(one)
                    await asyncio.sleep(random.uniform(0.0, 3.0))
                    what = random.random()
                    if what < 0.25:
                        one.lose_membership()
                        await asyncio.sleep(random.uniform(0.0, 1.0))
                    elif what < 0.6:
                        await one.crash()
                        if random.random() < 0.6:
                            await asyncio.sleep(random.uniform(0.0, 60.0))
                            if random.random() < 0.5:
                                one.wipe_state()
                            await one.restart()
                            await asyncio.sleep(random.uniform(0.0, 1.0))
                    elif what < 0.75:
                        harness.lose_membership()
                    every.remove(one)
                await asyncio.sleep(random.uniform(0.0, 2.0))

        producing = asyncio.ensure_future(produce())
        async with asyncio.TaskGroup() as group:
            for name in ("second", "third", "fourth"):
                group.create_task(come_and_go(name))
        over = True
        await producing
        await load.check(guarantee)
        assert harness.app.state is InstanceState.RUNNING


@pytest.mark.parametrize("seed", range(3))
@in_app(counting("in_memory"), topics=TOPICS, num_standby_replicas=1, processing_guarantee=EOS)
async def test_the_fate_of_a_standby_is_reported(harness: AppHarness, seed: int) -> None:
    """Each time that a store begins to be followed ends in one way: the task is processed here, or it is nobody's here, and closed."""
    heard = Heard()
    load = Load(harness, Random(seed), keys=50)
    async with other(harness, heard) as second:
        for number in range(3):
            async with other(harness) as third:
                await load.send(50)
                await settled(harness.kit)
                if number == 1:
                    await third.crash()
            await harness.kit.clock.advance(60)
        assert len(standing(second)) == 2
        await second.close()
    told: dict[int, list[str]] = {}
    for kind, number, _ in heard.told:
        if kind in {"follow", "promoted", "migrated"}:
            told.setdefault(number, []).append(kind)
    for kinds in told.values():
        assert set(kinds[::2]) == {"follow"}
        assert set(kinds[1::2]) <= {"promoted", "migrated"}
        assert len(kinds) % 2 == 0
    assert {kind for kinds in told.values() for kind in kinds} == {"follow", "promoted", "migrated"}
    # A store that is promoted is told of as restoring next, and what has migrated is closed.
    for place, (kind, number, _) in enumerate(heard.told):
        if kind == "promoted":
            assert next(later for later, one, _ in heard.told[place + 1 :] if one == number) == "restore"


@in_app(counting(), topics=TOPICS, num_standby_replicas=1, uncaught_handler=replace)
async def test_an_instance_that_loses_its_place_keeps_its_standbys(harness: AppHarness, guarantee: str) -> None:
    """They conflict with no owner: removed from the group, an instance drops its tasks, not its standbys."""
    load = Load(harness, Random(6))
    async with other(harness) as second:
        await load.through(100)
        await settled(harness.kit)
        before = {task: stores_of(harness)[task] for task in standing(harness)}
        mine = {task: stores_of(harness)[task] for task in active(harness)}
        harness.lose_membership()
        await load.through(30)
        await settled(harness.kit)
        after = stores_of(harness)
        assert all(after[task] is stores for task, stores in before.items() if task in after)
        assert before.keys() & after.keys()
        assert not any(after[task] is stores for task, stores in mine.items() if task in after)
        check_places(harness, second)
        check_counts(await harness.read("out"), load.sent, guarantee)


@in_app(counting("rocksdb"), topics=TOPICS, num_standby_replicas=1, processing_guarantee=EOS)
async def test_state_on_disk_counts_when_tasks_are_assigned(harness: AppHarness) -> None:
    """An instance that comes back, closed or killed, reports its state on disk: it gets those tasks, and reads no changelog from its beginning."""
    heard = Heard()
    load = Load(harness, Random(7), keys=100)
    async with other(harness, heard) as second:
        await load.through(600)
        await harness.kit.clock.advance(30)  # what is committed is written, as nothing else is to do
        for end in (second.close, second.crash):
            had = active(second) | standing(second)
            assert had == ALL
            await end()
            await load.send(50)
            await harness.kit.clock.advance(60)
            heard.told.clear()
            await second.restart()
            await all_caught_up(harness)
            starts = {**heard.take("restore"), **heard.take("follow")}
            assert starts.keys() == {0, 1, 2, 3}
            assert all(start for start in starts.values())
            assert {TaskId.parse(task) for task in active(second) | standing(second)} == {TaskId(0, number) for number in range(4)}
        check_counts(await harness.read("out"), load.sent, EOS)
