"""The rest of the commit timer while calls are in flight."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ks_actors import Produced, StreamsBuilder, TaskId, serdes
from ks_actors.processors import Retry
from ks_actors.runtime.commit._commit_timing import CommitTiming
from ks_actors.runtime.messages import PauseForCommit
from ks_actors.runtime.processing import _worker
from ks_actors.testing import AppHarness
from ks_actors.topology import Topology
from tests.ks_actors.runtime.commit.test_separate_commits import committed, committed_after
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, in_virtual_time

LONG = 1_200.0
QUICK: dict[str, Any] = {"commit_interval_ms": 100, "max_drain_ms": 3_600_000, "transaction_timeout_ms": 60_000}


async def _poll(value: str) -> str:
    await asyncio.sleep(LONG)
    return value


async def _fail(value: str) -> str:
    raise ValueError(value)


def _long_call() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(_poll).to("out", STRINGS_OUT)
    return builder.build()


def _behind_a_cache() -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream("in", STRINGS).group_by_key().count().to_stream().map_values(str)
    counts.map_values(_poll).to("out", STRINGS_OUT)
    return builder.build()


def _waits_for_a_retry() -> Topology:
    builder = StreamsBuilder()
    retry = Retry(attempts=5, backoff_ms=int(LONG * 1000), max_backoff_ms=int(LONG * 1000))
    builder.stream("in", STRINGS).map_values(_fail, retry=retry, timeout_ms=20).to("out", STRINGS_OUT)
    return builder.build()


@pytest.mark.parametrize("topology", [_long_call, _behind_a_cache, _waits_for_a_retry])
@in_virtual_time
async def test_a_long_call_keeps_no_idle_app_busy(topology: Any, guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing but a call is in flight no commit pauses the workers, and the app takes no more steps than without the call."""
    pauses = 0
    receive = _worker.Worker.receive

    async def counted(self: Any, message: Any) -> None:
        nonlocal pauses
        pauses += isinstance(message, PauseForCommit)
        await receive(self, message)

    monkeypatch.setattr(_worker.Worker, "receive", counted)
    async with AppHarness(
        topology(),
        topics={"in": 1, "out": 1},
        processing_guarantee=guarantee,
        num_workers=4,
        close_timeout_ms=1,
        statestore_cache_max_bytes=10_000,
        **QUICK,
    ) as harness:
        await harness.produce("in", "k", "v")
        await harness.kit.clock.advance(5)
        before, steps = pauses, harness.kit._dispatch.steps
        assert before > 0
        await harness.kit.clock.advance(40)
        assert pauses == before
        assert harness.kit._dispatch.steps - steps < 5 * 40


@in_virtual_time
async def test_work_beside_a_long_call_is_committed_in_time(guarantee: str) -> None:
    """The timer rests beside the call, and yet the records of others and the call's own result are committed by the interval."""
    builder = StreamsBuilder()
    builder.stream("slow", STRINGS).map_values(_poll).to("slow-out", STRINGS_OUT)
    counts = builder.stream("plain", STRINGS).group_by_key().count().to_stream()
    counts.to("plain-out", Produced(serdes.STRING, serdes.LONG))

    topics = {"slow": 1, "plain": 1, "slow-out": 1, "plain-out": 1}
    async with AppHarness(builder.build(), topics=topics, processing_guarantee=guarantee, statestore_cache_max_bytes=10_000, **QUICK) as harness:
        await harness.produce("slow", "k", "v")
        await harness.kit.clock.advance(5)
        for index in range(20):
            await harness.kit.clock.advance(3.337)
            await harness.produce("plain", "k", "v")
            assert await committed_after(harness, "plain", index + 1) < 0.11
        assert committed(harness, "slow") == 0
        await harness.kit.clock.advance(LONG)
        assert committed(harness, "slow") == 1
        assert [record.value for record in await harness.read("slow-out")] == ["v"]


class _Task(SimpleNamespace):
    """As much of a task as is looked at."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize(
    ("since", "drained", "in_flight", "rests"),
    [
        (None, True, 0, False),
        (None, False, 1, False),
        (1.0, False, 1, True),
        # At rest: this commit takes it.
        (1.0, True, 0, False),
    ],
)
def test_the_timer_rests_while_tasks_drain(since: float | None, drained: bool, in_flight: int, rests: bool, transactional: bool) -> None:
    """A task that drains asks for a commit by itself, so until it is at rest the timer has nothing to commit."""
    task = _Task(commit_needed=True, in_flight=in_flight, cached_updates=0, drained=drained, draining=SimpleNamespace(since=since))
    tasks = {TaskId(0, 0): task}
    metrics: Any = SimpleNamespace(tasks=tasks, touched=lambda: tasks, at_work=bool, commits_rest=False)
    rest = CommitTiming(metrics, 0.1, transactional=transactional)
    assert (rest.wait(5.0, allowed=True) is not None) is rests
    assert metrics.commits_rest is rests
