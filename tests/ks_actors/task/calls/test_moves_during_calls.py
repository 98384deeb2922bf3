"""Tasks that move to another member of the group while calls of theirs are in flight."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.commit.test_separate_commits import Calls, committed_after, side_by_side
from tests.ks_actors.runtime.helpers import Asked, in_virtual_time

PARTITIONS = 4
TOPICS = {f"{topic}{end}": PARTITIONS for topic in ("quick", "slow", "plain") for end in ("", "-out")}
SLOW = 1
"""Subtopologies are numbered in the order in which they were added."""


def settings(guarantee: str) -> dict[str, Any]:
    return {"processing_guarantee": guarantee, "commit_interval_ms": 100, "transaction_timeout_ms": 60_000}


async def call_slowly(harness: AppHarness) -> None:
    """Have one slow call in flight for each partition."""
    for partition in range(PARTITIONS):
        await harness.produce("slow", f"k{partition}", f"slow-{partition}", partition=partition)
    await harness.kit.clock.advance(0.5)


def slow_tasks(harness: AppHarness) -> int:
    return sum(task.subtopology == SLOW for task in harness.app._metrics.tasks)


@in_virtual_time
async def test_a_task_that_moves_waits_for_its_own_calls_only(guarantee: str) -> None:
    """When a member joins, tasks without slow calls go on here or there at once; those with slow calls move when the calls have ended, once each."""
    quick, slow = Calls(lambda: 0.001), Calls(lambda: 10.0)
    async with AppHarness(side_by_side(quick, slow), topics=TOPICS, **settings(guarantee)) as harness:
        await call_slowly(harness)
        async with harness.another(client_id="other") as other:
            for index in range(20):
                for topic in ("quick", "plain"):
                    await harness.produce(topic, f"k{index}", f"v{index}", partition=index % PARTITIONS)
                    assert await committed_after(harness, topic, index + 1) < 1.0
            assert slow.in_flight == PARTITIONS
            assert slow_tasks(other) == 0
            assert len(other.app._metrics.tasks) > 0
            await harness.kit.clock.advance(20)
            assert slow_tasks(harness) == slow_tasks(other) == PARTITIONS // 2
            await harness.caught_up()
        assert Counter(record.value for record in await harness.read("slow-out")) == Counter(f"slow-{number}" for number in range(PARTITIONS))
        assert set(slow.made.values()) == set(quick.made.values()) == {1}


@in_virtual_time
async def test_a_task_that_is_not_to_move_any_more_is_read_on(guarantee: str) -> None:
    """A member that leaves before tasks have come to it gives them back: they are read on here when their calls have ended, and nothing twice."""
    slow = Calls(lambda: 10.0)
    async with AppHarness(side_by_side(Calls(lambda: 0.001), slow), topics=TOPICS, **settings(guarantee)) as harness:
        await call_slowly(harness)
        async with harness.another(client_id="other"):
            await harness.kit.clock.advance(1)
        for partition in range(PARTITIONS):
            await harness.produce("slow", f"k{partition}", f"next-{partition}", partition=partition)
        await harness.caught_up()
        assert set(slow.made.values()) == {1}
        assert len(await harness.read("slow-out")) == 2 * PARTITIONS


@pytest.mark.parametrize("loses", ["harness", "other", "crash"])
@in_virtual_time
async def test_a_membership_that_is_lost_meanwhile_loses_nothing(loses: str, guarantee: str) -> None:
    """A member that is thrown out, or dies, while tasks are to move: all is processed, and results are as exact as promised."""
    slow = Calls(lambda: 10.0)
    async with AppHarness(side_by_side(Calls(lambda: 0.001), slow), topics=TOPICS, **settings(guarantee)) as harness:
        await call_slowly(harness)
        async with harness.another(client_id="other") as other:
            await harness.kit.clock.advance(1)
            if loses == "crash":
                await harness.crash()
                await harness.restart()
            else:
                (harness if loses == "harness" else other).lose_membership()
            await harness.kit.clock.advance(1)
            await harness.caught_up()
            results = Counter(record.value for record in await harness.read("slow-out"))
            assert results.keys() == {f"slow-{number}" for number in range(PARTITIONS)}
            assert guarantee == "at_least_once" or results.total() == PARTITIONS


@in_virtual_time
async def test_a_call_that_does_not_end_keeps_its_task_for_max_drain_ms(guarantee: str) -> None:
    """The task fails alone after that time, and moves without the call, which the other member makes again."""
    errors = Asked()
    stuck = ["slow-0", "slow-1", "slow-2", "slow-3"]

    async def slow(value: str) -> str:
        if value in stuck:
            stuck.remove(value)
            await asyncio.get_running_loop().create_future()
        return value

    async with AppHarness(
        side_by_side(Calls(lambda: 0.001), slow), topics=TOPICS, max_drain_ms=2_000, uncaught_handler=errors, **settings(guarantee)
    ) as harness:
        await call_slowly(harness)
        async with harness.another(client_id="other") as other:
            await harness.kit.clock.advance(10)
            assert slow_tasks(harness) == slow_tasks(other) == PARTITIONS // 2
            await harness.caught_up()
        assert sorted(str(record.value) for record in await harness.read("slow-out")) == [f"slow-{number}" for number in range(PARTITIONS)]
        assert len(errors) == PARTITIONS
