"""The pace at which tasks with calls are drained."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ks_actors import StreamsBuilder, TaskId
from ks_actors.log import TopicPartition
from ks_actors.runtime.commit._drains import Drains
from ks_actors.testing import AppHarness, TestRecord
from tests.ks_actors.runtime.helpers import EOS, STRINGS, STRINGS_OUT, in_virtual_time

IN = TopicPartition("in", 0)


@pytest.mark.parametrize(("interval", "seconds"), [(5.0, 0.4), (5.0, 0.6), (5.0, 2.0), (0.1, 0.03), (0.1, 0.05)])
@in_virtual_time
async def test_a_record_is_committed_within_an_interval_and_a_call(interval: float, seconds: float, guarantee: str) -> None:
    """While calls take up to half of the interval, each commit by the timer drains the task, so no record waits for the second one."""
    builder = StreamsBuilder()

    async def call(value: str) -> str:
        await asyncio.sleep(seconds)
        return value

    builder.stream("in", STRINGS).map_values(call).to("out", STRINGS_OUT)
    async with AppHarness(
        builder.build(),
        topics={"in": 1, "out": 1},
        processing_guarantee=guarantee,
        commit_interval_ms=int(interval * 1000),
        transaction_timeout_ms=60_000,
    ) as harness:
        sent: list[float] = []
        waits: list[float] = []
        clock = harness.kit.clock
        for index in range(300):
            if index < 240:
                await harness.produce("in", f"k{index}", "v")
                sent.append(clock.time())
            await clock.advance(interval / 20)
            at = harness.log._groups.get("app").committed().get(IN)
            waits += [clock.time() - time for time in sent[len(waits) : at.offset if at is not None else 0]]
        assert len(waits) == 240
        # Twice a step of the clock: a record comes between two, and so does its commit.
        assert max(waits) < interval + seconds + 0.05 + 2 * interval / 20


@in_virtual_time
async def test_a_task_whose_calls_are_too_few_is_fed_for_the_interval() -> None:
    """While all records cannot be in flight, drains cost throughput: the interval counts from the end of the last one."""
    builder, random = StreamsBuilder(), Random(3)
    done = 0

    async def call(value: str) -> str:
        nonlocal done
        await asyncio.sleep(random.uniform(0.15, 0.45))
        done += 1
        return value

    builder.stream("in", STRINGS).map_values(call, order="none", max_in_flight=16).to("out", STRINGS_OUT)
    async with AppHarness(
        builder.build(), topics={"in": 1, "out": 1}, processing_guarantee=EOS, commit_interval_ms=1_000, close_timeout_ms=1
    ) as harness:
        await harness.produce_all("in", [TestRecord(f"k{index}", "v", index) for index in range(2_000)])
        await harness.kit.clock.advance(5)
        before = done
        await harness.kit.clock.advance(20)
        # Calls without a break would make 1. Drained by each commit of the timer, they would make 0.8.
        assert (done - before) * 0.3 / 20 / 16 > 0.87


@pytest.mark.parametrize(
    ("took", "fed_for", "waiting", "in_flight", "drained"),
    [
        # From the beginning of the last drain: 0.89 s, 0.91 s.
        (0.2, 0.69, 0, 5, False),
        (0.2, 0.71, 0, 5, True),
        # At least half as long as the last drain took.
        (0.7, 0.34, 0, 5, False),
        (0.7, 0.36, 0, 5, True),
        # The interval is enough for calls of any length.
        (10.0, 0.89, 0, 5, False),
        (10.0, 0.91, 0, 5, True),
        # More records wait for room than are in flight.
        (0.2, 0.89, 6, 5, False),
        (0.2, 0.91, 6, 5, True),
        # A single call has no others that could run beside it.
        (0.2, 0.71, 6, 1, True),
    ],
)
def test_a_task_drains_when_it_was_fed_for_long_enough(took: float, fed_for: float, waiting: int, in_flight: int, drained: bool) -> None:
    """A due commit skips a task which has begun its last drain less than an interval ago, or was fed for too short a time since."""
    committer: Any = None
    task: Any = SimpleNamespace(
        id=TaskId(0, 0),
        drains=True,
        drained=False,
        broken=False,
        commit_requested=False,
        in_flight=in_flight,
        blocking=False,
        group=SimpleNamespace(buffered=waiting),
        draining=SimpleNamespace(since=None, calls=True, slow=True, fed=100.0, retries_at=0.0, took=took, room=lambda: 0 if waiting else 10),
    )
    drains = Drains(
        {task.id: task}, {task.id: task}, (), committer=lambda: committer, wake_in=lambda *_: None, longest=60.0, blocked=60.0, interval=1.0
    )
    drain: Any = SimpleNamespace(calm=False, due_only=True, reply=SimpleNamespace(tell=lambda _: None))
    drains.begin(drain, 100.0 + fed_for, ())
    assert (task.draining.since is not None) is drained
