"""Keys with a time to live, in apps that crash and move."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ks_actors import PunctuationType, serdes
from ks_actors.dsl import Materialized, StreamsBuilder
from ks_actors.testing import AppHarness
from ks_actors.topology import StoreType, Topology
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import EOS, GUARANTEES, STRINGS, STRINGS_OUT, befall, feed, in_app

TTL = 1_000


def _topology(store: StoreType, clock: PunctuationType) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS).expire(TTL, clock=clock, store_type=store)
    table = stream.to_table(Materialized("rows", serdes.STRING, serdes.STRING, store_type=store))
    table.to_stream().to("out", STRINGS_OUT)
    return builder.build()


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@pytest.mark.parametrize("seed", range(4))
@in_app(
    lambda store: _topology(store, PunctuationType.STREAM_TIME),
    topics={"in": 1, "out": 1},
    processing_guarantee=EOS,
    commit_interval_ms=100,
    num_standby_replicas=1,
)
async def test_each_key_is_deleted_once_whatever_happens(harness: AppHarness, store: StoreType, seed: int) -> None:
    """By event time the deletes are those of the records alone, and crashes and moves change nothing."""
    random = Random(seed)
    rows: list[tuple[str, int]] = []
    now = 0
    for _ in range(4):
        for _ in range(25):
            now += random.randrange(150)
            rows.append((f"k{random.randrange(8)}", now))
            await harness.produce("in", rows[-1][0], str(now), now)
        await harness.caught_up()
        await befall(harness, random)
    await feed(harness, "in", "end", "end", now + 100_000)
    wanted: list[Any] = []
    last: dict[str, int] = {}
    for key, time in [*rows, ("end", now + 100_000)]:
        for due, of in sorted((at + TTL, of) for of, at in last.items() if at + TTL <= time):
            wanted.append((of, None, due))
            del last[of]
        last[key] = time
        wanted.append((key, "end" if key == "end" else str(time), time))
    assert [(one.key, one.value, one.timestamp) for one in await harness.read("out")] == wanted


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@pytest.mark.parametrize("seed", range(3))
@in_app(
    lambda store: _topology(store, PunctuationType.WALL_CLOCK_TIME),
    topics={"in": 2, "out": 1},
    processing_guarantee=EOS,
    commit_interval_ms=100,
    num_standby_replicas=1,
)
async def test_by_the_wall_clock_a_restart_forgets_no_key(harness: AppHarness, store: StoreType, seed: int) -> None:
    """All are deleted once when their time is over, and the table is empty."""
    random = Random(seed)
    for number in range(8):
        await feed(harness, "in", f"k{number}", "v")
    await befall(harness, random)
    await harness.kit.clock.advance(5)
    assert await harness.app.store("rows").all() == []
    deleted = [one.key for one in await harness.read("out") if one.value is None]
    assert sorted(str(key) for key in deleted) == [f"k{number}" for number in range(8)]


def clock_story(seed: int) -> None:
    """Set the clock ahead and back, restart, and check that no key outlives its time since its last record, or since the last set-back."""
    random = Random(seed)
    store: Any = random.choice(("rocksdb", "in_memory"))
    day = 86_400.0

    @in_app(
        lambda: _topology(store, PunctuationType.WALL_CLOCK_TIME),
        topics={"in": 1, "out": 1},
        processing_guarantee=random.choice(GUARANTEES),
        commit_interval_ms=100,
        wall_clock_ms=int(10 * day * 1000),
    )
    async def run(harness: AppHarness) -> None:
        for number in range(random.randrange(3, 9)):
            await feed(harness, "in", f"k{random.randrange(4)}", str(number))
            match random.choice(("ahead", "back", "little", "restart", "wait", "none")):
                case "ahead":
                    harness.kit.set_clock_back(-random.choice((2, 60, day)))
                case "back":
                    harness.kit.set_clock_back(random.choice((2, 60, day)))
                case "little":
                    harness.kit.set_clock_back(random.choice((-0.01, 0.01)))
                case "restart":
                    await harness.restart()
                case "wait":
                    await harness.kit.clock.advance(random.choice((0.3, 2)))
                case _:
                    pass
        # Its time, two looks, and the second by which a clock may be ahead.
        await harness.kit.clock.advance(TTL / 1000 + 0.2 + 1 + 0.2)
        assert await harness.app.store("rows").all() == [], f"seed {seed}"
        last = {one.key: one.value for one in await harness.read("out")}
        assert set(last.values()) == {None}, f"seed {seed}"

    run()


def test_a_clock_that_was_ahead_keeps_no_key() -> None:
    """By the wall clock each key is deleted in its time after the clock is right, through restarts too."""
    for seed in range(examples(10)):
        clock_story(seed)
