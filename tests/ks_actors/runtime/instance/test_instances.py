"""Several instances of one app share its tasks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ks_actors import LogError, TaskMigrated
from ks_actors.runtime import InstanceState
from ks_actors.runtime.output import _collector
from ks_actors.testing import AppHarness, run_app
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import ALOS, EOS, Load, check_counts, counting, in_app, in_virtual_time, replace

pytestmark = pytest.mark.unmeasured


def tasks(harness: AppHarness) -> set[str]:
    return {str(task) for task in harness.app._metrics.tasks}


@in_app(counting(), topics={"in": 4, "out": 1})
async def test_instances_share_the_tasks(harness: AppHarness) -> None:
    """The second instance takes its share of the tasks over, and gives it back when it leaves; none is anywhere twice."""
    everything = {"0_0", "0_1", "0_2", "0_3"}
    assert tasks(harness) == everything
    async with harness.another(client_id="second") as second:
        await harness.kit.clock.advance(1)
        assert len(tasks(harness)) == len(tasks(second)) == 2
        assert tasks(harness) | tasks(second) == everything
    await harness.kit.clock.advance(1)
    assert tasks(harness) == everything


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_instances_come_and_go_under_load(seed: int, guarantee: str) -> None:
    """A second and a third instance join, leave, crash or are thrown out of the group while records come: results are as exact as promised."""
    random = Random(seed)
    by_value = seed % 2 == 1
    async with AppHarness(
        counting("in_memory" if seed % 3 else "rocksdb", repartition=by_value),
        seed=seed,
        topics={"in": 4, "out": 1},
        processing_guarantee=guarantee,
        commit_interval_ms=100,
        uncaught_handler=replace,
    ) as harness:
        load = Load(harness, random, by_value=by_value)
        over = False

        async def produce() -> None:
            while not over:
                await load.send(random.randrange(1, 30))
                await asyncio.sleep(random.uniform(0.02, 0.3))

        async def come_and_go(name: str) -> None:
            for _ in range(2):
                async with harness.another(client_id=name) as other:
                    await asyncio.sleep(random.uniform(0.0, 3.0))
                    what = random.random()
                    if what < 0.25:
                        other.lose_membership()
                        await asyncio.sleep(random.uniform(0.0, 1.0))
                    elif what < 0.5:
                        await other.crash()
                        if random.random() < 0.5:
                            await asyncio.sleep(random.uniform(0.0, 60.0))
                            await other.restart()
                            await asyncio.sleep(random.uniform(0.0, 1.0))
                    elif what < 0.75:
                        harness.lose_membership()
                await asyncio.sleep(random.uniform(0.0, 2.0))

        producing = asyncio.ensure_future(produce())
        async with asyncio.TaskGroup() as group:
            group.create_task(come_and_go("second"))
            group.create_task(come_and_go("third"))
        over = True
        await producing
        await load.check(guarantee)
        assert harness.app.state is InstanceState.RUNNING


@pytest.mark.parametrize("seed", range(3))
@in_app(counting("in_memory"), topics={"in": 2, "out": 1}, commit_interval_ms=100)
async def test_an_app_that_loses_its_membership_joins_again(harness: AppHarness, seed: int, guarantee: str) -> None:
    """Removed from the group at any moment, the app drops uncommitted work, comes back, and results stay exact."""
    random = Random(seed)
    load = Load(harness, random)
    for _ in range(8):
        await load.send(random.randrange(1, 60))
        await asyncio.sleep(random.choice([0.0, 0.05, 0.1, 0.1001]))
        await harness.turns(random.randrange(60))
        harness.lose_membership()
    await load.check(guarantee)


@in_app(counting(), topics={"in": 2, "out": 1}, processing_guarantee="exactly_once_v2", commit_interval_ms=1000)
async def test_an_app_that_is_fenced_takes_its_transactional_id_back(harness: AppHarness) -> None:
    """When another process has had the transactional id, the commit is TaskMigrated; the app gives its tasks up, rejoins, and results stay exact."""
    load = Load(harness, Random(1))
    await load.through(50)
    (name,) = harness.log._broker.transactions
    await load.send(50)
    await harness.turns(40)
    intruder = await harness.log.transactional_producer(name, client_id="intruder", timeout_ms=10_000)
    await load.send(50)
    with pytest.raises(TaskMigrated, match="belong to another member"):
        await harness.app.commit()
    await harness.caught_up()
    check_counts(await harness.read("out"), load.sent, "exactly_once_v2")
    await intruder.close()


def test_tasks_that_are_lost_while_the_group_rebalances_are_given_out_again() -> None:
    """A member that has reported its tasks, and then loses all of them, reports again: otherwise the group would keep its tasks for it."""
    for seed in range(examples(8)):

        async def test(harness: AppHarness, seed: int = seed) -> None:
            load = Load(harness, Random(seed), keys=30)
            for _ in range(3):
                await load.send(40)
                await harness.turns(harness.kit.random.randrange(60))
                harness.fail("commit", LogError("not now"), harness.kit.random.randrange(1, 4))
                async with harness.another() as other:
                    await load.send(20)
                    await harness.caught_up(60_000)
                    assert tasks(harness) | tasks(other) == {"0_0", "0_1", "0_2", "0_3"}
            await load.check(EOS)

        run_app(
            test, counting("in_memory"), seed=seed, topics={"in": 4, "out": 1}, processing_guarantee=EOS, commit_interval_ms=2000,
            uncaught_handler=replace,
        )  # fmt: skip


@in_app(counting("in_memory"), topics={"in": 4, "out": 1}, commit_interval_ms=200)
async def test_a_member_that_has_died_does_not_stop_the_others(harness: AppHarness, guarantee: str) -> None:
    """While the group waits for a member that will never answer, the others go on and commit: no transaction gets too old."""
    load = Load(harness, Random(1))
    async with harness.another(client_id="second") as second:
        await load.through(100)
        await second.crash()
        async with harness.another(client_id="third", start=False) as third:
            joining = asyncio.ensure_future(third.start())
            for _ in range(300):
                await load.send(1)
                await asyncio.sleep(0.1)
            assert harness.app.state is InstanceState.REBALANCING
            assert harness.app.metrics()["commit-total"] > (100 if guarantee == EOS else 5)
            assert harness.app.metrics()["rolled-back-total"] == 0
            await joining
            await load.check(guarantee)


@in_virtual_time
async def test_the_transaction_of_a_member_that_has_died_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the group has noticed, the next owner does not wait until it is too old."""
    monkeypatch.setattr(_collector, "_ENOUGH", 500)  # records that are written before their commit
    async with AppHarness(
        counting("in_memory"), topics={"in": 4, "out": 1}, processing_guarantee=EOS, commit_interval_ms=30_000, transaction_timeout_ms=600_000
    ) as harness:
        load = Load(harness, Random(1), keys=40)
        async with harness.another(client_id="second") as second:
            await load.through(100)
            while second.app.metrics()["produced-records-total"] < 500:
                await load.send(100)
            await second.crash()
            assert any(each.partitions for each in harness.log._broker.transactions.values())
            await harness.caught_up(timeout_ms=100_000)
            check_counts(await harness.read("out"), load.sent, EOS)


@in_virtual_time
async def test_instances_are_named_by_themselves(tmp_path: Path) -> None:
    """Each further instance has a client id and a state directory of its own, whichever instance it was made from."""
    options: dict[str, Any] = {"topics": {"in": 4, "out": 1}, "processing_guarantee": EOS, "client_id": "main", "state_dir": tmp_path}
    async with (
        AppHarness(counting("rocksdb"), **options) as harness,
        harness.another() as second,
        second.another() as third,
        harness.another(client_id="mine") as fourth,
    ):
        every = (harness, second, third, fourth)
        assert [each.config.client_id for each in every] == ["main", "main-2", "main-3", "mine"]
        assert len({each.state_dir for each in every}) == 4
        load = Load(harness, Random(1))
        await load.send(100)
        await load.check(EOS)


@pytest.mark.parametrize("seed", range(10))
@in_app(counting("in_memory"), topics={"in": 4, "out": 1}, processing_guarantee=ALOS, commit_interval_ms=1)
async def test_nothing_is_done_twice_when_instances_come_and_go_in_order(harness: AppHarness, seed: int) -> None:
    """At least once, too: a commit while the group moves on is made in its next generation, not done again."""
    random = Random(seed)
    load = Load(harness, random)
    rolled_back = 0.0
    for number in range(6):
        async with harness.another(client_id=f"other-{number}") as other:
            for _ in range(random.randrange(1, 40)):
                await load.send(random.randrange(5))
                await asyncio.sleep(random.choice([0.0, 0.001, 0.005]))
            rolled_back += other.app.metrics()["rolled-back-total"]
    await harness.caught_up()
    assert rolled_back + harness.app.metrics()["rolled-back-total"] == 0
    check_counts(await harness.read("out"), load.sent, EOS)
