"""Joins of two streams, in apps that crash and move."""

from __future__ import annotations

from random import Random
from typing import Literal

import pytest

from ks_actors import serdes
from ks_actors.dsl import JoinWindows, StreamJoined, StreamsBuilder
from ks_actors.testing import AppHarness
from ks_actors.topology import StoreType
from tests.ks_actors.runtime.helpers import EOS, STRINGS, STRINGS_OUT, befall, in_virtual_time

BEFORE, AFTER, GRACE = 100, 40, 200
Row = tuple[str, str, int, str]


def expected(kind: str, rows: list[Row]) -> list[str]:
    """Return the pairs of records that are near enough, and the records of outer sides that are in none."""
    pairs = [
        (one[3], two[3])
        for one in rows
        for two in rows
        if (one[0], two[0]) == ("left", "right") and one[1] == two[1] and one[2] - BEFORE <= two[2] <= one[2] + AFTER
    ]
    met = {name for pair in pairs for name in pair}
    outer = {"join": (), "left_join": ("left",), "outer_join": ("left", "right")}[kind]
    alone = [(side, name) for side, _, _, name in rows if side in outer and name not in met]
    return sorted([f"{one}+{two}" for one, two in pairs] + [f"{name}+None" if side == "left" else f"None+{name}" for side, name in alone])


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_each_record_has_its_results_once_whatever_happens(
    kind: Literal["join", "left_join", "outer_join"], store: StoreType, seed: int
) -> None:
    """Matches, or one result alone; late records have none, also right behind a crash: stream time is committed."""
    random = Random(f"{kind} {seed}")
    builder = StreamsBuilder()
    left, right = builder.stream("left", STRINGS), builder.stream("right", STRINGS)
    windows = JoinWindows.of_time_difference_and_grace(0, GRACE).before(BEFORE).after(AFTER)
    joined = getattr(left, kind)(right, lambda one, two: f"{one}+{two}", windows, StreamJoined(serdes.STRING, store_type=store))
    joined.to("out", STRINGS_OUT)
    rows: list[Row] = []
    async with AppHarness(
        builder.build(), seed=seed, topics={"left": 2, "right": 2, "out": 1}, processing_guarantee=EOS, commit_interval_ms=100, num_standby_replicas=1
    ) as harness:
        now = 10_000
        for _ in range(4):
            for _ in range(20):
                now += random.randrange(40)
                side, key = random.choice(("left", "right")), f"k{random.randrange(3)}"
                # None comes so late that the window of another one is closed by then.
                time = now - random.randrange(GRACE // 2)
                rows.append((side, key, time, f"{side[0]}{len(rows)}"))
                await harness.produce(side, key, rows[-1][3], time)
            for partition in range(2):
                await harness.produce("left", f"time{partition}", "time", now, partition=partition)
            await harness.caught_up()
            await befall(harness, random)
            for side, key in (("left", "k0"), ("right", "k1")):
                await harness.produce(side, key, "late", now - BEFORE - GRACE - 1)
        for partition in range(2):
            await harness.produce("left", f"time{partition}", "end", now + 100_000, partition=partition)
        await harness.caught_up()
        found = [str(record.value) for record in await harness.read("out") if not str(record.key).startswith("time")]
        assert sorted(found) == expected(kind, rows)
