"""Windows that close in a silence, behind topics of the app's own: what the app still has upstream is no silence."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from ks_actors import LogTimeout, serdes
from ks_actors.dsl import EmitStrategy, Materialized, Produced, Repartitioned, Stream, StreamsBuilder, TimeWindows
from ks_actors.testing import AppHarness
from ks_actors.topology import Topology
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import GUARANTEES, STRINGS, in_virtual_time
from tests.ks_actors.task.times.idle_stories import GRACE, IDS, SIZE, START, windowed_key

IDLE = 1_000
LONG = 120.0
WINDOW = ("a", START, START + SIZE)


def behind(hops: int = 1, *, seconds: float = 0, cached: bool = False, noise: bool = False, order: Any = "none") -> Topology:
    """Collect values in windows behind some repartition topics; a call upstream takes so long for values below 0."""

    async def slow(value: str) -> str:
        await asyncio.sleep(seconds if value.startswith("-") else 0)
        return value

    builder = StreamsBuilder()
    stream: Stream[str, Any] = builder.stream("in", STRINGS)
    if seconds:
        stream = stream.map_values(slow, order=order)
    if cached:
        stream = stream.to_table(Materialized("t", serdes.STRING, serdes.STRING)).to_stream()
    if noise:
        stream = stream.filter(lambda key, _: key != "noise")
    for hop in range(hops):
        stream = stream.repartition(Repartitioned(serdes.STRING, serdes.STRING, name=f"by{hop}"))
    windowed = stream.group_by_key().windowed_by(TimeWindows.of_size_and_grace(SIZE, GRACE))
    table = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE, idle_after_ms=IDLE).aggregate(
        list, lambda _, value, ids: [*ids, int(value)], Materialized("w", serdes.STRING, IDS, caching=False)
    )
    table.to_stream().to("out", Produced(windowed_key("tumbling"), IDS))
    return builder.build()


def app(topology: Topology, guarantee: str, **more: Any) -> AppHarness:
    settings: dict[str, Any] = {"commit_interval_ms": 100, "max_drain_ms": 60_000, **more}
    return AppHarness(topology, wall_clock_ms=START, topics={"in": 1, "out": 1}, processing_guarantee=guarantee, **settings)


async def results(harness: AppHarness) -> dict[tuple[str, int, int], list[int]]:
    found: dict[tuple[str, int, int], list[int]] = {}
    for record in await harness.read("out"):
        assert record.key is not None
        assert record.value is not None
        window = (record.key.key, record.key.window.start, record.key.window.end)
        assert window not in found
        found[window] = sorted(record.value)
    return found


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("hops", [1, 2])
@in_virtual_time
async def test_a_call_upstream_is_no_silence(hops: int, guarantee: str) -> None:
    """A record that an asynchronous function has, however many topics before the windows, is in the result."""
    async with app(behind(hops, seconds=25), guarantee) as harness:
        await harness.produce("in", "a", "0", START + 100)
        await harness.produce("in", "a", "-1", START + 200)
        await harness.kit.clock.advance(LONG)
        assert await results(harness) == {WINDOW: [-1, 0]}


@pytest.mark.parametrize("guarantee", GUARANTEES)
@in_virtual_time
async def test_a_cached_update_upstream_is_no_silence(guarantee: str) -> None:
    """An update that a cache upstream keeps until the next commit is in the result."""
    settings = {"commit_interval_ms": 10_000, "statestore_cache_max_bytes": 100_000}
    async with app(behind(cached=True), guarantee, **settings) as harness:
        await harness.produce("in", "a", "0", START + 100)
        await harness.kit.clock.advance(12)
        await harness.produce("in", "a", "1", START + 200)
        await harness.kit.clock.advance(LONG)
        assert await results(harness) == {WINDOW: [0, 1]}


@pytest.mark.parametrize("guarantee", GUARANTEES)
@in_virtual_time
async def test_a_pause_is_no_silence(guarantee: str) -> None:
    """Records that came while the app was paused are in the result."""
    async with app(behind(), guarantee) as harness:
        await harness.produce("in", "a", "0", START + 100)
        await harness.kit.clock.advance(0.5)
        await harness.app.pause()
        await harness.produce("in", "a", "1", START + 200)
        await harness.kit.clock.advance(LONG)
        await harness.app.resume()
        await harness.kit.clock.advance(LONG)
        assert await results(harness) == {WINDOW: [0, 1]}


@pytest.mark.parametrize("guarantee", GUARANTEES)
@in_virtual_time
async def test_a_failover_of_the_task_upstream_is_no_silence(guarantee: str) -> None:
    """A record that an instance had when it died is in the result of another one, which has the windows."""
    async with app(behind(), guarantee, session_timeout_ms=20_000) as first, first.another() as second:
        await first.kit.clock.advance(5)
        upstream, other = first, second
        if not any(each.task.subtopology == 0 for each in first.app.tasks()):
            upstream, other = second, first
        await first.produce("in", "a", "0", START + 100)
        await first.kit.clock.advance(0.5)
        await upstream.crash()
        await first.produce("in", "a", "1", START + 200)
        await first.kit.clock.advance(LONG)
        assert await results(other) == {WINDOW: [0, 1]}


@pytest.mark.parametrize("guarantee", GUARANTEES)
@in_virtual_time
async def test_records_that_come_meanwhile_hold_no_window_open(guarantee: str) -> None:
    """A stream upstream that never rests, but does not reach the windows, delays a result by commits, and not for ever."""
    async with app(behind(seconds=1, noise=True), guarantee) as harness:
        await harness.produce("in", "a", "0", START + 100)
        for _ in range(200):
            await harness.produce("in", "noise", "-1", START + 100)
            await harness.kit.clock.advance(0.05)
        assert await results(harness) == {WINDOW: [0]}


@in_virtual_time
async def test_a_log_that_does_not_tell_the_groups_offsets_closes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The app goes on, and warns once that the windows stay open; they close when the log answers."""
    async with app(behind(), "at_least_once") as harness:
        await harness.produce("in", "a", "0", START + 100)
        harness.fail("group_offsets", LogTimeout("away"), 1_000)
        await harness.kit.clock.advance(LONG)
        assert await results(harness) == {}
        assert sum("stay open" in each.message for each in caplog.records) == 1
        harness.log._faults._before.clear()
        await harness.kit.clock.advance(LONG)
        assert await results(harness) == {WINDOW: [0]}


def story(seed: int) -> None:
    """Have records in time come through random topologies, with pauses and crashes: each window has one result, with all of its records."""
    random = Random(seed)
    topology = behind(random.choice((1, 2)), seconds=random.choice((0, 0, 3, 25)), cached=random.random() < 0.3, order="partition")
    guarantee = random.choice(GUARANTEES)
    settings = {"commit_interval_ms": random.choice((100, 1_000, 5_000)), "statestore_cache_max_bytes": random.choice((0, 100_000))}
    values = [(random.choice(("", "-")) + str(number), random.choice((0.0, 0.3, 1.5))) for number in range(1, 5)]
    cached = bool(settings["statestore_cache_max_bytes"])

    @in_virtual_time
    async def run() -> None:
        async with app(topology, guarantee, **settings) as harness:
            for value, pause in values:
                # No record is behind the wall clock by more than the grace period when it is written.
                await harness.produce("in", "a", value, harness.kit.wall_time_ms())
                await harness.kit.clock.advance(pause)
                event = random.choice(("none", "none", "pause", "restart"))
                if event == "pause":
                    await harness.app.pause()
                    await harness.kit.clock.advance(random.choice((1, 40)))
                    await harness.app.resume()
                elif event == "restart":
                    await harness.restart()
            await harness.kit.clock.advance(LONG)
            assert harness.app.metrics()["dropped-records-total"] == 0, f"seed {seed}"
            if not cached:
                found = [value for ids in (await results(harness)).values() for value in ids]
                assert sorted(found) == sorted(int(value) for value, _ in values), f"seed {seed}"

    run()


def test_no_record_in_time_is_late_by_a_silence_behind_topics_of_the_app() -> None:
    """Records that are no later than the grace period when they are written are in the results, whatever the app has upstream."""
    for seed in range(examples(10)):
        story(seed)
