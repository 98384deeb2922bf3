"""An app dies at any moment, as a process does, and is started again; or the log fails it at any step."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from ks_actors import LogError, StorageFull, TransactionAborted
from ks_actors.log.embedded._faults import Operation
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import Load, check_counts, counting, in_app, in_virtual_time, replace
from tests.ks_actors.state.sqlite_engine import SqliteEngine

pytestmark = pytest.mark.unmeasured

STEPS: tuple[Operation, ...] = ("send", "commit", "commit_offsets", "abort", "fetch", "committed", "end_offsets", "begin_offsets", "delete_records")
ENDS = {"send", "commit", "commit_offsets", "abort"}


async def crash_now_and_then(harness: AppHarness, load: Load, random: Random, *, crashes: int) -> None:
    """Write, let some work be done, crash, start again; at the end wait until all is done."""
    for _ in range(crashes):
        await load.send(random.randrange(1, 80))
        if random.random() < 0.7:
            await asyncio.sleep(random.choice([0.05, 0.1, 0.1001, 0.35]))
        await load.send(random.randrange(1, 40))
        await harness.turns(random.randrange(120))
        await harness.crash()
        if random.random() < 0.2:
            harness.wipe_state()
        await harness.restart()
    await harness.caught_up()


@pytest.mark.parametrize("store", ["rocksdb", "in_memory", SqliteEngine])
@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_a_crash_loses_nothing_and_doubles_nothing(seed: int, guarantee: str, store: str) -> None:
    """After crashes at random moments, exactly once each count is there once and in order; at least once none is missing."""
    random = Random(seed)
    async with AppHarness(
        counting(store, repartition=seed % 2 == 1),
        seed=seed,
        topics={"in": 3, "out": 2},
        processing_guarantee=guarantee,
        num_workers=1 + seed % 3,
        commit_interval_ms=100,
    ) as harness:
        load = Load(harness, random, by_value=seed % 2 == 1)
        await crash_now_and_then(harness, load, random, crashes=4 if store == "rocksdb" else 8)
        check_counts(await harness.read("out"), load.sent, guarantee)


@pytest.mark.parametrize("seed", range(6))
@in_app(counting("in_memory"), topics={"in": 2, "out": 1}, num_workers=2, commit_interval_ms=100, uncaught_handler=replace)
async def test_failures_of_the_log_lose_nothing_and_double_nothing(harness: AppHarness, seed: int, guarantee: str) -> None:
    """With any failing call of the log, before or after its effect, and a crash besides: results are as exact as promised."""
    random = Random(seed)
    load = Load(harness, random)
    for _ in range(12):
        operation = random.choice(STEPS)
        if operation in ENDS and random.random() < 0.3:
            harness.fail(operation, LogError("the answer is lost"), after=True)
        else:
            harness.fail(operation, random.choice([StorageFull("no room"), LogError("the broker is away"), TransactionAborted("void")]))
        await load.send(random.randrange(1, 60))
        await asyncio.sleep(random.choice([0.01, 0.1, 0.25]))
        if random.random() < 0.15:
            await harness.crash()
            harness.log._faults._before.clear()
            harness.log._faults._after.clear()
            await harness.restart()
    harness.log._faults._before.clear()
    harness.log._faults._after.clear()
    await load.check(guarantee)
