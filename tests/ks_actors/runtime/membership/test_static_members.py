"""Apps with a `group_instance_id`: static members of their group."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from ks_actors import FencedInstanceId, ProcessingFailed, StreamsBuilder
from ks_actors.runtime import InstanceState, UncaughtResponse
from ks_actors.testing import AppHarness
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import EOS, STRINGS, STRINGS_OUT, Bomb, Load, check_counts, counting, feed, in_app, in_virtual_time

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


# --- a member that returns gets an assignment that was made before it started ---------------------------------------------


def reading(*topics: str) -> Topology:
    """Read each topic in a subtopology of its own."""
    builder = StreamsBuilder()
    for topic in topics:
        builder.stream(topic, STRINGS).to("out", STRINGS_OUT)
    return builder.build()


@in_app(reading("in"), topics={"in": 2, "new": 2, "out": 1}, group_instance_id="first", session_timeout_ms=SESSION_MS)
async def test_an_added_subtopology_runs_once_static_members_have_been_restarted_with_it(harness: AppHarness) -> None:
    """One by one, each within its session: each asks for one assignment, and none follows."""
    async with harness.another(group_instance_id="second") as second:
        await until_it_has(second, {"0_1"})
        before = generation(harness)
        for each in (harness, second):
            await each.close()
            await each.restart(reading("in", "new"))
        await feed(harness, "new", "k", "v")
        assert tasks(harness) | tasks(second) == {"0_0", "0_1", "1_0", "1_1"}
        # Both have asked, and whoever had to give a task up.
        assert before + 2 <= generation(harness) <= before + 4
        asked = generation(harness)
        await asyncio.sleep(2 * SESSION_MS / 1000)
        assert generation(harness) == asked


@pytest.mark.parametrize(("crash", "turns"), [(True, 0), (True, 8), (False, 3)])
@in_app(counting("in_memory"), topics={"in": 4, "out": 1}, group_instance_id="first", session_timeout_ms=SESSION_MS)
async def test_tasks_that_a_static_member_was_to_give_up_when_it_ended_are_not_left_to_nobody(harness: AppHarness, crash: bool, turns: int) -> None:
    """Nobody gets a task until its owner has given it up: an owner that returns has none of them, and says so."""
    before = generation(harness)
    second = harness.another(group_instance_id="second", start=False)
    joining = asyncio.ensure_future(second.start())
    while generation(harness) == before:
        await harness.turns(1)
    await harness.turns(turns)
    await (harness.crash() if crash else harness.close())
    await harness.restart()
    await joining
    async with second:
        assert len(await shared(harness, second)) == 4
        assert generation(harness) <= before + 2


@in_app(counting("in_memory"), topics={"in": 2, "out": 1}, group_instance_id="first", session_timeout_ms=SESSION_MS, client_tags={"zone": "a"})
async def test_a_static_member_that_returns_with_other_settings_tells_the_group(harness: AppHarness) -> None:
    """By one assignment, though it has the same tasks afterwards; the next restart with them needs none."""
    before = generation(harness)
    for again in (False, True):
        await harness.restart(client_tags={"zone": "b"})
        await until_it_has(harness, {"0_0", "0_1"})
        await asyncio.sleep(2 * SESSION_MS / 1000)
        assert generation(harness) == before + 1
        causes = harness.app._metrics.history.rebalances.latest()[0].causes
        assert causes == (("this instance started",) if again else ("return: the assignment no longer fits this static member",))


@in_app(reading("in"), topics={"in": 2, "out": 1}, group_instance_id="first", session_timeout_ms=SESSION_MS)
async def test_partitions_that_were_added_while_all_static_members_were_away_are_read(harness: AppHarness) -> None:
    """Nobody looked, and the group has kept the assignment."""
    before = generation(harness)
    await harness.close()
    harness.create_partitions({"in": 3})
    await harness.restart()
    await until_it_has(harness, {"0_0", "0_1", "0_2"})
    assert generation(harness) == before + 1
