"""Members that leave while calls of theirs are in flight."""

from __future__ import annotations

import asyncio
from collections import Counter

from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.commit.test_separate_commits import Calls, committed_after, side_by_side
from tests.ks_actors.runtime.helpers import in_virtual_time
from tests.ks_actors.task.calls.test_moves_during_calls import PARTITIONS, SLOW, TOPICS, settings

LONG = 10.0


async def call_slowly(harness: AppHarness, other: AppHarness) -> None:
    """Have a slow call in flight at one task of the member that is going to leave."""
    await harness.kit.clock.advance(1.0)
    slow = [task.partition for task in other.app._metrics.tasks if task.subtopology == SLOW]
    await harness.produce("slow", "k", "slow-0", partition=slow[0])
    await harness.kit.clock.advance(1.0)


@in_virtual_time
async def test_a_member_that_closes_goes_on_with_tasks_without_slow_calls(guarantee: str) -> None:
    """While slow calls end other tasks of the member are processed and committed as ever; all calls are made once."""
    quick, slow = Calls(lambda: 0.001), Calls(lambda: LONG)
    async with AppHarness(side_by_side(quick, slow), topics=TOPICS, **settings(guarantee)) as harness:
        other = harness.another(client_id="other")
        async with other:
            await call_slowly(harness, other)
            closing = asyncio.ensure_future(other.close())
            await harness.kit.clock.advance(0.1)
            for index in range(20):
                for topic in ("quick", "plain"):
                    await harness.produce(topic, f"k{index}", f"v{index}", partition=index % PARTITIONS)
                    assert await committed_after(harness, topic, index + 1) < 1.0
            assert slow.in_flight == 1
            assert not closing.done()
            began = harness.kit.clock.time()
            await closing
            assert harness.kit.clock.time() - began < LONG
        await harness.caught_up()
        assert set(slow.made.values()) == set(quick.made.values()) == {1}
        assert Counter(record.value for record in await harness.read("quick-out")) == Counter(f"v{index}" for index in range(20))


@in_virtual_time
async def test_a_member_that_closes_begins_no_slow_calls(guarantee: str) -> None:
    """It closes when the calls end that were in flight then: records of those tasks, and of others like them, are left for the next owner."""
    slow = Calls(lambda: LONG)
    async with AppHarness(side_by_side(Calls(lambda: 0.001), slow), topics=TOPICS, **settings(guarantee)) as harness:
        other = harness.another(client_id="other")
        async with other:
            await call_slowly(harness, other)
            began = harness.kit.clock.time()
            closing = asyncio.ensure_future(other.close())
            await harness.kit.clock.advance(1.0)
            for partition in range(PARTITIONS):
                await harness.produce("slow", "k", f"next-{partition}", partition=partition)
            await closing
            assert harness.kit.clock.time() - began < LONG + 1.0
        await harness.caught_up()
        assert set(slow.made.values()) == {1}
        assert len(await harness.read("slow-out")) == 1 + PARTITIONS


@in_virtual_time
async def test_calls_that_outlast_the_time_to_close_lose_nothing(guarantee: str) -> None:
    """Tasks that have gone on meanwhile are committed in the last part of that time."""
    quick, slow = Calls(lambda: 0.001), Calls(lambda: 100.0)
    async with AppHarness(
        side_by_side(quick, slow), topics=TOPICS, max_drain_ms=200_000, **settings(guarantee) | {"transaction_timeout_ms": 300_000}
    ) as harness:
        other = harness.another(client_id="other")
        async with other:
            await call_slowly(harness, other)
            began = harness.kit.clock.time()
            closing = asyncio.ensure_future(other.close())
            sent = 0
            while not closing.done():
                sent += 1
                await harness.produce("quick", f"k{sent}", f"v{sent}", partition=sent % PARTITIONS)
                await harness.kit.clock.advance(0.5)
            assert harness.kit.clock.time() - began < 31.0
        await harness.caught_up()
        results = Counter(record.value for record in await harness.read("quick-out"))
        assert results == Counter(f"v{number}" for number in range(1, sent + 1))
