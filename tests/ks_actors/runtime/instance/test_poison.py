"""A record that fails again and again, with a handler that replaces the worker each time."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from ks_actors import ProcessingFailed
from ks_actors.lifecycle._backoff import TaskBackoff
from ks_actors.records._task_id import TaskId
from ks_actors.runtime import InstanceState
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import by_key, counting, echo, in_virtual_time, replace


class Poison:
    """A function for `peek` that raises at some values, and notes when."""

    def __init__(self, *values: str) -> None:
        self.values: set[str] = set(values)
        self.times: dict[str, list[float]] = {}

    def __call__(self, key: Any, value: Any) -> None:
        if value in self.values:
            self.times.setdefault(value, []).append(asyncio.get_running_loop().time())
            raise RuntimeError(f"{value} at {key}")

    def rests(self, value: str) -> list[float]:
        times = self.times[value]
        return [round(after - before, 1) for before, after in pairwise(times)]


@pytest.mark.parametrize("workers", [1, 3])
@in_virtual_time
async def test_a_record_that_fails_again_and_again_is_tried_less_and_less_often(guarantee: str, workers: int) -> None:
    """At once, then after rests that double up to 5 s; other tasks go on meanwhile, and it is done as soon as it can be."""
    poison = Poison("poison")
    async with AppHarness(
        echo(poison),
        topics={"in": 2, "out": 1},
        processing_guarantee=guarantee,
        commit_interval_ms=100,
        uncaught_handler=replace,
        num_workers=workers,
    ) as harness:
        await harness.produce("in", "a", "good", partition=0)
        await harness.produce("in", "a", "poison", partition=0)
        await harness.produce("in", "a", "behind", partition=0)
        for number in range(100):
            await harness.produce("in", "b", str(number), partition=1)
            await asyncio.sleep(0.2)
        assert poison.rests("poison")[:8] == pytest.approx([0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0], abs=0.1)
        assert len(poison.times["poison"]) < 15
        found = by_key(await harness.read("out"))
        assert len(found["b"]) >= 99
        assert harness.app.state is InstanceState.RUNNING
        assert len(harness.app.workers()) == workers
        poison.values.clear()
        await harness.caught_up()
        found = by_key(await harness.read("out"))
        assert set(found["a"]) == {"good", "poison", "behind"}
        assert found["b"] == [str(number) for number in range(100)]


@in_virtual_time
async def test_tasks_that_fail_do_not_end_each_others_rests(guarantee: str) -> None:
    """Two of them, exactly once with one transaction: both are tried less and less often, and the third goes on."""
    poison = Poison("one", "two")
    async with AppHarness(
        counting("in_memory", poison), topics={"in": 3, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=100, uncaught_handler=replace
    ) as harness:
        await harness.produce("in", "a", "one", partition=0)
        await harness.produce("in", "b", "two", partition=1)
        for number in range(100):
            await harness.produce("in", "c", str(number), partition=2)
            await asyncio.sleep(0.2)
        for value in poison.values:
            assert max(poison.rests(value)) >= 5
            assert len(poison.times[value]) < 15
        poison.values.clear()
        await harness.caught_up()
        assert [record.value for record in await harness.read("out") if record.key == "c"] == list(range(1, 101))


@in_virtual_time
async def test_an_app_closes_while_a_task_rests() -> None:
    """It waits for no rest; a later caller does the record."""
    poison = Poison("poison")
    async with AppHarness(echo(poison), topics={"in": 1, "out": 1}, uncaught_handler=replace) as harness:
        await harness.produce("in", "a", "poison")
        await asyncio.sleep(10)
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await harness.close()
        assert loop.time() - begin < 1
        poison.values.clear()
        await harness.restart()
        await harness.caught_up()
        assert [record.value for record in await harness.read("out")] == ["poison"]


def failed(partition: int, offset: int | None) -> ProcessingFailed:
    return ProcessingFailed("no", task=TaskId(0, 0), topic="in", partition=partition, offset=offset)


def test_rests_grow_as_long_as_a_partition_does_not_get_on() -> None:
    """A later record that fails begins from none; an earlier one does not, nor does one of which nobody knows where it is."""
    rests, task = TaskBackoff(), TaskId(0, 0)
    assert [rests.next(task, failed(0, 5), 1.0) for _ in range(3)] == [0, 0.1, 0.2]
    assert rests.next(task, failed(0, 4), 1.0) == 0.4
    assert rests.next(task, failed(1, 4), 1.0) == 0
    assert rests.next(TaskId(0, 1), failed(0, 5), 1.0) == 0
    assert rests.next(task, failed(0, 6), 1.0) == 0
    assert [rests.next(None, ValueError("no"), 1.0) for _ in range(3)] == [0, 0.1, 0.2]
    rests.forget()
    assert rests.next(None, ValueError("no"), 1.0) == 0
