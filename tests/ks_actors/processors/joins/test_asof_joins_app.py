"""Joins of streams as of a time, in apps that crash and move."""

from __future__ import annotations

from random import Random

import pytest

from ks_actors import serdes
from ks_actors.dsl import StreamJoined, StreamsBuilder
from ks_actors.testing import AppHarness
from ks_actors.topology import StoreType
from tests.ks_actors.runtime.helpers import EOS, STRINGS, STRINGS_OUT, befall, in_virtual_time

TOLERANCE, GRACE = 500, 200


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_each_record_has_its_result_once_whatever_happens(store: StoreType, seed: int) -> None:
    """Quotes that come late by the grace period are met, across crashes, moves and lost disks."""
    random = Random(seed)
    builder = StreamsBuilder()
    trades, quotes = builder.stream("trades", STRINGS), builder.stream("quotes", STRINGS)
    trades.left_join_asof(
        quotes, lambda trade, quote: f"{trade}@{quote}", TOLERANCE, StreamJoined(serdes.STRING, store_type=store), grace_ms=GRACE
    ).to("out", STRINGS_OUT)
    rows: list[tuple[str, str, int, str]] = []
    async with AppHarness(
        builder.build(),
        seed=seed,
        topics={"trades": 2, "quotes": 2, "out": 1},
        processing_guarantee=EOS,
        commit_interval_ms=100,
        num_standby_replicas=1,
    ) as harness:
        now = 10_000
        for _ in range(4):
            for _ in range(25):
                now += random.randrange(40)
                topic, key = random.choice(("trades", "quotes")), f"k{random.randrange(4)}"
                # No quote comes later than a trade waits, no two of a key have one timestamp.
                time = now if topic == "trades" else now - random.randrange(GRACE // 2)
                if any(row[:3] == (topic, key, time) for row in rows):
                    continue
                rows.append((topic, key, time, str(len(rows))))
                await harness.produce(topic, key, rows[-1][3], time)
            await harness.caught_up()
            await befall(harness, random)
        for partition in range(2):
            await harness.produce("trades", f"end{partition}", "end", now + 100_000, partition=partition)
        await harness.caught_up()
        wanted = []
        for topic, key, time, value in rows:
            if topic == "trades":
                fitting = [(row[2], row[3]) for row in rows if row[:2] == ("quotes", key) and time - TOLERANCE <= row[2] <= time]
                wanted.append(f"{value}@{max(fitting)[1] if fitting else None}")
        found = [record.value for record in await harness.read("out") if not str(record.key).startswith("end")]
        assert sorted(str(value) for value in found) == sorted(wanted)
