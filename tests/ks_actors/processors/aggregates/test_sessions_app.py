"""Sessions in an app that crashes, restarts and moves: each has all its records, once."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ks_actors import Window, Windowed, serdes
from ks_actors.dsl import EmitStrategy, Materialized, Produced, SessionWindows, StreamsBuilder
from ks_actors.testing import AppHarness
from ks_actors.topology import StoreType, Topology
from tests.ks_actors.runtime.helpers import EOS, STRINGS, by_key, in_app

GAP, GRACE, LATE = 100, 500, 200
TOPICS = {"in": 2, "out": 1}


def visits(store: StoreType, emit: EmitStrategy) -> Topology:
    builder = StreamsBuilder()
    windowed = builder.stream("in", STRINGS).group_by_key().windowed_by(SessionWindows.of_inactivity_gap_and_grace(GAP, GRACE))
    counts = windowed.emit_strategy(emit).count(Materialized("visits", serdes.STRING, serdes.LONG, store_type=store, retention_ms=1 << 40))
    counts.to_stream().to("out", Produced(serdes.session_windowed(serdes.STRING), serdes.LONG))
    return builder.build()


def sessions_of(times: dict[str, list[int]]) -> dict[Windowed[str], int]:
    """Return the sessions, with the number of their records."""
    found: dict[Windowed[str], int] = {}
    for key, of_key in times.items():
        run: list[int] = []
        for time in sorted(of_key):
            if run and time - run[-1] > GAP:
                found[Windowed(key, Window(run[0], run[-1]))] = len(run)
                run = []
            run.append(time)
        found[Windowed(key, Window(run[0], run[-1]))] = len(run)
    return found


class Visitors:
    """Produce records that are a little out of order."""

    def __init__(self, harness: AppHarness, seed: int) -> None:
        self._harness = harness
        self._random = Random(seed)
        self._time = LATE
        self.times: dict[str, list[int]] = {}

    async def come(self, count: int) -> None:
        for _ in range(count):
            self._time += self._random.randrange(40)
            key, time = f"k{self._random.randrange(6)}", self._time - self._random.randrange(LATE)
            self.times.setdefault(key, []).append(time)
            await self._harness.produce("in", key, "v", time)

    async def leave(self) -> None:
        """Move stream time on in both partitions."""
        self._time += 100_000
        for partition in range(2):
            await self._harness.produce("in", f"last{partition}", "v", self._time, partition=partition)


async def shake(harness: AppHarness, seed: int) -> None:
    """Crash, with or without the state on disk, close, or go on; then start again."""
    random = Random(seed)
    if random.random() < 0.5:
        await harness.caught_up()
    how = random.choice(("crash", "wipe", "close"))
    if how == "close":
        await harness.close()
    else:
        await harness.crash()
        if how == "wipe":
            harness.wipe_state()
    await harness.restart()


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@pytest.mark.parametrize("seed", range(3))
@in_app(lambda store: visits(store, EmitStrategy.ON_WINDOW_UPDATE), topics=TOPICS, processing_guarantee=EOS, commit_interval_ms=100)
async def test_sessions_are_exact_after_any_fault(harness: AppHarness, store: StoreType, seed: int) -> None:
    """The last results of the sessions that were not deleted, and the store, are the aggregates of the records."""
    visitors = Visitors(harness, seed)
    for round_ in range(4):
        await visitors.come(60)
        await shake(harness, 10 * seed + round_)
    await visitors.come(30)
    await harness.caught_up()
    expected = sessions_of(visitors.times)
    results = {key: values[-1] for key, values in by_key(await harness.read("out")).items()}
    assert {key: value for key, value in results.items() if value is not None} == expected
    await harness.app.commit()
    stored: Any = await harness.app.store("visits").all()
    assert dict(stored) == expected


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@pytest.mark.parametrize("seed", range(3))
@in_app(lambda store: visits(store, EmitStrategy.ON_WINDOW_CLOSE), topics=TOPICS, processing_guarantee=EOS, commit_interval_ms=100)
async def test_final_results_of_sessions_come_exactly_once(harness: AppHarness, store: StoreType, seed: int) -> None:
    """At any time when the app ended: a task that begins again knows the emitted results, and the others."""
    visitors = Visitors(harness, seed)
    for round_ in range(4):
        await visitors.come(60)
        await shake(harness, 10 * seed + round_)
    await visitors.leave()
    await harness.caught_up()
    results = {key: values for key, values in by_key(await harness.read("out")).items() if not key.key.startswith("last")}
    assert results == {key: [value] for key, value in sessions_of(visitors.times).items()}


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@in_app(
    lambda store: visits(store, EmitStrategy.ON_WINDOW_UPDATE),
    topics=TOPICS,
    processing_guarantee=EOS,
    commit_interval_ms=100,
    num_standby_replicas=1,
)
async def test_sessions_move_with_standbys(harness: AppHarness, store: StoreType) -> None:
    """Session stores are kept up by standbys, taken over, and given back."""
    visitors = Visitors(harness, 7)
    for _ in range(2):
        async with harness.another():
            await visitors.come(60)
            await harness.caught_up()
        await visitors.come(20)
    await harness.caught_up()
    results = {key: values[-1] for key, values in by_key(await harness.read("out")).items()}
    assert {key: value for key, value in results.items() if value is not None} == sessions_of(visitors.times)
