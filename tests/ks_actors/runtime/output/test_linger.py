"""The gathering of output that trickles, before it is written."""

from __future__ import annotations

import asyncio

import pytest

from ks_actors import Consumed, Produced, StreamsBuilder, serdes
from ks_actors.runtime import messages as m
from ks_actors.runtime.commit import Committer
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import ALOS, EOS, echo, in_app, in_virtual_time

SECONDS = 10
RECORDS = 2_000
TOPICS = {"in": 1, "out": 1}


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[m.CommitTimer]:
    """Collect the messages of the commit timer."""
    found: list[m.CommitTimer] = []
    receive = Committer.receive

    async def note(committer: Committer, message: m.CommitterMessage) -> None:
        if isinstance(message, m.CommitTimer):
            found.append(message)
        await receive(committer, message)

    monkeypatch.setattr(Committer, "receive", note)
    return found


async def values(harness: AppHarness) -> list[str | None]:
    return [record.value for record in await harness.read("out")]


@in_app(echo(), topics=TOPICS, processing_guarantee=ALOS, linger_ms=SECONDS * 1_000)
async def test_output_after_a_quiet_moment_is_written_at_once_and_further_output_is_gathered(harness: AppHarness) -> None:
    """The first record is not delayed; the next ones wait until half of linger_ms after it was sent, and leave together."""
    await harness.produce("in", "a", "1")
    await harness.kit.clock.advance(1)
    assert await values(harness) == ["1"]
    for value in ("2", "3"):
        await harness.produce("in", "a", value)
        await harness.kit.clock.advance(1)
    assert await values(harness) == ["1"]
    await harness.kit.clock.advance(SECONDS)
    assert await values(harness) == ["1", "2", "3"]
    await harness.kit.clock.advance(SECONDS)
    await harness.produce("in", "a", "4")
    await harness.kit.clock.advance(1)
    assert await values(harness) == ["1", "2", "3", "4"]


@in_app(echo(), topics=TOPICS, processing_guarantee=ALOS, linger_ms=SECONDS * 1_000)
async def test_a_commit_does_not_wait_for_output_to_be_gathered(harness: AppHarness) -> None:
    """It writes the held-back records first, with any linger_ms."""
    for value in ("1", "2"):
        await harness.produce("in", "a", value)
        await harness.kit.clock.advance(1)
    assert await values(harness) == ["1"]
    await harness.app.commit()
    assert await values(harness) == ["1", "2"]


@in_app(echo(), topics=TOPICS, processing_guarantee=ALOS, linger_ms=SECONDS * 1_000)
async def test_much_output_is_not_held_back(harness: AppHarness) -> None:
    """More than a quarter of a MiB is written at once, however short ago the last send was."""
    await harness.produce("in", "a", "first")
    await harness.kit.clock.advance(1)
    for number in range(RECORDS):
        await harness.produce("in", "a", f"{number:0200}")
    await harness.kit.clock.advance(1)
    assert len(await values(harness)) > RECORDS // 2


@in_app(echo(), topics=TOPICS, processing_guarantee=ALOS, linger_ms=0)
async def test_without_linger_nothing_is_held_back(harness: AppHarness) -> None:
    """With a linger_ms of 0 each record is written as soon as it is made."""
    for value in ("1", "2", "3"):
        await harness.produce("in", "a", value)
        await harness.kit.quiesce()
    assert await values(harness) == ["1", "2", "3"]


@in_app(echo(), topics=TOPICS, commit_interval_ms=100)
async def test_an_app_without_records_does_not_stop_its_workers(harness: AppHarness) -> None:
    """Commits that are due find nothing to commit without a pause; the next record is committed all the same."""
    await harness.kit.clock.advance(SECONDS)
    assert harness.app.metrics()["commit-pause-max"] == 0
    await harness.produce("in", "a", "1")
    await harness.kit.clock.advance(SECONDS)
    metrics = harness.app.metrics()
    assert metrics["commit-total"] == 1
    assert metrics["commit-pause-max"] > 0


@pytest.mark.parametrize("interval_ms", [0, 1, 100, 3_000])
@in_virtual_time
async def test_an_app_without_records_does_not_wake_up_each_interval(guarantee: str, interval_ms: int, timers: list[m.CommitTimer]) -> None:
    """The commit timer rests for a second while there is nothing to commit; work that begins has its commit within the interval."""
    async with AppHarness(echo(), topics=TOPICS, processing_guarantee=guarantee, commit_interval_ms=interval_ms) as harness:
        for number in range(1, 4):
            await harness.kit.clock.advance(SECONDS)
            before = len(timers)
            await harness.kit.clock.advance(SECONDS)
            assert len(timers) - before <= SECONDS
            await harness.produce("in", "a", "1")
            await harness.kit.clock.advance(interval_ms / 1000 + 0.01)
            assert harness.app.metrics()["commit-total"] == number


@pytest.mark.parametrize("pause_ms", [3_001, 3_500, 60_000])
@in_app(echo(), topics=TOPICS, processing_guarantee=EOS, commit_interval_ms=3_000)
async def test_exactly_once_a_record_after_a_quiet_interval_is_committed_at_once(harness: AppHarness, pause_ms: int) -> None:
    """The interval has passed since the last commit, so it does not begin anew; the next record waits for its end."""
    await harness.produce("in", "a", "1")
    await harness.kit.clock.advance(3)
    assert len(await harness.read("out")) == 1
    for number in (2, 4):
        await harness.kit.clock.advance(pause_ms / 1000)
        await harness.produce("in", "a", "at once")
        await harness.kit.clock.advance(0.01)
        assert len(await harness.read("out")) == number
        await harness.produce("in", "a", "waits")
        await harness.kit.clock.advance(2.9)
        assert len(await harness.read("out")) == number
        await harness.kit.clock.advance(0.1)
        assert len(await harness.read("out")) == number + 1


@pytest.mark.parametrize("calls", [1, 3])
@in_virtual_time
async def test_exactly_once_a_call_after_a_quiet_interval_is_committed_when_it_ends(calls: int) -> None:
    """Also one behind the other; while calls go on and on, a commit comes by the interval."""

    async def call(value: str) -> str:
        await asyncio.sleep(0.2)
        return value

    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(serdes.STRING, serdes.STRING))
    for _ in range(calls):
        stream = stream.map_values(call)
    stream.to("out", Produced(serdes.STRING, serdes.STRING))
    async with AppHarness(builder.build(), topics=TOPICS, processing_guarantee=EOS, commit_interval_ms=3_000) as harness:
        await harness.kit.clock.advance(SECONDS)
        for number in range(1, 3):
            await harness.produce("in", "a", "x")
            await harness.kit.clock.advance(calls * 0.2 - 0.01)
            assert len(await harness.read("out")) == number - 1
            await harness.kit.clock.advance(0.03)
            assert len(await harness.read("out")) == number
            await harness.kit.clock.advance(SECONDS)
        commits = harness.app.metrics()["commit-total"]
        for number in range(100):
            await harness.produce("in", str(number), "x")
            await harness.kit.clock.advance(0.1)
        assert harness.app.metrics()["commit-total"] > commits + 1


@in_app(echo(), topics=TOPICS, commit_interval_ms=100)
async def test_the_commit_timer_does_not_rest_while_a_worker_has_a_task(harness: AppHarness, guarantee: str, timers: list[m.CommitTimer]) -> None:
    """A thread may be at a punctuator, and nobody knows yet whether it makes something to commit."""
    # In virtual time no thread is at work while time passes.
    harness.app._metrics.at_work = lambda: True
    await harness.kit.clock.advance(SECONDS)
    assert len(timers) >= 90
    harness.app._metrics.at_work = lambda: False
    await harness.produce("in", "a", "1")
    await harness.kit.clock.advance(0.11)
    assert harness.app.metrics()["commit-total"] == 1
