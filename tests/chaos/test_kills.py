"""An app that is killed in the middle of commits, and the checker of its output and state; `make kills` kills it 200 times."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from ks_actors.log import TopicPartition
from ks_actors.state import SharedResources
from ks_actors.state.disk._manifest import Manifest, offset_row
from ks_actors.state.disk._rocksdb import RocksEngine
from tests.chaos import kills
from tests.chaos.killed import APPLICATION, PARTITIONS, Life


@pytest.mark.extended
@pytest.mark.heavy("six processes that are killed")
@pytest.mark.timeout(400)
async def test_nothing_is_torn_by_kills_and_failing_writes() -> None:
    """Exactly once, at each end: offsets are not ahead of data, all stores are of one commit, and the totals equal output and input."""
    seed = int(os.environ.get("KILLS_SEED", random.randrange(1 << 32)))
    ends = await kills.run(6, seed)
    assert ends["killed"] == 6


@pytest.mark.timeout(200)
async def test_the_checker_finds_an_offset_that_is_ahead(tmp_path: Path) -> None:
    """It would find the faults that it looks for: a state with an offset beyond its data, and one that lacks a commit."""
    kills.live(tmp_path, Life(seed=5, keys=10, tail_records=10, failing_write=30), 20)
    left = kills.Left()
    await left.read(tmp_path)
    counts = kills.check_output(left)
    for number in range(PARTITIONS):
        kills.check_task(tmp_path, number, left, counts)
    number = next(number for number in range(PARTITIONS) if left.rows[TopicPartition(kills.changelog("sums"), number)])
    rows = left.rows[TopicPartition(kills.changelog("sums"), number)]
    engine = RocksEngine("0", tmp_path / "state" / APPLICATION / f"0_{number}" / "rocksdb", SharedResources())
    # The app may have written all that there is before it ended: the last change is taken back, too.
    prefix = bytes((Manifest.read(engine, "0").stores["sums"].id,))
    engine.write([(prefix + (rows[-1][1] or b""), None), offset_row("sums", rows[-1][0] + 1)])
    engine.flush(wait=True)
    engine.close()
    with pytest.raises(kills.Torn, match="sums"):
        kills.check_task(tmp_path, number, left, counts)
    with pytest.raises(kills.Torn, match="not those that have come out"):
        kills.check_task(tmp_path, 1 - number, left, {f"{1 - number}-0": 1 << 40})
