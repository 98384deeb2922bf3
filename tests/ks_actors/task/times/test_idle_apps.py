"""Windows that close in a silence, in apps that crash, restart, move and lose their log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ks_actors import LogTimeout, serdes
from ks_actors.dsl import BufferConfig, EmitStrategy, Materialized, Produced, Stream, StreamsBuilder, Suppressed, TimeWindows
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import EOS, GUARANTEES, STRINGS, feed, in_virtual_time
from tests.ks_actors.task.times.idle_stories import GRACE, IDS, KINDS, SIZE, START, Story, expected, topology, windowed_key, wrong_in

IDLE = 1_000
LONG = 60.0
TOPICS = {"in": 1, "out": 1}


def _app(made: Topology, *, guarantee: str = EOS, **more: Any) -> AppHarness:
    settings = {"commit_interval_ms": 100, **more}
    return AppHarness(made, wall_clock_ms=START, topics=TOPICS, processing_guarantee=guarantee, **settings)


async def _results(harness: AppHarness) -> dict[tuple[str, int, int], list[int]]:
    """Return the results so far; a window has one."""
    found: dict[tuple[str, int, int], list[int]] = {}
    for record in await harness.read("out"):
        assert record.key is not None
        assert record.value is not None
        window = (record.key.key, record.key.window.start, record.key.window.end)
        assert window not in found
        found[window] = sorted(record.value)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_each_window_has_one_result_with_all_its_records(kind: str, seed: int) -> None:
    """Crashes and moves may come in between: records that are no later than the grace period are never late by a silence.

    `python -m tests.ks_actors.task.times.idle_search 0 1000` tries a thousand stories.
    """
    assert wrong_in(Story.of(seed, kind)) == []


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("kind", KINDS)
@in_virtual_time
async def test_windows_close_when_all_keys_have_fallen_silent(kind: str, guarantee: str) -> None:
    """An app writes the last results without another record (quix-streams #790), and nothing more."""
    rows = [("a", START + 100, 0), ("b", START + 300, 1), ("a", START + 900, 2)]
    async with _app(topology(kind, "rocksdb", IDLE), guarantee=guarantee) as harness:
        for key, time, number in rows:
            await harness.produce("in", key, str(number), time)
        await harness.kit.clock.advance(LONG)
        found = await _results(harness)
        assert expected(kind, rows).items() <= found.items()
        await harness.kit.clock.advance(LONG)
        assert await _results(harness) == found


@pytest.mark.parametrize("wipe", [False, True])
@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("kind", KINDS)
@in_virtual_time
async def test_what_is_closed_stays_closed(kind: str, guarantee: str, wipe: bool) -> None:
    """A task that restarts, with or without its disk, drops and counts a record for a window that a silence has closed."""
    async with _app(topology(kind, "rocksdb", IDLE), guarantee=guarantee) as harness:
        await harness.produce("in", "a", "0", START + 100)
        await harness.kit.clock.advance(LONG)
        before = await _results(harness)
        assert before
        await harness.crash()
        if wipe:
            harness.wipe_state()
        await harness.restart()
        await harness.produce("in", "a", "1", START - SIZE if kind == "sliding" else START)
        await harness.kit.clock.advance(LONG)
        assert harness.app.metrics()["dropped-records-total"] > 0
        assert await _results(harness) == before


@pytest.mark.parametrize("kind", KINDS)
@in_virtual_time
async def test_open_windows_close_after_a_restart_without_a_record(kind: str) -> None:
    """The silence begins anew with the task, and the windows that its store has close by it."""
    async with _app(topology(kind, "in_memory", 2_000)) as harness:
        await feed(harness, "in", "a", "0", START + 100)
        await harness.app.commit()
        await harness.crash()
        await harness.kit.clock.advance(LONG)
        await harness.restart()
        await harness.kit.clock.advance(0.9)
        assert not expected(kind, [("a", START + 100, 0)]).items() <= (await _results(harness)).items() or kind == "sliding"
        await harness.kit.clock.advance(LONG)
        assert expected(kind, [("a", START + 100, 0)]).items() <= (await _results(harness)).items()


@pytest.mark.parametrize("what", ["fetch", "end_offsets"])
@in_virtual_time
async def test_a_log_that_does_not_answer_is_no_silence(what: Any) -> None:
    """Records may wait there: nothing closes until the log has answered that there are none."""
    window = ("a", START, START + SIZE)
    async with _app(topology("tumbling", "in_memory", 5_000)) as harness:
        await feed(harness, "in", "a", "0", START + 100)
        held = harness.log.hold(what)
        await harness.kit.clock.advance(1.1)  # beyond the fetch that waits
        await harness.produce("in", "a", "1", START + 200)
        await harness.kit.clock.advance(LONG)
        if what == "fetch":
            assert await _results(harness) == {}
        held.set()
        await harness.kit.clock.advance(LONG)
        assert await _results(harness) == {window: [0, 1]}


@in_virtual_time
async def test_a_log_that_is_away_for_long_ends_no_idle_app() -> None:
    """The end offsets are asked for again, behind `task_timeout_ms` too."""
    async with _app(topology("tumbling", "in_memory", IDLE), task_timeout_ms=500) as harness:
        await feed(harness, "in", "a", "0", START + 100)
        harness.fail("end_offsets", LogTimeout("away"), 1_000)
        await harness.kit.clock.advance(LONG)
        assert await _results(harness) == {}
        harness.log._faults._before.clear()
        await harness.kit.clock.advance(LONG)
        assert await _results(harness) == {("a", START, START + SIZE): [0]}


@in_virtual_time
async def test_a_call_in_flight_is_no_silence() -> None:
    """A record that an asynchronous function still has may be for a window: it stays open."""
    builder = StreamsBuilder()

    async def slow(value: str) -> str:
        await asyncio.sleep(20 if value == "1" else 0)
        return value

    windowed = builder.stream("in", STRINGS).map_values(slow).group_by_key().windowed_by(TimeWindows.of_size_and_grace(SIZE, GRACE))
    table = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE, idle_after_ms=IDLE).aggregate(
        list, lambda _, value, ids: [*ids, int(value)], Materialized("w", serdes.STRING, IDS)
    )
    table.to_stream().to("out", Produced(windowed_key("tumbling"), IDS))
    async with _app(builder.build(), max_drain_ms=60_000) as harness:
        await harness.produce("in", "a", "0", START + 100)
        await harness.produce("in", "a", "1", START + 200)
        await harness.kit.clock.advance(19)
        assert await _results(harness) == {}
        await harness.kit.clock.advance(10)
        assert await _results(harness) == {("a", START, START + SIZE): [0, 1]}


@pytest.mark.parametrize("order", ["key", "partition", "none"])
@pytest.mark.parametrize("guarantee", GUARANTEES)
@in_virtual_time
async def test_calls_that_began_after_a_silence_hold_no_window_open(guarantee: str, order: Any) -> None:
    """A function before the windows always has records in flight: the result waits for those from before the silence, and for no others."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS).map_values(_for_a_second, order=order)
    _to_windows(stream.filter(lambda key, _: not key.startswith("noise")))
    async with _app(builder.build(), guarantee=guarantee) as harness:
        await _in_noise(LONG, within=10)(harness)


@in_virtual_time
async def test_calls_one_after_another_are_waited_for_in_turn() -> None:
    """A record that goes from one function to the next is on its way all the time: it is in the result."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    for _ in range(3):
        stream = stream.map_values(_for_a_second)
    _to_windows(stream.filter(lambda key, _: not key.startswith("noise")))

    async def _produce_at(harness: AppHarness, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await harness.produce("in", "a", "1", START + 1_900)

    async with _app(builder.build(), guarantee="at_least_once") as harness:
        # The second record comes to the windows later than they would close without it.
        late = asyncio.ensure_future(_produce_at(harness, IDLE / 1000 + 2.1))
        await _in_noise(LONG, within=25, numbers=[0, 1])(harness)
        await late


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_leads_to_other_nodes_holds_no_window_open(guarantee: str) -> None:
    """Calls and cached updates of a branch beside the windows are not waited for, however long they take."""
    builder = StreamsBuilder()

    async def slow(value: str) -> str:
        await asyncio.sleep(30)
        return value

    stream = builder.stream("in", STRINGS)
    stream.map_values(slow).to("other", Produced(serdes.STRING, serdes.STRING))
    stream.group_by_key().count(Materialized("c", serdes.STRING, serdes.LONG)).to_stream().map_values(str).to("other")
    _to_windows(stream.filter(lambda key, _: not key.startswith("noise")))
    run_app(
        _in_noise(LONG, within=4 if guarantee == "at_least_once" else 45),
        builder.build(),
        wall_clock_ms=START,
        topics={**TOPICS, "other": 1},
        processing_guarantee=guarantee,
        commit_interval_ms=5_000,
        statestore_cache_max_bytes=1_000_000,
        max_drain_ms=60_000,
        default_key_serde=serdes.STRING,
        default_value_serde=serdes.STRING,
    )


async def _for_a_second(value: str) -> str:
    await asyncio.sleep(1)
    return value


def _to_windows(stream: Stream[str, str]) -> None:
    windowed = stream.group_by_key().windowed_by(TimeWindows.of_size_and_grace(SIZE, GRACE))
    table = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE, idle_after_ms=IDLE).aggregate(
        list, lambda _, value, ids: [*ids, int(value)], Materialized("w", serdes.STRING, IDS, caching=False)
    )
    table.to_stream().to("out", Produced(windowed_key("tumbling"), IDS))


def _in_noise(seconds: float, *, within: float, numbers: Sequence[int] = (0,)) -> Any:
    """Return a test: the window of the records has its result within some seconds of a time in which other records come."""

    async def noise(harness: AppHarness) -> None:
        for number in range(int(seconds * 20)):
            await harness.produce("in", f"noise{number}", "9", harness.kit.wall_time_ms())
            await asyncio.sleep(1 / 20)

    async def test(harness: AppHarness) -> None:
        others = asyncio.ensure_future(noise(harness))
        await harness.produce("in", "a", "0", START + 100)
        await asyncio.sleep(within)
        assert await _results(harness) == {("a", START, START + SIZE): list(numbers)}
        others.cancel()

    return test


@in_virtual_time
async def test_records_that_do_not_reach_the_windows_are_no_activity() -> None:
    """A filter before them drops all; the windows close as if nothing came."""
    builder = StreamsBuilder()
    windowed = (
        builder.stream("in", STRINGS)
        .filter(lambda key, _: key != "noise")
        .group_by_key()
        .windowed_by(TimeWindows.of_size_and_grace(SIZE, GRACE))
        .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE, idle_after_ms=IDLE)
    )
    table = windowed.aggregate(list, lambda _, value, ids: [*ids, int(value)], Materialized("w", serdes.STRING, IDS))
    table.to_stream().to("out", Produced(windowed_key("tumbling"), IDS))
    async with _app(builder.build()) as harness:
        await harness.produce("in", "a", "0", START + 100)
        for _ in range(200):
            await harness.produce("in", "noise", "1", START + 100)
            await harness.kit.clock.advance(0.03)
        assert await _results(harness) == {("a", START, START + SIZE): [0]}


@pytest.mark.parametrize("guarantee", GUARANTEES)
@in_virtual_time
async def test_updates_in_a_cache_reach_suppress_before_a_silence_ends(guarantee: str) -> None:
    """The result has the updates that a cache upstream keeps until the next commit."""
    builder = StreamsBuilder()
    counts = (
        builder.stream("in", STRINGS)
        .group_by_key()
        .windowed_by(TimeWindows.of_size_and_grace(SIZE, GRACE))
        .aggregate(list, lambda _, value, ids: [*ids, int(value)], Materialized("w", serdes.STRING, IDS))
    )
    suppressed = counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded(), idle_after_ms=IDLE))
    suppressed.to_stream().to("out", Produced(windowed_key("suppress"), IDS))
    async with _app(builder.build(), guarantee=guarantee, commit_interval_ms=5_000, statestore_cache_max_bytes=100_000) as harness:
        await feed(harness, "in", "a", "0", START + 100)
        await harness.produce("in", "a", "1", START + 200)
        await harness.kit.clock.advance(LONG)
        assert await _results(harness) == {("a", START, START + SIZE): [0, 1]}


@in_virtual_time
async def test_an_idle_app_commits_nothing_more() -> None:
    """When all windows are closed, the app has nothing to close, nor to commit."""
    async with _app(topology("tumbling", "in_memory", IDLE)) as harness:
        await harness.produce("in", "a", "0", START + 100)
        await harness.kit.clock.advance(LONG)
        harness.fail("commit", LogTimeout("nobody commits"), 1_000)
        await harness.kit.clock.advance(LONG)
        faults = harness.log._faults._before
        assert len(faults["commit"]) == 1_000
        faults.clear()
