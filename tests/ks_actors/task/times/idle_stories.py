"""Apps with silences, crashes and moves, and what their windows come to."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, NamedTuple

from ks_actors import serdes
from ks_actors.dsl import (
    BufferConfig,
    EmitStrategy,
    Materialized,
    Produced,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from ks_actors.serdes import Serde
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import StoreType, Topology
from tests.ks_actors.dsl.windows.uneven import Uneven
from tests.ks_actors.runtime.helpers import EOS, STRINGS, by_key

SIZE, ADVANCE, GRACE = 2_000, 1_000, 500
CUSTOM = Uneven(3_000, GRACE)
KINDS = ("tumbling", "hopping", "sliding", "sessions", "suppress", "custom", "custom suppress")
START = 1_000_000
NOISE = "noise"
SLOW_S = 1.5
IDS: Serde[Any] = serdes.json(list[int])
Row = tuple[str, int, int]
"""Key, timestamp and number of a record."""


class Story(NamedTuple):
    """A kind of windows, where they are kept, the time of patience, and the seed of all that happens.

    With `slow` an asynchronous function is before the windows, and always has records that go to none of them.
    """

    kind: str
    store: StoreType
    idle_after_ms: int
    seed: int
    slow: bool = False

    @classmethod
    def of(cls, seed: int, kind: str | None = None) -> Story:
        random = Random(seed)
        chosen, idle = random.choice(KINDS), random.choice((50, 300, 1_000, 4_000))
        store: StoreType = random.choice(("in_memory", "rocksdb"))
        return cls(kind or chosen, store, idle, seed, random.random() < 0.5)


def windowed_key(kind: str) -> Serde[Any]:
    if kind.startswith("custom"):
        return serdes.windowed(serdes.STRING, CUSTOM)
    return serdes.session_windowed(serdes.STRING) if kind == "sessions" else serdes.windowed(serdes.STRING, SIZE)


def _added(_: str, value: str, ids: list[int]) -> list[int]:
    return [*ids, int(value)]


async def _slow(value: str) -> str:
    await asyncio.sleep(SLOW_S * Random(value).random())
    return value


def topology(kind: str, store: StoreType, idle_after_ms: int | None, *, slow: bool = False) -> Topology:
    """Collect the numbers of the records of each window, and write each window once."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    if slow:
        stream = stream.map_values(_slow, order="partition").filter(lambda key, _: key != NOISE)
    grouped = stream.group_by_key()
    kept = Materialized("windows", serdes.STRING, IDS, store_type=store)
    close: Any = EmitStrategy.ON_WINDOW_CLOSE
    if kind == "sessions":
        sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(SIZE, GRACE)).emit_strategy(close, idle_after_ms=idle_after_ms)
        table: Any = sessions.aggregate(list, _added, lambda _, one, other: one + other, kept)
    elif kind.endswith("suppress"):
        counts = grouped.windowed_by(CUSTOM if kind.startswith("custom") else TimeWindows.of_size_and_grace(SIZE, GRACE)).aggregate(
            list, _added, kept
        )
        table = counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded(), idle_after_ms=idle_after_ms))
    else:
        windows: Any = {
            "tumbling": TimeWindows.of_size_and_grace(SIZE, GRACE),
            "hopping": TimeWindows.of_size_and_grace(SIZE, GRACE).advance_by(ADVANCE),
            "sliding": SlidingWindows.of_time_difference_and_grace(SIZE, GRACE),
            "custom": CUSTOM,
        }[kind]
        table = grouped.windowed_by(windows).emit_strategy(close, idle_after_ms=idle_after_ms).aggregate(list, _added, kept)
    table.to_stream().to("out", Produced(windowed_key(kind), IDS))
    return builder.build()


def expected(kind: str, rows: list[Row]) -> dict[tuple[str, int, int], list[int]]:
    """Return the windows that the records come to, with their numbers; of sliding ones those that end with a record."""
    found: dict[tuple[str, int, int], list[int]] = {}
    if kind == "sessions":
        for key in {row[0] for row in rows}:
            run: list[Row] = []
            for row in [*sorted((one for one in rows if one[0] == key), key=lambda one: one[1]), ("", 1 << 60, 0)]:
                if run and row[1] - run[-1][1] > SIZE:
                    found[key, run[0][1], run[-1][1]] = [one[2] for one in run]
                    run = []
                run.append(row)
    elif kind == "sliding":
        for key, time, _ in rows:
            found[key, time - SIZE, time] = [other[2] for other in rows if other[0] == key and time - SIZE <= other[1] <= time]
    elif kind.startswith("custom"):
        for key, time, number in rows:
            for start, end in CUSTOM.windows_for(time):
                found.setdefault((key, start, end), []).append(number)
    else:
        advance = ADVANCE if kind == "hopping" else SIZE
        for key, time, number in rows:
            for start in range((time - SIZE + advance) // advance * advance, time + 1, advance):
                found.setdefault((key, start, start + SIZE), []).append(number)
    return {window: sorted(numbers) for window, numbers in found.items()}


def differences(kind: str, rows: list[Row], out: list[Any]) -> list[str]:
    """Return what is wrong with final results, if each record was in time."""
    results = {(key.key, key.window.start, key.window.end): values for key, values in by_key(out).items()}
    wrong = [f"{window} has {len(values)} results: {values}" for window, values in results.items() if len(values) != 1]
    wanted = expected(kind, rows)
    for window, numbers in wanted.items():
        found = results.get(window, [])
        if list(map(sorted, found)) != [numbers]:
            wrong.append(f"{window}: {found} instead of {numbers}")
    if kind != "sliding":
        wrong += [f"{window} came out of nothing" for window in results.keys() - wanted.keys()]
    return wrong


async def happen(harness: AppHarness, story: Story) -> list[Row]:
    """Write records with the time of the wall clock, or up to the grace period before it; be silent, crash, and move in between."""
    random = Random(story.seed)
    rows: list[Row] = []
    clock = harness.kit.clock
    noise = asyncio.ensure_future(_make_noise(harness)) if story.slow else None
    for _ in range(random.randint(2, 5)):
        for _ in range(random.randint(1, 4)):
            now = harness.kit.wall_time_ms()
            row = (random.choice("abcd"), now - random.choice((0, 0, 0, 7, 250, GRACE)), len(rows))
            rows.append(row)
            await harness.produce("in", row[0], str(row[2]), row[1])
            if random.random() < 0.6:
                await clock.advance(random.choice((0.001, 0.05, 0.4, 1.5, 3.0, 8.0)))
        fate = random.choice(("go on", "go on", "crash", "wipe", "close", "restart", "move"))
        if fate == "move":
            async with harness.another():
                await clock.advance(random.choice((0.1, 1.0, 4.0)))
        elif fate != "go on":
            await (harness.close() if fate in {"close", "restart"} else harness.crash())
            if fate == "wipe":
                harness.wipe_state()
            if random.random() < 0.3:
                await clock.advance(random.choice((0.1, 5.0)))
            await harness.restart()
        await clock.advance(random.choice((0.0, 0.02, 0.5, 2.5, 6.0)))
    if noise is not None:
        await clock.advance((story.idle_after_ms + 2 * SIZE + 2 * GRACE) / 1000 + 4 * SLOW_S + 1)
        noise.cancel()
    return rows


async def _make_noise(harness: AppHarness) -> None:
    while True:
        await asyncio.sleep(SLOW_S / 10)
        await harness.produce("in", NOISE, "", harness.kit.wall_time_ms())


def wrong_in(story: Story) -> list[str]:
    """Return what is wrong after all that happens in a story, and a last silence."""

    async def test(harness: AppHarness) -> list[str]:
        rows = await happen(harness, story)
        await harness.caught_up()
        await harness.kit.clock.advance((story.idle_after_ms + SIZE + 2 * GRACE) / 1000 + SIZE / 1000 + 2)
        await harness.caught_up()
        return differences(story.kind, rows, await harness.read("out"))

    return run_app(
        test,
        topology(story.kind, story.store, story.idle_after_ms, slow=story.slow),
        seed=story.seed,
        topics={"in": 2, "out": 1},
        wall_clock_ms=START,
        processing_guarantee=EOS,
        commit_interval_ms=100,
        num_standby_replicas=1,
    )
