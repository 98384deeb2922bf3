"""Apps with a `group_instance_id`: static members of their group."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from ks_actors import FencedInstanceId, ProcessingFailed
from ks_actors.runtime import InstanceState, UncaughtResponse
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import EOS, Bomb, Load, check_counts, counting, in_app, in_virtual_time

SESSION_MS = 10_000


def tasks(harness: AppHarness) -> set[str]:
    return {str(task) for task in harness.app._metrics.tasks}


def generation(harness: AppHarness) -> int:
    return harness.log._groups.get("app").generation


async def until_it_has(harness: AppHarness, wanted: set[str]) -> None:
    """Wait for tasks, for less than a session timeout."""
    async with asyncio.timeout(SESSION_MS / 2000):
        while tasks(harness) != wanted:
            await asyncio.sleep(0.01)


async def shared(first: AppHarness, second: AppHarness) -> set[str]:
    """Wait until each has two tasks; return all of them."""
    async with asyncio.timeout(SESSION_MS / 2000):
        while not len(tasks(first)) == len(tasks(second)) == 2:
            await asyncio.sleep(0.01)
    return tasks(first) | tasks(second)


@pytest.mark.parametrize("crash", [False, True])
@in_app(counting("in_memory"), topics={"in": 4, "out": 1}, group_instance_id="first", session_timeout_ms=SESSION_MS, commit_interval_ms=100)
async def test_a_static_member_that_is_restarted_has_its_tasks_again(harness: AppHarness, guarantee: str, crash: bool) -> None:
    """Closed or killed, within the session timeout: nobody else is asked for anything, and results are as exact as promised."""
    load = Load(harness, Random(1))
    async with harness.another(group_instance_id="second") as second:
        await load.send(100)
        await shared(harness, second)
        await harness.caught_up()
        mine, theirs, before = tasks(harness), tasks(second), generation(harness)
        await load.send(100)
        await (second.crash() if crash else second.close())
        await load.send(100)
        await asyncio.sleep(SESSION_MS / 2000)
        assert tasks(harness) == mine
        assert harness.app.state is InstanceState.RUNNING
        await second.restart()
        await harness.caught_up()
        assert (tasks(harness), tasks(second)) == (mine, theirs)
        assert generation(harness) == before
        await asyncio.sleep(2 * SESSION_MS / 1000)
        assert generation(harness) == before
    check_counts(await harness.read("out"), load.sent, guarantee)


@in_app(counting("in_memory"), topics={"in": 4, "out": 1}, group_instance_id="first", session_timeout_ms=SESSION_MS)
async def test_a_static_member_that_stays_away_is_replaced(harness: AppHarness) -> None:
    """After the session timeout others have its tasks."""
    async with harness.another(group_instance_id="second") as second:
        everything = await shared(harness, second)
        await second.close()
        assert tasks(harness) != everything
        await asyncio.sleep(SESSION_MS / 1000)
        await until_it_has(harness, everything)


@in_app(counting("in_memory"), topics={"in": 4, "out": 1}, group_instance_id="first", session_timeout_ms=SESSION_MS)
async def test_a_static_member_leaves_when_it_is_told_to(harness: AppHarness) -> None:
    """By `leave_group`: others have its tasks at once."""
    async with harness.another(group_instance_id="second") as second:
        everything = await shared(harness, second)
        await second.close(leave_group=True)
        await until_it_has(harness, everything)


@in_virtual_time
async def test_a_static_member_that_ends_in_error_leaves() -> None:
    """Nobody waits for it: others may do better."""
    bomb = Bomb()
    async with (
        AppHarness(counting("in_memory", bomb), topics={"in": 4, "out": 1}, group_instance_id="first", session_timeout_ms=SESSION_MS) as harness,
        harness.another(group_instance_id="second") as second,
    ):
        everything = await shared(harness, second)
        bomb.armed = 1
        await harness.produce("in", "key", "value", partition=int(min(tasks(second)).partition("_")[2]))
        assert isinstance(await second.ended(), ProcessingFailed)
        await until_it_has(harness, everything)
        await harness.app.wait_until_caught_up()
        assert [record.value for record in await harness.read("out")] == [1]


@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_a_second_process_of_an_instance_id_ends_the_first(seed: int, guarantee: str) -> None:
    """With any handler, else they would fence each other for ever; the second has its tasks, and results are as exact as promised."""
    random = Random(seed)
    async with AppHarness(
        counting("in_memory"),
        seed=seed,
        topics={"in": 2, "out": 1},
        processing_guarantee=guarantee,
        group_instance_id="mine",
        uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER,
        commit_interval_ms=100 if guarantee == EOS else 1_000,
    ) as harness:
        load = Load(harness, random)
        await load.through(100)
        await load.send(random.randrange(200))
        await harness.turns(random.randrange(60))
        async with harness.another(group_instance_id="mine") as second:
            await load.send(100)
            error = await harness.ended()
            assert isinstance(error, FencedInstanceId)
            assert "group_instance_id" in str(error)
            assert harness.app.state is InstanceState.ERROR
            assert harness.app.error is error
            await second.app.wait_until_caught_up()
            await load.send(100)
            await second.app.wait_until_caught_up()
            assert second.app.state is InstanceState.RUNNING
            assert len(tasks(second)) == 2
            check_counts(await second.read("out"), load.sent, guarantee)
