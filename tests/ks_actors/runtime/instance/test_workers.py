"""Workers are added and removed while the app runs (KIP-663)."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from ks_actors import ProcessingFailed
from ks_actors.runtime import InstanceState, UncaughtResponse
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.runtime.helpers import Bomb, Load, by_key, counting, echo, feed, in_app, in_virtual_time, replace, states
from tests.waiting import until

pytestmark = pytest.mark.unmeasured

MIB = 1 << 20


def lose(_: Exception) -> UncaughtResponse:
    return UncaughtResponse.LOSE_WORKER


def names(harness: AppHarness) -> list[str]:
    return [worker.name for worker in harness.app.workers()]


@in_app(echo(), topics={"in": 2, "out": 1}, num_workers=2, client_id="me")
async def test_names_count_up_and_freed_numbers_are_used_again(harness: AppHarness) -> None:
    """A new worker has the smallest free number; the numbers of workers that were removed or have died are free."""
    assert names(harness) == ["me-Worker-1", "me-Worker-2"]
    assert await harness.add_worker() == "me-Worker-3"
    assert await harness.remove_worker() == "me-Worker-3"
    assert await harness.remove_worker() == "me-Worker-2"
    assert await harness.add_worker() == "me-Worker-2"
    assert await harness.add_worker() == "me-Worker-3"
    assert names(harness) == ["me-Worker-1", "me-Worker-2", "me-Worker-3"]


@in_app(echo(), topics={"in": 1, "out": 1})
async def test_workers_come_only_while_the_app_runs(harness: AppHarness) -> None:
    """Before the start, and after the end, no worker is added or removed."""
    app = harness.app
    await harness.close()
    assert app.state is InstanceState.NOT_RUNNING
    assert await app.add_worker() is None
    assert await app.remove_worker() is None
    assert app.workers() == ()


def test_a_worker_may_come_during_a_rebalance() -> None:
    """In REBALANCING workers are added, too."""
    seen: list[InstanceState] = []

    async def test(harness: AppHarness) -> None:
        async with harness.another(client_id="other", start=False) as other:
            joining = asyncio.ensure_future(other.start())
            await until(lambda: harness.app.state is InstanceState.REBALANCING)
            assert await harness.add_worker() == "app-Worker-2"
            seen.append(harness.app.state)
            await joining

    run_app(test, echo(), topics={"in": 2, "out": 1})
    assert seen


@in_app(echo(), topics={"in": 1, "out": 1}, statestore_uncommitted_max_bytes=10 * MIB)
async def test_budgets_are_shared_by_those_there_are(harness: AppHarness) -> None:
    """Every worker has an equal share of the uncommitted bytes, and all shares together are not more than the whole."""

    def check(number: int) -> None:
        workers = harness.app.workers()
        assert len(workers) == number == harness.app.metrics()["alive-workers"]
        assert {worker.uncommitted_bytes for worker in workers} == {10 * MIB // number}

    check(1)
    for number in (2, 3, 4):
        await harness.add_worker()
        check(number)
    for number in (3, 2, 1):
        await harness.remove_worker()
        check(number)


@in_app(echo(), topics={"in": 1, "out": 1}, statestore_uncommitted_max_bytes=-1)
async def test_without_limits_there_are_none_to_share(harness: AppHarness) -> None:
    """An unlimited budget stays unlimited for each worker."""
    (worker,) = harness.app.workers()
    assert worker.uncommitted_bytes == -1


@in_app(echo(), topics={"in": 1, "out": 1})
async def test_an_app_without_workers_goes_on_when_one_comes(harness: AppHarness) -> None:
    """When the last worker is removed the app stays RUNNING and processes nothing; one more worker takes up the work."""
    assert await harness.remove_worker() == "app-Worker-1"
    assert await harness.remove_worker() is None
    assert harness.app.state is InstanceState.RUNNING
    await harness.produce("in", "a", "1")
    await asyncio.sleep(100)
    assert await harness.read("out") == []
    assert harness.app.state is InstanceState.RUNNING
    assert await harness.add_worker() == "app-Worker-1"
    await harness.caught_up()
    assert by_key(await harness.read("out")) == {"a": ["1"]}


def test_the_last_worker_that_dies_ends_the_app() -> None:
    """LOSE_WORKER goes on as long as a worker is left; when the last one dies the app ends in ERROR, with the error of that one."""
    bomb = Bomb()
    seen: list[tuple[InstanceState, InstanceState]] = []

    async def test(harness: AppHarness) -> None:
        bomb.armed = 2
        await harness.produce("in", "a", "1")
        error = await harness.ended()
        assert isinstance(error, ProcessingFailed)
        assert isinstance(error.__cause__, RuntimeError)
        assert harness.app.metrics()["failed-workers"] == 2
        assert harness.app.workers() == ()

    run_app(test, echo(bomb), topics={"in": 1, "out": 1}, num_workers=2, uncaught_handler=lose, on_state=lambda new, old: seen.append((new, old)))
    assert states(seen) == ["REBALANCING", "RUNNING", "PENDING_ERROR", "ERROR"]


@in_virtual_time
async def test_a_worker_that_is_lost_leaves_its_work_to_the_others() -> None:
    """With LOSE_WORKER the record that a worker died of is processed again by another; its number is free again."""
    bomb = Bomb()
    async with AppHarness(echo(bomb), topics={"in": 1, "out": 1}, num_workers=2, uncaught_handler=lose) as harness:
        bomb.armed = 1
        await feed(harness, "in", "a", "1")
        assert by_key(await harness.read("out")) == {"a": ["1"]}
        (left,) = names(harness)
        assert await harness.add_worker() == ({"app-Worker-1", "app-Worker-2"} - {left}).pop()


@pytest.mark.parametrize("asynchronous", [False, True])
@in_virtual_time
async def test_the_handler_may_add_a_worker_itself(asynchronous: bool) -> None:
    """A handler, plain or a coroutine, may add workers; the name of the one that is dying is not free for them yet."""
    bomb = Bomb()
    added: list[str | None] = []
    adding: list[asyncio.Future[str | None]] = []
    harnesses: list[AppHarness] = []

    async def add_and_lose(error: Exception) -> UncaughtResponse:
        added.append(await harnesses[0].add_worker())
        return UncaughtResponse.LOSE_WORKER

    def begin_and_lose(error: Exception) -> UncaughtResponse:
        adding.append(asyncio.ensure_future(harnesses[0].add_worker()))
        return UncaughtResponse.LOSE_WORKER

    async with AppHarness(echo(bomb), topics={"in": 1, "out": 1}, uncaught_handler=add_and_lose if asynchronous else begin_and_lose) as harness:
        harnesses.append(harness)
        bomb.armed = 1
        await harness.add_worker()
        await feed(harness, "in", "a", "1")
        added.extend([await each for each in adding])
        assert added == ["app-Worker-3"] or (adding and len(added) == 1)
        assert by_key(await harness.read("out")) == {"a": ["1"]}
        assert harness.app.metrics()["failed-workers"] == 1
        assert len(names(harness)) == 2


@pytest.mark.parametrize("answer", [None, "REPLACE_WORKER"])
@in_virtual_time
async def test_a_handler_that_answers_nonsense_ends_the_app(answer: Any) -> None:
    """An answer that is no UncaughtResponse shuts the app down, and the error has a note about it."""
    bomb = Bomb()
    async with AppHarness(echo(bomb), topics={"in": 1, "out": 1}, uncaught_handler=lambda _: answer) as harness:
        bomb.armed = 1
        await harness.produce("in", "a", "1")
        error = await harness.ended()
        assert any(repr(answer) in note for note in getattr(error, "__notes__", ()))


@in_virtual_time
async def test_a_handler_that_raises_ends_the_app() -> None:
    """The error that the handler was asked about ends the app, with a note about the handler's own error."""
    bomb = Bomb()

    def raises(error: Exception) -> UncaughtResponse:
        raise ValueError("no idea")

    async with AppHarness(echo(bomb), topics={"in": 1, "out": 1}, uncaught_handler=raises) as harness:
        bomb.armed = 1
        await harness.produce("in", "a", "1")
        error = await harness.ended()
        assert isinstance(error, ProcessingFailed)
        assert any("ValueError: no idea" in note for note in error.__notes__)


@in_app(echo(), topics={"in": 1, "out": 1}, num_workers=2)
async def test_the_number_of_workers_does_not_outlive_the_app(harness: AppHarness) -> None:
    """An app starts with as many workers as its config says, after any additions and removals."""
    await harness.add_worker()
    await harness.add_worker()
    await harness.close()
    await harness.restart()
    assert names(harness) == ["app-Worker-1", "app-Worker-2"]


@pytest.mark.parametrize("seed", range(5))
@in_virtual_time
async def test_nothing_is_lost_or_doubled_while_the_crew_changes(seed: int, guarantee: str) -> None:
    """Workers come, go and die of their processor's exception for a minute of load: every record counts once, and names and figures are right."""
    random = Random(seed)
    bomb = Bomb()
    repartition = seed % 2 == 1
    async with AppHarness(
        counting("in_memory", bomb, repartition=repartition),
        seed=seed,
        topics={"in": 3, "out": 1},
        num_workers=2,
        processing_guarantee=guarantee,
        commit_interval_ms=500,
        uncaught_handler=replace,
    ) as harness:
        load = Load(harness, random, by_value=repartition)
        app = harness.app

        async def produce() -> None:
            while harness.kit.clock.time() < 60:
                await load.send(random.randrange(1, 25))
                await asyncio.sleep(random.uniform(0.05, 0.5))

        async def change() -> None:
            expected = 2
            while harness.kit.clock.time() < 60:
                await asyncio.sleep(random.uniform(0.1, 3))
                choice = random.random()
                if choice < 0.4 and expected < 6:
                    assert await harness.add_worker() is not None
                    expected += 1
                elif choice < 0.75:
                    removed = await harness.remove_worker()
                    assert (removed is None) == (expected == 0)
                    expected = max(0, expected - 1)
                elif expected:
                    bomb.armed = 1
                check()
            for _ in range(expected, 1):
                await harness.add_worker()

        def check() -> None:
            workers = app.workers()
            numbers = [int(worker.name.removeprefix("app-Worker-")) for worker in workers]
            assert len(set(numbers)) == len(numbers)
            assert not numbers or max(numbers) <= 8
            assert sum(worker.uncommitted_bytes for worker in workers) <= harness.config.statestore_uncommitted_max_bytes
            assert app.metrics()["alive-workers"] == len(workers)

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(change())
        bomb.armed = 0
        await load.check(guarantee)
        assert app.state is InstanceState.RUNNING
        assert app.metrics()["failed-workers"] == bomb.exploded
