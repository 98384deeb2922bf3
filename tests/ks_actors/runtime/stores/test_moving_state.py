"""State that is lost, moved or written at a bad moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from ks_actors import StateFull
from ks_actors.runtime import InstanceState, UncaughtResponse
from ks_actors.state import TaskStores
from ks_actors.testing import AppHarness, run_app
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import Asked, Load, counting, feed, in_virtual_time, replace
from tests.ks_actors.runtime.instance.test_dying_parts import Broken, Strange, child

pytestmark = pytest.mark.unmeasured

TOPICS = {"in": 4, "out": 1}


@pytest.mark.parametrize("goes_on", [True, False])
@in_virtual_time
async def test_writing_to_disk_may_fail_at_any_step(guarantee: str, goes_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a step of writing to disk fails the handler decides; committed changes are in the changelog, and come from there."""
    left = 0
    real = TaskStores.flush_steps

    def flush_steps(stores: TaskStores) -> Iterator[None]:
        nonlocal left
        for _ in real(stores):
            if left:
                left -= 1
                raise StateFull("there is no room")
            yield

    monkeypatch.setattr(TaskStores, "flush_steps", flush_steps)
    asked = Asked(UncaughtResponse.REPLACE_WORKER if goes_on else UncaughtResponse.SHUTDOWN_CLIENT)

    async with AppHarness(
        counting("rocksdb"), topics=TOPICS, processing_guarantee=guarantee, uncaught_handler=asked, commit_interval_ms=1000
    ) as harness:
        load = Load(harness, Random(1), keys=500)
        await load.through(1000)
        left = 3
        await harness.kit.clock.advance(200)
        assert asked
        if not goes_on:
            assert isinstance(await harness.ended(1000), StateFull)
            left = 0
            await harness.restart()
        assert harness.app.state is InstanceState.RUNNING
        await load.send(100)
        await load.check(guarantee)


@in_virtual_time
async def test_a_task_that_moves_from_a_full_disk(guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task with unwritable state that moves to another instance moves all the same: the log has its state."""
    left = 0
    real = TaskStores.close

    def close(stores: TaskStores, *, clean: bool) -> None:
        nonlocal left
        if left and clean:
            left -= 1
            real(stores, clean=False)
            raise StateFull("there is no room")
        real(stores, clean=clean)

    monkeypatch.setattr(TaskStores, "close", close)
    async with AppHarness(counting("rocksdb"), topics=TOPICS, processing_guarantee=guarantee, uncaught_handler=replace) as harness:
        load = Load(harness, Random(1))
        await load.through(100)
        left = 1
        async with harness.another() as other:
            await load.through(100)
            await harness.kit.clock.advance(1)
            assert len(other.app._metrics.tasks) == 2
        assert left == 0
        await load.send(10)
        await load.check(guarantee)


def test_the_group_may_be_lost_while_tasks_open_and_restore(guarantee: str) -> None:
    """Tasks that are given up while they are on their way are begun again later, whole."""
    for seed in range(examples(12)):

        async def test(harness: AppHarness, seed: int = seed) -> None:
            load = Load(harness, Random(seed), keys=300)
            await load.through(600)
            await harness.crash()
            harness.wipe_state()
            starting = asyncio.ensure_future(harness.restart())
            for _ in range(3):
                await harness.turns(harness.kit.random.randrange(60))
                harness.lose_membership()
            await starting
            await load.send(20)
            await load.check(guarantee)

        run_app(test, counting("rocksdb"), seed=seed, topics=TOPICS, processing_guarantee=guarantee)


@in_virtual_time
async def test_stores_that_cannot_be_closed_are_told_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """When the owner of the stores has died they are closed at the end; errors of that are logged, and the first error counts."""
    broken = Broken(monkeypatch, "close")
    async with AppHarness(counting("rocksdb"), topics=TOPICS) as harness:
        await feed(harness, "in", "a", "v")
        broken.left = 1
        child(harness, "state-manager").tell(Strange())
        assert isinstance(await harness.ended(1000), AssertionError)
        assert "could not close stores: there is no room" in caplog.text
