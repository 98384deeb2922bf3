"""Commits of tasks with long calls, beside those of tasks without."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import Materialized, Produced, StreamsBuilder, TaskTimeout, UncaughtResponse, serdes
from ks_actors.runtime.output import _collector
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.topology import Topology
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import EOS, GUARANTEES, STRINGS, STRINGS_OUT, Asked, check_counts, in_virtual_time

TOPICS = {"quick": 2, "slow": 2, "plain": 1, "quick-out": 1, "slow-out": 1, "plain-out": 1}
SELDOM: dict[str, Any] = {"commit_interval_ms": 3_600_000, "transaction_timeout_ms": 3_600_000}


def side_by_side(quick: Callable[[str], Awaitable[str]], slow: Callable[[str], Awaitable[str]]) -> Topology:
    """Return three subtopologies: one of quick calls, one of slow ones, one without any."""
    builder = StreamsBuilder()
    builder.stream("quick", STRINGS).map_values(quick, name="quick-calls").to("quick-out", STRINGS_OUT)
    builder.stream("slow", STRINGS).map_values(slow, name="slow-calls").to("slow-out", STRINGS_OUT)
    builder.stream("plain", STRINGS).to("plain-out", STRINGS_OUT)
    return builder.build()


class Calls:
    """Calls that take so many seconds, counted by value."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.made: Counter[str] = Counter()
        self.in_flight: int = 0
        self._seconds = seconds

    async def __call__(self, value: str) -> str:
        self.made[value] += 1
        self.in_flight += 1
        try:
            await asyncio.sleep(self._seconds())
        finally:
            self.in_flight -= 1
        return value


async def committed_after(harness: AppHarness, topic: str, number: int) -> float:
    """Return how many seconds it takes until the offsets of so many records of a topic are committed."""
    clock = harness.kit.clock
    began = clock.time()
    while committed(harness, topic) < number:
        await clock.advance(0.005)
    return clock.time() - began


def committed(harness: AppHarness, topic: str) -> int:
    """Return how many records of a topic are committed right now."""
    offsets = harness.log._groups.get("app").committed()
    return sum(offset.offset for partition, offset in offsets.items() if partition.topic == topic)


@pytest.mark.parametrize("turns", range(80))
@in_virtual_time
async def test_a_commit_takes_requests_that_come_while_it_is_under_way(guarantee: str, turns: int) -> None:
    """A task that is fed when the commit has begun is committed when its call ends, though no commit is due for long."""
    calls = Calls(lambda: 0.5)
    async with AppHarness(side_by_side(calls, calls), topics=TOPICS, processing_guarantee=guarantee, **SELDOM) as harness:
        await harness.produce("plain", "k", "v")
        commit = asyncio.create_task(harness.app.commit(timeout_ms=60_000))
        await harness.turns(turns)
        await harness.produce("slow", "k", "v")
        await commit
        await harness.caught_up(timeout_ms=10_000)
        assert committed(harness, "slow") == 1


@in_virtual_time
async def test_slow_calls_hold_up_no_other_task(guarantee: str) -> None:
    """Beside calls of 10 s those of 1 ms, and records without calls, are committed as soon as ever: by the interval and a moment."""
    quick, slow = Calls(lambda: 0.001), Calls(lambda: 10.0)
    async with AppHarness(
        side_by_side(quick, slow),
        topics=TOPICS,
        processing_guarantee=guarantee,
        commit_interval_ms=100,
        max_drain_ms=60_000,
        transaction_timeout_ms=60_000,
    ) as harness:
        waits: dict[str, list[float]] = {"quick": [], "plain": []}
        for index in range(150):
            await harness.produce("slow", f"k{index}", f"v{index}")
            for topic, seconds in waits.items():
                await harness.produce(topic, f"k{index}", f"v{index}")
                seconds.append(await committed_after(harness, topic, index + 1))
            assert slow.in_flight > 0
        # The first commit of tasks that begin together waits for all of them.
        assert max(waits["quick"][1:]) < 0.15
        assert max(waits["plain"][1:]) < 0.15
        await harness.caught_up()
        assert Counter(record.value for record in await harness.read("slow-out")) == Counter(f"v{index}" for index in range(150))
        assert set(slow.made.values()) == set(quick.made.values()) == {1}


@in_virtual_time
async def test_offsets_of_others_are_committed_while_calls_are_in_flight(guarantee: str) -> None:
    """A kill in the middle of a slow call takes back work of its task alone; all others go on where they were."""
    quick, slow = Calls(lambda: 0.001), Calls(lambda: 10.0)
    async with AppHarness(
        side_by_side(quick, slow),
        topics=TOPICS,
        processing_guarantee=guarantee,
        commit_interval_ms=100,
        max_drain_ms=60_000,
        transaction_timeout_ms=60_000,
    ) as harness:
        await harness.produce("slow", "a", "v0")
        await harness.kit.clock.advance(0.3)
        await harness.produce_all("quick", [TestRecord(f"k{index}", f"v{index}", index) for index in range(50)])
        await harness.kit.clock.advance(0.5)
        await harness.crash()
        await harness.restart()
        await harness.caught_up()
        assert set(quick.made.values()) == {1}
        assert slow.made == {"v0": 2}
        assert [record.value for record in await harness.read("slow-out")] == ["v0"]
        assert len(await harness.read("quick-out")) == 50


@in_virtual_time
async def test_calls_that_do_not_end_fail_their_own_task_only(guarantee: str) -> None:
    """After max_drain_ms the task of a call that does not end is rolled back alone, with its output; no call of another is made again."""
    errors = Asked()
    quick = Calls(lambda: 0.001)
    stuck = ["stuck"]

    async def slow(value: str) -> str:
        if value in stuck:
            stuck.remove(value)
            await asyncio.get_running_loop().create_future()
        return value

    async with AppHarness(
        side_by_side(quick, slow), topics=TOPICS, processing_guarantee=guarantee, commit_interval_ms=100, max_drain_ms=700, uncaught_handler=errors
    ) as harness:
        for value in ("first", "stuck", "third"):
            await harness.produce("slow", value, value, partition=0)
        for index in range(40):
            await harness.produce("quick", f"k{index}", f"v{index}")
            await harness.kit.clock.advance(0.05)
        await harness.caught_up()
        assert len(errors) == 1
        assert isinstance(errors[0], TaskTimeout)
        assert "task 1_0 at slow-calls" in str(errors[0])
        assert "has ended for 0.7 s" in str(errors[0])
        assert set(quick.made.values()) == {1}
        values = [record.value for record in await harness.read("slow-out")]
        assert set(values) == {"first", "stuck", "third"}
        if guarantee == EOS:
            assert len(values) == 3


@in_virtual_time
async def test_an_explicit_commit_waits_for_calls_in_flight(guarantee: str) -> None:
    """`App.commit` returns when all that was in hand when it was asked for is committed, slow calls included; others are committed meanwhile."""
    quick, slow = Calls(lambda: 0.001), Calls(lambda: 3.0)
    async with AppHarness(side_by_side(quick, slow), topics=TOPICS, processing_guarantee=guarantee, commit_interval_ms=500) as harness:
        await harness.produce("slow", "a", "v0")
        await harness.kit.clock.advance(0.5)
        commit = asyncio.ensure_future(harness.app.commit())
        await harness.kit.clock.advance(1)
        await harness.produce("quick", "a", "v0")
        await harness.kit.clock.advance(1)
        assert not commit.done()
        assert len(await harness.read("quick-out")) == 1
        await harness.kit.clock.advance(1)
        assert commit.done()
        await commit
        assert len(await harness.read("slow-out")) == 1


@in_virtual_time
async def test_output_that_is_kept_apart_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly once the output of calls waits for their task's commit: one is asked for when more waits than may, however long the interval is."""
    monkeypatch.setattr(_collector, "_HIGH", 1 << 20)
    monkeypatch.setattr(_collector, "_LOW", 1 << 19)

    async def call(value: str) -> str:
        return value

    async with AppHarness(
        side_by_side(call, call), topics=TOPICS, processing_guarantee=EOS, commit_interval_ms=60_000, transaction_timeout_ms=600_000
    ) as harness:
        most = 0.0
        await harness.produce_all("quick", [TestRecord(f"k{index % 100}", "v" * 500, index) for index in range(20_000)])
        while harness.app.metrics()["process-total"] < 20_000:
            await harness.kit.clock.advance(0.01)
            figures = harness.app.metrics()
            most = max(most, figures["process-total"] - figures["produced-records-total"])
        assert most < 3 * (1 << 20) / 620
        await harness.caught_up()
        assert len(await harness.read("quick-out")) == 20_000


def counting(slow: Callable[[str], Awaitable[str]], quick: Callable[[str], Awaitable[str]], order: Any) -> Topology:
    """Count by key behind slow calls in one subtopology, behind quick ones in another."""
    builder = StreamsBuilder()
    for name, call in (("slow", slow), ("quick", quick)):
        stream = builder.stream(name, STRINGS).map_values(call, order=order, max_in_flight=5)
        counts = stream.group_by_key().count(Materialized(f"{name}-counts", serdes.STRING, serdes.LONG))
        counts.to_stream().to(f"{name}-out", Produced(serdes.STRING, serdes.LONG))
    return builder.build()


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("order", ["key", "partition", "none"])
@settings(max_examples=examples(8))
@given(seed=st.integers(0, 1 << 30))
def test_nothing_is_lost_or_doubled_by_kills(order: str, guarantee: str, seed: int) -> None:
    """However long calls take, through kills, refused commits and tasks that move: each task's output, state and offsets are of one moment."""
    random = Random(seed)
    slow, quick = Calls(lambda: random.choice((0.0, 0.03, 0.4, 2.0))), Calls(lambda: random.random() * 0.01)
    sent: dict[str, Counter[str]] = {"slow": Counter(), "quick": Counter()}

    async def test(harness: AppHarness) -> None:
        for _ in range(6):
            for topic, number in (("slow", random.randrange(12)), ("quick", random.randrange(60))):
                for _ in range(number):
                    key = f"{topic}{random.randrange(6)}"
                    sent[topic][key] += 1
                    await harness.produce(topic, key, f"v{random.random()}")
            await harness.kit.clock.advance(random.choice((0.0, 0.05, 0.11, 0.6, 1.5)))
            await harness.turns(random.randrange(60))
            fault = random.choice(("crash", "commit", "lost", "another", "close", "none"))
            if fault == "crash":
                await harness.crash()
                await harness.restart()
            elif fault == "commit":
                harness.fail("commit" if guarantee == EOS else "commit_offsets", ValueError("refused"))
            elif fault == "lost":
                harness.lose_membership()
            elif fault == "close":
                harness.log._faults._before.clear()
                await harness.close()
                await harness.start()
            elif fault == "another":
                # No commit has come to the refusal yet: the other one would close with it.
                harness.log._faults._before.clear()
                async with harness.another(client_id="other"):
                    await harness.kit.clock.advance(random.choice((0.0, 0.3, 3.0)))
        harness.log._faults._before.clear()
        await harness.caught_up()
        for topic in ("slow", "quick"):
            check_counts(await harness.read(f"{topic}-out"), sent[topic], guarantee)

    run_app(
        test,
        counting(slow, quick, order),
        seed=seed,
        topics=TOPICS,
        processing_guarantee=guarantee,
        num_workers=1 + seed % 2,
        commit_interval_ms=100,
        max_drain_ms=60_000,
        uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER,
    )


@in_virtual_time
async def test_output_of_a_task_that_failed_alone_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly once, a task with calls that do not end loses its uncommitted output, and is given its records again."""
    monkeypatch.setattr(_collector, "_HIGH", 1 << 19)
    monkeypatch.setattr(_collector, "_LOW", 1 << 18)
    stuck = ["stuck"]

    async def call(value: str) -> str:
        if value in stuck:
            stuck.remove(value)
            await asyncio.get_running_loop().create_future()
        return value

    async with AppHarness(
        side_by_side(call, call),
        topics={**TOPICS, "slow": 1},
        processing_guarantee=EOS,
        commit_interval_ms=100,
        max_drain_ms=700,
        uncaught_handler=lambda _: UncaughtResponse.REPLACE_WORKER,
    ) as harness:
        values = ["stuck", *("v" * 500 for _ in range(3_000))]
        await harness.produce_all("slow", [TestRecord(f"k{index}", value, index) for index, value in enumerate(values)])
        await harness.kit.clock.advance(2)
        assert Counter(record.value for record in await harness.read("slow-out")) == Counter(values)


@in_virtual_time
async def test_a_handover_waits_for_the_tasks_that_go_only(guarantee: str) -> None:
    """Tasks that move to another member are read there at once, though a task that stays has calls in flight for long."""
    slow = Calls(lambda: 30.0)

    builder = StreamsBuilder()
    builder.stream("plain", STRINGS).to("plain-out", STRINGS_OUT)
    builder.stream("slow", STRINGS).map_values(slow, name="slow-calls").to("slow-out", STRINGS_OUT)
    async with AppHarness(
        builder.build(),
        topics={**TOPICS, "plain": 8, "slow": 1},
        processing_guarantee=guarantee,
        commit_interval_ms=100,
        max_drain_ms=60_000,
        transaction_timeout_ms=60_000,
    ) as harness:
        await harness.produce("slow", "a", "v0")
        await harness.kit.clock.advance(0.5)
        for index in range(8):
            await harness.produce("plain", f"k{index}", f"v{index}", partition=index)
        await harness.kit.clock.advance(0.5)
        async with harness.another(client_id="other") as other:
            await harness.kit.clock.advance(5)
            assert {task.subtopology for task in other.app._metrics.tasks} == {0}
            assert len(other.app._metrics.tasks) >= 4
            assert slow.made == {"v0": 1}
            assert slow.in_flight == 1


@in_virtual_time
async def test_uncommitted_bytes_of_slow_calls_force_no_commits() -> None:
    """A task that a commit leaves out keeps more than `statestore_uncommitted_max_bytes`: others are not committed behind each slice for that."""
    slow = Calls(lambda: 10.0)
    builder = StreamsBuilder()
    counted = builder.stream("slow", STRINGS).group_by_key().count(Materialized("slow-counts", serdes.STRING, serdes.LONG)).to_stream()
    counted.map_values(str).map_values(slow, max_in_flight=1_000).to("slow-out", STRINGS_OUT)
    quick = builder.stream("quick", STRINGS).group_by_key().count(Materialized("quick-counts", serdes.STRING, serdes.LONG)).to_stream()
    quick.to("quick-out", Produced(serdes.STRING, serdes.LONG))
    async with AppHarness(builder.build(), topics=TOPICS, statestore_uncommitted_max_bytes=20_000, statestore_cache_max_bytes=0, **SELDOM) as harness:
        for index in range(400):
            await harness.produce("slow", f"key{index}", "v", partition=0)
        await harness.kit.clock.advance(0.5)
        before = harness.app.metrics()["commit-total"]
        for index in range(100):
            await harness.produce("quick", "k", f"v{index}")
            await harness.kit.clock.advance(0.01)
        assert slow.in_flight > 0
        assert harness.app.metrics()["commit-total"] - before < 20
        await harness.caught_up()
