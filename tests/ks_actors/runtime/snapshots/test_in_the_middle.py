"""Snapshots in the middle of other things: crashes, moves, closing, and a deadline."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from ks_actors import SnapshotFailed
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.runtime import InstanceState
from ks_actors.snapshots import find_snapshots
from ks_actors.testing import AppHarness, TestRecord
from tests.ks_actors.runtime.helpers import EOS, by_key, counting, in_virtual_time
from tests.ks_actors.runtime.snapshots.bootstraps import app_of, put, totals_of
from tests.ks_actors.runtime.snapshots.test_taking import counts_in
from tests.ks_actors.snapshots.helpers import in_memory

TOPICS = {"in": 2, "out": 1}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@in_virtual_time
async def test_crashes_moves_and_lost_disks_lose_and_double_nothing(store: str, seed: int) -> None:
    """Two instances take snapshots, crash, lose their disks and begin with snapshots; every record counts once."""
    dice, uri = Random(seed), in_memory()
    sent: Counter[str] = Counter()
    async with AppHarness(
        counting(store), topics=TOPICS, processing_guarantee=EOS, seed=seed, commit_interval_ms=20, snapshot_uri=uri, snapshot_interval_ms=0
    ) as harness:

        async def feed() -> None:
            for _ in range(dice.randrange(50, 400)):
                key = f"k{dice.randrange(60)}"
                sent[key] += 1
                await harness.produce_all("in", [TestRecord(key, "v", 0)], partition=int(key[1:]) % 2)

        async with harness.another() as other:
            for _ in range(6):
                await feed()
                one = dice.choice((harness, other))
                taking = asyncio.ensure_future(one.app.snapshot())
                await harness.turns(dice.randrange(60))
                match dice.randrange(4):
                    case 0:
                        await one.crash()
                        await asyncio.gather(taking, return_exceptions=True)
                        one.wipe_state()
                        await one.restart()
                    case 1:
                        await one.crash()
                        await asyncio.gather(taking, return_exceptions=True)
                        await one.restart()
                    case 2:
                        await one.close()
                        await asyncio.gather(taking, return_exceptions=True)
                        one.wipe_state()
                        await one.restart()
                    case _:
                        (outcome,) = await asyncio.gather(taking, return_exceptions=True)
                        # All tasks may be the other one's.
                        assert not isinstance(outcome, BaseException) or "this instance processes no task" in str(outcome)
            await harness.caught_up()
            await other.caught_up()
        found = by_key(await harness.read("out"))
        assert found == {key: list(range(1, count + 1)) for key, count in sent.items()}
        for snapshot in find_snapshots(uri, "app")[0]:
            snapshot.verify()


def test_closing_in_the_middle_is_quiet(tmp_path: Path) -> None:
    """A caller that waits for the snapshot gets an error, the app closes as ever, and there is no half snapshot."""

    async def main() -> None:
        uri = f"file://{tmp_path / 'snapshots'}"
        async with EmbeddedLog() as log:
            app = app_of(log, tmp_path / "state", snapshot_uri=uri)
            async with app:
                await put(log, [f"k{number}" for number in range(20_000)])
                await app.wait_until_caught_up()
                taking = asyncio.ensure_future(app.snapshot())
                await asyncio.sleep(0)
            assert app.state is InstanceState.NOT_RUNNING
            (outcome,) = await asyncio.gather(taking, return_exceptions=True)
            assert isinstance(outcome, SnapshotFailed) or not isinstance(outcome, BaseException)
            for snapshot in find_snapshots(uri, "app")[0]:
                assert sum(counts_in(snapshot).values()) == 20_000
            async with app_of(log, tmp_path / "state", snapshot_uri=uri) as again:
                assert len(await totals_of(again)) == 20_000
                assert not list((tmp_path / "state" / "app" / ".snapshot-copies").glob("*"))

    asyncio.run(main())


def test_a_snapshot_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """Its error names the deadline; the app goes on, and the written files are deleted."""

    async def main() -> None:
        uri = f"file://{tmp_path / 'snapshots'}"
        async with EmbeddedLog() as log, app_of(log, tmp_path / "state", snapshot_uri=uri, snapshot_timeout_ms=3) as app:
            await put(log, [f"k{number}" for number in range(50_000)])
            await app.wait_until_caught_up()
            with pytest.raises(SnapshotFailed, match=r"was not complete within 0.003 s \(snapshot_timeout_ms\)|was cancelled in the middle"):
                await app.snapshot()
            assert app.metrics()["snapshot-failed-total"] == 1
            await put(log, ["k1"])
            await app.wait_until_caught_up()
            assert (await totals_of(app))["k1"] == 2
            assert find_snapshots(uri, "app") == ([], [])

    asyncio.run(main())
